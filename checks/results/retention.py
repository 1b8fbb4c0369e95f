"""How long results and what is made of them are kept."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.conf import settings

from checks.results.partitions import RESULTS, ROLLUPS, SERIES, Series, delete_strays, drop, make
from checks.results.rollups import rolled_until

logger = logging.getLogger(__name__)


def keep_partitions(now: datetime) -> None:
    """Make the partitions of the coming days, and drop those whose time is up. Repeating it changes nothing."""
    for series in SERIES:
        for name in make(series, series.wanted(now=now)):
            logger.info("made %s", name)
    _forget(ROLLUPS, before=now - timedelta(days=settings.ROLLUPS_KEPT_DAYS))
    before, rolled = now - timedelta(days=settings.RESULTS_KEPT_DAYS), rolled_until()
    if rolled is None or rolled < before:
        # What is not in the roll-ups yet would be gone for good.
        logger.log(
            logging.INFO if rolled is None else logging.WARNING, "results are rolled up until %s", rolled
        )
    if rolled is not None:
        _forget(RESULTS, before=min(before, rolled))


def _forget(series: Series, *, before: datetime) -> None:
    for name in drop(series, before=before):
        logger.info("dropped %s", name)
    if strays := delete_strays(series, before=before):
        logger.info("deleted %d old rows of %s", strays, series.default)

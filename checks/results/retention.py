"""How long results and roll-ups are kept."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.conf import settings

from checks.results.partitions import RESULTS, ROLLUPS, SERIES, Series, delete_strays, drop, make
from checks.results.rollups import rolled_until

logger = logging.getLogger(__name__)


def keep_partitions(now: datetime) -> None:
    """Create the partitions of the coming days, and drop expired ones. Idempotent."""
    for series in SERIES:
        for name in make(series, series.wanted(now=now)):
            logger.info("created %s", name)
    _drop_old(ROLLUPS, before=now - timedelta(days=settings.ROLLUPS_KEPT_DAYS))
    before, rolled = now - timedelta(days=settings.RESULTS_KEPT_DAYS), rolled_until()
    if rolled is None or rolled < before:
        # Dropping results that are not rolled up would lose them.
        logger.log(logging.INFO if rolled is None else logging.WARNING, "results are rolled up until %s", rolled)
    if rolled is not None:
        _drop_old(RESULTS, before=min(before, rolled))


def _drop_old(series: Series, *, before: datetime) -> None:
    for name in drop(series, before=before):
        logger.info("dropped %s", name)
    if strays := delete_strays(series, before=before):
        logger.info("deleted %d old rows of %s", strays, series.default)

"""How long results, roll-ups and other partitioned rows are kept."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.conf import settings

from checks.results.partitions import RESULTS, SERIES, Series, delete_strays, drop, make
from checks.results.rollups import rolled_until

logger = logging.getLogger(__name__)


def keep_partitions(now: datetime) -> None:
    """Create the partitions of the coming days, and drop expired ones. Idempotent."""
    for series in SERIES:
        for name in make(series, series.wanted(now=now)):
            logger.info("created %s", name)
    for series in SERIES:
        kept_since = now - timedelta(days=getattr(settings, series.kept_days))
        before = _before_roll_ups(kept_since) if series is RESULTS else kept_since
        if before is not None:
            _drop_old(series, before=before)


def _before_roll_ups(before: datetime) -> datetime | None:
    """Return until when results may be dropped: dropping results that are not rolled up would lose them."""
    rolled = rolled_until()
    if rolled is None or rolled < before:
        logger.log(logging.INFO if rolled is None else logging.WARNING, "results are rolled up until %s", rolled)
    return None if rolled is None else min(before, rolled)


def _drop_old(series: Series, *, before: datetime) -> None:
    for name in drop(series, before=before):
        logger.info("dropped %s", name)
    if strays := delete_strays(series, before=before):
        logger.info("deleted %d old rows of %s", strays, series.default)

"""Delete results, roll-ups and other partitioned rows: those that are too old, and those of deleted monitors."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from itertools import pairwise

from django.conf import settings
from django.db import connection, transaction

from checks.results.models import DeletedMonitor, LateHour
from checks.results.partitions import RESULTS, ROLLUPS, SERIES, Series, delete_strays, drop, make, parts
from checks.results.rollups import LOCK, rolled_until
from core.db import advisory_lock

logger = logging.getLogger(__name__)

MONITORS_AT_ONCE = 20


def keep_partitions(now: datetime) -> None:
    """Create the partitions of the coming days, and drop expired ones. Idempotent."""
    for series in SERIES:
        for name in make(series, series.wanted(now=now)):
            logger.info("created %s", name)
    for series in SERIES:
        before = now - timedelta(days=getattr(settings, series.kept_days))
        if series is RESULTS:
            # Dropping results that are not rolled up would lose them.
            rolled = rolled_until()
            if rolled is None:
                logger.info("results are rolled up until %s", rolled)
                continue
            if rolled < before:
                logger.warning("results are rolled up until %s", rolled)
                before = rolled
        for name in drop(series, before=before):
            logger.info("dropped %s", name)
        if strays := delete_strays(series, before=before):
            logger.info("deleted %d old rows of %s", strays, series.default)


def erase_deleted() -> int:
    """Delete the partitioned rows of all deleted monitors in small steps. Return the number of monitors.

    Until then they are unreachable, because results are read through their monitor only. None is added, because
    recording locks the monitor's state and finds none.
    """
    erased = 0
    while monitor_ids := list(
        DeletedMonitor.objects.order_by("deleted_at").values_list("monitor_id", flat=True)[:MONITORS_AT_ONCE]
    ):
        # Results first: as long as one exists, its hour may be rolled up.
        for series in SERIES:
            edges: list[datetime | str] = ["-infinity", *(start for start, _ in parts(series)), "infinity"]
            for start, end in pairwise(edges):  # each step is one transaction
                _erase(series, monitor_ids, start, end)
        with transaction.atomic():
            advisory_lock(LOCK)  # no roll-up from results read before their deletion is written after this
            _erase(ROLLUPS, monitor_ids, "-infinity", "infinity")
            LateHour.objects.filter(monitor_id__in=monitor_ids).delete()
            DeletedMonitor.objects.filter(monitor_id__in=monitor_ids).delete()
        erased += len(monitor_ids)
    return erased


def _erase(series: Series, monitor_ids: list[int], start: datetime | str, end: datetime | str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {series.table}"
            f" WHERE monitor_id = ANY (%s) AND {series.column} >= %s AND {series.column} < %s",
            [monitor_ids, start, end],
        )

"""Delete results, roll-ups and other partitioned rows: those that are too old, and those of deleted monitors."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from itertools import pairwise

from django.conf import settings
from django.db import transaction

from checks.results import database
from checks.results.models import DeletedMonitor, LateHour, RollupProgress
from checks.results.packing import LOCK as PACKING
from checks.results.partitions import (
    PACKED,
    PUBLISHED,
    REASONS,
    RESULTS,
    ROLLUPS,
    SERIES,
    Bounds,
    Series,
    delete_strays,
    detached,
    drop,
    drop_detached,
    make,
    may_pack,
    parts,
    split_days,
)
from checks.results.rollups import LOCK, rolled_until
from core.db import advisory_lock

logger = logging.getLogger(__name__)

MONITORS_AT_ONCE = 20


def keep_partitions(now: datetime) -> None:
    """Create the partitions of the coming days, and drop expired ones. Idempotent.

    The history comes last: its database may not answer.
    """
    of_history = [series for series in SERIES if series.history]
    of_main = [series for series in SERIES if not series.history]
    packed_until = RollupProgress.objects.values_list("packed_until", flat=True).first()
    for series in of_main:
        wanted = series.wanted(now=now)
        if series is RESULTS and packed_until is not None:
            # A packed partition is dropped. Its late results are few, and stay in the default one until they are added.
            wanted = [bounds for bounds in wanted if bounds[0] >= packed_until]
        _make(series, wanted)
    if may_pack(now) and (names := split_days(now=now)):
        logger.info("created %s and the following hours", names[0])
    for series in of_main:
        _drop_expired(series, now=now)
    for series in of_history:
        _make(series, series.wanted(now=now))
        _drop_expired(series, now=now)


def _make(series: Series, wanted: list[Bounds]) -> None:
    for name in make(series, wanted):
        logger.info("created %s", name)


def _drop_expired(series: Series, *, now: datetime) -> None:
    before = now - timedelta(days=getattr(settings, series.kept_days))
    if series is RESULTS:
        # Dropping results that are not rolled up would lose them.
        rolled = rolled_until()
        if rolled is None:
            logger.info("results are rolled up until %s", rolled)
            return
        if rolled < before:
            logger.warning("results are rolled up until %s", rolled)
            before = rolled
    if series is PACKED:
        for unfinished in (PACKED, PUBLISHED):  # what it was packed into, or is packed from, is dropped
            for bounds in detached(unfinished):
                if bounds[1] <= before:
                    drop_detached(unfinished, bounds)
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
            # No roll-up and no packed row from results read before their deletion is written after this.
            advisory_lock(PACKING)
            advisory_lock(LOCK)
            with database.writing(PACKING, LOCK):
                for series in (PACKED, REASONS, ROLLUPS):
                    _erase(series, monitor_ids, "-infinity", "infinity")
                _erase_detached(PACKED, monitor_ids)
            _erase_detached(PUBLISHED, monitor_ids)
            LateHour.objects.filter(monitor_id__in=monitor_ids).delete()
            DeletedMonitor.objects.filter(monitor_id__in=monitor_ids).delete()
        erased += len(monitor_ids)
    return erased


def _erase_detached(series: Series, monitor_ids: list[int]) -> None:
    """Delete the rows in tables that are being packed, or were just packed."""
    with series.cursor() as cursor:
        for bounds in detached(series):
            cursor.execute(f"DELETE FROM {series.name(*bounds)} WHERE monitor_id = ANY (%s)", [monitor_ids])


def _erase(series: Series, monitor_ids: list[int], start: datetime | str, end: datetime | str) -> None:
    with series.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {series.table}"
            f" WHERE monitor_id = ANY (%s) AND {series.column} >= %s AND {series.column} < %s",
            [monitor_ids, start, end],
        )

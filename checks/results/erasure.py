"""Delete the results of deleted monitors in small steps, outside the request that deleted the monitor.

Until then they are unreachable, because results are read through their monitor only. None is added, because recording
locks the monitor's state and finds none.
"""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

from django.db import connection, transaction

from checks.results.models import DeletedMonitor, LateHour
from checks.results.partitions import ROLLUPS, SERIES, Series, parts
from checks.results.rollups import LOCK
from core.db import advisory_lock

MONITORS_AT_ONCE = 20


def erase_deleted() -> int:
    """Delete the partitioned rows of all deleted monitors. Return the number of monitors."""
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

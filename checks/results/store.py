"""Store results: the largest table, on the path of every check."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import NamedTuple

from checks.results.history import Row, checks_of, moment_of, rows_of
from checks.results.hours import HOUR, PLAIN_FOR, HourOf, start_of_hour
from checks.results.models import CheckResult
from checks.results.rollups import note_late
from checks.spec import CheckOutcome
from core.bulk import insert_rows
from core.clock import utc_now
from core.errors import HistoryUnavailable

_TABLE = "checks_checkresult"
_COLUMNS = {
    "monitor_id": "bigint",
    "checked_at": "timestamptz",
    "claim": "int",
    "latency_ms": "int",
    "connect_ms": "int",
    "ttfb_ms": "int",
    "location_id": "int",
    "http_status": "smallint",
    "loss": "smallint",
    "verdict": "text",
}
_REASONS = {"reason_code": "text", "detail": "text", "confirmed": "bool", "evidence": "jsonb"}  # of down or slow ones

_timed = attrgetter("latency_ms", "connect_ms", "ttfb_ms")
_measured = attrgetter("http_status", "loss", "verdict")


class NewResult(NamedTuple):
    """A result to store. `location_id` None: the default location. `confirmed`: see CheckResult."""

    monitor_id: int
    claim: int
    outcome: CheckOutcome
    location_id: int | None = None
    confirmed: bool | None = None


def store_results(results: Sequence[NewResult]) -> None:
    """Store results that are not stored yet, in the caller's transaction. Their hours are rolled up later."""
    passed, explained = [], []
    for monitor_id, claim, found, location_id, confirmed in results:
        row = (monitor_id, found.checked_at, claim, *_timed(found), location_id, *_measured(found))
        if found.detail is None:
            passed.append(row)
        else:
            evidence = None if found.evidence is None else json.dumps(found.evidence.stored())
            explained.append((*row, found.reason_code, found.detail, confirmed, evidence))
    insert_rows(_TABLE, _COLUMNS, passed)
    insert_rows(_TABLE, _COLUMNS | _REASONS, explained)
    # Not the caller's `now`, which is older than its locks: what counts is when this commits.
    note_late([(each.monitor_id, each.outcome.checked_at) for each in results], now=utc_now())


def stored_claims(results: Sequence[NewResult]) -> set[tuple[int, int]]:
    """Return the (monitor, claim) that have a stored result.

    Only results of about the same time are read: a claim is worked on within its lease.
    """
    if not results:
        return set()
    wanted = {(each.monitor_id, each.claim) for each in results}
    hours = {start_of_hour(each.outcome.checked_at) + near * HOUR for each in results for near in (-1, 0, 1)}
    stored = CheckResult.objects.alias(hour=HourOf("checked_at")).filter(
        monitor_id__in={monitor_id for monitor_id, _ in wanted},
        claim__in={claim for _, claim in wanted},
        hour__in=hours,
        checked_at__gte=min(hours),  # these two select the partitions
        checked_at__lt=max(hours) + HOUR,
    )
    found = wanted.intersection(stored.values_list("monitor_id", "claim"))
    if min(hours) < utc_now() - PLAIN_FOR:  # of an agent that was offline
        for row in _packed({monitor_id for monitor_id, _ in wanted}, min(hours), max(hours) + HOUR):
            checks = checks_of([row], narrow=True)
            near = zip(checks.at, checks.claim, strict=True)
            claims = {claim for at, claim in near if start_of_hour(moment_of(at)) in hours}
            found |= wanted & {(row.monitor_id, claim) for claim in claims}
    return found


def _packed(monitor_ids: set[int], start: datetime, end: datetime) -> list[Row]:
    try:
        return rows_of(monitor_ids, start, end)
    except HistoryUnavailable:  # one that is stored twice now is left out when it is packed
        return []

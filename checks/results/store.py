"""Store results: the largest table, on the path of every check."""

from __future__ import annotations

import json
from collections.abc import Sequence

from django.db import connection

from checks.results.hours import HOUR, HOUR_OF_CHECK, start_of_hour
from checks.results.rollups import note_late
from checks.spec import CheckOutcome
from core.bulk import array, insert_rows
from core.clock import utc_now

_TABLE = "checks_checkresult"
_COLUMNS = {
    "monitor_id": "bigint",
    "checked_at": "timestamptz",
    "claim": "int",
    "latency_ms": "int",
    "connect_ms": "int",
    "ttfb_ms": "int",
    "http_status": "smallint",
    "verdict": "text",
}
_REASONS = {"reason_code": "text", "detail": "text", "evidence": "jsonb"}  # of those that are down or slow

NewResult = tuple[int, int, CheckOutcome]  # monitor and claim


def store_results(results: Sequence[NewResult]) -> None:
    """Store results that are not stored yet, in the caller's transaction. Their hours are rolled up later."""
    passed, explained = [], []
    for monitor_id, claim, found in results:
        row = (
            monitor_id,
            found.checked_at,
            claim,
            found.latency_ms,
            found.connect_ms,
            found.ttfb_ms,
            found.http_status,
            found.verdict,
        )
        if found.detail is None:
            passed.append(row)
        else:
            evidence = None if found.evidence is None else json.dumps(found.evidence.stored())
            explained.append((*row, found.reason_code, found.detail, evidence))
    insert_rows(_TABLE, _COLUMNS, passed)
    insert_rows(_TABLE, _COLUMNS | _REASONS, explained)
    # Not the caller's `now`, which is older than its locks: what counts is when this commits.
    note_late([(monitor_id, found.checked_at) for monitor_id, _, found in results], now=utc_now())


def stored_claims(results: Sequence[NewResult]) -> set[tuple[int, int]]:
    """Return the (monitor, claim) that have a stored result.

    Only results of about the same time are read: a claim is worked on within its lease.
    """
    if not results:
        return set()
    hours = [start_of_hour(found.checked_at) for _, _, found in results]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT result.monitor_id, result.claim
              FROM unnest(%s::bigint[], %s::int[], %s::timestamptz[]) AS wanted (monitor_id, claim, hour)
              JOIN checks_checkresult AS result USING (monitor_id, claim)
             WHERE {HOUR_OF_CHECK} BETWEEN wanted.hour - interval '1 hour' AND wanted.hour + interval '1 hour'
               AND result.checked_at >= %s AND result.checked_at < %s
            """,
            [
                array(monitor_id for monitor_id, _, _ in results),
                array(claim for _, claim, _ in results),
                array(hours),
                min(hours) - HOUR,  # these two select the partitions
                max(hours) + 2 * HOUR,
            ],
        )
        return set(cursor.fetchall())

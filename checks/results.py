"""Writing what checks found: the largest table, and the path of every check."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import connection

from checks.spec import CheckOutcome
from core.bulk import array, insert_rows

_TABLE = "checks_checkresult"
_COLUMNS = {
    "monitor_id": "bigint",
    "claim": "bigint",
    "checked_at": "timestamptz",
    "verdict": "text",
    "latency_ms": "int",
    "connect_ms": "int",
    "ttfb_ms": "int",
    "http_status": "smallint",
}
_REASONS = {"reason_code": "text", "detail": "text", "evidence": "jsonb"}  # of those that are down or slow
_LATEST = timedelta(days=1)  # how late a result can be delivered a second time, generously

Made = tuple[int, int, CheckOutcome]  # monitor, claim, what was found


def store_results(made: Sequence[Made]) -> None:
    """Store results that are not stored yet."""
    passed = [
        (
            monitor_id,
            claim,
            found.checked_at,
            found.verdict,
            found.latency_ms,
            found.connect_ms,
            found.ttfb_ms,
            found.http_status,
        )
        for monitor_id, claim, found in made
        if found.detail is None
    ]
    told = [
        (
            monitor_id,
            claim,
            found.checked_at,
            found.verdict,
            found.latency_ms,
            found.connect_ms,
            found.ttfb_ms,
            found.http_status,
            found.reason_code,
            found.detail,
            None if found.evidence is None else json.dumps(found.evidence.stored()),
        )
        for monitor_id, claim, found in made
        if found.detail is not None
    ]
    insert_rows(_TABLE, _COLUMNS, passed)
    insert_rows(_TABLE, _COLUMNS | _REASONS, told)


def stored_claims(pairs: Sequence[tuple[int, int]], *, now: datetime) -> set[tuple[int, int]]:
    """Those of (monitor, claim) whose result is stored already."""
    if not pairs:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT result.monitor_id, result.claim
              FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (monitor_id, claim)
              JOIN checks_checkresult AS result USING (monitor_id, claim)
             WHERE result.checked_at >= %s
            """,
            [*map(array, zip(*pairs, strict=True)), now - _LATEST],
        )
        return set(cursor.fetchall())

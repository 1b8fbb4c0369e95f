"""Packed history: rows of many results of one monitor, and their reasons (ADR 62).

Packed checks have the millisecond of `checked_at`, rounded down, as the API does. Reasons and evidence have the exact
time, which status changes and signals repeat, and it is that of the result that is read.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import lt
from typing import Any, NamedTuple

from django.db.backends.utils import CursorWrapper

from checks.results import database
from checks.results.codec import Checks, DamagedHistory, decode, encode, joined
from checks.results.hours import start_of_hour
from checks.results.models import CheckResult
from checks.spec import Verdict
from core.bulk import array
from core.clock import EPOCH

logger = logging.getLogger(__name__)

VERDICTS = (Verdict.UP, Verdict.SLOW, Verdict.DOWN)
DOWN = VERDICTS.index(Verdict.DOWN)
EXPLAINED = len(VERDICTS)
"""The kind of a check is the number of its verdict, and this more if it has a reason, detail or confirmation."""
KIND = """
    CASE verdict WHEN 'up' THEN 0 WHEN 'slow' THEN 1 ELSE 2 END
      + CASE WHEN verdict <> 'down' AND reason_code IS NULL AND detail IS NULL AND confirmed IS NULL
                  AND evidence IS NULL
             THEN 0 ELSE 3 END
"""
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = 1_000  # microseconds

Key = tuple[int, int]
"""The epoch microseconds and the claim of a check, which identify it in its monitor."""


class Reason(NamedTuple):
    """Why a check was not simply up, as in CheckResult. `verdict` is the number of its verdict."""

    verdict: int = 0
    reason_code: str | None = None
    detail: str | None = None
    confirmed: bool | None = None


NO_REASON = Reason()


class Row(NamedTuple):
    """A row of PackedResults."""

    monitor_id: int
    start: datetime
    data: bytes


def micros(moment: datetime) -> int:
    """Return epoch microseconds."""
    return (moment - EPOCH) // _MICROSECOND


def in_millisecond(at: int, claim: int) -> Key:
    """Return what identifies a check in its monitor, whether its time is exact or packed."""
    return at // _MILLISECOND, claim


def moment_of(at: int) -> datetime:
    return EPOCH + at * _MICROSECOND


def start_of_day(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def start_of_quarter(moment: datetime) -> datetime:
    """Return the start of the six hours that share a row once the hours of a day are merged."""
    moment = start_of_hour(moment)
    return moment.replace(hour=moment.hour // 6 * 6)


def verdict_of(kind: int) -> Verdict:
    return VERDICTS[kind % EXPLAINED]


def packed_row(monitor_id: int, start: datetime, checks: Checks) -> tuple[int, datetime, int, int, bytes]:
    """Return the values of a row of PackedResults. Checks that end in the same millisecond stay in their order."""
    rounded = [at - at % _MILLISECOND for at in checks.at]
    if all(map(lt, rounded, rounded[1:])):
        checks = checks._replace(at=rounded)
    verdicts = sum(1 << number for number in {kind % EXPLAINED for kind in checks.kind})
    return monitor_id, start, len(checks.at), verdicts, encode(checks, start=micros(start))


def unpacked(row: Row, *, narrow: bool = False) -> Checks:
    """Return the checks of a row, by time and claim. Raises DamagedHistory."""
    return decode(row.data, start=micros(row.start), narrow=narrow)


_ROWS = """
    SELECT monitor_id, start, data
      FROM checks_packedresults
     WHERE monitor_id = ANY (%s::bigint[]) AND start >= %s AND start < %s {verdict}
     ORDER BY start {order}, monitor_id
"""


def rows_of(
    monitor_ids: Collection[int],
    start: datetime,
    end: datetime,
    *,
    verdict: Verdict | None = None,
    newest_first: bool = False,
) -> list[Row]:
    """Return the rows that may have checks of [start, end), and of that verdict."""
    condition = "" if verdict is None else f"AND verdicts & {1 << VERDICTS.index(verdict)} > 0"
    statement = _ROWS.format(verdict=condition, order="DESC" if newest_first else "")
    # A row of six hours begins with them.
    values = [array(monitor_ids), start_of_day(start), end]
    return [Row._make(row) for row in database.fetch_history(statement, values)]


def starts_of_hour(hour: datetime) -> list[datetime]:
    """Return the starts of the rows that may have checks of that hour."""
    return sorted({hour, start_of_quarter(hour)})


def checks_of(rows: Iterable[Row], *, narrow: bool = False) -> Checks:
    """Return the checks of all rows of one monitor, by time and claim. Those of a damaged row are missing, and logged.

    A page with a gap is better than none.
    """
    found = []
    for row in rows:
        try:
            found.append(unpacked(row, narrow=narrow))
        except DamagedHistory:
            logger.exception("The results of monitor %d from %s cannot be read.", row.monitor_id, row.start)
    return found[0] if len(found) == 1 else joined(found)


def days_of(rows: Sequence[Row]) -> Iterator[Checks]:
    """Yield the checks of the rows of one monitor, a UTC day at a time, in the order of the rows."""
    days: dict[datetime, list[Row]] = defaultdict(list)
    for row in rows:
        days[start_of_day(row.start)].append(row)
    for day in days.values():
        yield checks_of(sorted(day, key=lambda row: row.start))


# Reasons -----------------------------------------------------------------------------------------------------------


def pack_json(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(), 9)


def unpack_json(data: bytes | memoryview) -> Any:
    """Reverse `pack_json`. Raises DamagedHistory."""
    try:
        return json.loads(zlib.decompress(bytes(data)))
    except (zlib.error, ValueError) as error:
        raise DamagedHistory(f"packed reasons that cannot be read: {error}") from error


def _stored(monitors: Collection[int], hours: Collection[datetime], column: str) -> Iterator[tuple[int, datetime, Any]]:
    """Yield (monitor, hour, the decoded column) of these monitors and hours."""
    if not monitors or not hours:
        return
    with database.reading() as cursor:
        cursor.execute(
            f"SELECT monitor_id, hour, {column} FROM checks_packedreasons"
            f" WHERE monitor_id = ANY (%s::bigint[]) AND hour = ANY (%s::timestamptz[]) AND {column} IS NOT NULL",
            [array(monitors), array(hours)],
        )
        rows = cursor.fetchall()
    for monitor_id, hour, data in rows:
        try:
            yield monitor_id, hour, unpack_json(data)
        except DamagedHistory:
            logger.exception("The %s of monitor %d from %s cannot be read.", column, monitor_id, hour)


def reasons_of(monitors: Collection[int], hours: Collection[datetime]) -> dict[tuple[int, int, int], Reason]:
    """Return the reasons of packed checks of these monitors and UTC hours, by (monitor, microseconds, claim)."""
    return {
        (monitor_id, micros(hour) + since, claim): Reason(*reason)
        for monitor_id, hour, rows in _stored(monitors, hours, "reasons")
        for since, claim, *reason in rows
    }


def evidence_in(monitors: Collection[int], hours: Collection[datetime]) -> dict[tuple[int, int, int], Any]:
    """Return the evidence of packed checks of these monitors and UTC hours, by (monitor, microseconds, claim)."""
    return {
        (monitor_id, micros(hour) + since, claim): evidence
        for monitor_id, hour, rows in _stored(monitors, hours, "evidence")
        for since, claim, evidence in rows
    }


def exact(found: Mapping[tuple[int, int, int], Any]) -> dict[tuple[int, Key], tuple[int, Any]]:
    """Return the exact microseconds and the value of each, by monitor and `in_millisecond`."""
    return {(monitor_id, in_millisecond(at, claim)): (at, value) for (monitor_id, at, claim), value in found.items()}


def newest_reasons(monitor_id: int, *, limit: int, since: datetime | None = None) -> list[tuple[int, int, Reason]]:
    """Return (microseconds, claim, reason) of the newest packed checks with a reason code, newest first."""
    found: list[tuple[int, int, Reason]] = []
    rows = database.fetch_history(
        "SELECT hour FROM checks_packedreasons WHERE monitor_id = %s AND hour >= %s ORDER BY hour DESC",
        [monitor_id, EPOCH if since is None else start_of_hour(since)],
    )
    hours = [hour for (hour,) in rows]
    at_once = 24
    for first in range(0, len(hours), at_once):
        some = reasons_of([monitor_id], hours[first : first + at_once])
        coded = ((at, claim, reason) for (_, at, claim), reason in some.items() if reason.reason_code)
        found += sorted(coded, key=lambda each: each[:2], reverse=True)
        if len(found) >= limit:
            break
    least = None if since is None else micros(since)
    return [each for each in found if least is None or each[0] >= least][:limit]


def write_reasons(
    cursor: CursorWrapper,
    monitor_id: int,
    hour: datetime,
    reasons: Mapping[Key, Reason],
    evidence: Mapping[Key, Any],
) -> None:
    """Replace the row of this monitor and hour."""
    base = micros(hour)
    listed = [(at - base, claim, *reason) for (at, claim), reason in sorted(reasons.items())]
    shown = [(at - base, claim, each) for (at, claim), each in sorted(evidence.items())]
    cursor.execute(
        """
        INSERT INTO checks_packedreasons (monitor_id, hour, reasons, evidence) VALUES (%s, %s, %s, %s)
        ON CONFLICT (monitor_id, hour) DO UPDATE SET (reasons, evidence) = ROW (excluded.reasons, excluded.evidence)
        """,
        [monitor_id, hour, pack_json(listed), pack_json(shown) if shown else None],
    )


def as_results(monitor_id: int, checks: Checks, numbers: Sequence[int]) -> list[CheckResult]:
    """Return the checks with these numbers as rows of the model, without their evidence."""
    hours = {start_of_hour(moment_of(checks.at[n])) for n in numbers if checks.kind[n] >= EXPLAINED}
    reasons = exact(reasons_of([monitor_id], hours))
    explained = [
        reasons.get((monitor_id, in_millisecond(checks.at[n], checks.claim[n])), (checks.at[n], NO_REASON))
        for n in numbers
    ]
    return [
        CheckResult.from_db(
            None,
            _NAMES,
            (
                monitor_id,
                moment_of(at),
                checks.claim[n],
                checks.latency_ms[n],
                checks.connect_ms[n],
                checks.ttfb_ms[n],
                checks.location_id[n],
                checks.http_status[n],
                checks.loss[n],
                verdict_of(checks.kind[n]).value,
                *reason[1:],
            ),
        )
        for n, (at, reason) in zip(numbers, explained, strict=True)
    ]


_NAMES = (
    *("monitor_id", "checked_at", "claim", "latency_ms", "connect_ms", "ttfb_ms", "location_id", "http_status", "loss"),
    *("verdict", "reason_code", "detail", "confirmed"),
)

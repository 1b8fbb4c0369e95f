"""Read results."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import compress
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Q, QuerySet

from checks.results.codec import Checks, joined
from checks.results.history import (
    DOWN,
    EXPLAINED,
    KIND,
    NO_REASON,
    Key,
    Reason,
    Row,
    as_results,
    checks_of,
    days_of,
    evidence_in,
    exact,
    in_millisecond,
    micros,
    moment_of,
    newest_reasons,
    reasons_of,
    rows_of,
    start_of_day,
    verdict_of,
)
from checks.results.hours import HOUR_OF_CHECK, PLAIN_FOR, HourOf, start_of_hour
from checks.results.models import CheckResult
from checks.spec import Verdict
from core.bulk import array
from core.clock import EPOCH, utc_now
from core.db import fetch_binary

_PAGE_SPANS = (timedelta(days=1), timedelta(days=7))
_DAY = timedelta(days=1)
_MILLISECOND = 1_000  # microseconds


def results_of(
    monitor_id: int,
    *,
    limit: int,
    now: datetime,
    before: tuple[datetime, int] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    verdict: Verdict | None = None,
) -> list[CheckResult]:
    """Return the newest results of [since, until). `before` is (checked_at, claim) of the previous page's last one.

    Two checks may end in the same microsecond, so the claim decides between them.

    The last day is queried first, then its week, then the rest: the day fills most pages, and without a bound the
    planner opens every partition. Packed results are read where rows do not fill the page.
    """
    results: QuerySet[CheckResult] = CheckResult.objects.filter(monitor_id=monitor_id)
    newest = now
    if before is not None:
        at, claim = before
        newest = min(newest, at)
        results = _up_to(results, at).filter(Q(checked_at__lt=at) | Q(checked_at=at, claim__lt=claim))
    if until is not None:
        newest = min(newest, until)
        results = _up_to(results, until).filter(checked_at__lt=until)
    if verdict is not None:
        results = results.filter(verdict=verdict)
    # Evidence is read for one result at a time: it can be larger than the rest of a page.
    results = results.defer("evidence").order_by(HourOf("checked_at").desc(), "-checked_at", "-claim")
    # Times and claims that a packed check must be before.
    ends = [(micros(until), 0)] if until is not None else []
    if before is not None:
        ends.append((micros(before[0]), before[1]))
    rows: list[CheckResult] = []
    for start, end in _backwards(newest, since):
        wanted = limit - len(rows)
        span = results if start is None else results.filter(checked_at__gte=start)
        plain = list((span if end is None else span.filter(checked_at__lt=end))[:wanted])
        if len(plain) < wanted or plain[-1].checked_at < now - PLAIN_FOR:
            span_ends = ends if end is None else [*ends, (micros(end), 0)]
            # One more: the last one of the previous page may have been packed since.
            packed = _packed_before(monitor_id, start or EPOCH, span_ends, verdict=verdict, limit=wanted + 1, now=now)
            # Those that were published between the two queries are in both.
            known = {in_millisecond(micros(row.checked_at), row.claim) for row in plain}
            if before is not None:
                known.add(in_millisecond(micros(before[0]), before[1]))
            packed = [row for row in packed if in_millisecond(micros(row.checked_at), row.claim) not in known]
            plain = sorted([*plain, *packed], key=lambda row: (row.checked_at, row.claim), reverse=True)[:wanted]
        rows += plain
        if len(rows) == limit:
            break
    return rows


def _backwards(newest: datetime, since: datetime | None) -> Iterator[tuple[datetime | None, datetime | None]]:
    """Yield the spans of time to query, the latest first. None stands for an open end."""
    end: datetime | None = None
    for length in _PAGE_SPANS:
        start = newest - length
        if since is not None and since >= start:
            break
        yield start, end
        end = start
    yield since, end


def _packed_before(
    monitor_id: int,
    start: datetime,
    ends: Sequence[tuple[int, int]],
    *,
    verdict: Verdict | None,
    limit: int,
    now: datetime,
) -> list[CheckResult]:
    """Return the newest packed results since `start` whose (microseconds, claim) are before all `ends`."""
    least, end = micros(start), min(ends, default=None)
    last = now + _DAY if end is None else moment_of(end[0] + 1)
    found: list[CheckResult] = []
    for day in days_of(rows_of([monitor_id], start, last, verdict=verdict, newest_first=True)):
        first = bisect_left(day.at, least)
        after = len(day.at) if end is None else bisect_left(list(zip(day.at, day.claim, strict=True)), end)
        numbers: Sequence[int] = range(after - 1, first - 1, -1)
        if verdict is not None:
            numbers = [number for number in numbers if verdict_of(day.kind[number]) is verdict]
        found += as_results(monitor_id, day, numbers[: limit - len(found)])
        if len(found) == limit:
            break
    return found


def _up_to(results: QuerySet[CheckResult], end: datetime) -> QuerySet[CheckResult]:
    """Filter by the hour, which the index begins with, and by the time, which selects the partitions.

    Not for a beginning: the planner takes two bounds for independent, expects few rows, and sorts a whole day.
    """
    hour = start_of_hour(end)
    return results.alias(hour=HourOf("checked_at")).filter(hour__lte=hour, checked_at__lte=end)


def result_of(monitor_id: int, claim: int, at: datetime) -> CheckResult | None:
    """Return the result of a claim that was checked in the millisecond from `at` on."""
    results = CheckResult.objects.filter(monitor_id=monitor_id, claim=claim)
    end = at + timedelta(milliseconds=1)
    plain = (
        results.alias(hour=HourOf("checked_at"))
        .filter(hour=start_of_hour(at), checked_at__gte=at, checked_at__lt=end)
        .first()
    )
    if plain is not None:
        return plain
    checks = checks_of(rows_of([monitor_id], at, end))
    for number, moment in enumerate(checks.at):
        if micros(at) <= moment < micros(end) and checks.claim[number] == claim:
            (found,) = as_results(monitor_id, checks, [number])
            evidence = exact(evidence_in([monitor_id], [start_of_hour(at)]))
            _, found.evidence = evidence.get((monitor_id, in_millisecond(moment, claim)), (moment, None))
            return found
    return None


def results_since(claims: Mapping[int, int], *, since: datetime) -> dict[int, CheckResult]:
    """Return by monitor the result of that claim or the first after it, of checks that ended since then.

    `since` is minutes ago: none of them is packed.
    """
    results = CheckResult.objects.alias(hour=HourOf("checked_at")).filter(
        monitor_id__in=claims, hour__gte=start_of_hour(since), checked_at__gte=since
    )
    # Callers poll: most results are of earlier claims, and their evidence may be large.
    found: dict[int, tuple[int, datetime]] = {}
    for monitor_id, claim, at in results.order_by("monitor_id", "claim").values_list(
        "monitor_id", "claim", "checked_at"
    ):
        if claim >= claims[monitor_id]:
            found.setdefault(monitor_id, (claim, at))
    whole = results.filter(monitor_id__in=found, checked_at__in={at for _, at in found.values()})
    return {result.monitor_id: result for result in whole if result.claim == found[result.monitor_id][0]}


_HISTORY = f"""
    SELECT (extract(epoch FROM checked_at) * 1000000)::bigint, claim, latency_ms, {KIND}, reason_code, detail, confirmed
      FROM checks_checkresult
     WHERE monitor_id = %s AND {HOUR_OF_CHECK} >= %s AND {HOUR_OF_CHECK} <= %s AND checked_at >= %s AND checked_at < %s
     ORDER BY checked_at, claim
"""


_HISTORY_AT_ONCE = timedelta(days=7)


class Past(NamedTuple):
    """Results of one monitor, oldest first; of two that ended at once, the lower claim.

    `checks` has the columns that `decode` reads with `narrow`, `reasons` those that are explained.
    """

    checks: Checks
    reasons: Mapping[Key, Reason]

    def rows(self, part: slice = slice(None)) -> Iterator[tuple[int, int, int | None, int]]:
        """Return the microseconds, claim, latency and kind of each check in this part of the columns."""
        at, claim, latency_ms, *_, kind = self.checks
        return zip(at[part], claim[part], latency_ms[part], kind[part], strict=True)


def history_of(monitor_id: int, start: datetime, end: datetime) -> Iterator[Past]:
    """Yield the results of [start, end), oldest first, without empty parts.

    Three queries and its results in memory per week: 90 days of a monitor at 10 s are 777,600.
    """
    while start < end:
        until = min(end, start_of_day(start) + _HISTORY_AT_ONCE)
        rows = fetch_binary(_HISTORY, [monitor_id, start_of_hour(start), start_of_hour(until), start, until])
        past = _packed_past(monitor_id, micros(start), micros(until), rows_of([monitor_id], start, until))
        if rows:
            past = _with_plain(past, rows)
        if past.checks.at:
            yield past
        start = until


def _packed_past(monitor_id: int, start: int, end: int, rows: Sequence[Row]) -> Past:
    """Return the checks of these rows in these microseconds."""
    found = checks_of(rows, narrow=True)
    kept = slice(bisect_left(found.at, start), bisect_left(found.at, end))
    checks = Checks._make(column[kept] for column in found)
    numbers = range(len(checks.at))
    explained = [number for number in compress(numbers, checks.kind) if checks.kind[number] >= EXPLAINED]
    if not explained:
        return Past(checks, {})
    at = list(checks.at)
    stored = exact(reasons_of([monitor_id], {start_of_hour(moment_of(at[number])) for number in explained}))
    reasons = {}
    for number in explained:
        claim = checks.claim[number]
        key = monitor_id, in_millisecond(at[number], claim)
        at[number], reason = stored.get(key, (at[number], NO_REASON))
        reasons[at[number], claim] = reason
    return Past(checks._replace(at=at), reasons)


def _with_plain(past: Past, rows: Sequence[tuple[Any, ...]]) -> Past:
    """Return the past with the rows of _HISTORY. Those that were published between the two queries are in both."""
    at, claim = past.checks.at, past.checks.claim
    near = bisect_left(at, rows[0][0] - _MILLISECOND)
    known = set(map(in_millisecond, at[near:], claim[near:]))
    rows = [row for row in rows if in_millisecond(*row[:2]) not in known]
    reasons = {row[:2]: Reason(row[3] % EXPLAINED, *row[4:]) for row in rows if row[3] >= EXPLAINED}
    ats, claims, latencies, kinds = ([row[number] for row in rows] for number in range(4))
    plain = Checks(ats, claims, latencies, (), (), (), (), (), kinds)
    return Past(joined([past.checks, plain]), {**past.reasons, **reasons})


# Constants, not a join: with them the planner opens only the partitions of these times. The ORM would compile the query
# again for each list.
_FAILURES = f"""
    SELECT monitor_id, checked_at, claim, reason_code, detail
      FROM checks_checkresult
     WHERE monitor_id = ANY (%(ids)s::bigint[]) AND checked_at = ANY (%(times)s::timestamptz[])
       AND {HOUR_OF_CHECK} = ANY (%(hours)s::timestamptz[]) AND verdict = 'down'
"""


def failures_at(times: Mapping[int, datetime]) -> dict[int, tuple[str | None, str | None]]:
    """Return the reason and the message of the failed checks that ended at these times, both by monitor.

    Of two that ended at once, that of the lower claim.
    """
    if not times:
        return {}
    given = {
        "ids": array(times),
        "times": array(times.values()),
        "hours": array({start_of_hour(at) for at in times.values()}),
    }
    with connection.cursor() as cursor:
        cursor.execute(_FAILURES, given)
        rows = cursor.fetchall()
    found = {(key, claim): (code, detail) for key, at, claim, code, detail in rows if times[key] == at}
    if older := {key: at for key, at in times.items() if _may_be_packed(at)}:
        packed = reasons_of(older, {start_of_hour(at) for at in older.values()})
        for (key, moment, claim), reason in packed.items():
            if reason.verdict == DOWN and moment == micros(older[key]):
                found[key, claim] = reason.reason_code, reason.detail
    return {key: found[key, claim] for key, claim in sorted(found, reverse=True)}


class Failure(NamedTuple):
    """Why a check has a reason code, and which."""

    reason_code: str
    detail: str | None


def failed_since(monitor_id: int, *, since: datetime | None, limit: int) -> dict[datetime, Failure]:
    """Return the newest results with a reason code, newest first, by their time."""
    failed = _failed(monitor_id) if since is None else _failed(monitor_id).filter(checked_at__gte=since)
    rows = failed.order_by("-checked_at", "-claim").values_list("checked_at", "claim", "reason_code", "detail")[:limit]
    found = {(at, claim): Failure(code, detail) for at, claim, code, detail in rows if code}
    for moment, claim, reason in newest_reasons(monitor_id, limit=limit, since=since):
        found[moment_of(moment), claim] = Failure(reason.reason_code or "", reason.detail)
    return {key[0]: found[key] for key in sorted(found, reverse=True)[:limit]}


def failed_at(monitor_id: int, times: Collection[datetime]) -> dict[datetime, Failure]:
    """Return the results with a reason code at these times, by time. Of two at once, that of the lower claim."""
    rows = _failed(monitor_id).filter(checked_at__in=times).values_list("checked_at", "claim", "reason_code", "detail")
    found = {(at, claim): Failure(code, detail) for at, claim, code, detail in rows if code}
    if older := {micros(at) for at in times if _may_be_packed(at)}:
        packed = reasons_of([monitor_id], {start_of_hour(moment_of(at)) for at in older})
        for (_, moment, claim), reason in packed.items():
            if moment in older and reason.reason_code is not None:
                found[moment_of(moment), claim] = Failure(reason.reason_code, reason.detail)
    return {at: found[at, claim] for at, claim in sorted(found, reverse=True)}


def _may_be_packed(at: datetime) -> bool:
    return at < utc_now() - PLAIN_FOR


def _failed(monitor_id: int) -> QuerySet[CheckResult]:
    return CheckResult.objects.filter(monitor_id=monitor_id, reason_code__isnull=False)


def evidence_of(checks: Collection[tuple[int, int, datetime]]) -> dict[tuple[int, int], Any]:
    """Return the evidence of these (monitor, claim, checked_at), if any, by (monitor, claim)."""
    wanted = {(monitor_id, claim) for monitor_id, claim, _ in checks}
    times = {at for _, _, at in checks}
    results = CheckResult.objects.alias(hour=HourOf("checked_at")).filter(
        monitor_id__in={monitor_id for monitor_id, _ in wanted},
        hour__in={start_of_hour(at) for at in times},
        checked_at__in=times,
        evidence__isnull=False,
    )
    rows = results.values_list("monitor_id", "claim", "evidence")
    found = {(monitor_id, claim): evidence for monitor_id, claim, evidence in rows if (monitor_id, claim) in wanted}
    if older := [check for check in checks if check[:2] not in found and _may_be_packed(check[2])]:
        packed = exact(evidence_in({check[0] for check in older}, {start_of_hour(at) for _, _, at in older}))
        for monitor_id, claim, at in older:
            if (evidence := packed.get((monitor_id, in_millisecond(micros(at), claim)))) is not None:
                found[monitor_id, claim] = evidence[1]
    return found

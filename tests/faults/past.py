"""Days of the past that pass within minutes: their results are recorded and packed while everything is killed.

    python -m tests.faults.past record|pack

Packing waits until an hour is over for an hour, which no run can. So monitors without a target have results of the last
days, recorded as those of an agent that was offline, mostly before their hour is closed and sometimes days later. A
clock that runs fast says which hours are over. `record` stores them, and reads what it has stored. `pack` rolls them up
and packs them. Each works in a child that it kills again and again, at any statement.

All results are derived from the number of their chunk, which is stored with them. So the audit knows them without the
tables, and compares every field with what the selectors return.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import django

if TYPE_CHECKING:
    from checks.results.models import CheckResult
    from checks.results.store import NewResult
    from tests.faults.monitor_audit import Audit

COMMANDS = {kind: f"exec {sys.executable} -m tests.faults.past {kind}" for kind in ("record", "pack")}
MONITORS = range(10**9, 10**9 + 10)  # which no others have
CHUNK = timedelta(minutes=5)
HOURS = 96
CHUNKS = HOURS * 12
HOUR_SEC = 2.4
"""How long an hour takes. All are over before beat, every five minutes, closes all of them at once."""
LATE_SEC = 300.0
VIOLATION = "violation: "
KILLED = "killed"


def prepare() -> None:
    """Begin the past, for all processes with the variables of this one."""
    from django.db import connection

    from checks.results.hours import HOUR
    from checks.results.partitions import RESULTS, make, parts
    from checks.results.rollups import roll_up
    from core.clock import utc_now

    now = utc_now()
    first = RESULTS.bounds(now - 3 * HOUR)[0] - HOURS * HOUR  # today's partition is not over
    os.environ.update(PAST_BEGAN=now.isoformat(), PAST_FIRST=first.isoformat())
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE faults_past (chunk int PRIMARY KEY, on_time bool NOT NULL)")
    # Yesterday has a partition already. It is packed as a day, as the results of earlier versions are.
    made_days = min(start for start, _ in parts(RESULTS))
    make(RESULTS, [(at, at + HOUR) for at in (first + n * HOUR for n in range(HOURS)) if at < made_days])
    _store(0)
    roll_up(first + HOUR)


def first_moment() -> datetime:
    return datetime.fromisoformat(os.environ["PAST_FIRST"])


def _seconds() -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(os.environ["PAST_BEGAN"])).total_seconds()


def past_now() -> datetime:
    """Return the time of the clock that runs fast. It stops when all hours are over for long enough to be packed."""
    return first_moment() + timedelta(hours=min(_seconds() / HOUR_SEC, HOURS + 2))


def due_sec(chunk: int) -> float:
    """Return when a chunk is recorded, in seconds since the start: after its time, or much later."""
    late = random.Random(-chunk).random()
    return (chunk + 1) * HOUR_SEC / 12 + (0 if late < 0.8 else LATE_SEC * (late - 0.8) * 5)


def results_of_chunk(chunk: int) -> Iterator[NewResult]:
    """Yield the results of one chunk: one a minute of each monitor, mostly up."""
    from checks.evidence import Evidence
    from checks.results.store import NewResult
    from checks.spec import CheckOutcome, ReasonCode, Verdict

    dice = random.Random(chunk)
    start = first_moment() + chunk * CHUNK
    for monitor_id in MONITORS:
        for minute in range(5):
            # Of two moments of the next chunk at most: its own partition may be another one.
            at = start + timedelta(minutes=minute, microseconds=dice.randrange(1_000_000))
            claim = chunk * 5 + minute + 1
            latency = dice.randrange(20, 400)
            verdict = dice.choices([Verdict.UP, Verdict.SLOW, Verdict.DOWN], [90, 4, 6])[0]
            found = CheckOutcome(verdict, at, latency, latency // 4, latency // 2, 200)
            if verdict is not Verdict.UP:
                found.reason_code, found.detail = ReasonCode.HTTP_FAILURE, f"Answered {dice.randrange(500, 600)}."
            if verdict is Verdict.DOWN:
                found.evidence = Evidence(body=f"{chunk} {minute}")
            yield NewResult(monitor_id, claim, found, None if dice.random() < 0.9 else 7)


def _store(chunk: int) -> None:
    """Store a chunk unless another process has."""
    from django.db import connection, transaction

    from checks.results.hours import start_of_hour
    from checks.results.models import RollupProgress
    from checks.results.store import store_results

    with transaction.atomic(), connection.cursor() as cursor:
        hour = start_of_hour(first_moment() + chunk * CHUNK)
        cursor.execute("INSERT INTO faults_past VALUES (%s, true) ON CONFLICT DO NOTHING", [chunk])
        if cursor.rowcount:
            store_results(list(results_of_chunk(chunk)))  # which locks how far hours are closed
            closed = RollupProgress.objects.values_list("closed_until", flat=True).first()
            if closed is not None and closed > hour:
                cursor.execute("UPDATE faults_past SET on_time = false WHERE chunk = %s", [chunk])


def _stored(*, on_time: bool | None = None) -> list[int]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT chunk FROM faults_past WHERE %(on_time)s::bool IS NULL OR on_time = %(on_time)s ORDER BY chunk",
            {"on_time": on_time},
        )
        return [chunk for (chunk,) in cursor.fetchall()]


def record() -> None:
    """Store what is due, then read the results of one monitor."""
    seconds, known = _seconds(), set(_stored())
    for chunk in range(CHUNKS):
        if chunk not in known and due_sec(chunk) < seconds:
            _store(chunk)
    read(random.choice(MONITORS))


def read(monitor_id: int) -> None:
    """Print a violation if a result is not read, or is read twice."""
    from checks.results.hours import HOUR
    from checks.results.selectors import history_of

    # Late ones are invisible for moments after their hour is published; the audit finds them.
    certain = {chunk * 5 + minute + 1 for chunk in _stored(on_time=True) for minute in range(5)}
    history = history_of(monitor_id, first_moment(), first_moment() + HOURS * HOUR)
    found = Counter(claim for past in history for claim in past.checks.claim)
    for what, claims in {
        "twice": [claim for claim, times in found.items() if times > 1],
        "not": sorted(certain - set(found)),
    }.items():
        if claims:
            print(f"{VIOLATION}{len(claims)} claims of {monitor_id} are {what} read: {claims[:5]}", flush=True)  # noqa: T201


def pack(now: datetime | None = None) -> None:
    """Roll up and pack what is over."""
    from checks.results import packing, rollups

    rollups.roll_up(now or past_now())
    packing.pack(now or past_now())


def _work(act: Callable[[], None]) -> None:
    """Act again and again. Return if the database fails, as the caller starts it again; other errors are raised."""
    import psycopg
    from django.db import InterfaceError, OperationalError

    from core.errors import HistoryUnavailable

    try:
        while True:
            act()
            time.sleep(0.2)
    except (OperationalError, InterfaceError, psycopg.OperationalError, HistoryUnavailable) as error:
        if isinstance(error.__cause__ or error, psycopg.errors.DeadlockDetected):
            raise


def main(kind: str) -> None:
    """Work in a child, and kill it after a moment, forever."""
    os.nice(5)  # workers, which are observed, come first
    django.setup()
    act = {"record": record, "pack": pack}[kind]
    while True:
        if (child := os.fork()) == 0:
            try:
                _work(act)
            except BaseException as error:
                print(f"{VIOLATION}{error!r}", flush=True)  # noqa: T201
                raise
            finally:
                os._exit(0)
        ends = time.monotonic() + random.uniform(0.1, 3.0)
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > ends:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                print(KILLED, flush=True)  # noqa: T201
                break
            time.sleep(0.01)
        else:
            time.sleep(0.5)  # the database is starting


# After the run -------------------------------------------------------------------------------------------------------


def audit_past(audit: Audit, logs: Sequence[Path]) -> dict[str, int]:
    """Pack everything, then compare what is read with what was recorded. Return what was done."""
    from django.db.models import F, Sum

    from checks.results.models import CheckResult, HourlyRollup, PackedResults
    from core.clock import utc_now

    lines = [line for log in logs if log.exists() for line in log.read_text(errors="replace").splitlines()]
    for line in lines:
        if line.startswith(VIOLATION):
            audit.report("lost_results", "the past", audit.end, line.removeprefix(VIOLATION))
    chunks = _stored()
    on_time = len(_stored(on_time=True))
    packed_before = PackedResults.objects.aggregate(count=Sum("count"))["count"] or 0
    for _ in range(3):
        pack(utc_now())
    for monitor_id in MONITORS:
        _compare(audit, monitor_id, chunks)
    hours = Counter(
        (each.monitor_id, each.outcome.checked_at.replace(minute=0, second=0, microsecond=0))
        for chunk in chunks
        for each in results_of_chunk(chunk)
    )
    rows = HourlyRollup.objects.filter(monitor_id__in=MONITORS).values_list(
        "monitor_id", "hour", F("up") + F("slow") + F("down")
    )
    found = Counter({(monitor_id, hour): count for monitor_id, hour, count in rows})
    for key in sorted(hours | found):
        if hours[key] != found[key]:
            audit.report("wrong_rollups", "the past", audit.end, f"{key}: {found[key]}, not {hours[key]}")
    left = CheckResult.objects.filter(monitor_id__in=MONITORS).count()
    if left:
        audit.report("unpacked_results", "the past", audit.end, f"{left} results are not packed")
    return {
        "results": len(chunks) * 5 * len(MONITORS),
        "late": (len(chunks) - on_time) * 5 * len(MONITORS),
        "packed_meanwhile": packed_before,
        "kills": lines.count(KILLED),
    }


def _compare(audit: Audit, monitor_id: int, chunks: Sequence[int]) -> None:
    from checks.results.history import micros
    from checks.results.hours import HOUR
    from checks.results.selectors import evidence_of, history_of, results_of
    from core.clock import utc_now

    end = first_moment() + HOURS * HOUR
    expected = {
        each.claim: each for chunk in chunks for each in results_of_chunk(chunk) if each.monitor_id == monitor_id
    }
    past = [row[:2] for part in history_of(monitor_id, first_moment(), end) for row in part.rows()]
    rows: list[CheckResult] = []
    before = None
    while page := results_of(monitor_id, limit=1_000, now=utc_now(), before=before):
        rows += page
        before = page[-1].checked_at, page[-1].claim
    if [(micros(row.checked_at), row.claim) for row in reversed(rows)] != past:
        audit.report("changed_results", f"monitor {monitor_id}", audit.end, "its pages are not its history")
    for claim, times in Counter(row.claim for row in rows).items():
        if times > 1:
            audit.report("double_results", f"monitor {monitor_id}", audit.end, f"claim {claim} is read {times} times")
    for claim in sorted(expected.keys() - {row.claim for row in rows}):
        text = f"claim {claim} at {expected[claim].outcome.checked_at} is lost"
        audit.report("lost_results", f"monitor {monitor_id}", audit.end, text)
    evidence = evidence_of([(monitor_id, row.claim, row.checked_at) for row in rows])
    for row in rows:
        stored = (
            *(
                _time(row.checked_at, row.verdict),
                row.latency_ms,
                row.connect_ms,
                row.ttfb_ms,
                row.http_status,
                row.verdict,
            ),
            *(row.reason_code, row.detail, row.location_id, evidence.get((monitor_id, row.claim))),
        )
        if row.claim not in expected or stored != _values(expected[row.claim]):
            audit.report("changed_results", f"monitor {monitor_id}", audit.end, f"claim {row.claim}: {stored}")


def _time(at: datetime, verdict: str) -> datetime:
    """Return the time that a packed result has."""
    return at if verdict != "up" else at.replace(microsecond=at.microsecond // 1000 * 1000)


def _values(each: NewResult) -> tuple[object, ...]:
    found = each.outcome
    return (
        *(_time(found.checked_at, found.verdict), found.latency_ms, found.connect_ms, found.ttfb_ms),
        *(found.http_status, found.verdict),
        *(found.reason_code, found.detail, each.location_id),
        None if found.evidence is None else found.evidence.stored(),
    )


if __name__ == "__main__":
    main(sys.argv[1])

"""Packed history: every reader sees what it saw before, wherever a run of packing ends."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.db import connection, connections, transaction
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from checks.results import packing, selectors, series, tasks
from checks.results.database import is_separate
from checks.results.history import NO_REASON, Reason, moment_of, rows_of, verdict_of
from checks.results.hours import HOUR
from checks.results.models import (
    CheckResult,
    DeletedMonitor,
    HourlyRollup,
    LateHour,
    PackedReasons,
    PackedResults,
    RollupProgress,
)
from checks.results.packing import pack, unpack
from checks.results.partitions import PACKED, PUBLISHED, RESULTS, detached, make, may_pack, parts, split_days
from checks.results.retention import erase_deleted, keep_partitions
from checks.results.rollups import roll_up
from checks.results.store import NewResult, store_results, stored_claims
from checks.spec import ReasonCode, Verdict
from core.clock import utc_now
from incidents.holding import _failed_since
from tests.factories import IncidentFactory, MonitorFactory
from tests.helpers import NOON, examples, outcome, run_concurrently

DAY = timedelta(days=1)
MONITORS = (3, 5)
START = NOON.replace(hour=0) - 3 * DAY
END = START + 3 * DAY
LATER = END + 6 * HOUR
"""When all three days are old enough to be packed, but not the last one to be merged."""
MUCH_LATER = END + 2 * DAY
_FIELDS = [field.attname for field in CheckResult._meta.concrete_fields if field.attname != "evidence"]


def make_partitions() -> None:
    """Make none for the first day, one for the second, and some hours of the third."""
    third = START + 2 * DAY
    hours = [(third + number * HOUR, third + (number + 1) * HOUR) for number in (2, 3, 4, 23)]
    make(RESULTS, [RESULTS.bounds(START + DAY), *hours])


def moment(number: int) -> datetime:
    """Return one of the first six hours of the three days."""
    day, micros = divmod(number, 6 * 3_600_000_000)
    return START + day * DAY + timedelta(microseconds=micros)


def generated(seed: int) -> list[CheckResult]:
    """Return results of both monitors: some a minute apart, others at any time, with any values in the columns.

    From a seed: Hypothesis would need minutes to print or shrink the rows themselves.
    """
    random = Random(seed)

    def any_of(*values: Any) -> Any:
        return random.choice([None, *values])

    def number(bits: int) -> Any:
        return any_of(random.randrange(300), random.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)))

    def text() -> str:
        return "".join(random.choice('aä☃𝄞"\\\n\x7f {}') for _ in range(random.randrange(20)))

    rows: dict[tuple[int, int], CheckResult] = {}
    for monitor_id in MONITORS:
        moments = [moment(random.randrange(3 * 6 * 3_600_000_000)) for _ in range(random.randrange(9))]
        if monitor_id == MONITORS[0] and moments:  # in one millisecond, in another order than their claims
            moments = [at.replace(microsecond=at.microsecond // 1000 * 1000 + 500) for at in moments]
            moments += [moments[0] - timedelta(microseconds=n) for n in (300, 7, 400)]
        first = moment(random.randrange(18) * 3_600_000_000)
        step = timedelta(seconds=61, microseconds=random.choice([0, 7, 12_345]))
        moments += [first + n * step for n in range(random.randrange(80))]
        moments += moments[: random.randrange(3)]  # two ended at once
        failing = random.choice([0, 0.1, 1])
        for n, at in enumerate(moments, start=1):
            row = CheckResult(
                monitor_id=monitor_id,
                checked_at=at,
                claim=n * random.choice([1, 1, 1_000]),
                latency_ms=any_of(random.randrange(60_000), random.randrange(50)),
                connect_ms=5,
                ttfb_ms=9,
                http_status=200,
                verdict=Verdict.UP,
            )
            if random.random() < failing:
                row.connect_ms, row.ttfb_ms, row.location_id = number(32), number(32), number(32)
                row.http_status, row.loss = number(16), any_of(random.randrange(101))
                row.verdict = random.choice(list(Verdict))
                row.reason_code = any_of(*(code.value for code in ReasonCode))
                row.detail, row.confirmed = any_of(text(), ""), any_of(True, False)
                row.evidence = any_of({"address": text(), "headers": [[text(), text()]]})
            rows.setdefault((monitor_id, row.claim), row)
    return list(rows.values())


def shown(at: datetime) -> datetime:
    """Return the time as the API does."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def fields(row: CheckResult) -> dict[str, Any]:
    assert "evidence" in row.get_deferred_fields()
    return {name: getattr(row, name) for name in _FIELDS} | {"checked_at": shown(row.checked_at)}


def pages(monitor_id: int, limit: int, **conditions: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    before = None
    while rows := selectors.results_of(monitor_id, limit=limit, now=LATER, before=before, **conditions):
        found += map(fields, rows)
        before = rows[-1].checked_at, rows[-1].claim
    return found


def everything(rows: Sequence[CheckResult], since: datetime, until: datetime) -> dict[str, Any]:
    """Return what all readers find."""
    checks = [(row.monitor_id, row.claim, row.checked_at) for row in rows]
    found: dict[str, Any] = {"evidence": selectors.evidence_of(checks)}
    found["claims"] = stored_claims([NewResult(m, claim, outcome(Verdict.UP, at=at)) for m, claim, at in checks])
    found["means"] = series.average_latency(MONITORS, since=since)
    for monitor_id in MONITORS:
        times = [row.checked_at for row in rows if row.monitor_id == monitor_id]
        found[f"{monitor_id} all"] = pages(monitor_id, 1_000)
        found[f"{monitor_id} pages"] = pages(monitor_id, 30, since=since, until=until)
        for verdict in Verdict:
            found[f"{monitor_id} {verdict}"] = pages(monitor_id, 20, verdict=verdict, until=until)
        for row in rows[::15]:
            result = selectors.result_of(monitor_id, row.claim, shown(row.checked_at))
            values = result and {name: getattr(result, name) for name in [*_FIELDS, "evidence"]}
            found[f"{monitor_id} {row.claim} {row.checked_at}"] = values and values | {
                "checked_at": shown(values["checked_at"])
            }
        history = list(past_checks(monitor_id, since, until))
        found[f"{monitor_id} history"] = [(shown(moment_of(at)), *others) for at, *others in history]
        found[f"{monitor_id} exact"] = [
            (at, claim) for at, claim, _, verdict, reason in history if verdict is Verdict.DOWN and reason.reason_code
        ]
        found[f"{monitor_id} failed at"] = selectors.failed_at(monitor_id, times)
        for limit in (1, 5, 1_000):
            found[f"{monitor_id} failed {limit}"] = selectors.failed_since(monitor_id, since=None, limit=limit)
        found[f"{monitor_id} failed since"] = selectors.failed_since(monitor_id, since=since, limit=9)
        found[f"{monitor_id} failures"] = [selectors.failures_at({monitor_id: at}) for at in times[::12]]
        for step in (timedelta(minutes=1), HOUR):
            found[f"{monitor_id} series {step}"] = series.exact_series(monitor_id, since=since, step=step)
        found[f"{monitor_id} days"] = series.daily_latency(monitor_id, since=since)
    found["hours"] = series.hours_of(MONITORS, since=since, now=LATER)
    return found


def past_checks(monitor_id: int, since: datetime, until: datetime) -> Iterator[tuple[int, int, Any, Verdict, Reason]]:
    """Yield the microseconds, claim, latency, verdict and reason of each check of the history."""
    for past in selectors.history_of(monitor_id, since, until):
        for at, claim, latency_ms, kind in past.rows():
            yield at, claim, latency_ms, verdict_of(kind), past.reasons.get((at, claim), NO_REASON)


def assert_same(found: dict[str, Any], expected: dict[str, Any], *, without: Sequence[str] = ()) -> None:
    different = [name for name in expected if not name.endswith(tuple(without)) and found[name] != expected[name]]
    if different:  # an assertion would print all, which takes minutes
        raise AssertionError(f"{different[0]}: {found[different[0]]} is not {expected[different[0]]}"[:4_000])


@contextmanager
def undone() -> Iterator[None]:
    with ExitStack() as stack:
        for alias in connections:
            block = transaction.atomic(using=alias)
            # As that of the whole test: durable blocks are allowed inside.
            block._from_testcase = True  # type: ignore[attr-defined]
            stack.enter_context(block)
        yield
        for alias in connections:
            transaction.set_rollback(True, using=alias)


def drop_packed() -> None:
    for bounds in parts(PACKED):
        with PACKED.cursor() as cursor:
            cursor.execute(f"DROP TABLE {PACKED.name(*bounds)}")


def roll_all_up(now: datetime) -> None:
    while roll_up(now):
        pass


any_history = given(
    seed=st.integers(0, 2**32),
    late=st.integers(0, 8),
    since=st.integers(0, 3 * 86_400_000),
    length=st.integers(0, 3 * 86_400_000),
    at_once=st.sampled_from([1, 60_000]),
    most_in_row=st.sampled_from([1, 40, 20_000]),
)


@pytest.mark.django_db
@hypothesis_settings(max_examples=examples(4), deadline=None, phases=[Phase.reuse, Phase.generate])
@any_history
def test_readers_see_no_difference(**example: int) -> None:
    compare_readers(**example)


def compare_readers(*, seed: int, late: int, since: int, length: int, at_once: int, most_in_row: int) -> None:
    rows = generated(seed)
    start = START + timedelta(milliseconds=since)
    until = start + timedelta(milliseconds=length)
    with (
        undone(),
        time_machine.travel(LATER, tick=False),
        mock.patch.object(packing, "CHECKS_AT_ONCE", at_once),
        mock.patch.object(packing, "MOST_IN_ROW", most_in_row),
    ):
        make_partitions()
        CheckResult.objects.bulk_create(rows)
        roll_all_up(LATER)
        expected = everything(rows, start, until)
        rollups = list(HourlyRollup.objects.order_by("monitor_id", "hour").values())
        # Not one of two in a millisecond: their order may change if one is packed before the other is recorded.
        ended = Counter((row.monitor_id, shown(row.checked_at)) for row in rows)
        later = [row for row in rows[len(rows) - late :] if ended[row.monitor_id, shown(row.checked_at)] == 1]
        CheckResult.objects.filter(pk__in=[row.pk for row in later]).delete() if later else None
        pack(LATER)
        assert not CheckResult.objects.exists(), "all of it is packed"
        CheckResult.objects.bulk_create(later)
        # Roll-ups are those of the results that were there.
        assert_same(everything(rows, start, until), expected, without=["means", "days", "hours"])
        pack(LATER)
        assert not CheckResult.objects.exists(), "late ones too"
        assert_same(everything(rows, start, until), expected)
        pack(MUCH_LATER)
        assert all(end - begin == DAY for begin, end in parts(PACKED))
        assert detached(PACKED) == detached(PUBLISHED) == []
        assert_same(everything(rows, start, until), expected)
        assert list(HourlyRollup.objects.order_by("monitor_id", "hour").values()) == rollups
        if not is_separate():
            unpack()
            drop_packed()
            assert_same(everything(rows, start, until), expected)


def store(*moments: datetime, monitor_id: int = 3, claim: int = 1, down: bool = False) -> None:
    results = []
    for number, at in enumerate(moments, start=claim):
        found = outcome(Verdict.DOWN if down else Verdict.UP, at=at)
        results.append(NewResult(monitor_id, number, found))
    with transaction.atomic():
        store_results(results)


def claims(monitor_id: int = 3) -> list[int]:
    """Return the claims of all results that are read."""
    rows = selectors.results_of(monitor_id, limit=10_000, now=MUCH_LATER)
    past = selectors.history_of(monitor_id, START - DAY, MUCH_LATER)
    assert sorted(row.claim for row in rows) == sorted(claim for each in past for claim in each.checks.claim)
    return sorted(row.claim for row in rows)


def counted() -> int:
    return sum(row.up + row.slow + row.down for row in HourlyRollup.objects.all())


class Killed(Exception):
    """The process ends here."""


@contextmanager
def killed_at(number: int) -> Iterator[list[int]]:
    """Raise Killed instead of the statement or commit with that number. Yield a list that has how many there were."""
    seen = [0]

    def count() -> bool:
        seen[0] += 1
        return seen[0] == number

    def execute(statement: Callable[..., Any], *given: Any) -> Any:
        if count():
            raise Killed
        return statement(*given)

    def commit(database: Any, real: Callable[[], None]) -> None:
        if count():
            database._rollback()
            raise Killed
        real()

    with ExitStack() as stack:
        for database in connections.all():
            stack.enter_context(database.execute_wrapper(execute))
            counted = partial(commit, database, database._commit)  # type: ignore[attr-defined]
            stack.enter_context(mock.patch.object(database, "_commit", counted))
        yield seen


NIGHT = NOON.replace(hour=0) - DAY
HOURS = [(NIGHT + number * HOUR, NIGHT + (number + 1) * HOUR) for number in (12, 13, 14)]
LAST = NIGHT + 23 * HOUR, NIGHT + DAY
PACKABLE = LAST[1] + 2 * HOUR
MERGEABLE = PACKABLE + DAY


@pytest.fixture(name="hours")
def _own(restored_partitions: None) -> Iterator[None]:
    with hours_of_results():
        yield


@contextmanager
def hours_of_results() -> Iterator[None]:
    with time_machine.travel(PACKABLE, tick=False):
        make(RESULTS, [*HOURS, LAST])
        yield


def minutes_of(hour: datetime) -> list[datetime]:
    return [hour + timedelta(minutes=number, microseconds=number) for number in range(0, 60, 6)]


@pytest.mark.usefixtures("hours")
@pytest.mark.django_db(transaction=True, databases="__all__")
class TestSteps:
    def fill(self) -> None:
        for number, (start, _) in enumerate(HOURS):
            for monitor_id in MONITORS:
                store(*minutes_of(start), monitor_id=monitor_id, claim=1 + number * 10, down=number == 1)
        # Of an hour without partition: the default one has it.
        store(HOURS[0][0] - HOUR, monitor_id=3, claim=31)
        roll_all_up(PACKABLE)

    @pytest.mark.parametrize("at_once", [1, 60_000])
    def test_a_kill_at_any_statement_loses_and_doubles_nothing(
        self, monkeypatch: pytest.MonkeyPatch, at_once: int
    ) -> None:
        monkeypatch.setattr(packing, "CHECKS_AT_ONCE", at_once)
        self.fill()
        rolled = counted()
        kills = 0
        # Each run gets one statement further than the last one that was killed in the same transaction.
        for now in (PACKABLE, MERGEABLE):
            number = 1
            while True:
                try:
                    with killed_at(number) as seen:
                        done = pack(now, steps=1)
                except Killed:
                    number += 1
                    kills += 1
                else:
                    assert seen[0] < number
                    number = 1
                    if not done:
                        break
                assert claims(3) == list(range(1, 32))
                assert claims(5) == list(range(1, 31))
                assert counted() == rolled
        assert kills > 50
        assert not CheckResult.objects.exists()
        assert detached(PUBLISHED) == detached(PACKED) == []
        assert [bounds for bounds in parts(RESULTS) if bounds[1] <= PACKABLE] == []
        assert (NIGHT, NIGHT + DAY) in parts(PACKED)

    def test_a_step_between_two_queries_of_a_reader(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fill()
        done = 0

        def step_and_read(*given: Any, **named: Any) -> Any:
            nonlocal done
            (steps,) = run_concurrently(partial(pack, PACKABLE, steps=1))
            assert isinstance(steps, int)
            done += steps
            return rows_of(*given, **named)

        monkeypatch.setattr(selectors, "rows_of", step_and_read)
        while CheckResult.objects.exists():
            assert claims(3) == list(range(1, 32))
        assert done > 6

    def test_a_step_before_any_statement_of_a_mean(self) -> None:
        self.fill()
        since = HOURS[0][0] + timedelta(minutes=20)

        def means() -> tuple[Any, Any]:
            return series.average_latency(MONITORS, since=since), series.daily_latency(3, since=since)

        expected = means()
        assert expected[0]

        def step(execute: Callable[..., Any], *given: Any) -> Any:
            run_concurrently(partial(pack, PACKABLE, steps=1))
            return execute(*given)

        reads = 0
        while CheckResult.objects.exists():
            with connection.execute_wrapper(step):
                assert means() == expected
            reads += 1
        assert reads > 1

    @pytest.mark.parametrize("steps", [1, 2, 3, None])
    def test_pages_between_which_it_is_packed(self, steps: int | None) -> None:
        self.fill()
        found: list[int] = []
        before = None
        while page := selectors.results_of(3, limit=4, now=PACKABLE, before=before):
            assert len(page) == 4 or len(found) == 28
            found += [row.claim for row in page]
            before = page[-1].checked_at, page[-1].claim
            pack(PACKABLE, steps=steps)
        assert sorted(found) == list(range(1, 32))

    def test_results_that_come_at_any_step_are_kept(self) -> None:
        self.fill()
        expected = claims(5)
        claim = 100
        while True:
            # One of each hour that is packed, being packed, or packed next.
            for start, _ in HOURS:
                store(start + timedelta(minutes=claim % 50), monitor_id=3, claim=claim, down=claim % 2 == 0)
                claim += 1
            done = pack(PACKABLE, steps=1)
            # Until the next step, those that were recorded just before the last one may be in no partition.
            found = claims(3)
            assert len(set(found)) == len(found)
            assert detached(PUBLISHED) or found == [*range(1, 32), *range(100, claim)]
            if not done or claim > 200:
                break
        roll_up(PACKABLE)
        while pack(PACKABLE):
            pass
        roll_up(PACKABLE)
        store(HOURS[0][0], claim=90)
        pack(MERGEABLE)
        store(HOURS[0][0], claim=91)
        pack(MERGEABLE)
        assert not CheckResult.objects.exists()
        assert not LateHour.objects.exists()
        assert counted() == len(claims(3)) + len(claims(5))
        assert claims(5) == expected
        assert len(selectors.failed_since(3, since=None, limit=1_000)) > 40

    def test_a_result_recorded_after_its_part_is_found_before_the_rows_are_dropped(self) -> None:
        self.fill()
        assert pack(PACKABLE, steps=1)
        assert detached(PACKED)
        with connection.cursor() as cursor:  # as a ping whose process was suspended: no LateHour
            cursor.execute(
                "INSERT INTO checks_checkresult (monitor_id, claim, checked_at, verdict) VALUES (3, 99, %s, 'up')",
                [HOURS[0][0]],
            )
        assert pack(PACKABLE, steps=1)
        assert HOURS[0] in parts(PACKED)
        assert claims(3).count(99) == 1
        assert pack(PACKABLE, steps=1)
        assert detached(PUBLISHED)
        assert pack(PACKABLE, steps=1)
        assert 99 in claims(3)
        pack(PACKABLE)
        assert 99 in claims(3)
        assert not CheckResult.objects.exists()

    def test_rows_are_packed_again_if_their_packed_partition_is_gone(self) -> None:
        """As after the history was restored from a backup."""
        self.fill()
        while not detached(PUBLISHED):
            assert pack(PACKABLE, steps=1)
        drop_packed()
        pack(PACKABLE)
        assert claims(3) == list(range(1, 32))
        assert not CheckResult.objects.exists()

    def test_rows_of_a_packed_day_are_packed_once(self) -> None:
        """As after the main database was restored from a backup, and the history was not."""
        self.fill()
        pack(MERGEABLE)
        make(RESULTS, HOURS)
        RollupProgress.objects.update(packed_until=None)
        for number, (start, _) in enumerate(HOURS[:2]):
            store(*minutes_of(start), monitor_id=3, claim=1 + number * 10, down=number == 1)
        store(HOURS[1][0] + timedelta(minutes=59), monitor_id=3, claim=99)
        pack(MERGEABLE)
        assert claims(3) == [*range(1, 32), 99]
        assert not CheckResult.objects.exists()
        assert [bounds for bounds in parts(RESULTS) if bounds in HOURS] == []

    @pytest.mark.parametrize("steps", range(5))
    def test_going_back_after_any_step(self, steps: int) -> None:
        self.fill()
        pack(PACKABLE, steps=steps)
        if is_separate():
            with pytest.raises(RuntimeError):
                unpack()
            return
        with transaction.atomic():
            unpack()
            drop_packed()
        assert claims(3) == list(range(1, 32))
        assert CheckResult.objects.count() == 61

    def test_two_at_once_beside_recording(self) -> None:
        self.fill()
        late = [partial(store, HOURS[1][0] + timedelta(seconds=n), monitor_id=3, claim=100 + n) for n in range(4)]
        run_concurrently(*[partial(pack, PACKABLE)] * 2, *late, partial(roll_up, PACKABLE))
        for _ in range(3):
            pack(PACKABLE)
            roll_up(PACKABLE)
        assert claims(3) == [*range(1, 32), *range(100, 104)]
        assert not CheckResult.objects.exists()
        assert counted() == len(claims(3)) + len(claims(5))

    def test_nothing_is_left_of_a_deleted_monitor(self) -> None:
        """Whichever step the deletion comes after."""
        for steps in (0, 1, 2, 3, 5, 9, 20):
            self.fill()
            pack(PACKABLE, steps=steps)
            DeletedMonitor.objects.create(monitor_id=3)
            erase_deleted()
            pack(MERGEABLE)
            assert claims(3) == []
            assert claims(5) == list(range(1, 31))
            for model in (CheckResult, PackedResults, PackedReasons, HourlyRollup):
                assert not model._default_manager.filter(monitor_id=3).exists()
            DeletedMonitor.objects.create(monitor_id=5)
            erase_deleted()
            drop_packed()
            RollupProgress.objects.update(packed_until=None)
            make(RESULTS, [*HOURS, LAST])

    def test_expired_days_are_dropped_packed_or_not(self, settings: Any) -> None:
        settings.RESULTS_KEPT_DAYS = 2
        self.fill()
        pack(PACKABLE, steps=1)
        keep_partitions(PACKABLE + 9 * DAY)
        pack(PACKABLE + 9 * DAY)
        keep_partitions(PACKABLE + 9 * DAY)
        assert claims(3) == claims(5) == []
        assert detached(PUBLISHED) == detached(PACKED) == []
        assert not PackedReasons.objects.exists()


@pytest.mark.usefixtures("hours")
@pytest.mark.django_db(transaction=True)
def test_only_hours_that_are_over_and_rolled_up_are_packed() -> None:
    store(*minutes_of(HOURS[0][0]))
    assert pack(PACKABLE) == 0, "it is not rolled up"
    roll_all_up(HOURS[0][1] + timedelta(minutes=30))
    assert pack(HOURS[0][1] + timedelta(minutes=59)) == 0, "it is too young"
    assert pack(HOURS[0][1] + HOUR) > 0
    assert not CheckResult.objects.exists()
    keep_partitions(HOURS[0][1] + HOUR)
    assert HOURS[0] not in parts(RESULTS), "it is not made again"


@pytest.mark.usefixtures("hours")
@pytest.mark.django_db(transaction=True)
def test_failures_after_a_recovery_are_counted_in_rows_and_packed() -> None:
    """Those that began later: the one at 30 minutes and 5 microseconds lasted for as long as the timeout."""
    incident = IncidentFactory(monitor=MonitorFactory(timeout_ms=10_000))
    assert incident.monitor_id is not None
    start = HOURS[0][0]
    store(*minutes_of(start), monitor_id=incident.monitor_id, down=True)
    assert _failed_since(incident, start + timedelta(minutes=30), now=PACKABLE) == 4
    roll_all_up(PACKABLE)
    pack(PACKABLE)
    assert not CheckResult.objects.exists()
    assert _failed_since(incident, start + timedelta(minutes=30), now=PACKABLE) == 4


@pytest.mark.usefixtures("hours")
@pytest.mark.django_db(transaction=True)
def test_a_damaged_row_is_logged_and_leaves_a_gap(caplog: pytest.LogCaptureFixture) -> None:
    store(*minutes_of(HOURS[0][0]), *minutes_of(HOURS[1][0]))
    roll_all_up(PACKABLE)
    pack(PACKABLE)
    PackedResults.objects.filter(start=HOURS[0][0]).update(data=b"\x01damaged")
    with caplog.at_level(logging.ERROR):
        assert claims() == list(range(11, 21))
    assert "monitor 3" in caplog.text
    pack(MERGEABLE)
    assert claims() == list(range(11, 21)), "the other hour is still read"
    store(HOURS[0][0] + timedelta(minutes=1), claim=50)
    pack(MERGEABLE)
    assert claims() == [*range(11, 21), 50]
    assert CheckResult.objects.count() == 1, "a late result is not added to a damaged row"


@pytest.mark.usefixtures("restored_partitions")
@pytest.mark.django_db(transaction=True)
class TestSplitting:
    def test_a_day_gets_hours_before_it_begins(self) -> None:
        day = RESULTS.bounds(NOON + DAY)
        make(RESULTS, [RESULTS.bounds(NOON), day])
        assert split_days(now=day[0] - 4 * HOUR) == []
        assert len(split_days(now=day[0] - 2 * HOUR)) == 24
        assert split_days(now=day[0] - 2 * HOUR) == []
        assert make(RESULTS, [day]) == [], "its hours are there"
        store(day[0] + 5 * HOUR)
        with connection.cursor() as cursor:
            cursor.execute("SELECT tableoid::regclass::text FROM checks_checkresult")
            assert cursor.fetchone() == (RESULTS.name(day[0] + 5 * HOUR, day[0] + 6 * HOUR),)

    def test_an_earlier_version_finds_days(self) -> None:
        day = RESULTS.bounds(NOON + DAY)
        make(RESULTS, [day])
        split_days(now=day[0] - HOUR)
        store(day[0] + 5 * HOUR)
        with transaction.atomic():
            unpack()
        assert all(end - start == DAY for start, end in parts(RESULTS))
        assert CheckResult.objects.count() == 1

    def test_a_day_with_results_stays(self) -> None:
        day = RESULTS.bounds(NOON + DAY)
        make(RESULTS, [day])
        store(day[0] + HOUR)
        assert split_days(now=day[0] - HOUR) == []
        assert day in parts(RESULTS)


@pytest.mark.usefixtures("hours")
@pytest.mark.django_db(transaction=True)
class TestUpgrade:
    """Processes of an earlier version parse the names of days only, and read rows only."""

    @pytest.fixture(autouse=True)
    def migrated(self) -> Iterator[None]:
        self.migrate(PACKABLE)
        yield
        self.migrate(NOON - timedelta(days=9_000))

    def migrate(self, at: datetime) -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE django_migrations SET applied = %s WHERE name = '0005_packed_history'", [at])
            assert cursor.rowcount == 1

    def test_nothing_changes_for_a_day(self) -> None:
        drop_hours()
        make(RESULTS, [RESULTS.bounds(NIGHT), *RESULTS.wanted(now=PACKABLE)])
        store(*minutes_of(HOURS[0][0]))
        roll_all_up(PACKABLE)
        for hours in (0, 22, 23):  # the last hours of a day, too
            with time_machine.travel(PACKABLE + hours * HOUR, tick=False):
                tasks.keep_partitions()
                tasks.pack()
            assert all(end - start == DAY for start, end in parts(RESULTS))
            assert CheckResult.objects.count() == 10
        assert not may_pack(PACKABLE + DAY - timedelta(microseconds=1))
        assert may_pack(PACKABLE + DAY)
        with time_machine.travel(PACKABLE + DAY + 20 * HOUR, tick=False):
            roll_all_up(utc_now())
            tasks.keep_partitions()
            tasks.pack()
        assert any(end - start == HOUR for start, end in parts(RESULTS))
        assert not CheckResult.objects.exists()
        assert claims() == list(range(1, 11))


def drop_hours() -> None:
    for start, end in parts(RESULTS):
        if end - start == HOUR:
            with connection.cursor() as cursor:
                cursor.execute(f"DROP TABLE {RESULTS.name(start, end)}")

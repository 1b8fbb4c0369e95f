"""Roll-ups against results counted one by one: late, in any order, and concurrently."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.db import IntegrityError, connection, transaction
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from checks.results import rollups
from checks.results.hours import HOUR, start_of_hour
from checks.results.models import CheckResult, HourlyRollup, LateHour, RollupProgress
from checks.results.partitions import RESULTS, ROLLUPS, make
from checks.results.retention import keep_partitions
from checks.results.rollups import roll_up, rolled_until
from checks.results.series import average_latency, daily_latency
from checks.results.store import NewResult, store_results
from checks.spec import CheckOutcome, Verdict
from tests.helpers import NOON, examples, run_concurrently

UP, SLOW, DOWN = Verdict.UP, Verdict.SLOW, Verdict.DOWN
DAY = timedelta(days=1)
MONITORS = (3, 5, 8)
PAST_GRACE = timedelta(minutes=6)


@dataclass(frozen=True, slots=True)
class Found:
    monitor_id: int
    at: datetime
    verdict: Verdict = UP
    latency_ms: int | None = 20
    loss: int | None = None


def store(found: Iterable[Found], *, now: datetime) -> None:
    with time_machine.travel(now, tick=False):
        store_quietly(found)


def store_quietly(found: Iterable[Found]) -> None:
    """Do not move the shared clock."""
    with transaction.atomic():
        store_results(
            [
                NewResult(
                    one.monitor_id, claim, CheckOutcome(one.verdict, one.at, latency_ms=one.latency_ms, loss=one.loss)
                )
                for claim, one in enumerate(found)
            ]
        )


def counted(found: Iterable[Found], *, until: datetime) -> dict[tuple[int, datetime], tuple[Any, ...]]:
    """Return the roll-ups of whole hours until then, computed the slow way."""
    hours: dict[tuple[int, datetime], list[Found]] = defaultdict(list)
    for one in found:
        if start_of_hour(one.at) < until:
            hours[one.monitor_id, start_of_hour(one.at)].append(one)
    rows = {}
    for key, ones in hours.items():
        verdicts = [one.verdict for one in ones]
        passed = [one.latency_ms for one in ones if one.verdict is not DOWN and one.latency_ms is not None]
        span = (min(passed), max(passed)) if passed else (None, None)
        lost = [one.loss for one in ones if one.loss is not None]
        loss = (sum(lost), len(lost)) if lost else (None, None)
        rows[key] = (*(verdicts.count(v) for v in (UP, SLOW, DOWN)), sum(passed), len(passed), *span, *loss)
    return rows


def stored(*, until: datetime) -> dict[tuple[int, datetime], tuple[Any, ...]]:
    names = ("up", "slow", "down", "latency_sum", "timed", "latency_min", "latency_max", "loss_sum", "measured")
    rows = HourlyRollup.objects.filter(hour__lt=until).values_list("monitor_id", "hour", *names)
    return {(monitor_id, hour): tuple(rest) for monitor_id, hour, *rest in rows}


def means(found: Sequence[Found], *, since: datetime) -> tuple[dict[int, float], dict[int, dict[date, float]]]:
    """Return means by monitor, and by monitor and day, computed the slow way."""
    passed: dict[int, list[int]] = defaultdict(list)
    by_day: dict[int, dict[date, list[int]]] = defaultdict(lambda: defaultdict(list))
    for one in found:
        if one.at >= since and one.verdict is not DOWN and one.latency_ms is not None:
            passed[one.monitor_id].append(one.latency_ms)
            by_day[one.monitor_id][one.at.date()].append(one.latency_ms)

    def mean(values: list[int]) -> float:
        return round(sum(values) / len(values), 2)

    return (
        {monitor_id: mean(values) for monitor_id, values in passed.items()},
        {m: {day: mean(values) for day, values in days.items()} for m, days in by_day.items()},
    )


def empty() -> None:
    for model in (CheckResult, HourlyRollup, LateHour, RollupProgress):
        model._default_manager.all().delete()


results = st.builds(
    lambda monitor_id, age, *seen: (monitor_id, timedelta(seconds=age), seen),
    st.sampled_from(MONITORS),
    st.one_of(st.integers(0, 60), st.integers(0, 5 * 3600)),
    st.sampled_from(Verdict),
    st.one_of(st.none(), st.integers(0, 60_000)),
    st.one_of(st.none(), st.integers(0, 100)),
)
steps = st.tuples(
    st.integers(0, 9000),  # seconds that pass
    st.lists(results, max_size=6),
    st.one_of(st.none(), st.integers(0, 3)),  # hours rolled up at most, if it runs
)


@pytest.mark.django_db
@hypothesis_settings(max_examples=examples(50), deadline=None)
@given(
    story=st.lists(steps, min_size=1, max_size=12),
    since=st.integers(0, 40 * 3600),
    partitioned=st.booleans(),
    at_once=st.sampled_from([1, 3, 10_000]),
)
def test_results_in_any_order_are_as_if_counted_at_the_end(
    story: list[tuple[int, list[tuple[int, timedelta, tuple[Verdict, int | None, int | None]]], int | None]],
    since: int,
    partitioned: bool,
    at_once: int,
) -> None:
    empty()
    if partitioned:
        make(RESULTS, RESULTS.wanted(now=NOON))
    found: list[Found] = []
    now = NOON
    for passing, batch, hours in story:
        now += timedelta(seconds=passing)
        came = [Found(monitor_id, now - age, *seen) for monitor_id, age, seen in batch]
        store(came, now=now)
        found += came
        if hours is not None:
            with mock.patch.object(rollups, "MONITORS_AT_ONCE", at_once):
                roll_up(now, most=hours)
    with mock.patch.object(rollups, "MONITORS_AT_ONCE", at_once):
        roll_up(now)
    assert not LateHour.objects.exists()
    until = rolled_until()
    if until is None:  # no hour with results has ended
        until = start_of_hour(now - rollups.GRACE)
        assert not counted(found, until=until)
    assert until >= start_of_hour(now - rollups.GRACE)
    assert stored(until=until) == counted(found, until=until)
    start = now - timedelta(seconds=since)
    by_monitor, by_day = means(found, since=start)
    assert average_latency(MONITORS, since=start) == pytest.approx(by_monitor, abs=0.011)
    assert average_latency([MONITORS[0]], since=start).keys() <= {MONITORS[0]}
    for monitor_id in MONITORS:
        assert daily_latency(monitor_id, since=start) == pytest.approx(by_day.get(monitor_id, {}), abs=0.011)


@pytest.mark.django_db(databases="__all__")
class TestHours:
    def test_an_hour_is_closed_a_while_after_its_end(self) -> None:
        store([Found(3, NOON + timedelta(minutes=59))], now=NOON + timedelta(minutes=59))
        roll_up(NOON + HOUR + rollups.GRACE - timedelta(microseconds=1))
        assert not HourlyRollup.objects.exists()
        roll_up(NOON + HOUR + rollups.GRACE)
        assert HourlyRollup.objects.get().hour == NOON

    def test_what_comes_in_order_leaves_no_note(self) -> None:
        store([Found(3, NOON)], now=NOON)
        roll_up(NOON + HOUR + PAST_GRACE)
        for minute in range(10, 15):
            at = NOON + HOUR + timedelta(minutes=minute)
            store([Found(3, at)], now=at + timedelta(seconds=1))
        assert not LateHour.objects.exists()

    def test_after_a_long_stop_it_catches_up_run_by_run(self) -> None:
        store([Found(3, NOON), Found(3, NOON + 99 * HOUR)], now=NOON)
        now = NOON + 100 * HOUR + PAST_GRACE
        assert [roll_up(now) for _ in range(4)] == [48, 48, 4, 0]
        assert set(HourlyRollup.objects.values_list("hour", flat=True)) == {NOON, NOON + 99 * HOUR}

    def test_rolling_up_begins_with_what_is_kept(self) -> None:
        wrong_clock = datetime(1999, 1, 1, tzinfo=NOON.tzinfo)
        store([Found(3, wrong_clock), Found(3, NOON)], now=NOON)
        roll_up(NOON + 2 * HOUR)
        until = rolled_until()
        assert until is not None
        assert until >= NOON - 14 * DAY
        while roll_up(NOON + 2 * HOUR):
            pass
        assert HourlyRollup.objects.get().hour == NOON

    def test_a_result_older_than_is_kept_does_not_spoil_its_roll_up(self) -> None:
        """The other results of its hour may be deleted by then."""
        store([Found(3, NOON)] * 3, now=NOON)
        roll_up(NOON + 2 * HOUR)
        CheckResult.objects.all().delete()
        later = NOON + 14 * DAY
        store([Found(3, NOON)], now=later)
        roll_up(later)
        assert HourlyRollup.objects.get().up == 3
        assert not LateHour.objects.exists()

    def test_notes_are_worked_off_in_bounded_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rollups, "LATE_AT_ONCE", 4)
        monkeypatch.setattr(rollups, "LATE_PER_RUN", 8)
        store([Found(3, NOON)], now=NOON)
        roll_up(NOON + 2 * HOUR)
        for _ in range(10):
            store([Found(3, NOON)], now=NOON + 2 * HOUR)
        roll_up(NOON + 2 * HOUR)
        assert LateHour.objects.count() == 2
        roll_up(NOON + 2 * HOUR)
        assert not LateHour.objects.exists()
        assert HourlyRollup.objects.get().up == 11

    def test_a_heartbeat_may_be_pinged_a_hundred_thousand_times_an_hour(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO checks_checkresult (monitor_id, checked_at, claim, verdict, latency_ms)"
                " SELECT 3, %s, n, 'up', 60000 FROM generate_series(1, 100000) AS n",
                [NOON],
            )
        roll_up(NOON + 2 * HOUR)
        rollup = HourlyRollup.objects.get()
        assert (rollup.up, rollup.latency_sum) == (100_000, 6_000_000_000)
        assert average_latency([3], since=NOON - DAY) == {3: 60_000}


@pytest.mark.django_db(databases="__all__")
class TestParts:
    @pytest.fixture(autouse=True)
    def _two_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rollups, "MONITORS_AT_ONCE", 2)

    def test_a_run_that_fails_is_continued_by_the_next_one(self) -> None:
        found = [Found(monitor_id, NOON + timedelta(minutes=number)) for number, monitor_id in enumerate((3, 4, 5, 8))]
        store(found, now=NOON + timedelta(minutes=5))
        now = NOON + HOUR + PAST_GRACE
        with refusing("monitor_id = 5"), pytest.raises(IntegrityError):
            roll_up(now)
        assert rolled_until() == NOON, "the hour is not complete"
        assert rolled_monitors() == [3, 4]
        late = [Found(monitor_id, NOON + timedelta(minutes=50)) for monitor_id in (2, 3, 5, 9)]
        store(late, now=now)
        assert roll_up(now) == 1
        assert stored(until=now) == counted([*found, *late], until=NOON + HOUR)

    def test_a_part_is_not_repeated(self) -> None:
        store([Found(monitor_id, NOON) for monitor_id in (3, 8)], now=NOON)
        now = NOON + HOUR + PAST_GRACE
        with refusing("monitor_id = 8"), pytest.raises(IntegrityError):
            roll_up(now)
        with refusing("monitor_id = 3", existing=False):
            assert roll_up(now) == 1
        assert rolled_monitors() == [3, 8]

    def test_an_earlier_version_that_completes_the_hour_leaves_nothing_out_of_the_next_one(self) -> None:
        found = [Found(monitor_id, NOON + hour * HOUR) for hour in range(2) for monitor_id in (3, 8)]
        store(found, now=NOON + HOUR)
        with refusing("monitor_id = 8"), pytest.raises(IntegrityError):
            roll_up(NOON + HOUR + PAST_GRACE)
        RollupProgress.objects.update(rolled_until=NOON + HOUR)
        roll_up(NOON + 2 * HOUR + PAST_GRACE)
        assert stored(until=NOON + 2 * HOUR).keys() == {(3, NOON), (3, NOON + HOUR), (8, NOON + HOUR)}


@contextmanager
def refusing(rows: str, *, existing: bool = True) -> Iterator[None]:
    """Let the database reject these roll-ups. Without `existing`, rows that exist may stay, but not be written."""
    with ROLLUPS.cursor() as cursor:
        valid = "" if existing else "NOT VALID"
        cursor.execute(f"ALTER TABLE checks_hourlyrollup ADD CONSTRAINT refused CHECK (NOT ({rows})) {valid}")
        yield
        cursor.execute("ALTER TABLE checks_hourlyrollup DROP CONSTRAINT refused")


def rolled_monitors() -> list[int]:
    return list(HourlyRollup.objects.order_by("monitor_id").values_list("monitor_id", flat=True))


@pytest.mark.usefixtures("restored_partitions")
@pytest.mark.django_db(transaction=True, databases="__all__")
class TestBesideEachOther:
    def test_each_part_is_one_transaction_of_few_monitors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rollups, "MONITORS_AT_ONCE", 3)
        store_quietly([Found(monitor_id, NOON) for monitor_id in (1, 2, 3, 4, 5, 1_000, 1_001)])
        roll_up(NOON + HOUR + PAST_GRACE)
        with ROLLUPS.cursor() as cursor:
            cursor.execute(
                "SELECT array_agg(monitor_id ORDER BY monitor_id) FROM checks_hourlyrollup GROUP BY xmin::text"
            )
            parts = sorted(monitors for (monitors,) in cursor.fetchall())
        assert parts == [[1, 2, 3], [4, 5], [1_000, 1_001]]

    @pytest.mark.parametrize("at_once", [1, 10_000])
    def test_jobs_and_late_results_at_once(self, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """The clock of the process is long after NOON, so all of these are late."""
        monkeypatch.setattr(rollups, "MONITORS_AT_ONCE", at_once)
        hours, rounds = 6, 15
        end = NOON + hours * HOUR + PAST_GRACE
        chance = random.Random(5)
        sent: list[list[Found]] = [
            [
                Found(chance.choice(MONITORS), NOON + timedelta(seconds=chance.randrange(hours * 3600)))
                for _ in range(rounds * 4)
            ]
            for _ in range(3)
        ]
        first = [Found(monitor_id, NOON) for monitor_id in MONITORS]
        store_quietly(first)

        def record(found: list[Found]) -> None:
            for start in range(0, len(found), 4):
                store_quietly(found[start : start + 4])

        def job() -> None:
            for _ in range(rounds):
                roll_up(end, most=1)

        run_concurrently(*[partial(record, found) for found in sent], job, job)
        while roll_up(end):
            pass
        found = [*first, *chain(*sent)]
        assert stored(until=end) == counted(found, until=start_of_hour(end))
        assert not LateHour.objects.exists()

    def test_an_hour_is_not_closed_under_a_result_that_is_being_stored(self) -> None:
        store_quietly([Found(3, NOON)])
        with Holding([Found(3, NOON + timedelta(minutes=1))]) as holding:
            job = threading.Thread(target=partial(in_thread, partial(roll_up, NOON + HOUR + PAST_GRACE)))
            job.start()
            job.join(0.5)
            assert job.is_alive(), "it waits for the transaction"
            holding.let_go()
            job.join(20)
        assert HourlyRollup.objects.get().up == 2

    def test_a_result_stored_while_its_hour_is_rolled_up_is_counted_by_the_next_run(self) -> None:
        store_quietly([Found(3, NOON)])
        roll_up(NOON + HOUR + PAST_GRACE)
        with Holding([Found(3, NOON + timedelta(minutes=1))]) as holding:
            roll_up(NOON + HOUR + 2 * PAST_GRACE)
            assert HourlyRollup.objects.get().up == 1
            holding.let_go()
        roll_up(NOON + HOUR + 2 * PAST_GRACE)
        assert HourlyRollup.objects.get().up == 2

    def test_results_are_kept_until_they_are_rolled_up(self) -> None:
        make(RESULTS, [RESULTS.bounds(NOON), RESULTS.bounds(NOON + DAY)])
        store_quietly([Found(3, NOON), Found(3, NOON + DAY)])
        later = NOON + 20 * DAY
        keep_partitions(later)
        assert CheckResult.objects.count() == 2, "nothing is rolled up yet"
        # As after an interrupted job.
        RollupProgress.objects.update(closed_until=NOON + 3 * DAY, rolled_until=NOON + 12 * HOUR)
        keep_partitions(later)
        assert [result.checked_at for result in CheckResult.objects.all()] == [NOON + DAY]
        roll_up(later)
        keep_partitions(later)
        assert not CheckResult.objects.exists()


class Holding:
    """Store results in a transaction of another thread, which stays open until `let_go`."""

    def __init__(self, found: list[Found]) -> None:
        self._found = found
        self._stored, self._go = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=partial(in_thread, self._hold))

    def _hold(self) -> None:
        with transaction.atomic():
            store_quietly(self._found)
            self._stored.set()
            assert self._go.wait(20)

    def __enter__(self) -> Holding:
        self._thread.start()
        assert self._stored.wait(20)
        return self

    def let_go(self) -> None:
        self._go.set()
        self._thread.join(20)

    def __exit__(self, *_: object) -> None:
        self.let_go()


def in_thread(action: Any) -> None:
    try:
        action()
    finally:
        connection.close()

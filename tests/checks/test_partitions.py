"""Partitions of the table of results: created ahead, filled from the default partition, dropped when old."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import time_machine
from django.core import checks
from django.db import connection, transaction

from checks.results import partitions
from checks.results.models import CheckResult
from checks.results.partitions import RESULTS, SERIES, Bounds, delete_strays, drop, make, parts
from checks.results.retention import keep_partitions
from checks.results.rollups import roll_up
from checks.results.store import NewResult, store_results, stored_claims
from checks.spec import Verdict
from monitors.heartbeats import log
from monitors.heartbeats.incoming import Signal, Target
from monitors.heartbeats.log import PINGS
from monitors.models import Ping
from tests.api.client import Api
from tests.factories import MonitorFactory
from tests.helpers import NOON, outcome, run_concurrently
from tests.processes.waiting import until

DAY = timedelta(days=1)


def store(*moments: datetime, monitor_id: int = 7) -> None:
    store_results(
        [NewResult(monitor_id, claim, outcome(Verdict.UP, at=at)) for claim, at in enumerate(moments, start=1)]
    )


def rows_by_part() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text, count(*) FROM checks_checkresult GROUP BY 1")
        return dict(cursor.fetchall())


def amid_the_lock(held: threading.Event, change: Callable[[], object]) -> object:
    """Return the result of `change`, called while holding a lock for which another session waits."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(hashtextextended('partitions', 0))")
            held.set()
            until(another_session_waits, 30, "another session waits for the lock")
            returned = change()
            cursor.execute("SELECT pg_advisory_unlock_all()")
        return returned
    finally:
        connection.close()


def another_session_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event = 'advisory')"
        )
        return bool(cursor.fetchone()[0])


def day(of: datetime) -> Bounds:
    return RESULTS.bounds(of)


@pytest.mark.parametrize(
    ("moment", "monthly", "expected"),
    [
        (NOON, False, ("2026-03-01", "2026-03-02", "p20260301")),
        (datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), False, ("2026-12-31", "2027-01-01", "p20261231")),
        (NOON, True, ("2026-03-01", "2026-04-01", "p202603")),
        (datetime(2028, 2, 29, tzinfo=UTC), True, ("2028-02-01", "2028-03-01", "p202802")),
        (datetime(2026, 12, 31, tzinfo=UTC), True, ("2026-12-01", "2027-01-01", "p202612")),
    ],
)
def test_bounds_and_names(moment: datetime, monthly: bool, expected: tuple[str, str, str]) -> None:
    series = partitions.Series("t", "at", monthly=monthly)
    start, end = series.bounds(moment)
    name = series.name(start)
    assert (start.date().isoformat(), end.date().isoformat(), name) == (*expected[:2], f"t_{expected[2]}")
    assert series.start(name) == start
    assert series.bounds(end) != (start, end)


@pytest.mark.usefixtures("restored_partitions")
@pytest.mark.django_db(transaction=True)
class TestPartitions:
    """Start with the partitions of the migration, and drop those of the test."""

    def test_the_migration_made_the_first_week(self) -> None:
        there = parts(RESULTS)
        assert len(there) >= 9
        assert all(end - start == DAY for start, end in there)

    def test_nine_days_are_made_once(self) -> None:
        wanted = RESULTS.wanted(now=NOON)
        assert [start.day for start, _ in wanted] == [28, 1, 2, 3, 4, 5, 6, 7, 8]
        assert sorted(make(RESULTS, wanted)) == [RESULTS.name(start) for start, _ in wanted]
        assert make(RESULTS, wanted) == []
        assert set(wanted) <= set(parts(RESULTS))

    def test_rows_that_wait_in_the_default_partition_move_in(self) -> None:
        midnight, _ = day(NOON)
        inside = [midnight, NOON, midnight + DAY - timedelta(microseconds=1)]
        store(*inside, midnight - timedelta(microseconds=1), midnight + DAY)
        assert rows_by_part() == {RESULTS.default: 5}
        make(RESULTS, [day(NOON)])
        assert rows_by_part() == {RESULTS.default: 2, RESULTS.name(midnight): 3}
        assert CheckResult.objects.filter(checked_at__in=inside).count() == 3
        store(NOON, monitor_id=8)
        assert rows_by_part()[RESULTS.name(midnight)] == 4

    def test_a_day_with_too_many_rows_to_move_stays_in_the_default_partition(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(partitions, "MOST_MOVED", 2)
        store(NOON, NOON, NOON)
        assert make(RESULTS, [day(NOON), day(NOON + DAY)]) == [RESULTS.name(day(NOON + DAY)[0])]
        assert "too many" in caplog.text
        assert rows_by_part() == {RESULTS.default: 3}

    def test_four_at_once_in_threads_while_results_come(self) -> None:
        wanted = RESULTS.wanted(now=NOON)

        def record(offset: int) -> None:
            for minute in range(40):
                store(NOON + timedelta(minutes=minute, seconds=offset), monitor_id=offset)

        made = run_concurrently(*[partial(make, RESULTS, wanted)] * 4, partial(record, 1), partial(record, 2))
        names = [name for some in made[:4] for name in some or []]  # type: ignore[attr-defined]
        assert sorted(names) == [RESULTS.name(start) for start, _ in wanted], "each was made by one of them"
        assert CheckResult.objects.count() == 80
        assert rows_by_part() == {RESULTS.name(day(NOON)[0]): 80}

    def test_partitions_created_and_dropped_while_waiting_are_seen(self) -> None:
        """Also in a session that has cached the existence or absence of the name."""
        bounds, name = day(NOON), RESULTS.name(day(NOON)[0])
        for change in (partial(make, RESULTS, [bounds]), partial(drop, RESULTS, before=bounds[1])):
            with connection.cursor() as cursor:
                cursor.execute("SELECT to_regclass(%s)", [name])
            with ThreadPoolExecutor() as pool:
                held = threading.Event()
                other = pool.submit(amid_the_lock, held, change)
                assert held.wait(10)
                assert change() == []
                assert other.result(10) == [name]

    def test_old_days_are_dropped_whole(self) -> None:
        make(RESULTS, RESULTS.wanted(now=NOON))
        store(NOON - DAY, NOON, NOON - 3 * DAY)
        last_of_the_day = day(NOON)[0]
        assert drop(RESULTS, before=last_of_the_day - timedelta(microseconds=1)) == []
        assert drop(RESULTS, before=last_of_the_day) == [RESULTS.name(day(NOON - DAY)[0])]
        assert drop(RESULTS, before=last_of_the_day) == []
        assert sorted(CheckResult.objects.values_list("checked_at", flat=True)) == [NOON - 3 * DAY, NOON]
        assert delete_strays(RESULTS, before=last_of_the_day) == 1
        assert rows_by_part() == {RESULTS.name(last_of_the_day): 1}

    def test_strays_go_batch_by_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(partitions, "STRAYS_AT_ONCE", 3)
        store(*[NOON] * 7, NOON + DAY)
        assert delete_strays(RESULTS, before=NOON + timedelta(seconds=1)) == 7
        assert rows_by_part() == {RESULTS.default: 1}

    def test_retention_keeps_what_the_setting_says(self, settings: object) -> None:
        settings.RESULTS_KEPT_DAYS = 3  # type: ignore[attr-defined]
        make(RESULTS, [day(NOON + back * DAY) for back in range(-6, 1)])
        store(*[NOON + back * DAY for back in range(-8, 1)])
        while roll_up(NOON):
            pass
        keep_partitions(NOON)
        kept = sorted(CheckResult.objects.values_list("checked_at", flat=True))
        assert kept == [NOON + back * DAY for back in (-3, -2, -1, 0)]
        there = parts(RESULTS)
        assert set(RESULTS.wanted(now=NOON)) <= set(there)
        keep_partitions(NOON)
        assert parts(RESULTS) == there

    def test_signals_are_kept_as_long_as_results(self, settings: object) -> None:
        settings.RESULTS_KEPT_DAYS = 3  # type: ignore[attr-defined]
        make(PINGS, [day(NOON + back * DAY) for back in range(-6, 1)])
        times = [NOON + back * DAY for back in range(-8, 1)]
        signals = [Signal(Target("mon_a", Ping.Kind.LOG), at) for at in times]
        monitor = MonitorFactory(heartbeat=True)
        log.add([log.Entry(monitor.pk, signal, signal.at, None) for signal in signals])
        api, path = Api.signed_in(monitor.owner), f"/v1/monitors/{monitor.public_id}/pings"
        dropped = api.get(f"{path}?limit=4").headers["Link"].partition(">")[0].removeprefix("<")
        keep_partitions(NOON)
        assert len(api.get(path).json) == 4
        gone = api.get(dropped)
        assert (gone.status, gone.json, gone.headers.get("Link")) == (200, [], None)
        assert sorted(Ping.objects.values_list("at", flat=True)) == times[-4:]
        assert set(PINGS.wanted(now=NOON)) <= set(parts(PINGS))

    def test_it_steps_back_from_a_lock_and_comes_again(self, caplog: pytest.LogCaptureFixture) -> None:
        """A long transaction that has read old results must not block recording through our lock."""
        make(RESULTS, [day(NOON)])
        held, done = threading.Event(), threading.Event()

        def read() -> None:
            try:
                with transaction.atomic():
                    assert not CheckResult.objects.exists()
                    held.set()
                    assert done.wait(20)
            finally:
                connection.close()

        reader = threading.Thread(target=read)
        reader.start()
        assert held.wait(10)
        with caplog.at_level(logging.WARNING):
            assert drop(RESULTS, before=NOON + DAY) == []
        assert "the next run retries" in caplog.text
        store(NOON)
        done.set()
        reader.join()
        assert drop(RESULTS, before=NOON + DAY) == [RESULTS.name(day(NOON)[0])]

    def test_a_claim_is_found_across_midnight_and_in_the_default_partition(self) -> None:
        midnight = day(NOON)[0]
        make(RESULTS, [day(NOON)])
        store(midnight - timedelta(seconds=1))
        for at in (midnight - timedelta(seconds=1), midnight, midnight + timedelta(minutes=59)):
            assert stored_claims([NewResult(7, 1, outcome(Verdict.UP, at=at))]) == {(7, 1)}
        assert stored_claims([NewResult(7, 2, outcome(Verdict.UP, at=midnight))]) == set()
        assert stored_claims([NewResult(8, 1, outcome(Verdict.UP, at=midnight))]) == set()

    def test_the_system_check_looks_two_days_ahead(self) -> None:
        def found(now: datetime) -> list[str | None]:
            with time_machine.travel(now, tick=False):
                messages = checks.run_checks(tags=[checks.Tags.database], databases=["default"])
            return [message.id for message in messages]

        for series in SERIES:
            make(series, series.wanted(now=NOON))
        assert found(NOON) == []
        assert found(NOON + 5 * DAY) == []
        assert found(NOON + 6 * DAY) == ["checks.W001"] * 2, "results and pings; roll-ups have months"

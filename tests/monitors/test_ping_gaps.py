"""A collapse of incoming pings: what is held back, for whom, for how long, and where the deadlines are afterwards."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import User
from core.db import separate_connection
from dashboard.monitors.listing import Listing, matching
from dashboard.monitors.rows import rows_of
from monitors.heartbeats import gaps
from monitors.heartbeats.signals import record, sweep
from monitors.models import Monitor, MonitorState, PingGap, SchedulerTick, StatusChange
from monitors.operations import mute_for
from monitors.scheduling import claim_due, tick
from monitors.services import update_monitor
from projects.access import Caller
from statuspages.badges import create_badge, draw
from statuspages.content import content_of
from statuspages.models import PageGroup, PageMonitor, StatusPage
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, record_ping, run_concurrently, signal, state_of

pytestmark = pytest.mark.django_db

INTERVAL, GRACE = 60, 60
HOUR, DAY = 3_600, 86_400
STOP = 600
"""The second at which pings stop: every heartbeat has pinged in the minute before."""


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def heartbeat(owner: User, **given: Any) -> Monitor:
    return MonitorFactory(owner=owner, heartbeat=True, **{"interval_sec": INTERVAL, "grace_sec": GRACE, **given})


class Fleet:
    """Heartbeats of many accounts, and the time that passes for them second by second."""

    def __init__(self, *counts: int, **settings: Any) -> None:
        self.accounts = [UserFactory() for _ in counts]
        self.monitors = [
            heartbeat(owner, **settings)
            for owner, count in zip(self.accounts, counts, strict=True)
            for _ in range(count)
        ]

    def of(self, account: int) -> list[Monitor]:
        return [monitor for monitor in self.monitors if monitor.owner == self.accounts[account]]

    def ping(self, second: float, *monitors: Monitor) -> None:
        """Ping with all, one after the other within the last 20 s before `second`."""
        chosen = monitors or tuple(self.monitors)
        for number, monitor in enumerate(chosen):
            record_ping(monitor.public_id, now=at(second - 20 * number / len(chosen)))


def beat(second: float) -> None:
    """What the scheduler does at that second."""
    now = at(second)
    tick(now)
    gaps.watch(now)
    sweep([claim.monitor_id for claim in claim_due(now, limit=10_000)], now=now)


def beats(start: float, end: float, *, step: float = 5) -> None:
    second = start
    while second <= end:
        beat(second)
        second += step


def multiply(model: type[Model], key: str, **changed: str) -> None:
    """Insert 20,000 copies of each row."""
    primary = model._meta.pk
    assert primary is not None
    columns = {str(field.column): str(field.column) for field in model._meta.concrete_fields}
    columns |= changed | {str(primary.column): key}
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {model._meta.db_table} ({', '.join(columns)}) "
            f"SELECT {', '.join(columns.values())} FROM {model._meta.db_table}, generate_series(1, 20000) AS number"
        )
        cursor.execute(f"ANALYZE {model._meta.db_table}")


def down() -> set[int]:
    return set(MonitorState.objects.filter(status="down").values_list("pk", flat=True))


def test_missed_deadlines_of_most_accounts_are_held_back_and_move_when_pings_return() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    fleet.ping(STOP)
    beats(STOP, STOP + 300)
    assert not down()
    assert not StatusChange.objects.filter(after="down").exists()
    gap = PingGap.objects.get()
    assert gap.ended_at is None
    assert at(STOP - 20) <= gap.started_at <= at(STOP)
    fleet.ping(STOP + 320)
    beat(STOP + 320)
    gap.refresh_from_db()
    assert gap.ended_at == at(STOP + 320)
    beats(STOP + 325, STOP + 400)
    assert not down()
    beats(STOP + 405, STOP + 450)
    assert not down(), "another gap: they are silent again"
    assert PingGap.objects.count() == 2


def test_whoever_stays_silent_after_the_gap_is_down_after_the_moved_deadline() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    dead, *others = fleet.monitors
    fleet.ping(STOP)
    beats(STOP, STOP + 300)
    for second in range(STOP + 320, STOP + 900, 60):
        fleet.ping(second, *others)
        beats(second, second + 55)
        if down():
            break
    assert down() == {dead.pk}
    gap = PingGap.objects.get()
    assert gap.ended_at is not None
    deadline = at(STOP + INTERVAL + GRACE)
    since = state_of(dead).status_since
    assert since is not None
    assert since >= deadline + (gap.ended_at - gap.started_at)
    assert since <= deadline + (gap.ended_at - gap.started_at) + timedelta(seconds=INTERVAL)


@pytest.mark.parametrize("counts", [(1_0, 0, 0, 0, 0), (30, 1, 1, 1, 1)], ids=["alone", "among others"])
def test_a_mass_outage_of_one_customer_alerts_at_once(counts: tuple[int, ...]) -> None:
    fleet = Fleet(*counts)
    fleet.ping(STOP)
    fleet.ping(STOP + 60, *[one for account in range(1, 5) for one in fleet.of(account)] or fleet.of(0)[:1])
    for second in (STOP + 100, STOP + 119, STOP + 125):
        beat(second)
    assert {one.pk for one in fleet.of(0)[1:]} <= down()
    assert not PingGap.objects.exists()


def test_sweeps_do_not_wait_for_each_other_while_many_accounts_miss_but_not_most() -> None:
    fleet = Fleet(*[4] * 12)
    fleet.ping(STOP)
    fleet.ping(STOP + 115, *[one for account in range(5, 12) for one in fleet.of(account)])
    with separate_connection(patience_sec=30) as other, connection.cursor() as cursor:
        other.execute("SELECT pg_advisory_lock(hashtextextended('ping gap', 0))")
        cursor.execute("SET LOCAL lock_timeout = '3s'")
        beat(STOP + 125)
    assert {one.pk for account in range(5) for one in fleet.of(account)} <= down()


def test_no_account_prevents_a_gap_by_its_many_pings() -> None:
    fleet = Fleet(4, 4, 4, 4, 4, 100)
    fleet.ping(STOP)
    for second in range(STOP, STOP + 180, 20):
        fleet.ping(second, *fleet.of(5))
        beats(second, second + 15)
    assert not down()
    assert PingGap.objects.filter(ended_at=None).exists()


def test_deadlines_are_held_back_for_an_hour_at_most() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    fleet.ping(STOP)
    beats(STOP, STOP + 3_600, step=20)
    assert not down()
    gap = PingGap.objects.get()
    last = (gap.held_until - NOON).total_seconds()
    beats(STOP + 3_620, last, step=20)
    assert not down()
    beat(last + 1)
    assert len(down()) == 20, "silence is not hidden for ever"
    assert PingGap.objects.get().ended_at is None, "and the operator is still alerted"


def test_deadlines_are_held_back_for_an_hour_in_a_day_only() -> None:
    PingGap.objects.create(started_at=NOON - timedelta(hours=3), held_until=NOON, ended_at=NOON - timedelta(hours=1))
    fleet = Fleet(4, 4, 4, 4, 4)
    fleet.ping(STOP)
    beats(STOP, STOP + 150)
    assert len(down()) == 20
    assert PingGap.objects.filter(ended_at=None).count() == 1


@pytest.mark.parametrize("interval", [60, 300, 3_600])
@pytest.mark.parametrize("length", [150, 601, 2_000])
def test_a_job_that_goes_on_in_its_rhythm_never_alerts(interval: int, length: int) -> None:
    """Its ping that the gap swallowed does not come again: the next one comes an interval later."""
    fleet = Fleet(4, 4, 4, 4, 4)
    job = heartbeat(fleet.accounts[0], interval_sec=interval)
    expected = STOP + 10
    record_ping(job.public_id, now=at(expected - interval))
    fleet.ping(STOP)
    beats(STOP, STOP + length)
    while expected <= STOP + length:
        expected += interval
    for second in range(STOP + length + 20, expected + 60, 60):
        fleet.ping(second)
        beats(second, max(second, min(second + 55, expected)), step=15)
    assert PingGap.objects.get().ended_at is not None
    assert not down()


def test_a_job_with_a_schedule_is_expected_at_its_next_time_after_the_gap() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    job = heartbeat(fleet.accounts[0], schedule="11 * * * *", timezone="UTC")
    fleet.ping(STOP)
    record_ping(job.public_id, now=at(STOP))
    beats(STOP, STOP + 300)
    fleet.ping(STOP + 320)
    beat(STOP + 320)
    assert state_of(job).next_due_at == at(71 * 60 + GRACE)


def test_a_run_whose_end_the_gap_swallowed_moves_too() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    job = heartbeat(fleet.accounts[0], interval_sec=86_400, grace_sec=120)
    record_ping(job.public_id, now=at(0))
    record(signal(job.public_id, "start", now=at(STOP - 5)))
    fleet.ping(STOP)
    beats(STOP, STOP + 300)
    fleet.ping(STOP + 320)
    beats(STOP + 320, STOP + 430)
    assert not down() & {job.pk}
    assert record(signal(job.public_id, now=at(STOP + 440)))
    assert state_of(job).status == "up"
    assert state_of(job).armed_at is None


def test_a_ping_in_the_gap_ends_the_hold_of_its_heartbeat() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    fleet.ping(STOP)
    beats(STOP, STOP + 200)
    one = fleet.monitors[0]
    assert state_of(one).armed_at == PingGap.objects.get().held_until
    record_ping(one.public_id, now=at(STOP + 201))
    assert state_of(one).armed_at is None
    assert state_of(one).next_due_at == at(STOP + 201 + INTERVAL + GRACE)


def test_a_deadline_that_is_held_back_is_shown_as_unknown() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    fleet.ping(STOP)
    beats(STOP, STOP + 200)
    one, two = fleet.of(0)[:2]
    record_ping(two.public_id, now=at(STOP + 201))
    caller, now = Caller(one.owner), at(STOP + 202)
    badges = {monitor.pk: create_badge(caller, monitor.public_id, now=now).key for monitor in (one, two)}
    assert b"unknown" in draw(badges[one.pk], "status", now=now)
    assert b"up" in draw(badges[two.pk], "status", now=now)
    listed = matching(caller, Listing(state="pending"), now=now)
    assert one in listed
    assert two not in listed
    one, two = Monitor.objects.select_related("state", "project").filter(pk__in=[one.pk, two.pk]).order_by("pk")
    rows = {row.monitor.pk: row.standing for row in rows_of([one, two], now=now)}
    assert rows[one.pk] == "pending"
    assert rows[two.pk] == "up"
    page = StatusPage.objects.create(owner=one.owner, created_at=now, name="Shop", slug="shop")
    group = PageGroup.objects.create(page=page)
    for monitor in (one, two):
        PageMonitor.objects.create(page=page, group=group, monitor=monitor, name=monitor.name)
    (shown,) = content_of(page, now=now).groups
    assert [entry["status"] for entry in shown["monitors"]] == ["unknown", "up"]


def test_a_deadline_whose_hold_ends_while_we_are_stopped_moves() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    fleet.ping(STOP)
    beats(STOP, STOP + 300)
    held_until = (PingGap.objects.get().held_until - NOON).total_seconds()
    beats(STOP + 320, held_until - 1, step=25)
    beat(held_until + 600)
    assert not down(), "their next pings are lost until we run again"
    beats(held_until + 620, held_until + 600 + INTERVAL + GRACE + 20, step=20)
    assert len(down()) == 20


def test_edits_and_mutes_do_not_release_a_deadline() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    fleet.ping(STOP)
    beats(STOP, STOP + 200)
    one, two = fleet.monitors[:2]
    update_monitor(Caller(one.owner), one.public_id, {"grace_sec": 70}, now=at(STOP + 201))
    mute_for([two.pk], minutes=1, now=at(STOP + 201))
    mute_for([two.pk], minutes=0, now=at(STOP + 202))
    beats(STOP + 203, STOP + 300)
    assert not down()


def stop(start: float, end: float) -> None:
    """Let the scheduler run at `start` and not again until `end`."""
    SchedulerTick.objects.update_or_create(id=1, defaults={"at": at(start)})
    tick(at(end))


DAILY = {"interval_sec": DAY, "schedule": "0 12 * * *", "timezone": "UTC", "grace_sec": HOUR}
# A job whose ping at 12:00 is lost: Pulsekeeper is stopped from 11:55 to 12:05.
LOST = (-300, 300)


def daily_job(**given: Any) -> Monitor:
    job = heartbeat(UserFactory(), **DAILY | given)
    record_ping(job.public_id, now=at(-DAY))
    return job


@pytest.mark.parametrize("settings", [{}, {"schedule": None}], ids=["schedule", "interval"])
@pytest.mark.parametrize(
    "edits",
    [
        [{"name": "Nightly"}],
        [{"grace_sec": 2 * HOUR}],
        [{"schedule": "1 12 * * *"}],
        [{"enabled": False}, {"enabled": True}],
    ],
    ids=["name", "grace", "schedule", "pause"],
)
def test_an_edit_keeps_a_deadline_that_moved(settings: dict[str, Any], edits: list[dict[str, Any]]) -> None:
    """Also before the old deadline has passed, at 13:00, and at least until the next ping by the new settings."""
    job = daily_job(**settings)
    stop(*LOST)
    for edit in edits:
        update_monitor(Caller(job.owner), job.public_id, edit, now=at(HOUR / 2))
    job = Monitor.objects.get(pk=job.pk)
    for second in (HOUR / 2 + 1, HOUR + 61, 2 * HOUR + 1, DAY + job.options["grace_sec"] - 1):
        sweep([claim.monitor_id for claim in claim_due(at(second), limit=10)], now=at(second))
        assert not down()
    sweep([claim.monitor_id for claim in claim_due(at(3 * DAY), limit=10)], now=at(3 * DAY))
    assert down() == {job.pk}


def judge(second: float) -> None:
    sweep([claim.monitor_id for claim in claim_due(at(second), limit=10)], now=at(second))


@pytest.mark.parametrize("settings", [{}, {"schedule": None}], ids=["schedule", "interval"])
def test_daily_stops_do_not_excuse_a_dead_job(settings: dict[str, Any]) -> None:
    job = daily_job(**settings)
    for day in range(2):
        start = day * DAY + HOUR / 2
        judge(start)
        assert not down()
        stop(start, start + 60)
    judge(DAY + HOUR + 59)
    assert not down()
    judge(DAY + HOUR + 61)
    assert down() == {job.pk}


def test_each_ping_lets_the_next_stop_move_the_deadline_as_the_first() -> None:
    job = daily_job()
    stop(*LOST)
    record_ping(job.public_id, now=at(DAY))
    stop(2 * DAY - 300, 2 * DAY + 300)
    assert state_of(job).next_due_at == at(3 * DAY + HOUR)


@pytest.mark.parametrize("settings", [{}, {"schedule": None}], ids=["schedule", "interval"])
def test_a_run_after_the_move_has_its_own_deadline(settings: dict[str, Any]) -> None:
    job = daily_job(**settings)
    stop(*LOST)
    record(signal(job.public_id, "start", now=at(2 * HOUR)))
    judge(3 * HOUR)
    assert not down()
    judge(3 * HOUR + 1)
    assert down() == {job.pk}


def test_most_paused_or_deleted_heartbeats_are_not_missing() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    fleet.ping(STOP)
    for monitor in fleet.monitors[:-1]:
        update_monitor(Caller(monitor.owner), monitor.public_id, {"enabled": False}, now=at(STOP + 30))
    beats(STOP + 100, STOP + 150)
    assert down() == {fleet.monitors[-1].pk}


@pytest.mark.django_db(transaction=True)
def test_two_dispatchers_begin_and_end_one_gap() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    fleet.ping(STOP)
    due = at(STOP + 121)
    shares = [[claim.monitor_id for claim in claim_due(due, limit=10)] for _ in range(2)]
    run_concurrently(*[lambda ids=ids: sweep(ids, now=due) for ids in shares])
    assert PingGap.objects.count() == 1
    assert not down()
    fleet.ping(STOP + 320)
    run_concurrently(*[lambda: gaps.watch(at(STOP + 321))] * 2)
    assert PingGap.objects.get().ended_at == at(STOP + 321)
    assert not MonitorState.objects.filter(next_due_at__lte=at(STOP + 321)).exists()


def test_a_worker_that_is_lost_between_claim_and_sweep_loses_nothing() -> None:
    fleet = Fleet(4, 4, 4, 4, 4)
    fleet.ping(STOP)
    claim_due(at(STOP + 121), limit=100)
    with transaction.atomic():  # lost before it commits
        sweep([monitor.pk for monitor in fleet.monitors], now=at(STOP + 121))
        transaction.set_rollback(True)
    assert not PingGap.objects.exists()
    beats(STOP + 125, STOP + 300)
    assert not down()
    assert PingGap.objects.count() == 1
    fleet.ping(STOP + 320)
    with transaction.atomic():
        gaps.watch(at(STOP + 320))
        transaction.set_rollback(True)
    assert PingGap.objects.get().ended_at is None
    beats(STOP + 321, STOP + 380)
    assert not down()
    assert PingGap.objects.get().ended_at is not None


def test_the_first_question_reads_an_index() -> None:
    fleet = Fleet(1)
    fleet.ping(STOP)
    multiply(Monitor, "id + number", public_id="'mon_' || number")
    multiply(MonitorState, "monitor_id + number")
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {gaps._ABOUT_TO_MISS}", gaps._times(at(STOP)))
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Index Scan using state_due" in plan or "Bitmap Index Scan on state_due" in plan, plan


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(10, 400), st.integers(0, 300)), min_size=20, max_size=30), st.integers(0, 900))
def test_no_rhythm_gives_a_false_alarm(jobs: list[tuple[int, int]], length: int) -> None:
    """Jobs with any interval and grace of at least a minute, which never stop, and a gap of any length."""
    with transaction.atomic():
        owners = [UserFactory() for _ in range(5)]
        made = [
            (heartbeat(owners[number % 5], interval_sec=max(60, interval), grace_sec=60 + grace), max(60, interval))
            for number, (interval, grace) in enumerate(jobs)
        ]
        for second in range(-400, 1_500 + length, 5):
            if not 600 <= second < 600 + length:
                for number, (monitor, interval) in enumerate(made):
                    if (second + number * 5) % (interval - interval % 5) == 0:
                        record_ping(monitor.public_id, now=at(second))
            if second % 15 == 0:
                beat(second)
        assert not down()
        transaction.set_rollback(True)

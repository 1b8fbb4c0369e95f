"""Two concurrent actions on one monitor, each in its own thread: the final state is consistent in either order.

Concurrent recording and PATCH against a result are in test_recording.py, double deletion in tests/api/test_monitors.py.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise

import pytest
from django.db import connection, transaction

from accounts.models import User
from checks.results.models import CheckResult
from checks.results.retention import erase_deleted
from checks.spec import Verdict
from core.bulk import BulkResult
from core.errors import NotFound
from core.metrics import ProcessReports
from monitors.checking import on_demand
from monitors.cron import Schedule
from monitors.heartbeats import gaps
from monitors.heartbeats.services import sweep
from monitors.locking import lock_monitors
from monitors.models import Monitor, MonitorState, SchedulerTick, ScheduleSlots, StatusChange
from monitors.operations import mute_for
from monitors.recording import record
from monitors.scheduling import claim_due, start_runs, tick
from monitors.scheduling.time_zones import recompute
from monitors.services import delete_monitor, update_monitor
from projects.access import Caller
from tests.api.client import Api
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, check_record, flush_broker, minutes, record_ping, run_concurrently, state_of
from tests.processes.waiting import until
from tokens.models import ProjectToken
from tokens.services import revoke_token

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 12
UP, DOWN = Verdict.UP, Verdict.DOWN
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def _no_web_process() -> None:
    """Forget the web process of an earlier test: it has stopped to report, so missed deadlines would wait."""
    gaps.watch(NOON, ProcessReports())


@pytest.fixture
def user() -> User:
    return UserFactory()


def heartbeat(user: User, *, pinged_at: datetime | None = None) -> Monitor:
    monitor = MonitorFactory(owner=user, heartbeat=True, interval_sec=60, grace_sec=0)
    if pinged_at is not None:
        record_ping(monitor.public_id, now=pinged_at)
    return monitor


def transitions(monitor: Monitor) -> list[tuple[str | None, str | None]]:
    found = StatusChange.objects.filter(monitor=monitor).order_by("pk").values_list("before", "after")
    chain = list(found)
    assert all(one[1] == two[0] for one, two in pairwise(chain)), f"a link is missing: {chain}"
    return chain


def claimed(monitor: Monitor, *, at: datetime) -> int:
    """Claim the monitor. Return the number of the open claim."""
    (number,) = [claim.number for claim in claim_due(at, limit=100) if claim.monitor_id == monitor.pk]
    return number


def test_a_ping_and_the_sweep_of_its_deadline(user: User) -> None:
    for _ in range(ROUNDS):
        monitor = heartbeat(user, pinged_at=NOON)
        late = NOON + MINUTE + timedelta(seconds=1)
        claimed(monitor, at=late)
        run_concurrently(partial(record_ping, monitor.public_id, now=late), partial(sweep, [monitor.pk], now=late))
        state = state_of(monitor)
        assert (state.status, state.last_ping_at, state.claimed_at) == ("up", late, None)
        assert state.next_due_at == late + MINUTE, "and it is waited for again"
        assert transitions(monitor) in ([(None, "up")], [(None, "up"), ("up", "down"), ("down", "up")])


def test_two_sweeps_of_one_deadline(user: User) -> None:
    for _ in range(ROUNDS):
        monitor = heartbeat(user, pinged_at=NOON)
        late = NOON + MINUTE + timedelta(seconds=1)

        def tick(late: datetime = late) -> None:
            sweep([claim.monitor_id for claim in claim_due(late, limit=100)], now=late)

        run_concurrently(tick, tick, tick)
        assert transitions(monitor) == [(None, "up"), ("up", "down")]
        assert (state_of(monitor).status_since, state_of(monitor).next_due_at) == (NOON + MINUTE, None)


def test_many_pings_at_once(user: User) -> None:
    for _ in range(ROUNDS):
        monitor = heartbeat(user)
        moments = [NOON + timedelta(milliseconds=ms) for ms in range(6)]
        accepted = run_concurrently(*(partial(record_ping, monitor.public_id, now=moment) for moment in moments))
        state = state_of(monitor)
        assert accepted == [True] * 6
        # A change recorded after a later one is dated a microsecond after it.
        assert state.status == "up"
        assert moments[-1] <= (state.last_ping_at or NOON) < moments[-1] + timedelta(microseconds=len(moments))
        assert state.next_due_at == (state.last_ping_at or NOON) + MINUTE
        assert transitions(monitor) == [(None, "up")]
        assert CheckResult.objects.filter(monitor_id=monitor.pk).count() == 6


def test_many_pings_at_once_count_each_towards_recovery(user: User) -> None:
    for _ in range(ROUNDS):
        monitor = heartbeat(user, pinged_at=NOON)
        update_monitor(Caller(user), monitor.public_id, {"recover_threshold": 4}, now=NOON)
        late = NOON + minutes(5)
        sweep([claim.monitor_id for claim in claim_due(late, limit=100)], now=late)
        run_concurrently(*[partial(record_ping, monitor.public_id, now=late)] * 3)
        assert (state_of(monitor).status, state_of(monitor).passes) == ("down", 3)
        assert record_ping(monitor.public_id, now=late)
        assert state_of(monitor).status == "up"


def test_a_ping_and_a_change_of_its_interval(user: User) -> None:
    for _ in range(ROUNDS):
        monitor = heartbeat(user, pinged_at=NOON)
        now = NOON + timedelta(seconds=30)
        run_concurrently(
            partial(record_ping, monitor.public_id, now=now),
            partial(update_monitor, Caller(user), monitor.public_id, {"interval_sec": 120}, now=now),
        )
        state = state_of(monitor)
        assert (state.last_ping_at, state.next_due_at) == (now, now + 2 * MINUTE)
        assert Monitor.objects.get(pk=monitor.pk).interval_sec == 120


def test_a_ping_a_change_of_its_schedule_and_an_update_of_tzdata(user: User) -> None:
    for round_ in range(ROUNDS):
        monitor = MonitorFactory(owner=user, heartbeat=True, schedule="*/10 * * * *", grace_sec=0)
        record_ping(monitor.public_id, now=NOON)
        ScheduleSlots.objects.filter(pk=monitor.pk).update(tzdata="2001.1", times=[NOON + MINUTE])
        now, given = NOON + MINUTE, {"schedule": "*/7 * * * *", "timezone": "Asia/Kathmandu"}
        run_concurrently(
            partial(record_ping, monitor.public_id, now=now),
            partial(update_monitor, Caller(user), monitor.public_id, given, now=now),
            partial(recompute, now),
            partial(record_ping, monitor.public_id, now=now + timedelta(seconds=round_)),
        )
        left = Monitor.objects.select_related("state", "slots").get(pk=monitor.pk)
        assert left.schedule == Schedule(given["schedule"], given["timezone"])
        assert left.state.next_due_at == left.ping_due_at()
        last = now + timedelta(seconds=round_)
        assert left.state.last_ping_at in (last, last + timedelta(microseconds=1))
        assert record_ping(monitor.public_id, now=now + 20 * MINUTE)
        assert state_of(monitor).next_due_at == left.schedule.next_after(now + 20 * MINUTE)


def test_a_result_of_a_scheduler_and_a_change_of_its_schedule(user: User) -> None:
    for _ in range(ROUNDS):
        monitor = MonitorFactory(owner=user, type="scheduler", schedule="* * * * *")
        number = claimed(monitor, at=NOON + MINUTE)
        assert start_runs([(monitor.pk, number)], now=NOON + MINUTE)
        found = check_record(monitor, claim=number, verdict=UP, at=NOON + MINUTE)
        run_concurrently(
            partial(record, [found], now=NOON + MINUTE),
            partial(update_monitor, Caller(user), monitor.public_id, {"schedule": "*/30 * * * *"}, now=NOON + MINUTE),
            partial(recompute, NOON + MINUTE),
        )
        state = state_of(monitor)
        assert (state.next_due_at, state.claimed_at, state.status) == (NOON + 30 * MINUTE, None, "up")
        assert CheckResult.objects.filter(monitor_id=monitor.pk).count() == 1


def test_a_ping_and_a_pause(user: User) -> None:
    for _ in range(ROUNDS):
        monitor = heartbeat(user, pinged_at=NOON)
        now = NOON + timedelta(seconds=30)
        run_concurrently(
            partial(record_ping, monitor.public_id, now=now),
            partial(update_monitor, Caller(user), monitor.public_id, {"enabled": False}, now=now),
        )
        state = state_of(monitor)
        assert (state.last_ping_at, state.next_due_at, state.claimed_at) == (now, None, None)
        assert claim_due(NOON + timedelta(days=1), limit=100) == [], "a paused one is not waited for"


def test_a_pause_and_a_result(user: User) -> None:
    for _ in range(ROUNDS):
        monitor = MonitorFactory(owner=user, up=True, fail_threshold=1)
        now = NOON + MINUTE
        number = claimed(monitor, at=now)
        run_concurrently(
            partial(record, [check_record(monitor, claim=number, verdict=DOWN, at=now)], now=now),
            partial(update_monitor, Caller(user), monitor.public_id, {"enabled": False}, now=now),
        )
        state = state_of(monitor)
        applied = CheckResult.objects.filter(monitor_id=monitor.pk, claim=number).exists()
        assert (state.next_due_at, state.claimed_at) == (None, None)
        assert state.status == ("down" if applied else "up"), "recorded before it, or dropped after it"
        kinds = list(StatusChange.objects.filter(monitor=monitor).order_by("pk").values_list("kind", flat=True))
        assert kinds == (["status", "status", "paused"] if applied else ["status", "paused"])
        assert transitions(monitor)[-1] == (state.status, state.status)


def test_a_mute_and_a_result(user: User) -> None:
    for _ in range(ROUNDS):
        monitor = MonitorFactory(owner=user, up=True, fail_threshold=1)
        now = NOON + MINUTE
        number = claimed(monitor, at=now)
        run_concurrently(
            partial(record, [check_record(monitor, claim=number, verdict=DOWN, at=now)], now=now),
            partial(mute_for, [monitor.pk], minutes=9, now=now),
        )
        state = state_of(monitor)
        assert Monitor.objects.get(pk=monitor.pk).muted_until == now + minutes(9)
        assert (state.applied_claim, state.next_due_at, state.claimed_at) == (number, now + MINUTE, None)
        went_down = ("up", "down") in transitions(monitor)
        assert (state.status, state.status_since) == (("down", now) if went_down else ("up", NOON))


def test_a_deletion_and_a_result(user: User) -> None:
    for _ in range(ROUNDS):
        monitor, other = MonitorFactory(owner=user, up=True), MonitorFactory(owner=user, up=True)
        now = NOON + MINUTE
        claim_due(now, limit=100)
        batch = [check_record(each, claim=2, verdict=DOWN, at=now) for each in (monitor, other)]
        run_concurrently(partial(record, batch, now=now), partial(delete_monitor, Caller(user), monitor.public_id))
        assert not Monitor.objects.filter(pk=monitor.pk).exists()
        erase_deleted()
        assert not CheckResult.objects.filter(monitor_id=monitor.pk).exists()
        assert not StatusChange.objects.filter(monitor_id=monitor.pk).exists()
        assert state_of(other).applied_claim == 2, "the others of its batch are not lost with it"
        delete_monitor(Caller(user), other.public_id)


def test_a_deletion_and_a_ping(user: User) -> None:
    for _ in range(ROUNDS):
        monitor = heartbeat(user, pinged_at=NOON)
        pinged, deleted = run_concurrently(
            partial(record_ping, monitor.public_id, now=NOON + MINUTE),
            partial(delete_monitor, Caller(user), monitor.public_id),
        )
        assert pinged in (True, False)
        assert deleted is None
        erase_deleted()
        assert not CheckResult.objects.filter(monitor_id=monitor.pk).exists()
        assert record_ping(monitor.public_id, now=NOON + MINUTE) is False


def test_pause_resume_mute_and_patch_at_once(user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    caller, name = Caller(user), monitor.public_id
    for turn in range(ROUNDS):
        now = NOON + minutes(turn + 1)
        run_concurrently(
            partial(update_monitor, caller, name, {"enabled": False}, now=now),
            partial(update_monitor, caller, name, {"enabled": True}, now=now),
            partial(mute_for, [monitor.pk], minutes=turn + 1, now=now),
            partial(update_monitor, caller, name, {"name": f"name {turn}", "slow_ms": turn}, now=now),
        )
        left = Monitor.objects.get(pk=monitor.pk)
        assert (left.name, left.slow_ms, left.muted_until) == (f"name {turn}", turn, now + minutes(turn + 1))
        assert (state_of(monitor).next_due_at is not None) == left.enabled
        switches = StatusChange.objects.filter(monitor=monitor).exclude(kind="status").order_by("pk")
        kinds = list(switches.values_list("kind", flat=True))
        assert kinds == (["paused", "resumed"] * len(kinds))[: len(kinds)], "in turns"
        assert (len(kinds) % 2 == 0) == left.enabled


def test_a_token_is_revoked_while_it_is_used(user: User) -> None:
    project = ProjectFactory(owner=user)
    for _ in range(ROUNDS):
        token = Api.with_token(user, project)
        name = ProjectToken.objects.latest("pk").public_id
        *answers, revoked = run_concurrently(
            *[lambda token=token: token.get("/v1/monitors").status] * 4, partial(revoke_token, Caller(user), name)
        )
        assert set(answers) <= {200, 401}
        assert revoked is None
        assert token.get("/v1/monitors").status == 401
        assert not ProjectToken.objects.filter(public_id=name).exists()


def test_a_token_is_revoked_by_two_at_once(user: User) -> None:
    project = ProjectFactory(owner=user)
    for _ in range(ROUNDS):
        Api.with_token(user, project)
        name = ProjectToken.objects.latest("pk").public_id
        outcomes = run_concurrently(*[partial(revoke_token, Caller(user), name)] * 3)
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "NotFound", "NotFound"]
        with pytest.raises(NotFound):
            revoke_token(Caller(user), name)


@pytest.mark.parametrize("schedule", [None, "0 * * * *"], ids=["interval", "schedule"])
def test_the_first_tick_after_a_stop_and_a_bulk_operation(user: User, schedule: str | None) -> None:
    """Both lock all types in key order, so the tick waits for the scheduler before it has locked the heartbeat."""
    scheduler = MonitorFactory(owner=user, scheduler=True, schedule=schedule)
    job = heartbeat(user, pinged_at=NOON)
    MonitorState.objects.filter(pk=scheduler.pk).update(next_due_at=NOON + MINUTE, claimed_at=None)
    SchedulerTick.objects.create(id=1, at=NOON)
    is_locked = threading.Event()

    def bulk() -> None:
        with transaction.atomic():
            lock_monitors([scheduler.pk])
            is_locked.set()
            until(_somebody_waits_for_a_lock, 20, "the tick waits")
            lock_monitors([job.pk])

    def first_tick() -> None:
        assert is_locked.wait(20)
        tick(NOON + 5 * MINUTE)

    run_concurrently(bulk, first_tick)
    assert SchedulerTick.objects.get().at == NOON + 5 * MINUTE


def test_of_two_checks_on_demand_at_once_one_is_started_and_the_other_finds_it(user: User) -> None:
    for _ in range(ROUNDS):
        monitor = MonitorFactory(owner=user, up=True)
        before = state_of(monitor).claim
        assert run_concurrently(*[partial(on_demand.start, monitor, now=NOON)] * 2) == [before + 1] * 2
    flush_broker()


def test_of_two_bulk_checks_at_once_one_starts_each_check(user: User) -> None:
    ids = [MonitorFactory(owner=user, up=True).pk for _ in range(ROUNDS)]
    found = run_concurrently(*[partial(on_demand.begin, ids, now=NOON)] * 2)
    assert sorted(len(each.done) for each in found if isinstance(each, BulkResult)) == [0, ROUNDS]
    flush_broker()


def _somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # otherwise a transaction sees the first snapshot
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])

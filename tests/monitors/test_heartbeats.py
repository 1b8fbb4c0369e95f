"""Heartbeats in the database: pings, deadlines, mutes, pauses and edits."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from checks.results.models import CheckResult
from monitors.heartbeats.runs import MICROSECOND
from monitors.heartbeats.services import sweep
from monitors.models import Monitor, StatusChange
from monitors.operations import mute_for
from monitors.scheduling import claim_due, tick
from monitors.services import update_monitor
from projects.access import Caller
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, record_ping, run_concurrently, state_of

pytestmark = pytest.mark.django_db

DEADLINE = 70  # interval 60 s and 10 s of grace


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def heartbeat(*pings: float, **given: Any) -> Monitor:
    monitor = MonitorFactory(
        owner=UserFactory(), url="", type="heartbeat", **{"interval_sec": 60, "grace_sec": 10, **given}
    )
    for second in pings:
        assert record_ping(monitor.public_id, now=at(second))
    return monitor


def beat(second: float) -> None:
    """Run the scheduler for heartbeats at that second."""
    now = at(second)
    sweep([claim.monitor_id for claim in claim_due(now, limit=10)], now=now)


def standing(monitor: Monitor) -> tuple[str | None, float | None]:
    state = state_of(monitor)
    since = state.status_since
    return state.status, None if since is None else (since - NOON).total_seconds()


def change(monitor: Monitor, second: float, **given: object) -> None:
    update_monitor(Caller(monitor.owner), monitor.public_id, given, now=at(second))


def mute(monitor: Monitor, second: float, minutes: int) -> None:
    mute_for([monitor.pk], minutes=minutes, now=at(second))


def test_status_is_null_until_the_first_ping_however_long() -> None:
    monitor = heartbeat()
    beat(10_000)
    assert standing(monitor) == (None, None)
    record_ping(monitor.public_id, now=at(10_001))
    assert standing(monitor) == ("up", 10_001)
    assert state_of(monitor).last_ping_at == at(10_001)


def test_up_at_the_deadline_and_down_after_it_since_the_deadline_itself() -> None:
    monitor = heartbeat(0)
    beat(DEADLINE)
    assert standing(monitor) == ("up", 0)
    beat(DEADLINE + 45)
    assert standing(monitor) == ("down", DEADLINE)
    result = CheckResult.objects.get(verdict="down")
    assert (result.reason_code, result.checked_at) == ("heartbeat_missed", at(DEADLINE))
    beat(DEADLINE + 500)
    assert CheckResult.objects.count() == 2, "it stays down without another result"


def test_fail_threshold_does_not_apply() -> None:
    monitor = heartbeat(0, fail_threshold=5)
    beat(DEADLINE + 1)
    assert standing(monitor)[0] == "down"


def test_each_ping_moves_the_deadline() -> None:
    monitor = heartbeat(0, 65, 130)
    beat(130 + DEADLINE)
    assert standing(monitor) == ("up", 0)


def test_a_ping_while_down_recovers_by_the_threshold() -> None:
    monitor = heartbeat(0, recover_threshold=2)
    beat(100)
    record_ping(monitor.public_id, now=at(200))
    assert standing(monitor)[0] == "down"
    record_ping(monitor.public_id, now=at(260))
    assert standing(monitor) == ("up", 260)


def test_a_missed_deadline_breaks_a_run_of_pings() -> None:
    monitor = heartbeat(0, recover_threshold=2)
    beat(100)
    record_ping(monitor.public_id, now=at(200))
    beat(200 + DEADLINE + 1)
    record_ping(monitor.public_id, now=at(400))
    assert standing(monitor) == ("down", DEADLINE)
    record_ping(monitor.public_id, now=at(430))
    assert standing(monitor) == ("up", 430)


def test_a_late_ping_that_is_recorded_first_wins_over_the_sweep() -> None:
    monitor = heartbeat(0)
    claims = claim_due(at(DEADLINE + 1), limit=10)
    record_ping(monitor.public_id, now=at(DEADLINE + 2))
    sweep([claim.monitor_id for claim in claims], now=at(DEADLINE + 3))
    assert standing(monitor) == ("up", 0)


def test_a_ping_that_waited_for_the_sweep_moves_no_time_back() -> None:
    monitor = heartbeat(0)
    beat(DEADLINE + 1)
    record_ping(monitor.public_id, now=at(DEADLINE - 1))
    assert standing(monitor) == ("up", DEADLINE)
    assert state_of(monitor).last_ping_at == at(DEADLINE)


def test_pings_while_paused_are_only_recorded() -> None:
    monitor = heartbeat(0)
    change(monitor, 30, enabled=False)
    assert record_ping(monitor.public_id, now=at(40))
    assert state_of(monitor).last_ping_at == at(40)
    assert CheckResult.objects.count() == 1
    beat(1000)
    assert standing(monitor) == ("up", 0)


@pytest.mark.parametrize(
    ("last_ping", "resumed", "expected"),
    [
        pytest.param(40, 90, ("up", 0), id="within the deadline"),
        pytest.param(40, 500, ("down", 500), id="past it: down since resuming, not before"),
    ],
)
def test_a_check_follows_at_once_after_resuming(last_ping: float, resumed: float, expected: tuple[str, float]) -> None:
    monitor = heartbeat(0)
    change(monitor, 30, enabled=False)
    record_ping(monitor.public_id, now=at(last_ping))
    change(monitor, resumed, enabled=True)
    before = CheckResult.objects.count()
    beat(resumed + 1)
    assert standing(monitor) == expected
    assert CheckResult.objects.count() == before + 1


def test_an_overdue_heartbeat_that_is_looked_at_in_the_instant_of_resuming_has_not_passed() -> None:
    monitor = heartbeat(0)
    change(monitor, 30, enabled=False)
    change(monitor, 500, enabled=True)
    beat(500)
    assert CheckResult.objects.count() == 1
    beat(501)
    assert standing(monitor) == ("down", 500)


def test_resumed_without_a_ping_ever_stays_null() -> None:
    monitor = heartbeat()
    change(monitor, 30, enabled=False)
    change(monitor, 60, enabled=True)
    beat(500)
    assert standing(monitor) == (None, None)


def test_a_mute_holds_detection_back_until_its_end() -> None:
    monitor = heartbeat(0)
    mute(monitor, 30, 5)
    beat(200)
    assert standing(monitor) == ("up", 0)
    beat(30 + 300 + 1)
    assert standing(monitor) == ("down", 330)


def test_a_ping_under_the_mute_makes_the_missed_deadline_good() -> None:
    monitor = heartbeat(0)
    mute(monitor, 30, 5)
    beat(200)
    record_ping(monitor.public_id, now=at(300))
    beat(360)
    assert standing(monitor) == ("up", 0)


def test_a_mute_that_is_cleared_or_shortened_is_noticed() -> None:
    cleared, shortened = heartbeat(0), heartbeat(0)
    for monitor in (cleared, shortened):
        mute(monitor, 30, 60)
    beat(200)
    mute(cleared, 250, 0)
    mute(shortened, 250, 1)
    beat(251)
    assert standing(cleared) == ("down", 250)
    assert standing(shortened) == ("up", 0)
    beat(311)
    assert standing(shortened) == ("down", 310)


def test_a_mute_that_is_cleared_after_resuming_is_noticed() -> None:
    monitor = heartbeat(0)
    change(monitor, 30, enabled=False)
    mute(monitor, 40, 60)
    change(monitor, 200, enabled=True)
    beat(201)
    assert standing(monitor) == ("up", 0)
    mute(monitor, 250, 0)
    beat(251)
    assert standing(monitor) == ("down", 250)


def test_changing_interval_or_grace_moves_the_deadline() -> None:
    longer, shorter, overdue = heartbeat(0), heartbeat(0), heartbeat(0, interval_sec=600)
    change(longer, 30, grace_sec=100)
    change(shorter, 30, grace_sec=0)
    change(overdue, 100, interval_sec=60)
    beat(61)
    assert standing(shorter) == ("down", 60)
    beat(160)
    assert standing(longer) == ("up", 0)
    beat(170)
    assert standing(longer) == ("down", 160)
    assert standing(overdue) == ("up", 0), "it counts from the change"
    beat(171)
    assert standing(overdue) == ("down", 170)


@pytest.mark.parametrize("length", [6, 20, 30, 31, 600])
@pytest.mark.parametrize(
    "given", [{}, {"schedule": "1 12 * * *", "interval_sec": 86_400}], ids=["interval", "schedule"]
)
def test_deadlines_in_a_time_of_our_own_stop_move_by_its_length(given: dict[str, Any], length: int) -> None:
    """By the length of even a short stop, and never to the next slot."""
    start = DEADLINE - length / 2
    fell_in, later = heartbeat(0, **given), heartbeat(0, **given | {"grace_sec": 10 + length})
    tick(at(start))
    tick(at(start + length))
    for second in (start + length, DEADLINE + length):
        beat(second)
        assert standing(fell_in)[0] == standing(later)[0] == "up"
    beat(DEADLINE + length + 1)
    assert standing(fell_in) == ("down", DEADLINE + length)
    assert standing(later) == ("down", DEADLINE + length), "it fell into none"


def test_two_stops_move_a_deadline_by_both() -> None:
    monitor = heartbeat(0)
    for start, end in ((60, 80), (80.5, 90), (90.5, 140)):
        tick(at(start))
        tick(at(end))
    due = DEADLINE + 20 + 9.5 + 49.5
    beat(due)
    assert standing(monitor)[0] == "up"
    beat(due + 1)
    assert standing(monitor) == ("down", due)


def test_a_scheduler_that_is_slow_has_not_stopped() -> None:
    """Otherwise a busy scheduler would never report missed deadlines."""
    monitor = heartbeat(0)
    for second in range(60, 120, 8):
        tick(at(second), idle_for=timedelta(seconds=1))
    beat(DEADLINE + 1)
    assert standing(monitor) == ("down", DEADLINE)


def test_short_stops_one_after_the_other_hide_a_dead_job_for_an_hour_at_most() -> None:
    monitor = heartbeat(0)
    second = DEADLINE - 10.0
    while second < 3_800 and standing(monitor)[0] == "up":
        tick(at(second))
        beat(second)
        second += 25
    assert standing(monitor)[0] == "down"
    assert 3_600 <= second <= 3_750


def test_an_edit_keeps_a_deadline_that_our_own_stop_moved() -> None:
    edits: list[dict[str, Any]] = [{"name": "Nightly"}, {"grace_sec": 9}, {"grace_sec": 11}, {"interval_sec": 61}]
    monitors = [heartbeat(0) for _ in edits]
    tick(at(60))
    tick(at(660))
    for monitor, edit in zip(monitors, edits, strict=True):
        change(monitor, 661, **edit)
    beat(670)
    assert {standing(monitor)[0] for monitor in monitors} == {"up"}
    beat(735)
    later = [670, 661 + 69, 661 + 71, 661 + 71]
    assert [standing(monitor) for monitor in monitors] == [("down", each) for each in later]


def test_a_ping_towards_a_recovery_that_our_own_stop_swallowed_breaks_no_run() -> None:
    monitor = heartbeat(0, recover_threshold=2)
    beat(DEADLINE + 1)
    record_ping(monitor.public_id, now=at(200))
    tick(at(230))
    tick(at(530))
    beat(531)
    record_ping(monitor.public_id, now=at(560))
    assert standing(monitor) == ("up", 560)


def test_claim_lost_with_its_process_is_swept_after_the_lease() -> None:
    monitor = heartbeat(0)
    assert claim_due(at(DEADLINE + 1), limit=10)
    beat(DEADLINE + 2)
    assert standing(monitor)[0] == "up"
    beat(DEADLINE + 60)
    assert standing(monitor) == ("down", DEADLINE)


@pytest.mark.django_db(transaction=True)
def test_ping_and_sweep_and_ping_at_once() -> None:
    """In either order: one status, no duplicate result, and no lost ping."""
    for second in range(0, 2000, 200):
        monitor = heartbeat(second)
        claims = [claim.monitor_id for claim in claim_due(at(second + DEADLINE + 1), limit=10)]
        ping = partial(record_ping, monitor.public_id, now=at(second + DEADLINE + 2))
        run_concurrently(ping, partial(sweep, claims, now=at(second + DEADLINE + 2)), ping)
        assert standing(monitor)[0] == "up"
        assert state_of(monitor).next_due_at == at(second + 2 * DEADLINE + 2) + MICROSECOND, "the second ping's"
        turns = list(StatusChange.objects.filter(monitor=monitor).order_by("pk").values_list("before", "after"))
        assert turns in ([(None, "up")], [(None, "up"), ("up", "down"), ("down", "up")])
        results = CheckResult.objects.filter(monitor_id=monitor.pk)
        assert results.count() == results.values("claim").distinct().count() == 1 + 2 + len(turns) // 2


def test_what_is_no_heartbeat_takes_no_ping() -> None:
    other = MonitorFactory()
    assert not record_ping(other.public_id, now=NOON)
    assert not record_ping("mon_nothere", now=NOON)

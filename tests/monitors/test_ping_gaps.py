"""Gaps in incoming pings: what begins and ends one, how long deadlines are held back, and how they move."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction
from pytest_django.fixtures import Settings

from accounts.models import User
from core.db import separate_connection
from core.metrics import ProcessReports
from dashboard.monitors.listing import Listing, matching
from dashboard.monitors.rows import rows_of
from monitors.heartbeats import canary, gaps
from monitors.heartbeats.canary import Answer, canary_status
from monitors.heartbeats.services import record, sweep
from monitors.models import Canary, Monitor, MonitorState, PingGap, SchedulerTick, StatusChange
from monitors.operations import mute_for
from monitors.scheduling import claim_due, tick
from monitors.services import update_monitor
from projects.access import Caller
from statuspages.badges import create_badge, draw
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, record_ping, run_concurrently, signal, state_of

pytestmark = pytest.mark.django_db

INTERVAL, GRACE, HOUR = 60, 60, 3_600
DEADLINE = INTERVAL + GRACE
OK, FAILED = Answer(5), Answer(4_000, "no answer within 4 s")
UNKNOWN = Answer(1, "Temporary failure in name resolution", is_unknown=True)
RUNNING = ProcessReports(alive=1, last_at=NOON.timestamp())


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


class Silence:
    """How long web processes have not reported: RUNNING reports once, and some tests take seconds."""

    seconds = 0.0


@pytest.fixture(autouse=True)
def silence(monkeypatch: pytest.MonkeyPatch) -> Silence:
    found = Silence()
    monkeypatch.setattr(gaps._WebReports, "silent_sec", property(lambda _: found.seconds))
    return found


def heartbeat(owner: User | None = None, **given: Any) -> Monitor:
    """Create a heartbeat that has pinged at second 0."""
    given = {"interval_sec": INTERVAL, "grace_sec": GRACE, **given}
    monitor: Monitor = MonitorFactory(owner=owner or UserFactory(), heartbeat=True, **given)
    assert record_ping(monitor.public_id, now=at(0))
    return monitor


def ask(second: float, ping: Answer = OK, page: Answer = OK) -> None:
    """Store an attempt of the canary that begins and ends at that second."""
    now = at(second)
    Canary.objects.update_or_create(id=1, defaults={"asked_at": now, "seen_at": now}, create_defaults={
        "base_url": settings.BASE_URL, "asked_at": now, "seen_at": now,
    })  # fmt: skip
    canary.record(now, ping, page, now=now)


def beat(second: float, web: ProcessReports = RUNNING) -> bool:
    """Run the scheduler at that second. Return whether a deadline waits for the canary."""
    now = at(second)
    SchedulerTick.objects.update_or_create(id=1, defaults={"at": now})
    gaps.watch(now, web)
    return sweep([claim.monitor_id for claim in claim_due(now, limit=10_000)], now=now)


def down(*monitors: Monitor) -> dict[int, float]:
    """Return the second since which each monitor is down."""
    found = MonitorState.objects.filter(status="down", pk__in=[monitor.pk for monitor in monitors])
    return {state.pk: (state.status_since - NOON).total_seconds() for state in found if state.status_since}


def spans() -> list[tuple[float, float | None]]:
    found = PingGap.objects.order_by("started_at", "pk").values_list("started_at", "ended_at")
    return [
        ((start - NOON).total_seconds(), None if end is None else (end - NOON).total_seconds()) for start, end in found
    ]


@pytest.mark.parametrize("accounts", [5, 50])
@pytest.mark.parametrize("has_canary", [True, False])
def test_accounts_that_fall_silent_together_delay_no_alert(accounts: int, has_canary: bool) -> None:
    """The nightly job of a victim is reported at its deadline, regardless of the heartbeats of other accounts."""
    hostile = [heartbeat(owner) for owner in UserFactory.create_batch(accounts) for _ in range(4)]
    victim = heartbeat(interval_sec=100, grace_sec=25)
    for second in range(0, 131, 5):
        if has_canary:
            ask(second)
        beat(second + 1)
    assert down(victim) == {victim.pk: 125}
    assert down(*hostile) == {monitor.pk: DEADLINE for monitor in hostile}
    assert not PingGap.objects.exists()


def test_a_missed_deadline_waits_for_a_ping_of_our_own_that_is_sent_after_it() -> None:
    monitor = heartbeat()
    ask(DEADLINE - 1)
    assert beat(DEADLINE + 1)
    assert not down(monitor)
    ask(DEADLINE + 2)
    assert not beat(DEADLINE + 3)
    assert down(monitor) == {monitor.pk: DEADLINE}


def test_it_does_not_wait_for_long() -> None:
    monitor = heartbeat()
    ask(DEADLINE - 1)
    for second in range(DEADLINE + 1, DEADLINE + 16):
        assert beat(second)
    assert not beat(DEADLINE + 16)
    assert down(monitor) == {monitor.pk: DEADLINE}


@pytest.mark.parametrize("ends", [130.8, 135.0])
def test_a_deadline_that_waits_for_a_ping_of_our_own_moves_from_where_it_was(ends: float) -> None:
    monitor = heartbeat()
    ask(100)
    for second in range(DEADLINE + 1, 131):
        assert beat(second)
    ask(130.5, FAILED)
    ask(ends)
    assert spans() == [(100, ends)]
    assert state_of(monitor).next_due_at == at(DEADLINE + ends - 100)
    beat(ends + 1)
    assert not down(monitor)


@pytest.mark.parametrize(
    "given", [{}, {"schedule": "1 12 * * *", "interval_sec": 86_400}], ids=["interval", "schedule"]
)
def test_deadlines_that_fall_into_a_gap_move_by_its_length(given: dict[str, Any]) -> None:
    monitor, before, after = heartbeat(**given), heartbeat(grace_sec=GRACE - 30), heartbeat(grace_sec=GRACE + 300)
    ask(100)
    for second in range(105, 400, 5):
        ask(second, FAILED)
        beat(second + 1)
    assert down(monitor, before, after) == {before.pk: DEADLINE - 30}
    assert state_of(monitor).armed_at == PingGap.objects.get().held_until
    ask(400)
    assert spans() == [(100, 400)]
    assert state_of(monitor).next_due_at == at(DEADLINE + 300)
    assert state_of(after).next_due_at == at(DEADLINE + 300), "it fell into none"
    for second in (DEADLINE + 300, DEADLINE + 301):
        ask(second)
        assert not down(monitor, after)
        beat(second)
    assert down(monitor, after) == dict.fromkeys([monitor.pk, after.pk], DEADLINE + 300)


def test_a_ping_in_the_gap_ends_the_hold_of_its_heartbeat() -> None:
    monitor = heartbeat()
    ask(100)
    ask(110, FAILED)
    beat(DEADLINE + 1)
    record_ping(monitor.public_id, now=at(130))
    assert state_of(monitor).armed_at is None
    ask(140)
    assert state_of(monitor).next_due_at == at(130 + DEADLINE)


def test_a_run_whose_end_the_gap_swallowed_moves_too() -> None:
    job = heartbeat(interval_sec=86_400)
    record(signal(job.public_id, "start", now=at(30)))
    ask(80)
    ask(91, FAILED)
    beat(95)
    ask(200)
    beat(90 + 120)
    assert not down(job)
    ask(211)
    beat(211)
    assert down(job) == {job.pk: 90 + 120}


def test_deadlines_are_held_back_for_an_hour_in_a_day() -> None:
    monitor = heartbeat()
    ask(100)
    ask(110, FAILED)
    held_until = (PingGap.objects.get().held_until - NOON).total_seconds()
    assert held_until == 110 + HOUR
    for second in (DEADLINE + 1, 2_000, held_until):
        ask(second, FAILED)
        beat(second)
        assert not down(monitor)
    later = heartbeat(interval_sec=HOUR + 500)
    beat(held_until + 1)
    assert down(monitor) == {monitor.pk: held_until}, "a canary that fails for ever hides no silence"
    assert spans() == [(100, None)], "and the operator is still alerted"
    ask(held_until + 2)
    ask(held_until + 12, FAILED)
    beat(HOUR + 500 + GRACE + 1)
    assert down(later) == {later.pk: HOUR + 500 + GRACE}


def test_a_canary_that_fails_for_a_day_has_to_succeed_before_it_counts_again() -> None:
    ask(0)
    ask(10, FAILED)
    day = 86_400
    ask(day, FAILED)
    beat(day + 1)
    assert spans() == [(0, day + 1)]
    ask(day + 10, FAILED)
    assert len(spans()) == 1
    ask(day + 20)
    ask(day + 30, FAILED)
    assert spans()[1:] == [(day + 20, None)]


def test_a_canary_that_never_succeeded_is_no_evidence(settings: Settings) -> None:
    """The operator's workers may be unable to reach BASE_URL."""
    monitor = heartbeat()
    for second in (10, 20, DEADLINE):
        ask(second, FAILED)
    assert not beat(DEADLINE + 1)
    assert down(monitor) == {monitor.pk: DEADLINE}
    ask(200)
    settings.BASE_URL = "https://elsewhere.example"
    ask(210, FAILED)
    assert not PingGap.objects.exists(), "nothing is known about the new address"


@pytest.mark.parametrize("answer", [UNKNOWN, None], ids=["cannot be sent", "rests"])
def test_a_canary_that_is_not_sent_is_no_evidence(answer: Answer | None) -> None:
    """Tenants who keep the workers busy cannot delay alerts."""
    monitor = heartbeat()
    ask(10)
    for second in range(20, DEADLINE + 60, 10):
        if answer is not None:
            ask(second, answer)
        beat(second)
    assert down(monitor) == {monitor.pk: DEADLINE}
    assert not PingGap.objects.exists()


def test_a_gap_ends_with_its_evidence() -> None:
    ask(0)
    ask(10, FAILED)
    beat(129)
    assert spans() == [(0, None)]
    beat(131)
    assert spans() == [(0, 10)], "no canary ping was sent afterwards"
    ask(140, FAILED)
    assert spans()[1:] == [(0, None)]
    ask(150)
    assert spans()[1:] == [(0, 150)]


def test_a_ping_that_another_database_stored_is_no_success() -> None:
    ask(0)
    Canary.objects.update(asked_at=at(10))
    canary.record(at(10), OK, OK, now=at(10))
    assert spans() == [(0, None)]
    assert Canary.objects.get().ping_error == "the ping was answered, but not stored in this database"


def test_a_time_in_which_no_ping_of_our_own_could_be_stored_is_a_gap() -> None:
    """The database was full or read-only: it rejected pings, and the reports about that."""
    silent, answered = heartbeat(), heartbeat()
    ask(10)
    ask(140)
    assert spans() == [(10, 140)]
    assert state_of(silent).next_due_at == at(DEADLINE + 130)
    assert record_ping(answered.public_id, now=at(141))
    ask(150)
    ask(160)
    assert spans() == [(10, 140)]


def test_a_stop_in_a_time_without_pings_of_our_own_counts_once() -> None:
    monitor = heartbeat()
    tick(at(10))
    ask(10)
    tick(at(130))
    ask(135)
    assert spans() == []
    assert state_of(monitor).next_due_at == at(DEADLINE + 120)


def test_without_a_canary_the_reports_of_web_processes_are_evidence(silence: Silence) -> None:
    """Time without reports is measured by the scheduler's clock, not between clocks of two machines."""
    monitor = heartbeat()
    dead = ProcessReports(alive=0, last_at=at(110).timestamp())
    silence.seconds = 4
    assert beat(DEADLINE + 1, dead)
    silence.seconds = 11
    beat(DEADLINE + 2, dead)
    assert spans() == [(110, None)]
    assert not down(monitor)
    beat(DEADLINE + 100, ProcessReports())
    assert spans() == [(110, None)], "the broker was flushed, which says nothing"
    silence.seconds = 0
    beat(300, ProcessReports(alive=1, last_at=at(299).timestamp()))
    assert spans() == [(110, 300)]
    assert state_of(monitor).next_due_at == at(DEADLINE + 190)


def test_web_processes_that_cannot_report_and_answer_make_no_gap(silence: Silence) -> None:
    silence.seconds = 11
    ask(110)
    beat(DEADLINE, ProcessReports(alive=0, last_at=at(100).timestamp()))
    assert not spans()


def test_a_stop_within_a_gap_counts_once() -> None:
    monitor = heartbeat()
    ask(100)
    ask(105, FAILED)
    for second in (DEADLINE + 1, 200):
        beat(second)
    tick(at(300))
    assert spans() == [(100, 200)]
    ask(310, FAILED)
    ask(400)
    assert spans()[1:] == [(300, 400)], "the time before is that of the stop"
    ask(420)
    beat(DEADLINE + 300)
    assert not down(monitor)
    ask(421)
    beat(DEADLINE + 301)
    assert down(monitor) == {monitor.pk: DEADLINE + 300}


def test_edits_pauses_and_mutes_do_not_release_a_deadline() -> None:
    monitors = [heartbeat() for _ in range(3)]
    ask(100)
    ask(105, FAILED)
    beat(DEADLINE + 1)
    update_monitor(Caller(monitors[0].owner), monitors[0].public_id, {"grace_sec": 70}, now=at(130))
    mute_for([monitors[1].pk], minutes=1, now=at(130))
    mute_for([monitors[1].pk], minutes=0, now=at(131))
    for enabled in (False, True):
        update_monitor(Caller(monitors[2].owner), monitors[2].public_id, {"enabled": enabled}, now=at(132))
    for second in range(135, 600, 5):
        ask(second, FAILED)
        beat(second)
    assert not down(*monitors)


def test_a_deadline_that_is_held_back_is_shown_as_unknown() -> None:
    owner = UserFactory()
    one, two = heartbeat(owner), heartbeat(owner)
    ask(100)
    ask(105, FAILED)
    beat(DEADLINE + 1)
    record_ping(two.public_id, now=at(130))
    caller, now = Caller(owner), at(131)
    badges = {monitor.pk: create_badge(caller, monitor.public_id, now=now).key for monitor in (one, two)}
    assert b"unknown" in draw(badges[one.pk], "status", now=now)
    assert b"up" in draw(badges[two.pk], "status", now=now)
    listed = matching(caller, Listing(state="pending"), now=now)
    assert one in listed
    assert two not in listed
    found = Monitor.objects.select_related("state", "project").filter(pk__in=[one.pk, two.pk]).order_by("pk")
    assert [row.standing for row in rows_of(list(found), now=now)] == ["pending", "up"]


@pytest.mark.django_db(transaction=True)
def test_two_processes_begin_and_end_one_gap() -> None:
    monitor = heartbeat()
    ask(100)
    run_concurrently(*[lambda: _begin(at(110))] * 3)
    assert spans() == [(100, None)]
    beat(DEADLINE + 1)
    run_concurrently(*[lambda: gaps.end(at(200))] * 3)
    assert spans() == [(100, 200)]
    assert state_of(monitor).next_due_at == at(DEADLINE + 100)


def _begin(now: datetime) -> None:
    with transaction.atomic():
        gaps.begin(at(100), "a test", now=now)


def test_a_worker_that_is_lost_between_claim_and_sweep_loses_nothing() -> None:
    monitor = heartbeat()
    ask(100)
    ask(105, FAILED)
    claim_due(at(DEADLINE + 1), limit=10)
    ask(200)
    assert state_of(monitor).next_due_at == at(DEADLINE + 100)
    assert not StatusChange.objects.filter(after="down").exists()


@pytest.mark.django_db(transaction=True)
def test_what_operators_read() -> None:
    def problems(second: float) -> list[str]:
        with separate_connection(patience_sec=5) as database:
            status = canary_status(database)
        return [] if status is None else status.problems(at(second))

    assert problems(0) == []
    ask(0, FAILED, FAILED)
    assert problems(1_000) == [], "an unknown result is not a problem"
    ask(1_000, OK, UNKNOWN)
    assert problems(1_001) == []
    ask(1_010, FAILED, OK)
    ask(1_020, FAILED, Answer(1_500))
    assert problems(1_021) == [
        "a ping at BASE_URL has failed for 11 s: no answer within 4 s",
        "a page at BASE_URL took 1500 ms",
    ]
    assert problems(1_100) == ["no request to BASE_URL was made for 80 s"]

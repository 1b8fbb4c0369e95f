"""A slot fires at most once, regardless of what crashes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from checks.probes.http.spec import HttpSpec
from checks.results.models import CheckResult
from checks.spec import Verdict
from monitors.checking.jobs import load_jobs
from monitors.models import LEASE_MARGIN, Monitor, MonitorState, StatusChange
from monitors.recording import record
from monitors.scheduling import Claim, claim_due, start_runs, tick
from monitors.services import FIRST_CLAIM, update_monitor
from monitors.tasks import dispatch_due, leave, probe_batch
from projects.access import Caller
from tests.factories import MonitorFactory
from tests.helpers import NOON, check_record, minutes, run_concurrently, state_of
from tests.processes.waiting import until
from tests.site import Site

pytestmark = pytest.mark.django_db

LEASE = timedelta(seconds=10) + LEASE_MARGIN


EVERY_MINUTE = {"schedule": "* * * * *"}


@pytest.fixture(params=[{}, EVERY_MINUTE], ids=["interval", "schedule"])
def every_minute(request: pytest.FixtureRequest) -> dict[str, Any]:
    given: dict[str, Any] = request.param
    return given


def scheduler(**given: Any) -> Monitor:
    monitor = MonitorFactory(up=True, type="scheduler", **given)
    MonitorState.objects.filter(pk=monitor.pk).update(claim=FIRST_CLAIM)  # monitors with a schedule have no first check
    return monitor


def claimed(monitor: Monitor, now: datetime) -> Claim:
    (claim,) = claim_due(now, limit=10)
    assert claim.monitor_id == monitor.pk
    return claim


def test_a_claim_starts_once(every_minute: dict[str, Any]) -> None:
    claim = claimed(scheduler(**every_minute), NOON + minutes(1))
    assert start_runs([claim.key], now=NOON + minutes(1)) == {claim.key}
    assert start_runs([claim.key], now=NOON + minutes(1)) == set(), "a message that is delivered twice fires nothing"


def test_a_slot_that_was_claimed_and_not_fired_is_fired_late_but_once(every_minute: dict[str, Any]) -> None:
    monitor = scheduler(**every_minute)
    first = claimed(monitor, NOON + minutes(1))
    second = claimed(monitor, NOON + minutes(1) + LEASE)
    assert not second.lost
    assert start_runs([first.key], now=NOON + minutes(1)) == set(), "the old message comes too late"
    assert start_runs([second.key], now=NOON + minutes(1)) == {second.key}


def test_a_slot_whose_fate_is_unknown_is_lost_and_never_fired_again(every_minute: dict[str, Any]) -> None:
    monitor = scheduler(**every_minute)
    first = claimed(monitor, NOON + minutes(1))
    start_runs([first.key], now=NOON + minutes(1))
    again = claimed(monitor, NOON + minutes(1) + LEASE)
    assert again.lost
    assert start_runs([again.key], now=NOON + minutes(1)) == set()
    # The process that detected the lost claim dies, too: the next one still knows.
    third = claimed(monitor, NOON + minutes(1) + 2 * LEASE)
    assert third.lost
    assert start_runs([third.key], now=NOON + minutes(1)) == set()


def test_the_scheduler_records_what_was_lost_and_goes_on_with_the_next_slot(
    every_minute: dict[str, Any], site: Site
) -> None:
    monitor = scheduler(**every_minute, url=site.url("/ok"))
    start_runs([claimed(monitor, NOON + minutes(1)).key], now=NOON + minutes(1))
    dispatch_due()
    lost = CheckResult.objects.get(reason_code="worker_lost")
    assert (lost.monitor_id, lost.verdict) == (monitor.pk, "down")
    state = state_of(monitor)
    assert (state.status, state.failures, state.claimed_at) == ("up", 1, None)
    assert state.next_due_at is not None
    assert (state.next_due_at - NOON) % minutes(1) == timedelta()
    assert site.requests == 0


@pytest.mark.django_db(transaction=True)
def test_a_trigger_that_waited_too_long_for_other_checks_is_not_sent_and_not_lost(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = scheduler(url=site.url("/ok"))
    monkeypatch.setattr("monitors.checking.jobs.START_SEC", -1.0)
    probe_batch([claimed(monitor, NOON + minutes(1)).key])
    until(lambda: state_of(monitor).claimed_at is None, 30, "it is postponed")
    assert site.requests == 0
    monkeypatch.undo()
    due_at = state_of(monitor).next_due_at
    assert due_at is not None
    probe_batch([claimed(monitor, due_at).key])
    until(lambda: state_of(monitor).claimed_at is None, 30, "it is recorded")
    assert (site.requests, state_of(monitor).status) == (1, "up")
    assert not CheckResult.objects.filter(verdict="down").exists()


def test_the_lease_of_a_trigger_begins_when_it_is_fired(every_minute: dict[str, Any]) -> None:
    claim = claimed(scheduler(**every_minute), NOON + minutes(1))
    start_runs([claim.key], now=NOON + minutes(1.5))
    assert claim_due(NOON + minutes(1) + LEASE, limit=10) == []
    (again,) = claim_due(NOON + minutes(1.5) + LEASE, limit=10)
    assert again.lost


def test_an_edit_keeps_the_slot_and_closes_the_claim(every_minute: dict[str, Any]) -> None:
    monitor = scheduler(**every_minute)
    claim = claimed(monitor, NOON + minutes(1))
    start_runs([claim.key], now=NOON + minutes(1))
    update_monitor(Caller(monitor.owner), monitor.public_id, {"url": "http://127.0.0.1:10/"}, now=NOON + minutes(1))
    found = check_record(monitor, claim=claim.number, verdict=Verdict.DOWN, at=NOON + minutes(1))
    record([found], now=NOON + minutes(1))
    state = state_of(monitor)
    assert (state.status, state.next_due_at, state.claimed_at) == ("up", NOON + minutes(2), None)


def test_a_shorter_interval_counts_also_where_what_is_sent_changes_with_it() -> None:
    monitor = scheduler(interval_sec=86_400)
    given = {"interval_sec": 60, "url": "http://127.0.0.1:10/"}
    update_monitor(Caller(monitor.owner), monitor.public_id, given, now=NOON + minutes(5))
    assert state_of(monitor).next_due_at == NOON + minutes(6)


def test_resuming_waits_for_the_next_slot(every_minute: dict[str, Any]) -> None:
    monitor = scheduler(**every_minute)
    update_monitor(Caller(monitor.owner), monitor.public_id, {"enabled": False}, now=NOON + minutes(1))
    update_monitor(Caller(monitor.owner), monitor.public_id, {"enabled": True}, now=NOON + minutes(5.5))
    assert state_of(monitor).next_due_at == NOON + minutes(6)


def test_slots_in_a_time_of_our_own_stop_are_not_made_up(every_minute: dict[str, Any]) -> None:
    monitor, polled = scheduler(**every_minute), MonitorFactory(up=True)
    tick(NOON + timedelta(seconds=59))
    tick(NOON + minutes(7.5))
    assert state_of(monitor).next_due_at == NOON + minutes(8)
    assert state_of(polled).next_due_at == NOON + minutes(1), "a poll is made once, at once"
    assert not StatusChange.objects.exclude(after="up").exists()


def test_the_run_id_is_that_of_the_slot_however_often_it_is_tried(every_minute: dict[str, Any]) -> None:
    monitor = scheduler(**every_minute, request_headers=[{"name": "X-Mine", "value": "1"}])
    ids = []
    for now in (NOON + minutes(1), NOON + minutes(1) + LEASE):
        claim = claimed(monitor, now)
        (job,) = load_jobs([(claim.monitor_id, claim.number)])
        assert isinstance(job.spec, HttpSpec)
        ids.append(dict(job.spec.headers)["Pulsekeeper-Run-Id"])
        assert job.spec.only_2xx
    assert ids[0] == ids[1]
    assert ids[0].startswith(monitor.public_id)


@pytest.mark.django_db(transaction=True)
def test_a_message_delivered_to_many_workers_fires_once(every_minute: dict[str, Any], site: Site) -> None:
    monitor = scheduler(**every_minute, url=site.url("/ok"))
    claim = claimed(monitor, NOON + minutes(1))
    run_concurrently(*[lambda: probe_batch([(claim.monitor_id, claim.number)])] * 5)
    leave()
    assert site.requests == 1
    assert CheckResult.objects.filter(claim=claim.number).count() == 1


def test_missed_once_is_made_up_for_by_one_run(every_minute: dict[str, Any]) -> None:
    monitor = scheduler(**every_minute, missed="once")
    tick(NOON + timedelta(seconds=59))
    tick(NOON + minutes(7.5))
    claim = claimed(monitor, NOON + minutes(7.5))
    record(
        [check_record(monitor, claim=claim.number, verdict=Verdict.UP, at=NOON + minutes(7.6))], now=NOON + minutes(7.6)
    )
    assert claim_due(NOON + minutes(7.9), limit=10) == []
    assert state_of(monitor).next_due_at == NOON + minutes(8)


def test_a_schedule_fires_at_its_times_and_not_when_it_is_created() -> None:
    monitor = MonitorFactory(type="scheduler", schedule="30 12 * * *")
    state = state_of(monitor)
    assert (state.claim, state.next_due_at) == (0, NOON + minutes(30))
    claim = claimed(monitor, NOON + minutes(30))
    record(
        [check_record(monitor, claim=claim.number, verdict=Verdict.UP, at=NOON + minutes(30))], now=NOON + minutes(31)
    )
    assert state_of(monitor).next_due_at == NOON + minutes(24 * 60 + 30)


def test_a_change_of_schedule_counts_from_then_on() -> None:
    monitor = scheduler(interval_sec=600)

    def change(after: float, **given: Any) -> datetime | None:
        update_monitor(Caller(monitor.owner), monitor.public_id, given, now=NOON + minutes(after))
        return state_of(monitor).next_due_at

    assert change(1, schedule="30 * * * *") == NOON + minutes(30)
    assert change(2, schedule="0 15 * * *") == NOON + minutes(180)
    assert change(3, timezone="Europe/Berlin") == NOON + minutes(120)
    assert change(4, interval_sec=120) == NOON + minutes(120), "it is not used"
    assert change(5, schedule=None) == NOON + minutes(7)
    assert change(9, schedule="0 15 * * *") == NOON + minutes(7), "a slot that is due is not lost"


def test_an_edit_during_a_run_counts_after_it() -> None:
    monitor = scheduler(schedule="* * * * *")
    claim = claimed(monitor, NOON + minutes(1))
    start_runs([claim.key], now=NOON + minutes(1))
    update_monitor(Caller(monitor.owner), monitor.public_id, {"schedule": "*/20 * * * *"}, now=NOON + minutes(1))
    record([check_record(monitor, claim=claim.number, verdict=Verdict.UP, at=NOON + minutes(1))], now=NOON + minutes(1))
    assert state_of(monitor).next_due_at == NOON + minutes(20)


def test_a_paused_schedule_waits_for_its_next_time_even_if_it_never_ran() -> None:
    monitor = MonitorFactory(type="scheduler", schedule="30 * * * *")
    update_monitor(Caller(monitor.owner), monitor.public_id, {"enabled": False}, now=NOON + minutes(1))
    update_monitor(Caller(monitor.owner), monitor.public_id, {"enabled": True}, now=NOON + minutes(31))
    assert state_of(monitor).next_due_at == NOON + minutes(90)

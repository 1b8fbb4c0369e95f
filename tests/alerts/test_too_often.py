"""Alerts about jobs that run more often than expected, and their entries in timelines of incidents."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from accounts.models import User
from alerts.events import DEFAULT_TOPICS, EventType, Topic
from alerts.models import AlertChannel
from incidents.models import Incident
from monitors.heartbeats import services as heartbeats
from monitors.heartbeats.excess import forget_old_excess, note_excess
from monitors.models import Monitor, PingExcess
from monitors.operations import mute_for
from monitors.services import update_monitor
from projects.access import Caller
from tests.alerts.drivers import Drive, at, make_channel
from tests.api.client import Api
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import run_concurrently, signal, state_of


@pytest.fixture
def owner(db: None) -> User:
    user = UserFactory()
    AlertChannel.objects.all().delete()  # the one that comes with the account
    return user


@pytest.fixture
def job(owner: User) -> Monitor:
    return MonitorFactory(owner=owner, name="Job", heartbeat=True, interval_sec=86_400, max_pings_per_hour=2)


def run(job: Monitor, *seconds: float, word: str = "") -> None:
    for second in seconds:
        assert heartbeats.record(signal(job.public_id, word, now=at(second)))


def tick(drive: Drive, second: float) -> list[list[str]]:
    note_excess(at(second))
    return [message.events for message in drive.tick(at(second))]


def test_no_channel_gets_them_by_default() -> None:
    assert Topic.TOO_OFTEN not in DEFAULT_TOPICS


def test_more_within_an_hour_than_expected(owner: User, job: Monitor) -> None:
    drive = Drive()
    make_channel(owner, topics=["too_often"])
    make_channel(owner, topics=DEFAULT_TOPICS)
    run(job, 0, 600)
    run(job, 700, 701, word="start")  # neither starts nor logs count
    run(job, 702, 703, word="log")
    assert tick(drive, 704) == []
    run(job, 1_000)
    assert tick(drive, 1_001) == [["too_often"]]
    (payload,) = [one for one in drive.payload if one.event_type is EventType.TOO_OFTEN]
    assert payload.detail == "The job ran more often than expected: more than 2 pings within an hour."
    assert state_of(job).status == "up"


def test_runs_further_apart_than_an_hour(owner: User, job: Monitor) -> None:
    drive = Drive()
    make_channel(owner, topics=["too_often"])
    run(job, 0, 1, 3_601)
    assert tick(drive, 3_601) == []


def test_at_most_one_alert_an_hour(owner: User, job: Monitor) -> None:
    drive = Drive()
    make_channel(owner, topics=["too_often"])
    run(job, *range(0, 7_200, 600))
    sent = [(second, events) for second in range(0, 7_300, 60) for events in tick(drive, second)]
    # All signals are stored in advance here, so the first tick sees them all.
    assert sent == [(0, ["too_often"]), (3_600, ["too_often"]), (7_200, ["too_often"])]


@pytest.mark.parametrize("given", [{"max_pings_per_hour": None}, {"enabled": False}])
def test_switched_off(owner: User, job: Monitor, given: dict[str, Any]) -> None:
    drive = Drive()
    make_channel(owner, topics=["too_often"])
    update_monitor(Caller(owner), job.public_id, given, now=at(0))
    run(job, 1, 2, 3)
    assert tick(drive, 4) == []
    assert not PingExcess.objects.exists()


def test_a_muted_heartbeat_notes_it_and_sends_no_alert(owner: User, job: Monitor) -> None:
    drive = Drive()
    make_channel(owner, topics=["too_often"])
    mute_for([job.pk], minutes=10, now=at(0))
    run(job, 1, 2, 3)
    assert tick(drive, 4) == tick(drive, 700) == []
    assert PingExcess.objects.get().monitor == job


def test_a_note_on_the_open_incident(owner: User, job: Monitor) -> None:
    drive = Drive()
    run(job, 0, 1, 2, word="fail")
    tick(drive, 3)
    tick(drive, 4)
    shown = Api.signed_in(owner).get(f"/v1/incidents/{Incident.objects.get().public_id}").json
    notes = [event["text"] for event in shown["events"] if event["type"] == "too_often"]
    assert notes == ["The job ran more often than expected: more than 2 pings within an hour."]


@pytest.mark.django_db(transaction=True)
def test_two_workers_note_it_once(owner: User, job: Monitor) -> None:
    run(job, 1, 2, 3)
    run_concurrently(*[lambda: note_excess(at(4))] * 3)
    assert PingExcess.objects.count() == 1


def test_notes_are_kept_as_long_as_results(job: Monitor, settings: Any) -> None:
    run(job, 1, 2, 3)
    note_excess(at(4))
    forget_old_excess(at(4) + timedelta(days=settings.RESULTS_KEPT_DAYS))
    assert PingExcess.objects.exists()
    forget_old_excess(at(5) + timedelta(days=settings.RESULTS_KEPT_DAYS))
    assert not PingExcess.objects.exists()


@pytest.mark.parametrize("value", [0, -1, 100_001, "5", 1.5, True])
def test_other_limits_are_refused(owner: User, value: object) -> None:
    refused = Api.signed_in(owner).post("/v1/monitors", {"type": "heartbeat", "max_pings_per_hour": value})
    assert refused.error.startswith("validation_error max_pings_per_hour")

"""Each status change is applied to incidents exactly once, also with concurrent consumers and after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from accounts.models import User
from checks.evidence import Evidence
from checks.spec import CheckOutcome, ReasonCode, Verdict
from incidents import consuming
from incidents.models import Incident
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.recording import record
from monitors.recording.batch import CheckRecord
from monitors.services import delete_monitor, update_monitor
from projects.access import Caller
from tests.alerts.drivers import Drive, at, events, timeline
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently

DOWN, UP, SLOW = Verdict.DOWN, Verdict.UP, Verdict.SLOW


@pytest.fixture
def owner(db: None) -> User:
    return UserFactory()


@pytest.fixture
def drive() -> Drive:
    return Drive()


def consume(moment: Any = None) -> list[StatusChange]:
    """Consume all status changes. Return those that were reported as slow."""
    slow: list[StatusChange] = []
    consuming.consume(moment or at(1000), slow=slow.extend)
    return slow


def test_an_outage_from_its_first_failure_to_recovery(owner: User, drive: Drive) -> None:
    project = ProjectFactory(owner=owner)
    monitor = drive.monitor(owner, fail_threshold=3, project_id=project.public_id)
    for second in (60, 120, 180):
        drive.check(monitor, DOWN, at(second))
    consume()
    incident = Incident.objects.get()
    assert (incident.started_at, incident.confirmed_at, incident.is_open) == (at(60), at(180), True)
    assert (incident.monitor, incident.owner, incident.project) == (monitor, owner, project)
    assert (incident.name, incident.monitor_public_id) == ("Shop", monitor.public_id)
    assert (incident.reason_code, incident.detail) == ("http_failure", "Answered 500.")
    drive.check(monitor, UP, at(240))
    consume()
    incident.refresh_from_db()
    assert (incident.resolved_at, incident.resolution) == (at(240), "recovered")
    assert timeline(incident) == ["first_failure", "confirmed", "resolved"]
    assert not StatusChange.objects.filter(processed_at=None).exists()


def test_what_the_confirming_check_saw_is_kept(owner: User, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    seen = CheckOutcome(
        verdict=DOWN,
        checked_at=at(60),
        reason_code=ReasonCode.HTTP_FAILURE,
        detail="Answered 500.",
        evidence=Evidence(address="192.0.2.1"),
    )
    record([CheckRecord(monitor.pk, 7, 1, seen)], now=at(60))
    consume()
    assert Incident.objects.get().evidence == {"address": "192.0.2.1"}


def test_a_batch_with_outages_that_are_over(owner: User, drive: Drive) -> None:
    one, other = drive.monitor(owner), drive.monitor(owner)
    for second, verdict in ((60, DOWN), (120, UP), (180, DOWN)):
        drive.checks([one, other], verdict, at(second))
    consume()
    drive.check(one, UP, at(240))
    drive.check(one, DOWN, at(300))
    consume()
    assert [
        list(Incident.objects.filter(monitor=monitor).order_by("pk").values_list("started_at", "resolved_at"))
        for monitor in (one, other)
    ] == [[(at(60), at(120)), (at(180), at(240)), (at(300), None)], [(at(60), at(120)), (at(180), None)]]


def test_a_pause_ends_it_and_still_down_afterwards_is_another(owner: User, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))
    update_monitor(Caller(owner), monitor.public_id, {"enabled": False}, now=at(90))
    consume()
    assert list(Incident.objects.values_list("resolved_at", "resolution")) == [(at(90), "paused")]
    update_monitor(Caller(owner), monitor.public_id, {"enabled": True}, now=at(100))
    drive.check(monitor, DOWN, at(110))
    consume()
    assert list(Incident.objects.order_by("pk").values_list("started_at", "resolved_at")) == [
        (at(60), at(90)),
        (at(110), None),
    ]


def test_a_deletion_ends_it(owner: User, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))
    consume()
    delete_monitor(Caller(owner), monitor.public_id)
    consuming.close_deleted(at(100))
    consuming.close_deleted(at(200))
    incident = Incident.objects.get()
    assert (incident.resolved_at, incident.resolution) == (at(100), "deleted")
    assert incident.monitor_public_id == monitor.public_id
    assert timeline(incident)[-2:] == ["confirmed", "resolved"]


def test_a_first_failure_is_announced_once_it_is_confirmed(owner: User) -> None:
    drive = Drive()
    given = {"fail_threshold": 2, "confirmation_sec": 60, "interval_sec": 300}
    confirmed, brief = (MonitorFactory(owner=owner, name=name, **given) for name in ("Shop", "Blog"))
    drive.checks([confirmed, brief], DOWN, at(0))
    assert {state.status for state in MonitorState.objects.all()} == {"down"}
    assert (drive.tick(at(1)), Incident.objects.count()) == ([], 0)
    drive.check(brief, UP, at(30))
    assert (drive.tick(at(31)), Incident.objects.count()) == ([], 0)
    drive.check(confirmed, DOWN, at(60))
    assert events(drive.tick(at(61))) == ["down"]
    incident = Incident.objects.get()
    assert (incident.name, incident.started_at, incident.confirmed_at) == ("Shop", at(0), at(60))
    drive.check(confirmed, UP, at(120))
    assert events(drive.tick(at(121))) == ["recovered"]


def test_slow_is_notified_without_an_incident(owner: User, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    drive.check(monitor, SLOW, at(60))
    drive.check(monitor, DOWN, at(120))
    drive.check(monitor, SLOW, at(180))
    told = consume()
    assert [(change.before, change.at) for change in told] == [("up", at(60))]
    assert Incident.objects.get().resolved_at == at(180)


def test_another_reason_is_noted_once(owner: User, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))
    consume()
    for second in (120, 180):
        timeout = CheckOutcome(
            verdict=DOWN, checked_at=at(second), reason_code=ReasonCode.TIMEOUT, detail="No answer within 5 s."
        )
        record([CheckRecord(monitor.pk, 10 + second, 1, timeout)], now=at(second))
        consuming.note_reasons(at(second))
    incident = Incident.objects.get()
    assert (incident.reason_code, incident.detail) == ("timeout", "No answer within 5 s.")
    assert timeline(incident) == ["first_failure", "confirmed", "reason_changed"]


def test_an_open_incident_follows_its_monitor(owner: User, drive: Drive) -> None:
    monitor, project = drive.monitor(owner), ProjectFactory(owner=owner)
    drive.check(monitor, DOWN, at(60))
    consume()
    Monitor.objects.filter(pk=monitor.pk).update(project=project)
    consuming.follow_monitors()
    assert Incident.objects.get().project == project


def test_nothing_is_taken_in_where_it_breaks_off(owner: User, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))

    def fail(changes: Sequence[StatusChange]) -> None:
        raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        consuming.consume(at(100), slow=fail)
    assert not Incident.objects.exists()
    consume()
    assert Incident.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_at_once_take_each_in_once() -> None:
    drive, owner = Drive(), UserFactory()
    monitors = [drive.monitor(owner) for _ in range(20)]
    drive.checks(monitors, DOWN, at(60))
    run_concurrently(*[partial(consuming.consume, at(100), slow=lambda _: None)] * 4)
    consume()
    assert sorted(Incident.objects.values_list("monitor", flat=True)) == [monitor.pk for monitor in monitors]


def test_the_database_holds_one_open_incident_per_monitor(owner: User, drive: Drive) -> None:
    monitor = drive.monitor(owner)
    drive.check(monitor, DOWN, at(60))
    consume()
    again = Incident.objects.get()
    again.pk, again.public_id, again.started_at = None, "inc_other", at(70) + timedelta(seconds=1)
    with pytest.raises(IntegrityError, match="one_open_incident_per_monitor"), transaction.atomic():
        again.save(force_insert=True)

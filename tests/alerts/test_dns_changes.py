"""Alerts about changed DNS records: who gets one, when, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from django.conf import settings

from accounts.models import User
from alerts.events import DEFAULT_TOPICS, EventType, Payload, Topic
from alerts.messages import Level, render
from alerts.models import AlertChannel
from checks.spec import CheckOutcome, Verdict
from core.clock import to_ms, utc_now
from incidents.models import MaintenanceWindow
from monitors.checking.jobs import load_jobs
from monitors.checking.runner import CheckRunner, shared_engine
from monitors.models import DnsAlert, Monitor
from monitors.operations import mute_for
from monitors.recording import record
from monitors.recording.batch import CheckRecord
from monitors.scheduling import claim_due
from monitors.services import update_monitor
from projects.access import Caller
from tests.alerts.drivers import Drive, at, make_channel
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON
from tests.targets.resolvers import Asked, Resolving, reply
from tests.targets.server import TargetServer

A, B, C = "192.0.2.1", "192.0.2.2", "192.0.2.3"
SPACING = settings.FLAPPING_MINUTES * 60


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.fixture
def owner(db: None) -> User:
    user = UserFactory()
    AlertChannel.objects.all().delete()  # the one that comes with the account
    return user


@pytest.fixture
def monitor(owner: User) -> Monitor:
    return MonitorFactory(owner=owner, name="Zone", type="dns", url="dns:example.com")


class Finder:
    """Records the results of checks of one monitor."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._claims: Iterator[int] = count(1)

    def find(self, moment: datetime, *records: str) -> None:
        outcome = CheckOutcome(Verdict.UP, moment, latency_ms=5, answer=tuple(sorted(records)))
        version = Monitor.objects.get(pk=self._monitor.pk).config_version
        record([CheckRecord(self._monitor.pk, next(self._claims), version, outcome)], now=moment)


@pytest.fixture
def finder(monitor: Monitor) -> Finder:
    made = Finder(monitor)
    made.find(NOON, A)
    return made


def details(drive: Drive) -> list[str | None]:
    return [payload.detail for payload in drive.payload if payload.event_type is EventType.DNS_CHANGE]


def test_no_channel_gets_them_by_default() -> None:
    assert Topic.DNS_CHANGE not in DEFAULT_TOPICS


def test_a_channel_with_the_topic_gets_one(owner: User, finder: Finder) -> None:
    drive, channel = Drive(), make_channel(owner, topics=["dns_change"])
    make_channel(owner, topics=DEFAULT_TOPICS)
    finder.find(at(60), B)
    assert [(message.channel_id, message.events) for message in drive.tick(at(61))] == [(channel.pk, ["dns_change"])]
    assert drive.payload[0].at == to_ms(at(60))
    assert details(drive) == [f'Added "{B}"; removed "{A}".']
    assert drive.tick(at(62)) == []


def test_further_changes_follow_together(owner: User, finder: Finder) -> None:
    drive = Drive()
    make_channel(owner)
    finder.find(at(60), B)
    drive.tick(at(61))
    finder.find(at(120), B, C)
    finder.find(at(180), A, C)
    assert drive.ticks(at(121), at(SPACING), every=60) == []
    drive.tick(at(61 + SPACING))
    assert details(drive)[1:] == [f'Added "{A}", "{C}"; removed "{B}".']


def test_changes_that_undo_each_other_are_not_sent(owner: User, finder: Finder) -> None:
    drive = Drive()
    make_channel(owner)
    finder.find(at(60), B)
    drive.tick(at(61))
    finder.find(at(120), A)
    finder.find(at(180), B)
    drive.tick(at(61 + SPACING))
    assert len(details(drive)) == 1
    assert not DnsAlert.objects.exists()


def test_sets_of_any_size_are_compared_whole(owner: User, finder: Finder) -> None:
    drive, more = Drive(), [f"192.0.2.{number}" for number in range(100, 120)]
    make_channel(owner)
    finder.find(at(60), B)
    drive.tick(at(61))
    finder.find(at(120), B, *more)
    finder.find(at(180), B, more[-1])
    drive.tick(at(61 + SPACING))
    assert details(drive)[1:] == [f'Added "{more[-1]}".']


def test_rotating_names_do_not_delay_one_another(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.notify.BATCH", 2)
    drive = Drive()
    make_channel(owner)
    finders = [Finder(MonitorFactory(owner=owner, type="dns", url="dns:example.com")) for _ in range(5)]
    for second in range(0, SPACING + 120, 60):
        for each in finders:
            each.find(at(second), f"192.0.2.{second // 60}")
        drive.tick(at(second + 1))
    assert not DnsAlert.objects.filter(due_at__lte=at(second + 1)).exists()
    drive.tick(at(second + 61))  # a channel's messages are spaced
    last = SPACING // 60 + 1
    assert details(drive) == [
        f'Added "192.0.2.{n}"; removed "192.0.2.{o}".' for n, o in ((1, 0), (last, 1)) for _ in finders
    ]


def test_changes_that_no_channel_wants_do_not_stay(owner: User, finder: Finder) -> None:
    finder.find(at(60), B)
    Drive().tick(at(61))
    assert not DnsAlert.objects.exists()


@pytest.mark.parametrize("path", ["url", "pause", "resumed", "owner"])
def test_pending_changes_end_with_what_they_are_about(owner: User, monitor: Monitor, finder: Finder, path: str) -> None:
    drive, other = Drive(), UserFactory()
    make_channel(owner)
    make_channel(other)
    finder.find(at(60), B)
    drive.tick(at(61))
    finder.find(at(120), C)
    match path:
        case "url":
            update_monitor(Caller(owner), monitor.public_id, {"url": "dns:example.org"}, now=at(130))
            finder.find(at(140), A)
        case "pause" | "resumed":
            update_monitor(Caller(owner), monitor.public_id, {"enabled": False}, now=at(130))
            if path == "resumed":
                update_monitor(Caller(owner), monitor.public_id, {"enabled": True}, now=at(140))
                finder.find(at(150), A)
        case "owner":
            Monitor.objects.filter(pk=monitor.pk).update(owner=other)
    drive.tick(at(61 + SPACING))
    assert details(drive) == [f'Added "{B}"; removed "{A}".']
    assert not DnsAlert.objects.exists()


def test_changes_under_a_silence_are_not_sent(owner: User, monitor: Monitor, finder: Finder) -> None:
    drive = Drive()
    make_channel(owner)
    mute_for([monitor.pk], minutes=5, now=NOON)
    finder.find(at(60), B)
    drive.tick(at(61))
    window: dict[str, Any] = {"starts_at": at(400), "ends_at": at(900)}
    MaintenanceWindow.objects.create(
        owner=owner, created_at=NOON, name="Move", all_monitors=True,
        current_starts_at=at(400), current_ends_at=at(900), **window,
    )  # fmt: skip
    finder.find(at(500), C)
    drive.ticks(at(501), at(1000), every=50)
    assert details(drive) == []
    finder.find(at(1060), A)
    drive.tick(at(1061))
    assert details(drive) == [f'Added "{A}"; removed "{C}".']


def test_many_records(owner: User, finder: Finder) -> None:
    drive = Drive()
    make_channel(owner)
    finder.find(at(60), *(f"192.0.2.{number}" for number in range(10, 40)))
    drive.tick(at(61))
    assert details(drive) == [f'Added "192.0.2.10", "192.0.2.11", "192.0.2.12" and 27 more; removed "{A}".']


def test_the_message() -> None:
    payload = Payload(
        EventType.DNS_CHANGE, to_ms(NOON), monitor_id="mon_1", monitor="Zone", type="dns", url="dns:example.com",
        detail=f'Added "{B}".',
    )  # fmt: skip
    message = render([payload], key="dlv_1", base_url="https://pulse.example", now=NOON)
    assert message.subject == "[DNS CHANGED] Zone"
    assert message.level is Level.WARNING
    assert "The DNS records of Zone have changed." in message.text
    assert message.webhook_body["event"] == "dns_change"
    assert message.webhook_body["detail"] == f'Added "{B}".'


def test_an_outage_does_not_supersede_it() -> None:
    given: dict[str, Any] = {"monitor_id": "mon_1", "monitor": "Zone"}
    payloads = [
        Payload(EventType.DNS_CHANGE, to_ms(NOON), detail=f'Added "{B}".', **given),
        Payload(EventType.DOWN, to_ms(at(1)), started_at=to_ms(NOON), **given),
    ]
    message = render(payloads, key="dlv_1", base_url="https://pulse.example", now=at(2))
    assert message.subject == "[DOWN] 1 monitor is down, 1 DNS answer changed"


@pytest.mark.django_db(transaction=True)
def test_from_the_resolver_to_the_message(targets: TargetServer) -> None:
    """A resolver whose answer changes, asked by the runner of a worker."""
    user, drive, records = UserFactory(), Drive(), [A, A, B]
    channel = make_channel(user, topics=["dns_change"])

    def answer(asked: Asked) -> list[bytes]:
        return [reply(asked, ("example.com.", "A", records[asked.number]))]

    server = targets.serve_resolver(Resolving(answer))
    url, created_at = f"dns://{server.address}/example.com", utc_now() - timedelta(hours=1)
    monitor = MonitorFactory(owner=user, type="dns", url=url, created_at=created_at)
    for _ in records:
        assert drive.tick(utc_now()) == []
        runner = CheckRunner(shared_engine())
        claims = claim_due(utc_now() + timedelta(hours=1), limit=1)
        runner.submit(load_jobs([(claim.monitor_id, claim.number) for claim in claims]))
        assert runner.drain(grace_sec=20) == 0
    assert [(change.added, change.removed) for change in monitor.dns_changes.all()] == [([B], [A])]
    assert [(message.channel_id, message.events) for message in drive.tick(utc_now())] == [(channel.pk, ["dns_change"])]
    assert details(drive) == [f'Added "{B}"; removed "{A}".']

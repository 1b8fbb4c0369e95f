"""Simulate checks of monitors over time and collect the messages. Nothing is sent to the network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import Model

from accounts.models import User
from alerts import locations, notify, planned, tasks
from alerts.events import Payload, Topic
from alerts.models import AlertChannel, Delivery
from alerts.outbox import OUTBOX, load
from checks.spec import Verdict
from incidents import consuming
from incidents.models import Incident
from monitors.models import Monitor, MonitorState
from monitors.recording import record
from notifications.outbox import Lane, SendResult
from tests.factories import MonitorFactory
from tests.helpers import NOON, check_record

EVERYTHING = tuple(Topic.values)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def claim(moment: datetime, lane: Lane | None = None) -> Delivery | None:
    """Claim the next message, as a sender does."""
    return next(iter(OUTBOX.claim(moment, lane)), None)


def finish(
    delivery: Delivery, *, delivered: bool, detail: str, retry: bool = True, now: datetime
) -> Delivery.State | None:
    return OUTBOX.finish(delivery, SendResult(delivered, detail, retry), now=now)


def make_channel(owner: User, *, topics: Iterable[str] = EVERYTHING, **columns: Any) -> AlertChannel:
    """Create a webhook subscribed to everything, except for the passed fields."""
    monitors = columns.pop("monitors", ())
    given = {"created_at": NOON, "confirmed_at": NOON, "name": "Pager", "kind": "webhook", "hint": "https://x.example"}
    channel = AlertChannel(owner=owner, topics=list(topics), **(given | columns))
    channel.config = {"url": "https://x.example/", "secret": "s" * 40}
    channel.save()
    channel.monitors.set(monitors)
    return channel


@dataclass(frozen=True)
class Message:
    """A message sent to one channel: (event type, name of the monitor) of each item."""

    channel_id: int
    at: datetime
    items: tuple[tuple[str, str], ...]

    @property
    def events(self) -> list[str]:
        return [event_type for event_type, _ in self.items]


@dataclass
class Drive:
    """Record checks and run ticks; each due message is delivered at once."""

    sent: list[Message] = field(default_factory=list)
    payload: list[Payload] = field(default_factory=list)
    _claims: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def monitor(self, owner: User, name: str = "Shop", *, interval_sec: int = 60, **given: Any) -> Monitor:
        """Create a monitor that is up since NOON and goes down after one failure."""
        return self.monitors(owner, [name], interval_sec=interval_sec, **given)[0]

    def monitors(self, owner: User, names: Iterable[str], *, interval_sec: int = 60, **given: Any) -> list[Monitor]:
        """Create a monitor for each name, copied from the first one, since a storm needs many."""
        first, *others = names
        given = {"fail_threshold": 1} | given
        model = MonitorFactory(owner=owner, name=first, interval_sec=interval_sec, **given)
        copies = Monitor.objects.bulk_create(
            Monitor(**_columns(model, "id", "public_id", "name"), name=name) for name in others
        )
        columns = _columns(model.state, "monitor")
        MonitorState.objects.bulk_create(MonitorState(monitor=copy, **columns) for copy in copies)
        self.checks([model, *copies], Verdict.UP, NOON)
        return [model, *copies]

    def check(self, monitor: Monitor, verdict: Verdict, moment: datetime) -> None:
        self.checks([monitor], verdict, moment)

    def checks(self, monitors: Iterable[Monitor], verdict: Verdict, moment: datetime) -> None:
        found = Monitor.objects.in_bulk([monitor.pk for monitor in monitors])
        readings = []
        for monitor in found.values():
            self._claims[monitor.pk] += 1
            claim, version = self._claims[monitor.pk], monitor.config_version
            readings.append(check_record(monitor, claim=claim, verdict=verdict, at=moment, config_version=version))
        record(readings, now=moment)

    def tick(self, moment: datetime) -> list[Message]:
        """Run one tick of the worker at that time. Return the messages that it sent."""
        consuming.consume(moment, slow=partial(notify.notify_slow, now=moment))
        consuming.close_deleted(moment)
        notify_all(moment)
        notify.notify_expiries(moment)
        notify.notify_dns_changes(moment)
        notify.notify_too_often(moment)
        for run in tasks.run_escalations:
            while run(moment):
                pass
        planned.release_due(moment)
        locations.notify_partial_outages(moment)
        return self.deliver(moment)

    def remind(self, moment: datetime) -> list[Message]:
        notify.remind(moment)
        return self.deliver(moment)

    def deliver(self, moment: datetime) -> list[Message]:
        sent = []
        while (claimed := claim(moment)) is not None:
            channel, payload = load(claimed)
            if channel is None:  # nothing in it is wanted any more
                continue
            finish(claimed, delivered=True, detail="200", now=moment)
            self.payload += payload
            items = tuple((one.event_type.value, one.monitor) for one in payload)
            sent.append(Message(claimed.channel_id, moment, items))
        self.sent += sent
        return sent

    def ticks(self, start: datetime, end: datetime, *, every: float) -> list[Message]:
        sent, moment = [], start
        while moment <= end:
            sent += self.tick(moment)
            moment += timedelta(seconds=every)
        return sent


def notify_all(moment: datetime) -> None:
    """Announce all pending incidents."""
    while notify.notify_incidents(moment):
        pass


def _columns(row: Model, *without: str) -> dict[str, Any]:
    fields = row._meta.concrete_fields
    return {field.attname: getattr(row, field.attname) for field in fields if field.name not in without}


def events(messages: Iterable[Message]) -> list[str]:
    """Return the events of each message, joined: `down` or `down+down`."""
    return ["+".join(message.events) for message in messages]


def timeline(incident: Incident) -> list[str]:
    return list(incident.events.order_by("pk").values_list("type", flat=True))

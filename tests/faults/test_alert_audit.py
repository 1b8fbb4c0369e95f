"""The alert audit finds each kind of violation when it is added to a clean run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from alerts import messages, notify
from alerts.models import Delivery
from alerts.outbox import load
from checks.spec import Verdict
from incidents import consuming
from incidents.models import Incident
from monitors.models import Monitor, StatusChange
from tests.alerts.drivers import Drive, at, claim, finish
from tests.alerts.receiver import Call
from tests.faults.alert_audit import audit_alerts, unfinished
from tests.faults.consumer import ReceivedAlert
from tests.faults.monitor_audit import VIOLATIONS, Audit
from tests.faults.script import Flip, Part
from tests.faults.tenant import MonitoredPart, make_channels, make_monitors
from tests.helpers import NOON

PARTS = tuple(Part(number, "http", (Flip(0.0, up=True),)) for number in (3, 4))


@dataclass
class Run:
    """Two outages, one of which is resolved: three events, each sent to two channels, some of them grouped."""

    fleet: list[MonitoredPart]
    received: list[ReceivedAlert]

    def audit(self) -> dict[str, int]:
        audit = Audit(NOON.timestamp(), 600.0, [], [])
        audit_alerts(audit, self.fleet, self.received)
        return audit.counts()


def deliver(seconds: float) -> list[ReceivedAlert]:
    """Send all due messages; the receiver accepts them."""
    accepted = []
    while (claimed := claim(at(seconds))) is not None:
        channel, payload = load(claimed)
        assert channel is not None
        message = messages.render(payload, key=claimed.public_id, base_url="https://p.example", now=at(seconds))
        path = channel.config["url"].removeprefix("http://127.0.0.1:9")
        call = Call(path, claimed.public_id, {}, json.dumps(message.webhook_body).encode())
        accepted.append(ReceivedAlert(at(seconds).timestamp(), call, 200))
        finish(claimed, delivered=True, detail="200", retry=True, now=at(seconds))
    return accepted


@pytest.fixture
def run(db: None) -> Run:
    fleet = make_monitors(PARTS, target="http://127.0.0.1:9")
    make_channels(fleet, receiver="http://127.0.0.1:9")
    drive, received = Drive(), []
    first, second = Monitor.objects.order_by("pk")
    Monitor.objects.update(fail_threshold=1)
    drive.checks([first, second], Verdict.UP, at(0))
    for moment, monitor, verdict in ((10, first, Verdict.DOWN), (20, second, Verdict.DOWN), (30, first, Verdict.UP)):
        drive.check(monitor, verdict, at(moment))
        consume(moment + 1)
        received += deliver(moment + 1)
    return Run(fleet, received + deliver(60))


def consume(seconds: float) -> None:
    consuming.consume(at(seconds), slow=lambda _: None)
    notify.notify_incidents(at(seconds))


def test_a_clean_run_has_no_violations(run: Run) -> None:
    audit = Audit(NOON.timestamp(), 600.0, [], [])
    assert audit_alerts(audit, run.fleet, run.received) == 6
    assert audit.counts() == dict.fromkeys(VIOLATIONS, 0), audit.violations
    assert unfinished() == ""


def test_a_repetition_with_the_same_key_is_no_violation(run: Run) -> None:
    run.received += run.received[:2]
    assert run.audit() == dict.fromkeys(VIOLATIONS, 0)


def item_of(run: Run, event_type: str) -> int:
    """Return the number of the first message about `event_type`."""
    return next(n for n, each in enumerate(run.received) if each.call.json["event"] == event_type)


def lose_a_message(run: Run) -> None:
    del run.received[0]


def refuse_a_message(run: Run) -> None:
    run.received[0] = replace(run.received[0], status=500)


def lose_a_recovery(run: Run) -> None:
    del run.received[item_of(run, "recovered")]


def forget_a_change(run: Run) -> None:
    Incident.objects.filter(resolved_at=None).delete()


def lose_the_announcement(run: Run) -> None:
    Incident.objects.filter(resolved_at=None).update(announced_at=None)


def lose_the_closing_announcement(run: Run) -> None:
    Incident.objects.exclude(resolved_at=None).update(closing_announced_at=None)


def leave_a_delivery_waiting(run: Run) -> None:
    Delivery.objects.filter(pk=Delivery.objects.order_by("pk")[0].pk).update(state="waiting")


def with_key(each: ReceivedAlert, key: str, **body: Any) -> ReceivedAlert:
    call = replace(each.call, key=key, body=json.dumps(each.call.json | body).encode())
    return replace(each, call=call)


def repeat_with_another_key(run: Run) -> None:
    run.received.append(with_key(run.received[0], "another"))


def alert_about_an_unknown_incident(run: Run) -> None:
    known = run.received[0].call.json["incident"]
    run.received.append(with_key(run.received[0], "another", incident=known | {"id": "inc_unknown"}))


def repeat_with_another_event(run: Run) -> None:
    run.received.append(with_key(run.received[0], run.received[0].call.key, event="still_down"))


def delete_the_recovery_change(run: Run) -> None:
    StatusChange.objects.filter(after="up", before="down").delete()


def swap_outage_and_recovery(run: Run) -> None:
    run.received.insert(0, run.received.pop(item_of(run, "recovered")))


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose_a_message, "lost_alerts"),
        (refuse_a_message, "lost_alerts"),
        (lose_a_recovery, "lost_alerts"),
        (forget_a_change, "lost_alerts"),
        (lose_the_announcement, "lost_alerts"),
        (lose_the_closing_announcement, "lost_alerts"),
        (leave_a_delivery_waiting, "lost_alerts"),
        (repeat_with_another_key, "double_alerts"),
        (alert_about_an_unknown_incident, "double_alerts"),
        (repeat_with_another_event, "double_alerts"),
        (delete_the_recovery_change, "double_alerts"),
        (swap_outage_and_recovery, "overtaken_alerts"),
    ],
)
def test_a_violation_is_found(run: Run, plant: Callable[[Run], None], kind: str) -> None:
    plant(run)
    assert run.audit()[kind] > 0

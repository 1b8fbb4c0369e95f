"""Create the monitors and channels of a run through the services that production uses.

Import it after Django is set up.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from accounts.models import Plan, User
from accounts.services import create_account
from alerts.events import Topic
from alerts.models import AlertChannel
from alerts.services import create_channel
from core.clock import utc_now
from monitors.models import Dependency, Monitor, MonitorState
from monitors.services import create_monitor
from oncall.services import create_policy, set_contact
from projects.access import Caller
from tests.faults.script import GRACE_SEC, HEARTBEAT_SEC, INTERVAL_SEC, TIMEOUT_MS, Part

SHARES = 40
STEPS = ("step-0", "step-1")
"""The channels of the steps of the escalation policy."""
STEP_MINUTES = 1
NOT_YET = timedelta(hours=1)


@dataclass(frozen=True)
class MonitoredPart:
    """A part of the script and its monitor."""

    part: Part
    monitor_id: int
    public_id: str

    def __str__(self) -> str:
        return f"{self.part.kind} {self.part.number} (monitor {self.monitor_id})"


def make_monitors(parts: Sequence[Part], *, target: str) -> list[MonitoredPart]:
    """Create the monitors; none is due before `schedule_checks`. `target` is `http://host:port`."""
    Plan.objects.create(name="faults", min_interval_sec=1, monitor_limit=len(parts))
    account = create_account(email="faults@example.com", password="a fine long password", plan="faults")
    fleet = [_make(Caller(account), part, target=target) for part in parts]
    made = {watched.part.number: watched.monitor_id for watched in fleet}
    Dependency.objects.bulk_create(
        Dependency(child_id=watched.monitor_id, parent_id=made[watched.part.parent], position=0)
        for watched in fleet
        if watched.part.parent is not None
    )
    return fleet


def _make(caller: Caller, part: Part, *, target: str) -> MonitoredPart:
    now = utc_now()
    heartbeat = part.kind == "heartbeat"
    place = {} if heartbeat else {"url": f"{target}/{part.number}"}
    monitor = create_monitor(
        caller,
        {
            "type": part.kind,
            "name": f"{part.kind} {part.number}",
            "interval_sec": HEARTBEAT_SEC if heartbeat else INTERVAL_SEC,
            "grace_sec": GRACE_SEC,
            "timeout_ms": TIMEOUT_MS,
            "slow_ms": 10 * TIMEOUT_MS,  # the speed of the machine is not tested
            "fail_threshold": part.fail_threshold,
            "confirmation_sec": part.confirmation_sec,
            **({"schedule": "* * * * *"} if part.cron else {}),
            **({"missed": "once"} if part.cron and not heartbeat else {}),
            **place,
        },
        now=now,
    )
    if not heartbeat:
        # The scheduler makes the first check.
        MonitorState.objects.filter(pk=monitor.pk).update(claimed_at=None, slot_at=None, next_due_at=now + NOT_YET)
    return MonitoredPart(part, monitor.pk, monitor.public_id)


def schedule_checks(fleet: Sequence[MonitoredPart]) -> None:
    """Make all checks due, spread over an interval. Call it after the channels are created."""
    now = utc_now()
    for watched in fleet:
        if watched.part.kind != "heartbeat":
            wait = timedelta(seconds=random.Random(watched.part.number).uniform(0, INTERVAL_SEC))
            MonitorState.objects.filter(pk=watched.monitor_id).update(next_due_at=now + wait)


def channels_of(part: Part) -> tuple[str, str]:
    """Return the channels of a part without a policy: one for all monitors, and one that few monitors share."""
    return "all", f"share-{part.number % SHARES}"


def make_channels(fleet: Sequence[MonitoredPart], *, receiver: str) -> None:
    """Create webhooks for all topics, each at a path with its name, and delete all other channels."""
    owner = Monitor.objects.get(pk=fleet[0].monitor_id).owner
    AlertChannel.objects.filter(owner=owner).delete()
    shares: dict[str, list[str]] = {}
    for watched in fleet:
        _, share = channels_of(watched.part)
        shares.setdefault(share, []).append(watched.public_id)
    aims = {"all": {"monitors": "all"}} | {
        share: {"monitors": "chosen", "monitor_ids": chosen} for share, chosen in shares.items()
    }
    for name, aim in aims.items():
        given = {"kind": "webhook", "name": name, "url": f"{receiver}/{name}", "topics": Topic.values, **aim}
        create_channel(Caller(owner), given, now=utc_now())
    _make_policy(owner, fleet, receiver=receiver)


def _make_policy(owner: User, fleet: Sequence[MonitoredPart], *, receiver: str) -> None:
    """Let a channel be notified of an outage at once, and a minute later a person."""
    now = utc_now()
    first, second = (
        create_channel(
            Caller(owner),
            {"kind": "webhook", "name": name, "url": f"{receiver}/{name}", "monitors": "all", "topics": []},
            now=now,
        )[0]
        for name in STEPS
    )
    set_contact(Caller(owner), [{"after_min": 0, "channel_id": second.public_id}])
    steps = [
        {"after_min": 0, "targets": [{"type": "channel", "id": first.public_id}]},
        {"after_min": STEP_MINUTES, "targets": [{"type": "user", "id": owner.public_id}]},
    ]
    given = {"name": "faults", "project_id": None, "steps": steps, "repeat": 0, "acknowledge_timeout_min": 0}
    policy = create_policy(Caller(owner), given, now=now)
    escalated = [watched.monitor_id for watched in fleet if watched.part.is_escalated]
    Monitor.objects.filter(pk__in=escalated).update(escalation_policy=policy)

"""The monitors of a faults run, made through the services that production uses. Import it where Django is set up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from accounts.models import Plan
from accounts.services import create_account
from core.clock import utc_now
from monitors.models import MonitorState
from monitors.services import create_monitor
from projects.access import Caller
from tests.faults.script import GRACE_SEC, HEARTBEAT_SEC, INTERVAL_SEC, TIMEOUT_MS, Part


@dataclass(frozen=True)
class Watched:
    """A part of the script, and the monitor that watches it."""

    part: Part
    monitor_id: int
    public_id: str

    def __str__(self) -> str:
        return f"{self.part.kind} {self.part.number} (monitor {self.monitor_id})"


def make_monitors(parts: Sequence[Part], *, port: int) -> list[Watched]:
    """Due spread over an interval."""
    Plan.objects.create(name="faults", min_interval_sec=1, monitor_limit=len(parts))
    account = create_account(email="faults@example.com", password="a fine long password", plan="faults")
    return [_make(Caller(account), part, port=port) for part in parts]


def _make(caller: Caller, part: Part, *, port: int) -> Watched:
    now = utc_now()
    heartbeat = part.kind == "heartbeat"
    place = {} if heartbeat else {"url": f"http://127.0.0.1:{port}/{part.number}"}
    monitor = create_monitor(
        caller,
        {
            "type": part.kind,
            "name": f"{part.kind} {part.number}",
            "interval_sec": HEARTBEAT_SEC if heartbeat else INTERVAL_SEC,
            "grace_sec": GRACE_SEC,
            "timeout_ms": TIMEOUT_MS,
            "slow_ms": 10 * TIMEOUT_MS,  # how fast the machine is is not what is looked at
            "fail_threshold": part.fail_threshold,
            **place,
        },
        now=now,
    )
    if not heartbeat:
        # Nobody makes its first check, so that is the scheduler's.
        wait = timedelta(seconds=random.Random(part.number).uniform(0, INTERVAL_SEC))
        MonitorState.objects.filter(pk=monitor.pk).update(
            claimed_at=None, slot_at=None, next_due_at=now + wait
        )
    return Watched(part, monitor.pk, monitor.public_id)

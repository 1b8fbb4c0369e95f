"""Measure how long after the confirmation of an outage a person is notified, and how many messages a storm makes.

    python benchmarks/notified.py [--single 10] [--storm 300]

The processes of the Procfile on private servers in a temporary folder, and people whom escalation policies notify
through a webhook on loopback. First the targets of separate people go down, PAUSE_SEC apart. Then the target of many
monitors of one person goes down, while the checks of all are due (`storm_...`); and that of another person, whose
checks are spread over a minute (`spread_...`). `--storm` is the number of monitors of each.

The last line is one JSON object: seconds from the entry "confirmed" in the timeline of an incident until the receiver
has its message, and the number of messages of both storms. Exits 1 if an incident is missing or in two messages, if a
single one took over GOAL_SEC, or if the first storm made more than one message.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django

from tests.alerts.receiver import Call, Receiver
from tests.faults.system import migrate, serve_privately
from tests.processes.tree import Place, Tree
from tests.processes.up import free_port
from tests.processes.waiting import until

if TYPE_CHECKING:
    from monitors.models import Monitor

GOAL_SEC = 5.0
PAUSE_SEC = 3.0
SINGLE_INTERVAL_SEC, STORM_INTERVAL_SEC = 1, 60
PATIENCE_SEC = 180


class Target:
    """Answers 200, or 500 to paths in `down`."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        down = self.down

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(500 if self.path.strip("/") in down else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, daemon=True).start()


class Inboxes:
    """The messages about outages: the time and the incidents of each, by the path of the webhook."""

    def __init__(self) -> None:
        self.messages: dict[str, list[tuple[float, list[str]]]] = {}

    def __call__(self, call: Call) -> int:
        items = call.json.get("items") or [call.json]
        ids = [item["incident"]["id"] for item in items if item["event"] == "down"]
        self.messages.setdefault(call.path.strip("/"), []).append((time.time(), ids))
        return 200

    def count(self, person: str) -> int:
        return sum(len(ids) for _, ids in self.messages.get(person, []))


def make_person(name: str, urls: Sequence[str], *, receiver: str, interval_sec: int) -> list[Monitor]:
    """Create an account, whose policy notifies its owner through a webhook, and its monitors. None is due yet."""
    from accounts.services import create_account
    from alerts.models import AlertChannel
    from alerts.services import create_channel
    from core.clock import utc_now
    from monitors.models import Monitor, MonitorState
    from monitors.services import create_monitor
    from oncall.services import create_policy, set_contact
    from projects.access import Caller

    now = utc_now()
    owner = create_account(email=f"{name}@example.com", password="a fine long password", plan="bench")
    AlertChannel.objects.filter(owner=owner).delete()
    channel, _ = create_channel(
        Caller(owner), {"kind": "webhook", "name": name, "url": f"{receiver}/{name}", "topics": []}, now=now
    )
    set_contact(Caller(owner), [{"after_min": 0, "channel_id": channel.public_id}])
    step = {"after_min": 0, "targets": [{"type": "user", "id": owner.public_id}]}
    policy = create_policy(Caller(owner), {"name": name, "steps": [step]}, now=now)
    for url in urls:
        given = {"type": "http", "name": url, "url": url, "method": "GET", "interval_sec": interval_sec}
        create_monitor(Caller(owner), given, now=now)
    monitors = Monitor.objects.filter(owner=owner)
    monitors.update(escalation_policy=policy)
    states = MonitorState.objects.filter(monitor__in=monitors)
    states.update(claimed_at=None, slot_at=None, next_due_at=now + timedelta(hours=1))
    return list(monitors.order_by("pk"))


def make_due(monitors: Sequence[Monitor], *, spread_sec: float = 0.0) -> None:
    """Let the next checks be due now, or spread over some seconds from now."""
    from core.clock import utc_now
    from monitors.models import MonitorState

    now = utc_now()
    for place, monitor in enumerate(monitors):
        due = now + timedelta(seconds=spread_sec * place / len(monitors))
        MonitorState.objects.filter(pk=monitor.pk).update(next_due_at=due)


def delays(messages: Sequence[tuple[float, list[str]]]) -> list[float]:
    """Return the seconds from the confirmation of each incident until its message came."""
    from incidents.models import IncidentEvent

    confirmed = {
        event.incident.public_id: event.at.timestamp()
        for event in IncidentEvent.objects.filter(type=IncidentEvent.Type.CONFIRMED).select_related("incident")
    }
    return [at - confirmed[incident] for at, ids in messages for incident in ids]


def measure(target: Target, inboxes: Inboxes, *, receiver: str, single: int, storm: int) -> dict[str, Any]:
    from accounts.models import Plan

    Plan.objects.create(name="bench", min_interval_sec=1, monitor_limit=storm)
    names = [f"person{number}" for number in range(single)]
    make = partial(make_person, receiver=receiver)
    people = {name: make(name, [f"{target.url}/{name}"], interval_sec=SINGLE_INTERVAL_SEC) for name in names}
    storms = {
        name: make(name, [f"{target.url}/{name}"] * storm, interval_sec=STORM_INTERVAL_SEC)
        for name in ("storm", "spread")
    }
    for monitors in people.values():
        make_due(monitors)
    for name in names:
        time.sleep(PAUSE_SEC)  # the load of the measurement, not a wait for a condition
        target.down.add(name)
    until(lambda: all(inboxes.count(name) for name in names), PATIENCE_SEC, "each person is notified")
    for name, spread_sec in (("storm", 0.0), ("spread", STORM_INTERVAL_SEC)):
        target.down.add(name)
        make_due(storms[name], spread_sec=spread_sec)
        until(lambda name=name: inboxes.count(name) >= storm, PATIENCE_SEC, f"all of {name} are notified")  # type: ignore[misc]
    told = Counter(incident for messages in inboxes.messages.values() for _, ids in messages for incident in ids)
    singles = sorted(delay for name in names for delay in delays(inboxes.messages[name]))
    return {
        "notified_sec_p50": round(statistics.median(singles), 2),
        "notified_sec_worst": round(singles[-1], 2),
        "storm_messages": len(inboxes.messages["storm"]),
        "storm_sec_worst": round(max(delays(inboxes.messages["storm"])), 2),
        "spread_messages": len(inboxes.messages["spread"]),
        "spread_first_sec": round(min(delays(inboxes.messages["spread"][:1])), 2),
        "spread_sec_worst": round(max(delays(inboxes.messages["spread"])), 2),
        "missing": single + 2 * storm - len(told),
        "twice": sum(count > 1 for count in told.values()),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--single", type=int, default=10)
    parser.add_argument("--storm", type=int, default=300)
    given = parser.parse_args(arguments)
    inboxes = Inboxes()
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-notified-") as folder, ExitStack() as stack:
        serve_privately(stack, Path(folder))
        os.environ["PORT"] = str(free_port())
        os.environ["BASE_URL"] = f"http://127.0.0.1:{os.environ['PORT']}"
        migrate(Place())
        django.setup()
        receiver = stack.enter_context(Receiver(inboxes))
        stack.enter_context(Tree(os.environ, Path(folder), counts={}))
        found = measure(Target(), inboxes, receiver=receiver.url, single=given.single, storm=given.storm)
    print(json.dumps(found))
    good = found["notified_sec_worst"] <= GOAL_SEC and found["storm_messages"] == 1
    return 0 if good and not found["missing"] and not found["twice"] else 1


if __name__ == "__main__":
    sys.exit(main())

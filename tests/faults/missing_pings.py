"""Kill the web server and the dispatchers while 20 jobs of 5 accounts ping; then restart them.

    python -m tests.faults.missing_pings

The last line printed is one JSON object with the downs and the gaps, open and ended.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import django

from tests.faults.system import System, one_machine
from tests.processes.waiting import until

INTERVAL_SEC, GRACE_SEC = 2, 4
PATIENCE_SEC = 90


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-pings-") as name, ExitStack() as stack:
        system = one_machine(stack, Path(name))
        django.setup()
        paths = _make_heartbeats()
        stack.enter_context(system.tree)
        leaving = threading.Event()
        stack.callback(leaving.set)
        for path in paths:
            threading.Thread(target=_ping, args=(system.webs[0], path, leaving), daemon=True).start()
        print(json.dumps(_play(system)))  # noqa: T201


def _make_heartbeats() -> list[str]:
    from accounts.models import Plan
    from accounts.services import create_account
    from core.clock import utc_now
    from monitors.services import create_monitor
    from projects.access import Caller

    Plan.objects.create(name="faults", min_interval_sec=1, monitor_limit=4)
    given = {"type": "heartbeat", "name": "job", "interval_sec": INTERVAL_SEC, "grace_sec": GRACE_SEC}
    paths = []
    for number in range(5):
        account = create_account(email=f"{number}@example.com", password="a fine long password", plan="faults")
        for _ in range(4):
            monitor = create_monitor(Caller(account), given, now=utc_now())
            paths.append(f"/v1/heartbeats/{monitor.public_id}/ping")
    return paths


def _ping(web: str, path: str, leaving: threading.Event) -> None:
    while not leaving.wait(INTERVAL_SEC):
        connection = http.client.HTTPConnection(web, timeout=INTERVAL_SEC)
        with suppress(OSError, http.client.HTTPException):  # killed
            connection.request("POST", path)
            connection.getresponse()
        connection.close()


def _play(system: System) -> dict[str, int]:
    from core.clock import utc_now
    from monitors.models import Canary, MonitorState, PingGap, SchedulerTick, StatusChange

    def ticked() -> Callable[[], bool]:
        last = SchedulerTick.objects.get().at
        return lambda: SchedulerTick.objects.get().at > last

    until(lambda: MonitorState.objects.filter(status="up").count() == 20, PATIENCE_SEC, "all heartbeats are up")
    until(lambda: Canary.objects.filter(ping_ok_at__isnull=False).exists(), PATIENCE_SEC, "a ping of our own arrives")
    before = PingGap.objects.count()
    _kill(system, "web")
    until(lambda: PingGap.objects.count() > before, PATIENCE_SEC, "a gap begins")
    until(lambda: MonitorState.objects.filter(armed_at__isnull=False).exists(), PATIENCE_SEC, "a deadline is held back")
    for _ in range(2):
        _kill(system, "dispatcher", "beat")
        _start(system, "dispatcher", "beat")
        until(ticked(), PATIENCE_SEC, "a tick")
    open_gaps = PingGap.objects.filter(ended_at=None).count()
    _start(system, "web")
    asked = utc_now()
    until(lambda: Canary.objects.filter(ping_ok_at__gt=asked).exists(), PATIENCE_SEC, "a ping of our own arrives again")
    until(lambda: not PingGap.objects.filter(ended_at=None).exists(), PATIENCE_SEC, "the gap ends")
    _kill(system, "dispatcher")
    _start(system, "dispatcher")
    until(
        lambda: not MonitorState.objects.filter(armed_at__isnull=False).exists(),
        PATIENCE_SEC,
        "no deadline is held back",
    )
    until(ticked(), PATIENCE_SEC, "a tick")
    downs = StatusChange.objects.filter(after="down").count()
    ended = PingGap.objects.exclude(ended_at=None).exists()
    return {"downs": downs, "open": open_gaps, "ended": int(ended)}


def _kill(system: System, *kinds: str) -> None:
    for member in system.tree.members.values():
        if member.kind in kinds:
            system.tree.kill(member.name)


def _start(system: System, *kinds: str) -> None:
    for member in system.tree.members.values():
        if member.kind in kinds:
            system.tree.start_one(member.name)


if __name__ == "__main__":
    main()

"""Give one process after the other a wrong clock, while 20 monitors are checked and 20 jobs ping.

    python -m tests.faults.clocks [kind …] [--ahead SECONDS …]

Each play restarts a process with the wrong clock, takes a target down and up again, and reads
/readyz. The last line printed is one JSON object: false and missed status changes, plays in which /readyz did not name
the clock or coverage was not 1, processes that ended by themselves, and the slowest detection of an outage in seconds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import django

from tests.faults.system import System, one_machine
from tests.processes.waiting import until
from tests.site import Site

KINDS = ("dispatcher", "worker", "interactive", "web", "beat")
AHEAD = (-172_800, -600, -3, 3, 600, 172_800)
INTERVAL_SEC, GRACE_SEC = 2, 15
MONITORS = 20
PATIENCE_SEC = 60


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=KINDS)
    parser.add_argument("--ahead", type=int, nargs="+", default=AHEAD)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-clocks-") as name, ExitStack() as stack:
        system = one_machine(stack, Path(name))
        django.setup()
        site = stack.enter_context(Site())
        paths = _make_monitors(site)
        stack.enter_context(system.tree)
        leaving = threading.Event()
        stack.callback(leaving.set)
        for path in paths:
            threading.Thread(target=_ping, args=(system.webs[0], path, leaving), daemon=True).start()
        plays = [(kind, ahead) for kind in given.kinds for ahead in given.ahead]
        print(json.dumps(_play(system, site, plays)))  # noqa: T201


def _make_monitors(site: Site) -> list[str]:
    """Make monitors of the site and heartbeats. Return the paths of their pings."""
    from accounts.models import Plan
    from accounts.services import create_account
    from core.clock import utc_now
    from monitors.services import create_monitor
    from projects.access import Caller

    Plan.objects.create(name="faults", min_interval_sec=1, monitor_limit=2 * MONITORS)
    caller = Caller(create_account(email="a@example.com", password="a fine long password", plan="faults"))
    common = {"name": "a", "interval_sec": INTERVAL_SEC}
    slow = {"slow_ms": 5_000, "timeout_ms": 5_000}
    polled = common | slow | {"type": "http", "url": site.url("/ok"), "fail_threshold": 2}
    waited = common | {"type": "heartbeat", "grace_sec": GRACE_SEC}
    paths = []
    for _ in range(MONITORS):
        create_monitor(caller, polled, now=utc_now())
        paths.append(f"/v1/heartbeats/{create_monitor(caller, waited, now=utc_now()).public_id}/ping")
    return paths


def _ping(web: str, path: str, leaving: threading.Event) -> None:
    while not leaving.wait(INTERVAL_SEC / 2):
        connection = http.client.HTTPConnection(web, timeout=INTERVAL_SEC)
        with suppress(OSError, http.client.HTTPException):  # it is restarted
            connection.request("POST", path)
            connection.getresponse()
        connection.close()


def _checks(system: System) -> dict[str, str]:
    """Return the parts of /readyz, or nothing while the web process starts."""
    connection = http.client.HTTPConnection(system.webs[0], timeout=10)
    try:
        connection.request("GET", "/readyz")
        found: dict[str, str] = json.load(connection.getresponse())["checks"]
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return found


def _play(system: System, site: Site, plays: list[tuple[str, int]]) -> dict[str, float]:
    from monitors.models import MonitorState, StatusChange

    polled = MonitorState.objects.filter(monitor__type="http")
    until(lambda: MonitorState.objects.filter(status="up").count() == 2 * MONITORS, PATIENCE_SEC, "all are up")
    until(lambda: _checks(system).get("coverage") == "ok", PATIENCE_SEC, "all have results")
    result = {"plays": 0, "false": 0, "missed": 0, "not_named": 0, "not_covered": 0, "ended": 0, "slowest_sec": 0.0}
    for kind, ahead in plays:
        before = StatusChange.objects.latest("pk").pk
        _restart(system, kind, ahead)
        named = _wait(partial(_names, system, kind))
        covered = _wait(lambda: _checks(system).get("coverage") == "ok")
        false = _describe(before)
        start = time.monotonic()
        site.stop()
        noticed = _wait(lambda: polled.filter(status="down").count() == MONITORS)
        seconds = time.monotonic() - start
        site.start()
        recovered = _wait(lambda: polled.filter(status="up").count() == MONITORS)
        false += [change for change in _describe(before) if "heartbeat" in change and change not in false]
        result["plays"] += 1
        result["false"] += len(false)
        result["missed"] += not (noticed and recovered)
        result["not_named"] += not named
        result["not_covered"] += not covered
        result["slowest_sec"] = max(result["slowest_sec"], round(seconds, 1))
        ended = system.tree.ended()
        result["ended"] += len(ended)
        for name in ended:
            print(name, "ended:", system.tree.log(name).read_text()[-4000:])  # noqa: T201
        system.tree.start()
        print(*false, sep="\n")  # noqa: T201
        print(kind, ahead, f"named {named} covered {covered} false {len(false)} noticed {noticed} {seconds:.1f} s")  # noqa: T201
        _restart(system, kind, 0)
        _wait(lambda: _checks(system).get("clocks") == "ok")
    return result


def _names(system: System, kind: str) -> bool:
    return f"a {kind} process" in _checks(system).get("clocks", "")


def _describe(after: int) -> list[str]:
    """Return the changes of a status since this one. On a busy machine, monitors become stale during a restart."""
    from monitors.models import StatusChange

    changes = StatusChange.objects.filter(pk__gt=after, kind=StatusChange.Kind.STATUS)
    changes = changes.select_related("monitor").order_by("pk")
    return [f"{each.monitor.type} {each.monitor_id} {each} {each.at} {each.detail or ''}" for each in changes]


def _wait(is_so: Callable[[], bool]) -> bool:
    """Wait for the condition. Return whether it was met in time."""
    try:
        return until(is_so, PATIENCE_SEC, "")
    except AssertionError:
        return False


def _restart(system: System, kind: str, ahead: int) -> None:
    """Restart the processes of this kind with clocks that are `ahead` seconds fast."""
    wrong = {"PYTHONPATH": str(Path(__file__).parent / "wrong_clock"), "AHEAD": str(ahead)}
    for member in system.tree.members.values():
        if member.kind == kind:
            system.tree.kill(member.name)
            member.place = replace(member.place, variables=wrong if ahead else {})
            system.tree.start_one(member.name)


if __name__ == "__main__":
    main()

"""Measure API response times: list 1,000 monitors, create one, ping a heartbeat, list projects.

    python benchmarks/api.py [--requests N]

Over loopback http with granian as in the Procfile, on private servers in a temporary folder. No worker runs: the
created monitor is a heartbeat, which has no first check. Every response is verified. The last line is one JSON
object, times in ms. Exits 1 if a response is wrong or the list misses its goal.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.serving import serving

MONITORS = 1_000
PROJECTS = 20
CHECKS = 24 * 60  # of each monitor: a day at the pro plan's shortest interval
LIST_GOAL_MS = 1_000  # median; not part of the contract, but users wait for this page
EMAIL, PASSWORD = "bench@example.com", "a fine long password"

# Runs in a process with Django's settings. Creates a tenant of 1,000 monitors with a day of changes and checks.
FILL = """
import django; django.setup()
from datetime import timedelta
from accounts.models import Plan
from accounts.services import create_account
from checks.results.rollups import roll_up
from core.clock import utc_now
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.configuration import build, config_columns
from projects.access import Caller
from projects.services import create_project
from django.db import connection
import sys
email, password, (monitors, projects, checks) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:])
now = utc_now()
Plan.objects.update(monitor_limit=1_000_000)
user = create_account(email=email, password=password, plan="pro")
places = [create_project(Caller(user), name=f"Project {n}", now=now) for n in range(projects)]
http = config_columns(build({"interval_sec": 60, "url": "http://127.0.0.1:9/", "name": "Shop",
                             "request_headers": [{"name": "X-Key", "value": "v"}]}))
made = Monitor.objects.bulk_create(
    Monitor(owner=user, project=places[n % projects], created_at=now, **http) for n in range(monitors))
MonitorState.objects.bulk_create(
    MonitorState(monitor=m, status="up", status_since=now - timedelta(days=2), last_checked_at=now,
                 last_latency_ms=20) for m in made)
StatusChange.objects.bulk_create(
    StatusChange(monitor=m, at=now - timedelta(hours=hours), before=b, after=a)
    for m in made for hours, b, a in ((3, "up", "down"), (2, "down", "up")))
with connection.cursor() as cursor:
    cursor.execute(
        "INSERT INTO checks_checkresult (monitor_id, claim, checked_at, verdict, latency_ms)"
        " SELECT monitor.id, claim, %s - claim * interval '1 minute', 'up', 20"
        " FROM generate_series(1, %s) AS claim, monitors_monitor AS monitor", [now, checks])
    while roll_up(now):
        pass
    cursor.execute("VACUUM ANALYZE")
"""


def measure(
    name: str, times: int, ask: Callable[[], requests.Response], good: Callable[[Any], bool]
) -> dict[str, float]:
    """Return median and p99 in ms of `times` sequential requests."""
    taken = []
    for number in range(times + 3):
        start = time.perf_counter()
        answer = ask()
        elapsed = time.perf_counter() - start
        if not (answer.ok and good(answer.json())):
            raise SystemExit(f"{name}: wrong answer {answer.status_code}: {answer.text[:300]}")
        if number >= 3:  # the first ones warm up
            taken.append(elapsed * 1000)
    p99 = statistics.quantiles(taken, n=100, method="inclusive")[98]
    found = {f"{name}_median_ms": round(statistics.median(taken), 2), f"{name}_p99_ms": round(p99, 2)}
    print(
        f"{name}, {times} requests: median {found[f'{name}_median_ms']} ms, p99 {found[f'{name}_p99_ms']} ms",
        flush=True,
    )
    return found


def compare(address: str, *, times: int) -> dict[str, float]:
    session = requests.Session()
    session.trust_env = False
    signed_in = session.post(f"{address}/v1/sessions", json={"email": EMAIL, "password": PASSWORD}, timeout=30)
    signed_in.raise_for_status()
    session.headers["Authorization"] = f"Bearer {signed_in.json()['token']}"

    def get(path: str) -> Callable[[], requests.Response]:
        return lambda: session.get(f"{address}{path}", timeout=30)

    def is_whole(monitors: Any) -> bool:
        shown = monitors[0]
        return len(monitors) == MONITORS and (shown["uptime_24h"], shown["avg_latency_24h"]) == (95.83, 20.0)

    def create() -> requests.Response:
        body = {"type": "heartbeat", "name": "Backup", "interval_sec": 3600}
        return session.post(f"{address}/v1/monitors", json=body, timeout=30)

    found = measure("list_1000_monitors", max(times // 10, 10), get("/v1/monitors"), is_whole)
    found |= measure("list_projects", times, get("/v1/projects"), lambda rows: len(rows) == PROJECTS)
    found |= measure("create", times, create, lambda monitor: monitor["status"] is None)
    heartbeat = create().json()["id"]
    public = requests.Session()
    public.trust_env = False
    ping = f"{address}/v1/heartbeats/{heartbeat}/ping"
    found |= measure("ping", times, lambda: public.post(ping, timeout=30), lambda body: body == {"ok": True})
    if session.get(f"{address}/v1/monitors/{heartbeat}", timeout=30).json()["status"] != "up":
        raise SystemExit("the pings were answered, but the heartbeat is not up")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200, help="of each kind; a tenth as many long lists")
    options = parser.parse_args()
    fill = f"import sys; sys.argv[1:] = {[EMAIL, PASSWORD, *map(str, (MONITORS, PROJECTS, CHECKS))]}{FILL}"
    with serving({"THROTTLE_SCALE": "0"}, setup=fill) as served:
        found = compare(served.address, times=min(max(options.requests, 10), 1_000))
    good = found["list_1000_monitors_median_ms"] <= LIST_GOAL_MS
    print(json.dumps(found | {"goal_met": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Measure a status page: readers from the cache, rendering without it, and the delay of a change.

    python benchmarks/status.py [--connections N]

Over loopback http with the web server of the Procfile, on private servers. The page has MONITORS (1,000) monitors
with DAYS (30) days of checks and an outage every three days. It is rendered a few times without a cache, then read
for SECONDS_TO_RUN (10) over N connections. Then a monitor goes down and the page is renamed, and both delays are
measured. The last line is one JSON object. Exits 1 if a response is wrong or a goal is missed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.serving import Serving, serving

RENDER_GOAL_MS, QUERIES_GOAL, WEIGHT_GOAL_KB = 200, 20, 150
READERS_GOAL = 167  # a second: ten thousand in a minute
SEEN_GOAL_SEC = 15.0
EMAIL, PASSWORD = "bench@example.com", "a fine long password"

FILL = f"""
import django; django.setup()
import os
from accounts.services import create_account
from core.clock import utc_now
from monitors.models import Monitor
from benchmarks.seeding import seed_history
from projects.access import Caller
from statuspages.services import create_page
user = create_account(email={EMAIL!r}, password={PASSWORD!r}, plan="pro")
seed_history(user, monitors=int(os.environ["MONITORS"]), days=int(os.environ["DAYS"]), interval_sec=3600, now=utc_now())
ids = list(Monitor.objects.order_by("pk").values_list("public_id", flat=True))
groups = [
    {{"name": f"Group {{start // 50 + 1}}",
      "monitors": [{{"monitor_id": one, "name": f"Service {{start + n}}"}}
                   for n, one in enumerate(ids[start:start + 50])]}}
    for start in range(0, len(ids), 50)
]
create_page(Caller(user), {{"name": "Bench", "slug": "bench", "groups": groups}}, now=utc_now())
"""
RENDER = """
import django; django.setup()
import gzip, json, time
from django.db import connection
from django.test.utils import CaptureQueriesContext
from statuspages import caching, rendering
place = caching.find_page("bench")
found = {}
for name, rest in {"page": "", "json": ".json", "atom": ".atom"}.items():
    make = rendering.part(rest)[1]
    with CaptureQueriesContext(connection) as captured:
        body = make(rendering.load_page(place), place)
    taken, used = [], []
    for _ in range(5):
        start, cpu = time.perf_counter(), time.process_time()
        make(rendering.load_page(place), place)
        taken.append((time.perf_counter() - start) * 1000)
        used.append((time.process_time() - cpu) * 1000)
    found |= {f"{name}_render_ms": round(min(taken), 1), f"{name}_render_cpu_ms": round(min(used), 1),
              f"{name}_queries": len(captured), f"{name}_kb": round(len(body) / 1024, 1),
              f"{name}_gzip_kb": round(len(gzip.compress(body, 6)) / 1024, 1)}
print(json.dumps(found))
"""
GO_DOWN = """
import django; django.setup()
from monitors.models import Monitor, MonitorState
MonitorState.objects.filter(monitor=Monitor.objects.filter(state__status="up").earliest("pk")).update(status="down")
print(MonitorState.objects.filter(status="down").count())
"""


def read(address: str, *, connections: int, seconds: float) -> int:
    """Read the page over kept connections for `seconds`. Return the number of verified responses."""
    parts = urlsplit(address)
    where = (parts.hostname or "", parts.port or 80)
    question = b"GET /status/bench HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\n\r\n"
    expected = requests.get(f"{address}/status/bench", headers={"Accept-Encoding": "gzip"}, timeout=30)
    length = int(expected.headers["Content-Length"])
    count, deadline = 0, time.perf_counter() + seconds
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            opened = socket.create_connection(where, timeout=10)
            selector.register(opened, selectors.EVENT_READ, bytearray())
            opened.sendall(question)
        while selector.get_map():
            for key, _ in selector.select(timeout=10):
                client, buffer = key.fileobj, key.data
                assert isinstance(client, socket.socket)
                buffer += client.recv(262_144)
                head, ended, body = bytes(buffer).partition(b"\r\n\r\n")
                if not ended or len(body) < length - 4_096:  # it may change slightly during the run
                    continue
                if not head.startswith(b"HTTP/1.1 200 "):
                    raise SystemExit(f"wrong answer: {head[:300]!r}")
                announced = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                if len(body) < announced:
                    continue
                if count == 0:
                    assert b"Service 0" in gzip.decompress(body)
                count += 1
                buffer.clear()
                if time.perf_counter() >= deadline:
                    selector.unregister(client)
                    client.close()
                else:
                    client.sendall(question)
    return count


def seen_after(served: Serving, change: Callable[[], str]) -> float:
    """Return the seconds from the end of `change` until a reader sees the text that it returns."""
    text = change()
    start = time.perf_counter()
    while text not in requests.get(f"{served.address}/status/bench", timeout=30).text:
        if time.perf_counter() - start > 60:
            raise SystemExit(f"{text!r} was not seen for a minute")
        time.sleep(0.1)
    return round(time.perf_counter() - start, 1)


def go_down(served: Serving) -> str:
    return f"{served.python('-c', GO_DOWN).strip()} of {served.environment['MONITORS']} "


def rename(served: Serving) -> str:
    answer = requests.post(f"{served.address}/v1/sessions", json={"email": EMAIL, "password": PASSWORD}, timeout=30)
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    pages = requests.get(f"{served.address}/v1/status-pages", headers=headers, timeout=30).json()
    renamed = requests.patch(
        f"{served.address}/v1/status-pages/{pages[0]['id']}", json={"name": "Renamed"}, headers=headers, timeout=30
    )
    renamed.raise_for_status()
    return "Renamed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=32)
    options = parser.parse_args()
    variables = {
        "MONITORS": os.environ.get("MONITORS") or "1000",
        "DAYS": os.environ.get("DAYS") or "30",
        "THROTTLE_SCALE": "0",
    }
    seconds = float(os.environ.get("SECONDS_TO_RUN") or 10)
    with serving(variables, setup=FILL) as served:
        found: dict[str, Any] = json.loads(served.python("-c", RENDER).splitlines()[-1])
        print(found, flush=True)
        before = sum(served.cpu_seconds().values())
        start = time.perf_counter()
        count = read(served.address, connections=options.connections, seconds=seconds)
        found["requests_per_sec"] = round(count / (time.perf_counter() - start), 1)
        found["cpu_us_per_request"] = round((sum(served.cpu_seconds().values()) - before) / count * 1e6)
        found["status_seen_after_sec"] = seen_after(served, lambda: go_down(served))
        found["edit_seen_after_sec"] = seen_after(served, lambda: rename(served))
    found["goals_met"] = (
        found["page_render_ms"] <= RENDER_GOAL_MS
        and found["page_queries"] <= QUERIES_GOAL
        and found["page_gzip_kb"] <= WEIGHT_GOAL_KB
        and found["requests_per_sec"] >= READERS_GOAL
        and max(found["status_seen_after_sec"], found["edit_seen_after_sec"]) <= SEEN_GOAL_SEC
    )
    print(json.dumps(found))
    return 0 if found["goals_met"] else 1


if __name__ == "__main__":
    sys.exit(main())

"""Compare API response times with 30 days of results and with one: lists, uptime and history.

    python benchmarks/history.py [--monitors 200] [--days 30] [--requests 100]

Two sets of private servers, each with granian as in the Procfile, filled by `benchmarks.seeding`: one with a
day, one with the given days, which RESULTS_KEPT_DAYS retains. Requests go to both in turn over loopback http, so
that other load of the machine affects both. 200 monitors at 60 s for 30 days are 8.6 million results: about 1 GB,
and a minute or two.

Before the requests, results are packed as the task `checks.tasks.pack` does, by the day. Two more sets measure the
bytes: hours of many monitors, which are packed by the hour and then merged, and days. Last comes a backtest of 90 days
of a monitor at 60 s.

The last line is one JSON object: medians in ms, the ratio of each pair, and the bytes of tables and indexes for each
result: `bytes_per_check` as rows, `bytes_per_check_hour` and `_day` packed. `read_14_days_ms` is the median time for
14 packed days of a monitor as the columns and reasons that a backtest reads, `read_14_days_cpu_ms` the CPU of this
process for them, `pack_us_per_check` that to pack a
result, and `backtest_90_days_ms` the CPU of a backtest. Exits 1 if a response is wrong or a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.serving import serving

MOST_RATIO = 1.2
MOST = {
    "bytes_per_check": 120,
    "bytes_per_check_hour": 6,
    "bytes_per_check_day": 4,
    "read_14_days_ms": 10,
    "backtest_90_days_ms": 1_000,
}
EMAIL, PASSWORD = "bench@example.com", "a fine long password"

ACCOUNT = f"""
import django; django.setup()
from accounts.models import Plan
from accounts.services import create_account
Plan.objects.update(monitor_limit=1_000_000)
create_account(email={EMAIL!r}, password={PASSWORD!r}, plan="pro")
"""
# `{hourly}`: the day gets partitions by hour, as if it had been split before it began, and is merged afterwards.
PACK = """
import django; django.setup()
import gc, json, statistics, time
from datetime import timedelta
from django.db import connection
from checks.results import packing
from checks.results.hours import HOUR
from checks.results.models import CheckResult, PackedResults
from checks.results.partitions import PACKED, REASONS, RESULTS, make, parts
from checks.results.selectors import history_of
from core.clock import utc_now
now = utc_now()
DAY = timedelta(days=1)

def ask(statement, *values):
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

def size(table):
    return float(ask("SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree(%s)", table)[0][0])

def pack(now):
    before, start = CheckResult.objects.count(), time.process_time()
    # A vacuum that has just begun holds its table for longer than packing waits: the task would try again later.
    while packing.pack(now) or any(end <= utc_now() - HOUR for _, end in parts(RESULTS)):
        time.sleep(0.1)
    ask("ANALYZE")
    return before - CheckResult.objects.count(), time.process_time() - start

found = {{"bytes_per_check": size(RESULTS.table) / CheckResult.objects.count()}}
if {hourly}:
    day = RESULTS.bounds(now - 3 * HOUR)
    name = RESULTS.name(*day)
    ask(f"ALTER TABLE {{RESULTS.table}} DETACH PARTITION {{name}}")
    ask(f"ALTER TABLE {{name}} RENAME TO whole_day")
    make(RESULTS, [(day[0] + n * HOUR, day[0] + (n + 1) * HOUR) for n in range(24)])
    ask(f"INSERT INTO {{RESULTS.table}} SELECT * FROM whole_day ORDER BY checked_at")
    ask("DROP TABLE whole_day")
    ask("ANALYZE")
packed, cpu = pack(now)
# The fullest: the first and the last have only some of their checks.
checks, name = max(
    (ask(f"SELECT coalesce(sum(count), 0)::bigint FROM {{name}}")[0][0], name)
    for name in (PACKED.name(*bounds) for bounds in parts(PACKED))
)
size_name = "bytes_per_check_" + ("hour" if {hourly} else "day")
found[size_name] = size(name) / checks + size(REASONS.table) / packed
if {hourly}:
    found["pack_us_per_check"] = cpu / packed * 1e6
    _, cpu = pack(now + 3 * DAY)
    found["merge_us_per_check"] = cpu / packed * 1e6
else:
    gc.collect()
    gc.freeze()  # as web processes do
    taken, cpu, count, end = [], [], 0, RESULTS.bounds(now)[0]
    for monitor_id in sorted(PackedResults.objects.values_list("monitor_id", flat=True).distinct())[:60]:
        start, start_cpu = time.perf_counter(), time.process_time()
        parts = list(history_of(monitor_id, end - 14 * DAY, end))
        taken.append((time.perf_counter() - start) * 1000)
        cpu.append((time.process_time() - start_cpu) * 1000)
        count = max(count, sum(len(part.checks.at) for part in parts))
    found |= {{
        "read_14_days_ms": statistics.median(taken),
        "read_14_days_cpu_ms": statistics.median(cpu),
        "read_checks": count,
    }}
print(json.dumps(found))
"""


def packed_results(*, monitors: int) -> dict[str, float]:
    """Return the bytes of packed results. With few monitors, empty parts of pages would count most."""
    found: dict[str, float] = {}
    for count, days, hourly in ((monitors, 0.2, True), (monitors // 5, 2, False)):
        with serving({"THROTTLE_SCALE": "0"}, setup=ACCOUNT) as server:
            server.seed(EMAIL, monitors=count, days=days)
            found |= json.loads(server.python("-c", PACK.format(hourly=hourly)).splitlines()[-1])
    print(f"packed: {found}", flush=True)
    return {name: value for name, value in found.items() if name.startswith(("bytes_per_check_", "pack_", "merge_"))}


@dataclass(frozen=True, slots=True)
class Deployment:
    days: int
    address: str
    session: requests.Session
    found: dict[str, float] = field(compare=False)

    def get(self, path: str) -> tuple[Any, float]:
        """Return the response and the time in ms."""
        start = time.perf_counter()
        answer = self.session.get(f"{self.address}{path}", timeout=60)
        taken = (time.perf_counter() - start) * 1000
        if not answer.ok:
            raise SystemExit(f"{path} with {self.days} days: {answer.status_code} {answer.text[:300]}")
        return answer.json(), taken


@contextmanager
def deployed(*, monitors: int, days: int) -> Iterator[Deployment]:
    with serving({"THROTTLE_SCALE": "0", "RESULTS_KEPT_DAYS": str(max(days + 1, 14))}, setup=ACCOUNT) as server:
        start = time.monotonic()
        seeded = server.seed(EMAIL, monitors=monitors, days=days)
        found: dict[str, float] = json.loads(server.python("-c", PACK.format(hourly=False)).splitlines()[-1])
        sizes = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        print(f"{days} days: {seeded.strip()} and packed in {time.monotonic() - start:.0f} s: {sizes}", flush=True)
        yield Deployment(days, server.address, _signed_in(server.address), found)


def _signed_in(address: str) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    answer = session.post(f"{address}/v1/sessions", json={"email": EMAIL, "password": PASSWORD}, timeout=30)
    answer.raise_for_status()
    session.headers["Authorization"] = f"Bearer {answer.json()['token']}"
    return session


def compare(one: Deployment, many: Deployment, *, monitors: int, times: int) -> dict[str, float]:
    """Return medians of both for each kind of request, alternating, with another monitor each time."""
    listed = {each: [monitor["id"] for monitor in each.get("/v1/monitors")[0]] for each in (one, many)}
    paths = {
        "list": ("/v1/monitors", monitors),
        "monitor": ("/v1/monitors/{}", None),
        "history": ("/v1/monitors/{}/checks", 100),
        "history_down": ("/v1/monitors/{}/checks?status=down&limit=10", None),
        "uptime_7_days": ("/v1/monitors/{}/uptime", 7),
        "uptime_90_days": ("/v1/monitors/{}/uptime?days=90", 90),
    }
    found: dict[str, float] = {}
    for name, (path, rows) in paths.items():
        taken: dict[Deployment, list[float]] = {one: [], many: []}
        for number in range(times + 5):
            order = (one, many) if number % 2 else (many, one)
            for each in order:
                answer, ms = each.get(path.format(listed[each][number % monitors]))
                if rows is not None and len(answer) != rows:
                    raise SystemExit(f"{name} with {each.days} days: {len(answer)} rows, not {rows}")
                if number >= 5:  # the first ones warm up
                    taken[each].append(ms)
        medians = [statistics.median(taken[each]) for each in (one, many)]
        found |= {
            f"{name}_{one.days}_day_ms": round(medians[0], 2),
            f"{name}_{many.days}_days_ms": round(medians[1], 2),
            f"{name}_ratio": round(medians[1] / medians[0], 3),
        }
        print(f"{name}: {medians[0]:.2f} ms with {one.days} day, {medians[1]:.2f} ms with {many.days}", flush=True)
    return found


def backtest_90_days(times: int = 5) -> dict[str, float]:
    """Return the median CPU of web and PostgreSQL for a backtest of 90 days of a monitor at 60 s, in ms."""
    variables = {"THROTTLE_SCALE": "0", "RESULTS_KEPT_DAYS": "92"}
    with serving(variables, setup=ACCOUNT) as server:
        server.seed(EMAIL, monitors=3, days=90)
        server.python("-c", PACK.format(hourly=False))
        session = _signed_in(server.address)
        monitor = session.get(f"{server.address}/v1/monitors", timeout=60).json()[0]["id"]
        taken = []
        for _ in range(times):
            before = server.cpu_seconds()
            path = f"{server.address}/v1/monitors/{monitor}/backtest"
            answer = session.post(path, json={"fail_threshold": 12}, timeout=60).json()
            after = server.cpu_seconds()
            outages = answer["stored"]["outages"], answer["tried"]["outages"]
            if answer["checks"] < 129_500 or outages not in {(29, 0), (30, 0)}:  # none is in the last hour
                raise SystemExit(f"the backtest is wrong: {answer}")
            taken.append(sum(after[name] - before[name] for name in after) * 1000)
    print(f"backtest of 90 days: {statistics.median(taken):.0f} ms of CPU", flush=True)
    return {"backtest_90_days_ms": round(statistics.median(taken), 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--monitors", type=int, default=200)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument(
        "--packed", type=int, default=5_000, help="monitors whose hours are packed, and five times those whose days are"
    )
    parser.add_argument("--requests", type=int, default=100, help="of each kind to each")
    options = parser.parse_args()
    if datetime.now(UTC).hour == 0:
        parser.error("the results of the last day are packed an hour after it: run this after 01:00 UTC")
    packed = packed_results(monitors=options.packed)
    with ExitStack() as stack:
        one, many = (stack.enter_context(deployed(monitors=options.monitors, days=days)) for days in (1, options.days))
        found = compare(one, many, monitors=options.monitors, times=options.requests)
    found |= {name: round(value, 2) for name, value in (many.found | packed).items()}
    found |= backtest_90_days()
    ratios = {name: value for name, value in found.items() if name.endswith("_ratio")}
    good = max(ratios.values()) <= MOST_RATIO and all(found[name] <= most for name, most in MOST.items())
    print(json.dumps(found | {"worst_ratio": max(ratios.values()), "goal_met": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

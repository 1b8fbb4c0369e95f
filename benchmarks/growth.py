"""Measure how the cost of each step grows with the number of stored monitors.

    python benchmarks/growth.py [--markdown]

On private servers in a temporary folder, with 1,000 to 1,000,000 monitors that are due once a minute: claim the batch
of one second, load and record it in the batches that workers use, roll up an hour of all monitors with RESULTS_AN_HOUR
results each, and list one tenant's 100 monitors. It takes some minutes and 5 GB of disk.

Costs are CPU time of this process and of PostgreSQL's backends, which other load of the machine changes little.

The last line is one JSON object: microseconds for each monitor (for the list: milliseconds), the mean milliseconds of a
transaction of the roll-up, and the bytes of temporary files that it needed. Exits 1 if it needed any, or if a step
grows faster than its batch: if a monitor costs more than WORST_GROWTH times as much at 200,000 as at 10,000.

`--markdown` also prints the table of docs/operate/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from devserver.data_folder import load_or_create_secrets
from devserver.session import embedded_servers

SIZES = (1_000, 10_000, 60_000, 200_000, 1_000_000)
STEPS = ("claim_us", "load_us", "record_us", "roll_up_us", "list_ms")
INTERVAL_SEC = 60
STORED_INTERVAL_SEC = 3_600  # longer than a run, in which few others become due than those that a round takes
RESULTS_AN_HOUR = 6
LISTED = 100
ROUNDS = 5
COMPARED = (10_000, 200_000)
WORST_GROWTH = 2.0  # the larger size does not fit into the cache completely


def store(total: int, *, interval_sec: int) -> None:
    """Add monitors up to `total`, spread over the interval, each checked once."""
    from django.db import connection

    from monitors.configuration import build, config_columns
    from monitors.models import Monitor

    template = Monitor.objects.order_by("pk").first()
    assert template is not None
    columns = [str(field.column) for field in Monitor._meta.concrete_fields if field.column not in {"id", "public_id"}]
    assert set(config_columns(build({"interval_sec": 60}))) <= set(columns)
    names = ", ".join(columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO monitors_monitor (public_id, {names}) "
            f"SELECT 'mon_' || number, {names} FROM monitors_monitor, "
            "generate_series((SELECT count(*) FROM monitors_monitor), %s - 1) AS number WHERE id = %s",
            [total, template.pk],
        )
        cursor.execute(
            """
            INSERT INTO monitors_monitorstate
                   (monitor_id, next_due_at, slot_at, claim, applied_claim, fresh, failures, passes, status,
                    status_since, last_checked_at, last_latency_ms)
            SELECT id, now() + (id %% %s) * interval '1 second', now(), 1, 1, false, 0, 0, 'up', now(), now(), 20
              FROM monitors_monitor
            ON CONFLICT DO NOTHING
            """,
            [interval_sec],
        )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE monitors_monitorstate, monitors_monitor")


def store_hour(start: datetime) -> None:
    """Add results of an hour of all monitors, in the order of time. Within a slot their order on disk is mixed."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO checks_checkresult (monitor_id, checked_at, claim, latency_ms, verdict)
            SELECT first + number * 7919 %% total,
                   %(start)s + make_interval(secs => (slot + number::float8 / total) * 3600 / %(slots)s), slot, 20, 'up'
              FROM (SELECT min(id) AS first, count(*) AS total FROM monitors_monitor) AS monitor,
                   generate_series(0, %(slots)s - 1) AS slot, generate_series(0, total - 1) AS number
            """,
            {"start": start, "slots": RESULTS_AN_HOUR},
        )
        cursor.execute("ANALYZE checks_checkresult")


def temporary_bytes() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def measure_roll_up(total: int, hour: datetime) -> dict[str, float]:
    from checks.results.models import HourlyRollup
    from checks.results.rollups import MONITORS_AT_ONCE, roll_up_past

    store_hour(hour)
    before = temporary_bytes()
    cost, _ = timed(lambda: roll_up_past(hour, hour + timedelta(hours=1)), total)
    assert HourlyRollup.objects.filter(hour=hour, up=RESULTS_AN_HOUR).count() == total
    return {
        "roll_up_us": round(cost, 1),
        "part_ms": round(cost * min(total, MONITORS_AT_ONCE) / 1_000),
        "temporary_bytes": temporary_bytes() - before,
    }


def cpu_seconds() -> float:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")
        backends = [Path(f"/proc/{pid}/schedstat").read_text().split()[0] for (pid,) in cursor.fetchall()]
    return time.process_time() + sum(map(int, backends)) / 1e9


def timed(action: Callable[[], Any], rows: int) -> tuple[float, Any]:
    """Run a step. Return the microseconds of CPU for each of `rows`, and its result."""
    start = cpu_seconds()
    found = action()
    return (cpu_seconds() - start) / max(rows, 1) * 1e6, found


def batches(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def each(action: Callable[[Any], Any], parts: Sequence[Any]) -> Callable[[], list[Any]]:
    return lambda: [action(part) for part in parts]


def measure(total: int, caller: Any) -> dict[str, float]:
    """Return medians of several rounds. Each round runs all steps with the monitors of one second."""
    from django.db.models import F

    from checks.spec import CheckOutcome, Verdict
    from core.clock import utc_now
    from monitors import selectors
    from monitors.checking.jobs import load_jobs
    from monitors.checking.runner import MOST_AT_ONCE
    from monitors.models import MonitorState
    from monitors.recording import record
    from monitors.recording.batch import CheckRecord
    from monitors.scheduling import claim_due
    from monitors.serializers import serialize_monitors
    from monitors.tasks import BATCH

    def record_now(part: Sequence[CheckRecord]) -> None:
        record(part, now=utc_now())

    def list_some() -> list[Any]:
        return serialize_monitors(list(selectors.list_monitors(caller)[:LISTED]), caller=caller)

    found: dict[str, list[float]] = {step: [] for step in STEPS if step != "roll_up_us"}
    due = total // INTERVAL_SEC
    for number in range(ROUNDS):
        # Make the monitors of one second due.
        share = MonitorState.objects.annotate(second=F("monitor_id") % INTERVAL_SEC).filter(second=number)
        share.update(next_due_at=utc_now() - timedelta(seconds=1))
        cost, claims = timed(lambda: claim_due(utc_now(), limit=due + INTERVAL_SEC), due)
        found["claim_us"].append(cost)
        pairs = [(claim.monitor_id, claim.number) for claim in claims]
        cost, loaded = timed(each(load_jobs, batches(pairs, BATCH)), due)
        found["load_us"].append(cost)
        outcome = CheckOutcome(Verdict.UP, utc_now(), latency_ms=20, connect_ms=5, ttfb_ms=19, http_status=200)
        records = [
            CheckRecord(each.monitor_id, each.claim, each.config_version, outcome) for part in loaded for each in part
        ]
        cost, _ = timed(each(record_now, batches(records, MOST_AT_ONCE)), len(records))
        found["record_us"].append(cost)
        cost, rows = timed(list_some, 1_000)
        assert len(rows) == LISTED
        found["list_ms"].append(cost)
    return {step: round(statistics.median(costs), 1) for step, costs in found.items()}


def run() -> dict[int, dict[str, float]]:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from accounts.models import Plan
    from accounts.services import create_account
    from checks.results.hours import start_of_hour
    from core.clock import utc_now
    from monitors.services import create_monitor
    from projects.access import Caller

    Plan.objects.update(monitor_limit=10_000_000)
    many, few = (
        create_account(email=f"{name}@example.com", password="a fine long one", plan="pro") for name in ("many", "few")
    )
    draft = {"url": "https://shop.example/health", "interval_sec": STORED_INTERVAL_SEC}
    create_monitor(Caller(many), draft, now=utc_now())
    for _ in range(LISTED):
        create_monitor(Caller(few), draft, now=utc_now())
    found = {}
    yesterday = start_of_hour(utc_now()).replace(hour=0) - timedelta(days=1)
    for number, total in enumerate(SIZES):
        store(total, interval_sec=STORED_INTERVAL_SEC)
        found[total] = measure(total, Caller(few)) | measure_roll_up(total, yesterday + number * timedelta(hours=1))
        print(f"{total}: {found[total]}", file=sys.stderr)
    return found


def markdown(found: dict[int, dict[str, float]]) -> str:
    lines = [
        "| monitors stored | claim, us each | load, us each | record, us each | roll up, us each | list of 100, ms |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {total:,} | " + " | ".join(f"{costs[step]:g}" for step in STEPS) + " |" for total, costs in found.items()
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-bench-") as name:
        folder = Path(name)
        with embedded_servers(folder) as servers:
            os.environ.update(
                load_or_create_secrets(folder),
                DATA_DIR=str(folder),
                DATABASE_URL=servers.database_url,
                REDIS_URL=servers.redis_url,
                DJANGO_SETTINGS_MODULE="config.settings",
            )
            found = run()
            from django.db import connection

            connection.close()
    if options.markdown:
        print(markdown(found))
    growth = {step: round(found[COMPARED[1]][step] / found[COMPARED[0]][step], 2) for step in STEPS}
    good = all(ratio <= WORST_GROWTH for ratio in growth.values())
    good = good and not any(costs["temporary_bytes"] for costs in found.values())
    print(json.dumps({str(total): costs for total, costs in found.items()} | {"growth": growth, "goal_met": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

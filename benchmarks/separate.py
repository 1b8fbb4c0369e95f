"""Measure what a check writes into each of two databases once it is recorded: rolled up, packed and merged.

    python benchmarks/separate.py [--monitors 2000]

Private servers of the main and of the history database, and hours of results by `benchmarks.seeding`, in partitions of
an hour. Each step runs as its task does. The last line is one JSON object: of
each step, bytes of WAL for each check and microseconds of CPU for each check, in both databases and in the worker.
`updates.py` has the WAL of recording itself, which is all in the main database.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.history import ACCOUNT, EMAIL
from benchmarks.serving import serving
from devserver.session import embedded_servers, server_pids

MEASURE = """
import django; django.setup()
import json, time
from datetime import timedelta
import psutil
from django.db import connections
from benchmarks.serving import cpu_seconds_of
from checks.results import packing
from checks.results.hours import HOUR
from checks.results.models import CheckResult
from checks.results.partitions import RESULTS, make
from checks.results.rollups import roll_up_past
from core.clock import utc_now
PIDS = {pids}
now = utc_now()
day = RESULTS.bounds(now - 3 * HOUR)

def ask(alias, statement, *values):
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []

name = RESULTS.name(*day)
ask("default", f"ALTER TABLE {{RESULTS.table}} DETACH PARTITION {{name}}")
ask("default", f"ALTER TABLE {{name}} RENAME TO whole_day")
make(RESULTS, [(day[0] + n * HOUR, day[0] + (n + 1) * HOUR) for n in range(24)])
ask("default", f"INSERT INTO {{RESULTS.table}} SELECT * FROM whole_day ORDER BY checked_at")
ask("default", "DROP TABLE whole_day")
ask("default", "ANALYZE")
ask("history", "TRUNCATE checks_hourlyrollup")

def state():
    wal = {{alias: int(ask(alias, "SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0]) for alias in PIDS}}
    cpu = {{alias: cpu_seconds_of(psutil.Process(pid)) for alias, pid in PIDS.items()}}
    cpu["worker"] = time.process_time()
    return wal, cpu

found, checks = {{}}, None
start, end = ask("default", f"SELECT date_trunc('hour', min(checked_at)), max(checked_at) FROM {{RESULTS.table}}")[0]

def pack(now):
    while packing.pack(now):
        pass

steps = {{
    "roll_up": lambda: roll_up_past(start, end),
    "pack": lambda: pack(now),
    "merge": lambda: pack(now + 48 * HOUR),
}}
for step, act in steps.items():
    before = CheckResult.objects.count()
    (wal, cpu), _ = state(), act()
    more_wal, more_cpu = state()
    count = before if checks is None or step == "roll_up" else checks
    if step == "pack":
        count = checks = before - CheckResult.objects.count()
    found |= {{f"{{step}}_wal_{{alias}}": round((more_wal[alias] - wal[alias]) / count, 2) for alias in wal}}
    found |= {{f"{{step}}_us_{{who}}": round((more_cpu[who] - cpu[who]) / count * 1e6, 2) for who in cpu}}
print(json.dumps(found | {{"checks": checks}}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--monitors", type=int, default=2_000)
    options = parser.parse_args()
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="pulsekeeper-separate-"))
        history = stack.enter_context(embedded_servers(Path(name)))
        variables = {"THROTTLE_SCALE": "0", "HISTORY_DATABASE_URL": history.database_url}
        server = stack.enter_context(serving(variables, setup=ACCOUNT))
        print(server.seed(EMAIL, monitors=options.monitors, days=0.2).strip(), flush=True)
        pids = {"default": server.server_pid("postgres"), "history": (server_pids(Path(name)) or {})["postgres"]}
        print(server.python("-c", MEASURE.format(pids=pids)).splitlines()[-1])


if __name__ == "__main__":
    main()

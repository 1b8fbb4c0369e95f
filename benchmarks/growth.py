"""Measure what each step costs with ten times as many monitors.

    python benchmarks/growth.py [--monitors 100000 1000000] [--folder FOLDER] [--only STEP ...]
        [--processes 1] [--markdown]

On private servers, with a database for each number of monitors, which belong to a two-hundredth as many accounts:
claim, load and record the checks of a second; list monitors, and draw the overview of an account; roll up and pack an
hour of all monitors; apply the last migrations while the tables are used; delete an account with a twentieth of the
monitors; and let a fifth of all monitors go down at once. 1,000,000 monitors take half an hour and 10 GB of disk.
`--folder` keeps the filled databases for further runs, each of which works on copies.

Costs are CPU time of this process and of PostgreSQL's backends, which other load of the machine changes little.
PostgreSQL has SHARED_BUFFERS, as docs/operate/scaling.md advises, and no parallel workers, whose CPU would be missed.

The last line is one JSON object: by number of monitors the costs in microseconds for each monitor, or in milliseconds
of a page or an idle tick; and by name the ratio of the last to the first number of monitors. The seconds of the longest
transaction of a step, of the longest wait during migrations, and until the last alert of the storm have limits (MOST)
instead of ratios. Exits 1 if a ratio is above WORST_GROWTH, or a limit is exceeded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psycopg

from benchmarks.load.target import running_target
from devserver.data_folder import load_or_create_secrets
from devserver.session import embedded_servers

SHARED_BUFFERS = "2GB"
SETTINGS = {
    "shared_buffers": SHARED_BUFFERS,
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "max_wal_size": "8GB",
}
SIZES = (100_000, 1_000_000)
STEPS = ("checks", "pages", "upgrade", "roll_up", "packing", "removal", "storm")
WORST_GROWTH = 1.5
MOST = {
    "storm_s": 300.0,
    "storm_longest_s": 5.0,
    "storm_mib": 100.0,
    "delete_longest_s": 5.0,
    "delete_mib": 100.0,
    "migrate_waited_s": 1.0,
    "temporary_bytes": 0.0,
}
WORK = "growth_run"


def measure(steps: list[str]) -> dict[str, float]:
    """Run the steps in this process, on the database of DATABASE_URL."""
    import django

    django.setup()
    from django.core.management import call_command

    from benchmarks.growing import removal, seeds, storm, upgrade
    from benchmarks.growing import steps as usual

    call_command("migrate", verbosity=0)  # an earlier version may have filled the database
    world = seeds.world()
    actions: dict[str, Callable[[seeds.World], dict[str, float]]] = {
        "checks": usual.measure_checks,
        "pages": usual.measure_pages,
        "upgrade": upgrade.measure_upgrade,
        "roll_up": usual.measure_roll_up,
        "packing": usual.measure_packing,
        "removal": removal.measure_removal,
        "storm": lambda world: storm.measure_storm(
            world, receiver=os.environ["RECEIVER"], processes=int(os.environ["PROCESSES"])
        ),
    }
    found: dict[str, float] = {}
    for step in steps:
        found |= actions[step](world)
        print(f"{world.monitors}: {found}", file=sys.stderr, flush=True)
    return found


def seed(total: int) -> dict[str, float]:
    import django

    django.setup()
    from benchmarks.growing import seeds
    from core.clock import utc_now

    seeds.seed(total, now=utc_now())
    return {}


def fill(url: str, total: int) -> str:
    """Return the name of the database with this many monitors, which is filled unless an earlier run did that."""
    name = f"growth_{total}"
    with psycopg.connect(_named(url, "postgres"), autocommit=True) as database:
        database.execute("DROP DATABASE IF EXISTS growth_filling WITH (FORCE)")
        if database.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            return name
        database.execute("CREATE DATABASE growth_filling")
        _run(_named(url, "growth_filling"), "--fill", str(total))
        database.execute(f"ALTER DATABASE growth_filling RENAME TO {name}")
    return name


def run(url: str, total: int, steps: list[str]) -> dict[str, float]:
    """Measure the steps on a copy."""
    name = fill(url, total)
    with psycopg.connect(_named(url, "postgres"), autocommit=True) as database:
        database.execute(f"DROP DATABASE IF EXISTS {WORK} WITH (FORCE)")
        database.execute(f"CREATE DATABASE {WORK} TEMPLATE {name} STRATEGY file_copy")
        try:
            return _run(_named(url, WORK), "--measure", *steps)
        finally:
            database.execute(f"DROP DATABASE {WORK} WITH (FORCE)")


def _named(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def _run(url: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env={**os.environ, "DATABASE_URL": url},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def ratios(few: Mapping[str, float], many: Mapping[str, float]) -> dict[str, float]:
    return {name: round(many[name] / few[name], 2) for name in few if name.endswith(("_us", "_ms"))}


def markdown(found: Mapping[str, Mapping[str, float]]) -> str:
    sizes = list(found)
    few, many = found[sizes[0]], found[sizes[-1]]
    growth = ratios(few, many)
    lines = [f"| | {int(sizes[0]):,} monitors | {int(sizes[-1]):,} monitors | ratio |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {value:g} | {many[name]:g} | {growth.get(name, '')} |" for name, value in few.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--monitors", type=int, nargs="+", default=SIZES)
    parser.add_argument("--folder", type=Path, help="where databases are kept for the next run")
    parser.add_argument("--only", nargs="+", choices=STEPS, default=STEPS, help="packing includes roll_up")
    parser.add_argument("--processes", type=int, default=1, help="how many send the alerts of the storm")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/operate/scaling.md too")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--fill", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure or options.fill:
        print(json.dumps(measure(options.measure) if options.measure else seed(options.fill)))
        return 0
    chosen = {*options.only, *(["roll_up"] if "packing" in options.only else [])}  # only what is rolled up is packed
    steps = [step for step in STEPS if step in chosen]
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pulsekeeper-bench-")))
        servers = stack.enter_context(embedded_servers(folder, postgres_settings=SETTINGS))
        receiver = stack.enter_context(running_target(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        os.environ.update(
            load_or_create_secrets(folder),
            DATA_DIR=str(folder),
            REDIS_URL=servers.redis_url,
            DJANGO_SETTINGS_MODULE="config.settings",
            ALLOWED_PRIVATE_NETWORKS="127.0.0.0/8",
            PROCESSES=str(options.processes),
            RECEIVER=f"http://{receiver.addresses[0]}:{receiver.port}/",
        )
        found = {str(total): run(servers.database_url, total, steps) for total in options.monitors}
    if options.markdown:
        print(markdown(found))
    sizes = list(found)
    growth = ratios(found[sizes[0]], found[sizes[-1]])
    exceeded = {name: value for name, value in found[sizes[-1]].items() if value > MOST.get(name, value)}
    good = not exceeded and all(ratio <= WORST_GROWTH for ratio in growth.values())
    print(json.dumps(found | {"growth": growth, "exceeded": exceeded, "goal_met": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Measure `manage.py apply` with 1,000 monitors: create all, change nothing, change a field of all, delete half.

    python benchmarks/apply.py [--monitors N]

Each step is a process on private servers in a temporary folder, measured from its start to its end, including the
start of Python and Django and reading the YAML. The effects are verified. Every other monitor has a secret header, a
rule and a watched domain. No worker and no web server run.

The last line is one JSON object: seconds on the clock, CPU seconds of the command and of PostgreSQL, and the largest
memory of a command. Exits 1 if a step has the wrong effect or misses its goal.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from devserver.data_folder import load_or_create_secrets
from devserver.session import embedded_servers, server_pids

ROOT = Path(__file__).resolve().parent.parent
GOAL_SEC = 30.0  # per step, on a machine with other load
EMAIL = "bench@example.com"

ACCOUNT = f"""
import django; django.setup()
from accounts.models import Plan
from accounts.services import create_account
Plan.objects.update(monitor_limit=1_000_000)
create_account(email={EMAIL!r}, password="a fine long password", plan="pro")
"""


@contextmanager
def servers() -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a folder and the environment of processes that use its servers, migrated and with an account."""
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-bench-") as name, embedded_servers(Path(name)) as run:
        folder = Path(name)
        environment = {
            **os.environ,
            **load_or_create_secrets(folder),
            "DATA_DIR": name,
            "DATABASE_URL": run.database_url,
            "REDIS_URL": run.redis_url,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "PK_TOKEN": "a secret of the pipeline",
        }
        for arguments in (["manage.py", "migrate", "--verbosity", "0"], ["-c", ACCOUNT]):
            subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, check=True)
        yield folder, environment


def file_of(monitors: int, *, slow_ms: int) -> str:
    lines = ["version: 1", "projects:", *(f"  - name: Project {n}" for n in range(20)), "monitors:"]
    for n in range(monitors):
        lines += [
            f"  - name: Monitor {n}",
            f"    project: Project {n % 20}",
            f"    url: https://www.of{n % 200}.com/health/{n}",
            "    interval_sec: 300",
            f"    slow_ms: {slow_ms}",
        ]
        if n % 2:
            lines += [
                "    check_domain: true",
                "    content_rules:",
                "      - {type: json_field, path: status, equals: ok}",
                "    request_headers:",
                "      - {name: Authorization, value: 'Bearer ${PK_TOKEN}'}",
            ]
    return "\n".join(lines) + "\n"


def postgres_cpu(folder: Path) -> float:
    """Return the CPU seconds of the server and all its backends, including ended ones."""
    pid = (server_pids(folder) or {})["postgres"]
    server = psutil.Process(int(str(pid)))
    found = 0.0
    for process in (server, *server.children()):
        times = process.cpu_times()
        found += times.user + times.system + times.children_user + times.children_system
    return found


def step(
    name: str, file: Path, arguments: list[str], want: dict[str, int], *, folder: Path, env: dict[str, str]
) -> dict[str, Any]:
    """Run the command, verify its counts, and return its figures."""
    before, postgres = resource.getrusage(resource.RUSAGE_CHILDREN), postgres_cpu(folder)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "manage.py", "apply", str(file), "--account", EMAIL, "--json", *arguments],
        cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{name}: exit code {done.returncode}: {done.stdout[:500]}")
    report = json.loads(done.stdout)
    if {key: report[key] for key in want} != want:
        raise SystemExit(f"{name}: {done.stdout[:500]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures = {
        f"{name}_sec": round(seconds, 2),
        f"{name}_cpu_sec": round(cpu, 2),
        f"{name}_postgres_cpu_sec": round(postgres_cpu(folder) - postgres, 2),
    }
    print(", ".join(f"{key} {value}" for key, value in figures.items()), flush=True)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--monitors", type=int, default=1_000)
    count = max(parser.parse_args().monitors, 2)
    half = count // 2
    found: dict[str, Any] = {"monitors": count}
    with servers() as (folder, env):
        file = folder / "pulsekeeper.yaml"

        def run(name: str, *arguments: str, **want: int) -> None:
            found.update(step(name, file, [*arguments], want, folder=folder, env=env))

        file.write_text(file_of(count, slow_ms=1000))
        run("create", created=count + 20, changed=0, deleted=0)
        run("nothing", created=0, changed=0, deleted=0)
        file.write_text(file_of(count, slow_ms=2000))
        run("dry_run", "--dry-run", created=0, changed=count, deleted=0)
        run("change_all", created=0, changed=count, deleted=0)
        file.write_text(file_of(half, slow_ms=2000))
        run("prune_half", "--prune", created=0, changed=0, deleted=count - half)
    # The largest child process; this includes the migrations and the creation of the account.
    found["max_mib"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    good = max(value for key, value in found.items() if key.endswith("_sec")) <= GOAL_SEC
    print(json.dumps(found | {"goal_met": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Measure whether a quiet tenant notices hostile ones: the proof of "Fair shares" in docs/operate/threat-model.md.

    python benchmarks/neighbours.py [--rows A,B] [--levels 0,1,10,100] [--seconds N] [--proxy NAME] [--quick]

The processes of the Procfile on private servers, with throttles as in production, and a quiet tenant: 60 monitors of
all types, whose targets on loopback switch at known times; heartbeats, two of them pinged every minute; an overview, a
list and a status page, each read once a second; tests of a draft and sign-ins, which count as pages; and webhooks that
answer at once. At the same time hostile accounts of the plan `free` (300 s, 50 monitors), each with its own address, or
strangers with several addresses play each row of `benchmarks.fairness.rows`; finally all rows are played together and
share the highest level. Level 0 is the quiet tenant without attackers. Strangers have at most 10 addresses.

To shorten the measurement, the quiet tenant has a special plan: its checks are 5 s apart, and four heartbeats expect a
ping every 3 s. The monitors of hostile accounts keep 300 s, but are all due when a row begins, as
those of an attacker who resumes them together. Attackers and hostile targets run with `nice -n 19` and rest after each
refusal, because they share the cores of this machine.

Measured, each as 99th percentile and worst: how late checks are stored as made, against their slots; pings and pages,
each over a new connection, from when they were due; alerts, from the stored change until the receiver has them. A
failed request counts as one of 10 s. False changes are those that no target made; missed ones are those that are not
stored when a row ends. Limits: checks 5 s, pings and pages 1 s, alerts 10 s, nothing false or missed, and the memory
limit of web in docker-compose.yml. If a limit of time is broken, and /readyz says nothing but `ready` (no answer is
not `ready`), the attack continues until 60 s have passed since. Then it counts as `silent`.

After each row everything that it created is disabled. If Pulsekeeper does not recover, all processes are restarted
(`restarts`). The last line is one JSON object; `rows` has the figures of each row and
level. Exits 1 if a limit was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django

from benchmarks.fairness.figures import Figures, is_within_limits, worst
from benchmarks.fairness.rows import ROWS, Row
from tests.alerts.inbox import Inbox
from tests.faults.system import migrate, serve_privately
from tests.processes.tree import Place
from tests.processes.up import free_port
from tests.proxies import NAME, PROXIES

MOST = {"accounts": 100, "addresses": 10}
QUICK_ROWS = "openapi,check-now"
QUIET, ALL = "quiet", "all"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def serve(stack: ExitStack, folder: Path, *, proxy: str | None) -> None:
    """Start the servers, and put the settings of the processes of both sides into os.environ."""
    inbox = stack.enter_context(Inbox())
    serve_privately(stack, folder)
    os.environ.update(
        PORT=str(free_port()),
        THROTTLE_SCALE="1",
        EMAIL_URL=f"smtp://127.0.0.1:{inbox.port}",
        SSL_CERT_FILE=str(folder / "ca.pem"),
    )
    if proxy:
        os.environ.update(BASE_URL=f"https://{NAME}", ALLOWED_HOSTS=f"{NAME},127.0.0.1", TRUSTED_PROXIES="127.0.0.1/32")
    migrate(Place())
    django.setup()


def plan(rows: Sequence[str], levels: Sequence[int]) -> list[tuple[str, list[Row], int]]:
    """Return what is played in which order: name, rows and level."""
    found: list[tuple[str, list[Row], int]] = [(QUIET, [], 0)] if 0 in levels else []
    for name in rows:
        if name == ALL:
            found.append((ALL, list(ROWS.values()), max(levels)))
        else:
            found += [(name, [ROWS[name]], level) for level in levels if 0 < level <= MOST[ROWS[name].by]]
    return found


def describe(name: str, level: int, found: Figures) -> str:
    return (
        f"{name:>13} x{level:<3} checks {found['p99_check_late_s']:5.1f} {found['worst_check_late_s']:5.1f} s"
        f" ({found['slowest_check']}),"
        f" pings {found['p99_ping_ms']:5.0f} {found['worst_ping_ms']:5.0f} ms,"
        f" pages {found['p99_page_ms']:5.0f} {found['worst_page_ms']:5.0f} ms ({found['slowest_page']}),"
        f" alerts {found['p99_alert_s']:4.1f} {found['worst_alert_s']:4.1f} s,"
        f" false {found['false_changes']}, missed {found['missed_changes']}, web {found['web_peak_mib']:.0f} MiB:"
        f" {'ok' if is_within_limits(found) else 'BROKEN'}{', SILENT' * bool(found['silent'])} {found['answers']}"
    )


def run(given: argparse.Namespace) -> Figures:
    played = plan(given.rows, given.levels)
    most = max(1, *given.levels)
    found: list[tuple[str, int, Figures]] = []
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-fair-") as folder, ExitStack() as stack:
        serve(stack, Path(folder), proxy=given.proxy)
        from benchmarks.fairness.stage import Stage  # Django is set up by now

        limits = {name: min(most, limit) for name, limit in MOST.items()}
        stage = Stage(stack, Path(folder), proxy=given.proxy, patience=given.patience, **limits)
        say("99th percentile and worst of each:")
        for name, rows, level in played:
            figures = stage.play(rows, level, seconds=given.seconds)
            found.append((name, level, figures))
            say(describe(name, level, figures))
    by_row = {}
    for name, group in groupby(found, key=lambda one: one[0]):
        levels = {str(level): figures for _, level, figures in group}
        by_row[name] = worst(list(levels.values())) | {"levels": levels}
    total = worst([figures for *_, figures in found])
    return total | {"proxy": given.proxy, "seconds": given.seconds, "rows": by_row}


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure whether a quiet tenant notices hostile ones.")
    parser.add_argument("--rows", default=",".join((*ROWS, ALL)), help="comma-separated; default: %(default)s")
    parser.add_argument("--levels", default="0,1,10,100", help="numbers of attackers; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each row and level; default: %(default)s")
    parser.add_argument(
        "--patience", type=float, default=60.0, help="seconds of /readyz to notice; default: %(default)s"
    )
    parser.add_argument("--proxy", choices=PROXIES, help="run behind a sample of deploy/")
    parser.add_argument("--quick", action="store_true", help="two rows and few seconds, for tests")
    given = parser.parse_args(words)
    if given.quick:
        parser.set_defaults(rows=QUICK_ROWS, levels="0,1", seconds=8.0, patience=0.0)
        given = parser.parse_args(words)
    given.rows = given.rows.split(",")
    given.levels = [int(level) for level in given.levels.split(",")]
    if unknown := set(given.rows) - {*ROWS, ALL}:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    return given


def main() -> int:
    # On SIGTERM, exit through all `with` blocks, so that everything is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    found = run(parse(sys.argv[1:]))
    print(json.dumps(found))
    return 0 if is_within_limits(found) else 1


if __name__ == "__main__":
    sys.exit(main())

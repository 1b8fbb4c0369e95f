"""Run a fault test with settings from the environment and print its result."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.fairness.rows import ROWS
from tests.faults.driver import run
from tests.faults.script import CHILDREN, STARTING_SEC
from tests.faults.system import System


def command(serve: Callable[[ExitStack, Path], System], *, seconds: float, starting_sec: float = STARTING_SEC) -> int:
    """Run the test with SECONDS_TO_RUN (default: `seconds`), MONITORS, CHILDREN, SEED, HOSTILE and SEPARATE.

    They are variables of the environment. With SEPARATE=1 the history is in a PostgreSQL of its own. CHILDREN is how
    many monitors depend on one; 300 need 500 monitors. HOSTILE names rows of `benchmarks.fairness.rows`, separated by
    commas, that hostile accounts play at the same time. The last line printed is one JSON object; its seed repeats the
    same script. Return 1 if there were violations, which are explained on standard error.
    """
    hostile = [name for name in os.environ.get("HOSTILE", "").split(",") if name]
    if unknown := [name for name in hostile if name not in ROWS or ROWS[name].by != "accounts" or name == "udp"]:
        raise SystemExit(f"HOSTILE: no account plays {', '.join(unknown)} here")
    # On SIGTERM leave all `with` blocks, so that no process is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    found = run(
        serve,
        seed=int(os.environ.get("SEED") or random.randrange(1_000_000)),
        seconds=float(os.environ.get("SECONDS_TO_RUN") or seconds),
        monitors=int(os.environ.get("MONITORS") or 500),
        starting_sec=starting_sec,
        children=int(os.environ.get("CHILDREN") or CHILDREN),
        hostile=hostile,
    )
    print(json.dumps(found))  # noqa: T201
    from tests.faults.monitor_audit import VIOLATIONS  # Django is set up by now

    return 1 if any(found[kind] for kind in VIOLATIONS) else 0

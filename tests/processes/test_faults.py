"""A short version of `make faults`: kill processes for seconds, then verify every monitor and alert."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.processes.up import ROOT

SECONDS = 14
LONGEST = 420  # includes start, leases and retries of alerts, on a busy machine


def test_nothing_is_lost_when_things_die(clean_environment: dict[str, str], migrated_cluster: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults"],
        cwd=ROOT,
        env=clean_environment
        | {"SEED": "6", "MONITORS": "200", "SECONDS_TO_RUN": str(SECONDS), "CLUSTER": str(migrated_cluster)},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, f"{found}\n{done.stderr}"
    assert (found["monitors"], found["kills"] >= 5, found["alerts"] >= 100) == (200, True, True)
    assert found["past"]["packed_meanwhile"] >= 1_000

"""A collapse of incoming pings with real processes: the web server dies, and the dispatchers while it is away."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.processes.up import ROOT

LONGEST = 400  # on a busy machine


def test_nobody_is_alerted_while_the_web_server_is_away(
    clean_environment: dict[str, str], migrated_cluster: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.missing_pings"],
        cwd=ROOT,
        env=clean_environment | {"CLUSTER": str(migrated_cluster)},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"downs": 0, "open": 1, "ended": 1}, done.stderr

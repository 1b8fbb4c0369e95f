"""Locks of migrations are detected on their tables while `migrate` holds them."""

from __future__ import annotations

import json
import subprocess
import sys

from config.settings import BASE_DIR
from tests.upgrade.dumps import dumps


def test_an_old_database_shows_what_its_migrations_lock() -> None:
    command = [sys.executable, "-m", "tests.upgrade.locks", "--rows", "50", "--dump", str(dumps()[0])]
    done = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    filled = {line.partition(":")[0] for line in done.stderr.splitlines() if line.endswith(": 50 rows")}
    assert found["rows"] == 50
    # Columns were added to these.
    assert {"alerts_alertchannel", "statuspages_statuspage"} <= set(found["locks_s"]) & filled
    # An empty table is not filled, and one that no migration touches is not locked.
    assert "checks_hourlyrollup" not in set(found["locks_s"]) | filled
    assert done.returncode == int(max(found["locks_s"].values()) > 1)

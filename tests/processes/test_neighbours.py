"""benchmarks/neighbours.py in its quick mode: its output, and counts that do not depend on load."""

from __future__ import annotations

import json

from benchmarks.fairness.tenants import SWITCHING
from tests.processes.up import Program

LONGEST = 600  # on a busy machine
FIGURES = {
    *("worst_check_late_s", "worst_ping_ms", "worst_page_ms", "worst_alert_s", "false_changes", "missed_changes"),
    *("web_peak_mib", "silent", "restarts"),
}


def test_quick(program: Program) -> None:
    done = program("benchmarks/neighbours.py", "--quick", "--seconds", "3", longest=LONGEST)
    assert done.returncode in (0, 1), done.stderr  # 1: the machine is busy
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == FIGURES | {"proxy", "seconds", "rows"}
    assert {name: set(row["levels"]) for name, row in found["rows"].items()} == {
        "quiet": {"0"},
        "openapi": {"1"},
        "check-now": {"1"},
    }
    for name, row in found["rows"].items():
        assert row.keys() == FIGURES | {"levels"}
        for figures in row["levels"].values():
            # Each change is announced or missed, and each check is made or pending.
            assert figures["alerts"] + figures["missed_changes"] == sum(SWITCHING.values()), done.stderr
            assert figures["checks"] > 0
            assert figures["pings"] > 0
            assert figures["pages"] > 0
            assert ("sent" in figures["answers"]) is (name != "quiet")

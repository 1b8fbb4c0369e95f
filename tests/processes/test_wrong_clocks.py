"""Processes with wrong clocks: no false and no missed events, and /readyz names the clock."""

from __future__ import annotations

import json

from tests.processes.up import Program

LONGEST = 900  # on a busy machine


def test_a_dispatcher_and_a_worker_whose_clocks_are_ten_minutes_ahead(program: Program) -> None:
    done = program("-m", "tests.faults.clocks", "dispatcher", "worker", "--ahead", "600", longest=LONGEST)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("slowest_sec") > 0
    assert found == {"plays": 2, "false": 0, "missed": 0, "not_named": 0, "not_covered": 0, "ended": 0}, done.stdout

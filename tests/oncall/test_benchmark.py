"""benchmarks/oncall.py: pages of a short simulation are as its oracle expects, and faults of the rules are found."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from benchmarks.oncall import simulate
from benchmarks.paging import oracle, world
from core import zones
from oncall import escalation, rotation
from oncall.escalation import Plan, Progress, Result


def test_no_page_is_wrong_lost_twice_or_late() -> None:
    """For a tenth of a year, in the process of the benchmark."""
    command = [sys.executable, "benchmarks/oncall.py", "--years", "0.1", "--seed", "7"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    counts = json.loads(ended.stdout.splitlines()[-1])
    assert counts.pop("pages") > 1000
    assert counts == {"wrong": 0, "lost": 0, "duplicates": 0, "late": 0}


def test_the_oracle_shares_no_code() -> None:
    for module in (oracle, world):
        imported = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.ImportFrom)]
        names = {node.module for node in imported} - {"benchmarks.paging.world"}
        assert all(str(name).split(".")[0] in sys.stdlib_module_names for name in names)


def test_a_hand_over_at_the_second_of_two_times_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def second(name: str, wall: datetime) -> datetime:
        return wall.replace(tzinfo=zones.zone(name), fold=1).astimezone(UTC)

    monkeypatch.setattr(rotation, "first_moment", second)
    assert simulate(0.27, 3)["wrong"] > 0


def test_a_step_that_runs_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decide, repeated = escalation.due, set[datetime]()

    def repeat_once(progress: Progress, plan: Plan | None, now: datetime) -> Result:
        decided, actions = decide(progress, plan, now)
        if not actions or now in repeated:
            return decided, actions
        repeated.add(now)
        return progress, actions

    monkeypatch.setattr(escalation, "due", repeat_once)
    assert simulate(0.02, 3)["duplicates"] > 0

"""benchmarks/agents.py with few monitors: its output, and that no check is lost, made twice or failed."""

from __future__ import annotations

import json

import pytest

from tests.processes.up import Program

LONGEST = 300  # on a busy machine
SIZE = {
    "MONITORS": "200",
    "CHECKS_DUE": "100",
    "IDLE_AGENTS": "10",
    "SECONDS_TO_RUN": "3",
    "IDLE_SECONDS": "2",
    "SETTLE_SECONDS": "2",
}


def test_few_monitors(program: Program, clean_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SIZE.items():
        monkeypatch.setitem(clean_environment, name, value)
    done = program("benchmarks/agents.py", longest=LONGEST)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["errors"] == 0
    assert found["agent_rate"] > 0
    assert found["agent_rss_mib"] <= 64
    assert {"rate_ratio", "server_cpu_ratio", "idle_agents_cpu"} <= found.keys()

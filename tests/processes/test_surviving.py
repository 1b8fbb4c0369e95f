"""Every process of the Procfile survives outages of its servers, works again afterwards and logs little."""

from __future__ import annotations

import json
import os

import pytest

from tests.processes.test_reach import why_not
from tests.processes.up import Program

ROUNDS = int(os.environ.get("OUTAGE_ROUNDS", "2"))  # 13 play every order
LONGEST_ROUND_SEC = 180  # on a busy machine
LINES, BYTES = 10, 10_000  # that a process may log in a minute of an outage


def test_outages_of_broker_and_database(program: Program) -> None:
    longest = LONGEST_ROUND_SEC * (ROUNDS + 1)
    done = program("-m", "tests.faults.outages", "--rounds", str(ROUNDS), "--seconds", "3", longest=longest)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rounds"], found["ended"]) == (ROUNDS, []), done.stderr
    assert max(found["lines"].values()) <= 2 * LINES, done.stderr  # of two servers
    assert max(found["bytes"].values()) <= 2 * BYTES, done.stderr


def test_a_name_of_the_broker_that_does_not_resolve(program: Program) -> None:
    if reason := why_not():
        pytest.skip(reason)
    longest = 2 * LONGEST_ROUND_SEC
    done = program("-m", "tests.faults.outages", "--names", "--rounds", "1", "--seconds", "5", longest=longest)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ended"] == [], done.stderr
    assert max(found["lines"].values()) <= LINES, done.stderr
    assert max(found["bytes"].values()) <= BYTES, done.stderr

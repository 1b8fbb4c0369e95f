"""Whether a failure counts: tables of votes, and properties of any votes."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.quorum import Vote, decide
from tests.helpers import NOON, examples
from tests.processes.tree import ROOT

PATIENCE = 15
NAMES = "bcdefgh"
ANSWERS = {"d": True, "u": False, "?": None}


def decided(votes: str, *, others: int | None = None, quorum: int | None = None, second: int = 1) -> str:
    """Return the decision about a failure at location a, of the others' votes in turn: `-` is one that is missing."""
    found = [Vote("a", failed=True, at=NOON)]
    found += [
        Vote(name, ANSWERS[letter], NOON + timedelta(seconds=1))
        for name, letter in zip(NAMES, votes, strict=False)
        if letter != "-"
    ]
    return of(found, asked=NAMES[: len(votes) if others is None else others], quorum=quorum, second=second)


def of(votes: list[Vote], *, asked: str, quorum: int | None = None, second: int = 1) -> str:
    ends, now = NOON + timedelta(seconds=PATIENCE), NOON + timedelta(seconds=second)
    return decide(votes, asked=asked, began=NOON, ends=ends, now=now, quorum=quorum).value


@pytest.mark.parametrize(
    ("votes", "quorum", "expected"),
    [
        pytest.param("", None, "alone", id="nobody else"),
        pytest.param("u", None, "refuted", id="one against one"),
        pytest.param("d", None, "confirmed", id="both"),
        pytest.param("uu", None, "refuted", id="two others pass"),
        pytest.param("du", None, "confirmed", id="two of three"),
        pytest.param("duu", None, "refuted", id="half is not more than half"),
        pytest.param("du", 3, "refuted", id="a quorum of all"),
        pytest.param("dd", 3, "confirmed", id="all"),
        pytest.param("uu", 1, "confirmed", id="a quorum of one"),
        pytest.param("d", 5, "confirmed", id="a quorum above those that answer means all"),
        pytest.param("?", None, "alone", id="who cannot know does not count"),
        pytest.param("??d", None, "confirmed", id="and takes no part in the quorum"),
        pytest.param("--", None, "waiting", id="answers are missing"),
        pytest.param("d--", None, "waiting", id="two could still refute it"),
        pytest.param("uu--", None, "waiting", id="two could still confirm it"),
        pytest.param("uuu--", None, "refuted", id="the rest cannot confirm it"),
        pytest.param("dd-", None, "confirmed", id="the rest cannot refute it"),
    ],
)
def test_decisions(votes: str, quorum: int | None, expected: str) -> None:
    assert decided(votes, quorum=quorum) == expected


@pytest.mark.parametrize(
    ("votes", "expected"), [("--", "alone"), ("d-", "confirmed"), ("u-", "refuted"), ("du--", "confirmed")]
)
def test_after_the_deadline_those_that_answered_decide(votes: str, expected: str) -> None:
    assert decided(votes, second=PATIENCE + 1) == expected


@pytest.mark.parametrize("second", [-1, PATIENCE + 1], ids=["before it", "too late"])
def test_votes_of_other_times_do_not_count(second: int) -> None:
    votes = [Vote("a", failed=True, at=NOON), Vote("b", failed=False, at=NOON + timedelta(seconds=second))]
    assert of(votes, asked="b", second=PATIENCE + 2) == "alone"


def test_the_first_vote_of_a_location_counts() -> None:
    votes = [Vote("a", failed=True, at=NOON)]
    votes += [Vote("b", failed=failed, at=NOON + timedelta(seconds=1)) for failed in (False, True, True)]
    assert of(votes, asked="b") == "refuted"


VOTES = st.lists(st.sampled_from(["d", "u", "?", "-"]), max_size=7).map("".join)
QUORUMS = st.one_of(st.none(), st.integers(1, 9))


@settings(max_examples=examples(300))
@given(VOTES, QUORUMS, st.randoms(use_true_random=False))
def test_any_votes(votes: str, quorum: int | None, random: Any) -> None:
    early, late = decided(votes, quorum=quorum), decided(votes, quorum=quorum, second=PATIENCE + 1)
    assert late != "waiting"
    assert early in ("waiting", late), "what is decided early is not revised"
    shuffled = "".join(random.sample(votes, len(votes)))
    assert decided(shuffled, quorum=quorum) == early, "the order does not matter"
    assert decided(votes + "?", quorum=quorum) == early, "who cannot know changes nothing"
    answers = 1 + votes.count("d") + votes.count("u")
    failed = 1 + votes.count("d")
    assert (late == "alone") == (answers == 1)
    if answers > 1:
        needed = answers // 2 + 1 if quorum is None else min(quorum, answers)
        assert (late == "confirmed") == (failed >= needed)
    if late == "confirmed" and "u" in votes:
        assert decided(votes.replace("u", "d", 1), quorum=quorum, second=PATIENCE + 1) == "confirmed"


def test_the_simulation_meets_its_goals() -> None:
    """For one year, in the process of the benchmark."""
    command = [sys.executable, "benchmarks/quorum.py", "--years", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["alerts_for_short_outages"] == 0

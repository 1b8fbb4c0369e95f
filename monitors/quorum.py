"""Whether a failure that one location saw counts, from what the others see at the same time. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum


class Decision(Enum):
    WAITING = "waiting"
    """Answers that are missing can still change it."""
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    """It is stored, and changes nothing."""
    ALONE = "alone"
    """It counts, as seen from one place: no other location answered in time."""


@dataclass(frozen=True, slots=True)
class Vote:
    """What a check from a location found. `failed` is None if it cannot know, as its own network is down."""

    location: str
    failed: bool | None
    at: datetime


def decide(
    votes: Sequence[Vote],
    *,
    asked: Collection[str],
    began: datetime,
    ends: datetime,
    now: datetime,
    quorum: int | None,
) -> Decision:
    """Return the decision about the failure at `began`, which is one of the votes; `asked` are the other locations.

    The first vote of a location counts, if it is from `began` to `ends`. `quorum` is how many must fail, at most those
    that answered; None: more than half of them.
    """
    first: dict[str, bool | None] = {}
    for vote in votes:
        if began <= vote.at <= ends:
            first.setdefault(vote.location, vote.failed)
    answers = [failed for failed in first.values() if failed is not None]
    missing = 0 if now > ends else len(set(asked) - set(first))
    possible = {
        _decide(len(answers) + more, sum(answers) + failing, quorum)
        for more in range(missing + 1)
        for failing in range(more + 1)
    }
    return possible.pop() if len(possible) == 1 else Decision.WAITING


def _decide(answers: int, failed: int, quorum: int | None) -> Decision:
    """Return the decision if no other answer comes."""
    if answers < 2:
        return Decision.ALONE
    needed = answers // 2 + 1 if quorum is None else min(quorum, answers)
    return Decision.CONFIRMED if failed >= needed else Decision.REFUTED

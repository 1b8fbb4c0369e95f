"""The open runs of a heartbeat's job: started, and neither succeeded nor failed yet. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from core.clock import EPOCH

MAX_OPEN = 100
"""Runs whose deadlines are watched at the same time. The oldest ones are, because they must end first."""
MICROSECOND = timedelta(microseconds=1)

GIVEN_UP = "given up"

Runs = dict[str, int]
"""The start of each run in microseconds since the epoch, by its rid; that of the run without one by "", or by GIVEN_UP
if nobody waits for its end any more."""


def started(runs: Runs, rid: UUID | None, at: datetime) -> Runs:
    """Return the runs after a start. A second start with the same rid, or without one, replaces the first."""
    others, _ = ended(runs, rid)
    key = "" if rid is None else str(rid)
    return others if len(others) >= MAX_OPEN else {**others, key: (at - EPOCH) // MICROSECOND}


def ended(runs: Runs, rid: UUID | None) -> tuple[Runs, datetime | None]:
    """Return the runs after the end of one, and its start, or None if it is not among them."""
    keys = {"", GIVEN_UP} if rid is None else {str(rid)}
    start = max((runs[key] for key in keys & runs.keys()), default=None)
    return {key: start for key, start in runs.items() if key not in keys}, _moment(start)


def without_overdue(runs: Runs, *, before: datetime) -> Runs:
    """Give up the runs that were started earlier and must have ended: a later success settles them.

    How long they took is still known: of those with a rid from the log, the one without is kept.
    """
    kept = {key: start for key, start in runs.items() if EPOCH + start * MICROSECOND >= before}
    late = max((start for key, start in runs.items() if key in ("", GIVEN_UP) and key not in kept), default=None)
    return kept if late is None else {**kept, GIVEN_UP: late}


def oldest(runs: Runs) -> datetime | None:
    """Return the start of the run that must end first."""
    return min(starts(runs), default=None)


def starts(runs: Runs) -> list[datetime]:
    """Return the starts of the runs whose ends are waited for."""
    return [EPOCH + start * MICROSECOND for key, start in runs.items() if key != GIVEN_UP]


def latest(runs: Runs) -> datetime | None:
    return _moment(max(runs.values(), default=None))


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else EPOCH + microseconds * MICROSECOND

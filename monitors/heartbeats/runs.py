"""The open runs of a heartbeat's job: started, and neither succeeded nor failed yet. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from core.clock import EPOCH

MAX_OPEN = 100
"""Runs whose deadlines are watched at the same time. The oldest ones are, because they must end first."""
MICROSECOND = timedelta(microseconds=1)

GIVEN_UP = "given up"
UNWATCHED, LAST_UNWATCHED = "unwatched", "last unwatched"

Runs = dict[str, int]
"""The start of each run in microseconds since the epoch, by its rid. The key of the run without a rid is "", or
GIVEN_UP once its end is no longer awaited. UNWATCHED is the number of open runs beyond MAX_OPEN, LAST_UNWATCHED the
last start of one."""

_UNAWAITED = frozenset({GIVEN_UP, UNWATCHED, LAST_UNWATCHED})


def started(runs: Runs, rid: UUID | None, at: datetime, *, is_watched: bool = True) -> Runs:
    """Return the runs after a start. A second start with the same rid, or without one, replaces the first.

    With `is_watched` False its end is not awaited: the start of a run without a rid is kept to compute the duration.
    """
    others, _ = ended(runs, rid)
    start = (at - EPOCH) // MICROSECOND
    if not is_watched:
        return {**others, GIVEN_UP: start} if rid is None else others
    if len(starts(others)) < MAX_OPEN:
        return {**others, "" if rid is None else str(rid): start}
    return {**others, UNWATCHED: unwatched(others) + 1, LAST_UNWATCHED: start}


def unwatched(runs: Runs) -> int:
    """Return how many runs are open beyond MAX_OPEN."""
    return runs.get(UNWATCHED, 0)


def ended_unwatched(runs: Runs, start: datetime | None) -> Runs:
    """Return the runs after the end of one that is not among them, and was started at `start`, if it was."""
    count = unwatched(runs)
    if not count or start is None or start > EPOCH + runs[LAST_UNWATCHED] * MICROSECOND:
        return runs
    kept = {key: value for key, value in runs.items() if key not in (UNWATCHED, LAST_UNWATCHED)}
    return kept if count == 1 else {**kept, UNWATCHED: count - 1, LAST_UNWATCHED: runs[LAST_UNWATCHED]}


def ended(runs: Runs, rid: UUID | None) -> tuple[Runs, datetime | None]:
    """Return the runs after the end of one, and its start, or None if it is not among them."""
    keys = {"", GIVEN_UP} if rid is None else {str(rid)}
    start = max((runs[key] for key in keys & runs.keys()), default=None)
    return {key: start for key, start in runs.items() if key not in keys}, _moment(start)


def without_overdue(runs: Runs, *, before: datetime) -> Runs:
    """Stop waiting for runs that started before `before` and must have ended: a later success settles them.

    Their durations can still be computed: with a rid from the log, and the start without one is kept.
    """
    kept = {key: start for key, start in runs.items() if key == UNWATCHED or EPOCH + start * MICROSECOND >= before}
    if LAST_UNWATCHED not in kept:
        kept.pop(UNWATCHED, None)
    late = max((start for key, start in runs.items() if key in ("", GIVEN_UP) and key not in kept), default=None)
    return kept if late is None else {**kept, GIVEN_UP: late}


def oldest(runs: Runs) -> datetime | None:
    """Return the start of the run that must end first."""
    return min(starts(runs), default=None)


def starts(runs: Runs) -> list[datetime]:
    """Return the starts of the runs whose ends are waited for."""
    return [EPOCH + start * MICROSECOND for key, start in runs.items() if key not in _UNAWAITED]


def latest(runs: Runs) -> datetime | None:
    return _moment(max((start for key, start in runs.items() if key != UNWATCHED), default=None))


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else EPOCH + microseconds * MICROSECOND

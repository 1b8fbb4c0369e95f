"""Actions on one or many monitors."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.db.models import QuerySet

from core.api.converters import is_public_id
from core.bulk import BulkResult
from core.errors import ApiError, NotFound, ValidationFailed
from monitors import operations
from monitors.models import Monitor
from monitors.services import update_monitor
from projects.access import Caller, accessible

PATIENCE_SEC = 25.0
"""Time limit of a request; proxies time out soon after."""
BATCH_SIZE = 500
"""The monitors' states are locked during a batch, which delays their results."""
MUTES = {30: "30 minutes", 60: "1 hour", 480: "8 hours", 1_440: "24 hours", 10_080: "7 days"}

Run = Callable[[Caller, Sequence[str], datetime], tuple[int, Mapping[str, int]]]
"""Applies an action. Returns the number of changed monitors, and the number of others by reason."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action. Its message is `past`, the count and `rest`: `Muted` 3 monitors ` for 1 hour`."""

    run: Run
    past: str
    rest: str = ""
    batch_size: int = BATCH_SIZE


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result: how many monitors were changed, refused (by reason), or not processed within the time limit."""

    action: Action
    done: int
    refused: Mapping[str, int]
    unreached: int = 0

    @property
    def message(self) -> str:
        return f"{self.action.past} {_monitors(self.done)}{self.action.rest}."

    @property
    def complaints(self) -> list[str]:
        found = [f"{_monitors(count)} left as before: {reason}" for reason, count in self.refused.items()]
        if self.unreached:
            found.append(f"{_monitors(self.unreached)} not reached in time: do it once more for these.")
        return found


def named(text: str) -> Action:
    """Return the action of a button, like `pause`, `mute:30` or `move:prj_…`. Raises ValidationFailed.

    `move:` without an id moves out of the project.
    """
    if text in _PLAIN:
        return _PLAIN[text]
    name, _, argument = text.partition(":")
    length = {str(minutes): length for minutes, length in MUTES.items()}.get(argument)
    if name == "mute" and length is not None:
        mute = partial(operations.mute_for, minutes=int(argument))
        return Action(partial(_run_in_bulk, mute), "Muted", f" for {length}")
    if name == "move" and (not argument or is_public_id(argument)):
        return Action(partial(_move, argument or None), "Moved", batch_size=1)
    raise ValidationFailed("is no action.", field="action")


def apply(
    caller: Caller, action: Action, public_ids: Sequence[str], *, now: datetime, patience_sec: float = PATIENCE_SEC
) -> Outcome:
    """Apply an action to monitors. One that is refused does not affect the others.

    After `patience_sec` no further batch starts; the result counts the remaining monitors.
    """
    done, refused = 0, Counter[str]()
    end = time.monotonic() + patience_sec
    for start in range(0, len(public_ids), action.batch_size):
        if time.monotonic() >= end:
            return Outcome(action, done, refused, unreached=len(public_ids) - start)
        count, left = action.run(caller, public_ids[start : start + action.batch_size], now)
        done += count
        refused.update(left)
    return Outcome(action, done, refused)


def _run_in_bulk(
    operation: Callable[..., BulkResult[Monitor]], caller: Caller, public_ids: Sequence[str], now: datetime
) -> tuple[int, Mapping[str, int]]:
    """Apply an operation of `monitors.operations` to those monitors that the caller may change."""
    among = accessible(caller, Monitor.objects.all())
    ids = list(among.filter(public_id__in=public_ids).values_list("pk", flat=True))
    outcome = operation(ids, now=now, among=among)
    left = Counter({f"{reason}.": count for reason, count in outcome.left.items()})
    left[_GONE] += len(public_ids) - len(outcome.done) - left.total()
    return len(outcome.done), +left


def _move(
    project_id: str | None, caller: Caller, public_ids: Sequence[str], now: datetime
) -> tuple[int, Mapping[str, int]]:
    (public_id,) = public_ids
    try:
        update_monitor(caller, public_id, {"project_id": project_id}, now=now)
    except ApiError as error:
        return 0, {_GONE if isinstance(error, NotFound) else str(error): 1}
    return 1, {}


def _delete(ids: Collection[int], *, now: datetime, among: QuerySet[Monitor]) -> BulkResult[Monitor]:
    return operations.delete(ids, among=among)


def _monitors(count: int) -> str:
    return "1 monitor" if count == 1 else f"{count:,} monitors"


_GONE = "not there any more."
_PLAIN = {
    "pause": Action(partial(_run_in_bulk, operations.pause), "Paused"),
    "resume": Action(partial(_run_in_bulk, operations.resume), "Resumed"),
    "unmute": Action(partial(_run_in_bulk, partial(operations.mute_for, minutes=0)), "Unmuted"),
    "delete": Action(partial(_run_in_bulk, _delete), "Deleted"),
}

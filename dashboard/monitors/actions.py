"""What is done to one monitor or to many at once, each by itself through the service that the API calls."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from core.api.converters import is_public_id
from core.errors import ApiError, NotFound, ValidationFailed
from monitors.services import delete_monitor, mute_monitor, update_monitor
from projects.access import Caller

PATIENCE_SEC = 25.0
"""A thousand monitors take about half of it; proxies and people give up soon after."""
MUTES = {30: "30 minutes", 60: "1 hour", 480: "8 hours", 1_440: "24 hours", 10_080: "7 days"}


@dataclass(frozen=True, slots=True)
class Action:
    """`past` begins the sentence that tells of it, and `rest` ends it: `Muted` 3 monitors ` for 1 hour`."""

    run: Callable[[Caller, str, datetime], object]
    past: str
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many it was done to, what it could not be done to, by the reason, and how many time was too short for."""

    action: Action
    done: int
    refused: Mapping[str, int]
    unreached: int = 0

    @property
    def said(self) -> str:
        return f"{self.action.past} {_monitors(self.done)}{self.action.rest}."

    @property
    def complaints(self) -> list[str]:
        found = [f"{_monitors(count)} left as before: {reason}" for reason, count in self.refused.items()]
        if self.unreached:
            found.append(f"{_monitors(self.unreached)} not reached in time: do it once more for these.")
        return found


def named(text: str) -> Action:
    """The action that a button is for: `pause`, `mute:30`, `move:prj_…`, `move:` out of every project."""
    name, _, argument = text.partition(":")
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "mute" and argument.isascii() and argument.isdigit() and int(argument) in MUTES:
        minutes = int(argument)
        return Action(partial(_mute, minutes=minutes), "Muted", f" for {MUTES[minutes]}")
    if name == "move" and (not argument or is_public_id(argument)):
        return Action(partial(_update, given={"project_id": argument or None}), "Moved")
    raise ValidationFailed("is no action.", field="action")


def apply(
    caller: Caller,
    action: Action,
    public_ids: Sequence[str],
    *,
    now: datetime,
    patience_sec: float = PATIENCE_SEC,
) -> Outcome:
    """Each monitor is a transaction of its own: one that cannot be changed keeps none of the others from it.

    After `patience_sec` no further one is begun, and what is left is told of.
    """
    done, refused = 0, Counter[str]()
    end = time.monotonic() + patience_sec
    for number, public_id in enumerate(public_ids):
        if time.monotonic() >= end:
            return Outcome(action, done, refused, unreached=len(public_ids) - number)
        try:
            action.run(caller, public_id, now)
        except NotFound:
            refused["it is not there any more."] += 1
        except ApiError as error:
            refused[error.reason or error.code] += 1
        else:
            done += 1
    return Outcome(action, done, refused)


def _update(caller: Caller, public_id: str, now: datetime, *, given: Mapping[str, object]) -> None:
    update_monitor(caller, public_id, given, now=now)


def _mute(caller: Caller, public_id: str, now: datetime, *, minutes: int) -> None:
    mute_monitor(caller, public_id, minutes=minutes, now=now)


def _delete(caller: Caller, public_id: str, now: datetime) -> None:
    delete_monitor(caller, public_id)


def _monitors(count: int) -> str:
    return "1 monitor" if count == 1 else f"{count:,} monitors"


_PLAIN = {
    "pause": Action(partial(_update, given={"enabled": False}), "Paused"),
    "resume": Action(partial(_update, given={"enabled": True}), "Resumed"),
    "unmute": Action(partial(_mute, minutes=0), "Unmuted"),
    "delete": Action(_delete, "Deleted"),
}

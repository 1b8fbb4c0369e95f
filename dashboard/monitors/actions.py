"""Actions on one or many monitors."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from core.api.converters import is_public_id
from core.bulk import BulkResult
from core.errors import ApiError, NotFound, ValidationFailed
from core.etags import etag
from core.text import counted
from monitors import operations
from monitors.models import Monitor
from monitors.selectors import named as with_ids
from monitors.services import update_monitor
from projects.access import Caller, accessible, writable

PATIENCE_SEC = 25.0
"""Time limit of a request; proxies time out soon after."""
BATCH_SIZE = 500
"""The monitors' states are locked during a batch, which delays their results."""
DELETE = "delete"
MAX_DELETED = 5_000
"""How many monitors are deleted at once: the page that asks contains their ids and tags."""
MAX_ADDRESS, TAG_LENGTH = 200, 8
MUTES = {30: "30 minutes", 60: "1 hour", 480: "8 hours", 1_440: "24 hours", 10_080: "7 days"}


class Action(NamedTuple):
    """An action. Its message is `past`, the count and `rest`: `Muted` 3 monitors ` for 1 hour`."""

    run: Callable[[Caller, Sequence[str], datetime], BulkResult[Monitor]]
    past: str
    rest: str = ""
    batch_size: int = BATCH_SIZE


class Outcome(NamedTuple):
    """The result: the number of changed monitors, a message about them, and complaints about all others."""

    done: int
    message: str
    complaints: list[str]


def named(text: str) -> Action:
    """Return the action of a button, like `pause`, `mute:30` or `move:prj_…`. Raises ValidationFailed.

    `move:` without an id moves out of the project.
    """
    if text in _ACTIONS:
        return _ACTIONS[text]
    name, _, project_id = text.partition(":")
    if name == "move" and (not project_id or is_public_id(project_id)):
        return Action(partial(_move_to_project, project_id or None), "Moved", batch_size=1)
    raise ValidationFailed("is not an action.", field="action")


class ToDelete(NamedTuple):
    """A monitor to delete, and a digest of its settings."""

    public_id: str
    name: str
    address: str
    tag: str


def to_delete(caller: Caller, public_ids: Sequence[str]) -> list[ToDelete]:
    """Return those monitors that the caller may delete, by name."""
    found = writable(caller, Monitor.objects.select_related("project").filter(public_id__in=public_ids))
    found = found.prefetch_related("dependencies")
    return [
        ToDelete(monitor.public_id, monitor.name, monitor.url[:MAX_ADDRESS], _tag(monitor))
        for monitor in found.order_by("name", "pk").iterator(chunk_size=BATCH_SIZE)
    ]


def _tag(monitor: Monitor) -> str:
    """Return the beginning of the ETag: enough to see a change, and short, as a form has thousands of them."""
    return etag(monitor)[1 : 1 + TAG_LENGTH]


def deletion(tags: Mapping[str, str]) -> Action:
    """Return the action that deletes monitors whose settings still have these tags, by public id."""

    def unless(monitor: Monitor) -> str | None:
        return None if _tag(monitor) == tags.get(monitor.public_id) else "its settings have changed"

    return Action(
        partial(_run_in_bulk, lambda ids, caller, **_: operations.delete(ids, caller=caller, unless=unless)), "Deleted"
    )


def apply(caller: Caller, action: Action, public_ids: Sequence[str], *, now: datetime) -> Outcome:
    """Apply an action to monitors. One that is refused does not affect the others.

    After PATIENCE_SEC no further batch starts; a complaint counts the remaining monitors.
    """
    done, refused, unreached = 0, Counter[str](), list[str]()
    end = time.monotonic() + PATIENCE_SEC
    for start in range(0, len(public_ids), action.batch_size):
        if time.monotonic() >= end:
            unreached.append(f"{counted(len(public_ids) - start, 'monitor')} not processed in time: repeat the action.")
            break
        result = action.run(caller, public_ids[start : start + action.batch_size], now)
        done += len(result.done)
        refused.update(result.left)
    complaints = [f"{counted(count, 'monitor')} unchanged: {reason}" for reason, count in refused.items()]
    return Outcome(done, f"{action.past} {counted(done, 'monitor')}{action.rest}.", complaints + unreached)


def _run_in_bulk(
    operation: Callable[..., BulkResult[Monitor]],
    caller: Caller,
    public_ids: Sequence[str],
    now: datetime,
    **options: int,
) -> BulkResult[Monitor]:
    """Apply an operation of `monitors.operations` to those monitors that the caller may change."""
    found = Monitor.objects.filter(with_ids(public_ids))
    ids = list(writable(caller, found).values_list("pk", flat=True))
    result = operation(ids, now=now, caller=caller, **options)
    left = Counter({f"{reason}.": count for reason, count in result.left.items()})
    missing = len(public_ids) - len(result.done) - left.total()
    if missing:
        left[_READ_ONLY] = accessible(caller, found).exclude(pk__in=ids).count()
    left[_GONE] = missing - left[_READ_ONLY]
    return BulkResult(result.done, +left)


def _move_to_project(
    project_id: str | None, caller: Caller, public_ids: Sequence[str], now: datetime
) -> BulkResult[Monitor]:
    (public_id,) = public_ids
    try:
        return BulkResult([update_monitor(caller, public_id, {"project_id": project_id}, now=now)])
    except ApiError as error:
        return BulkResult([], {_GONE if isinstance(error, NotFound) else str(error): 1})


_GONE, _READ_ONLY = "not found.", "your role allows only reading."
_ACTIONS = {
    "pause": Action(partial(_run_in_bulk, operations.pause), "Paused"),
    "resume": Action(partial(_run_in_bulk, operations.resume), "Resumed"),
    "unmute": Action(partial(_run_in_bulk, operations.mute_for, minutes=0), "Unmuted"),
} | {
    f"mute:{minutes}": Action(partial(_run_in_bulk, operations.mute_for, minutes=minutes), "Muted", f" for {length}")
    for minutes, length in MUTES.items()
}

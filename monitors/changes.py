"""Changes of monitors for the audit log: the changed fields with their old and new values, without secrets.

A change is `{"field", "before", "after"}`. A value that may contain a secret is left out, and so is the side that does
not exist: `before` of a creation, `after` of a deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db.models import QuerySet

import audit.services
from audit.actions import Action
from audit.models import Entry
from core.clock import to_ms
from core.masking import without_credentials
from core.text import one_line
from monitors import types
from monitors.models import Monitor
from monitors.types.settings import MonitorConfig
from projects.access import Caller
from projects.models import Project
from projects.placement import POLICY

MAX_VALUE = 200
"""Characters of a value; the rest is cut."""
_SWITCHES = {True: Action.MONITOR_RESUMED, False: Action.MONITOR_PAUSED}


def compare(
    before: MonitorConfig | None, after: MonitorConfig | None, *, with_values: bool = True
) -> list[dict[str, Any]]:
    """Return a change for each setting that differs. Without one side, the other one is compared with the defaults."""
    found = []
    for name in ("type", *types.settings()):
        setting = types.settings().get(name)  # None: the type
        usual = setting and setting.default
        old, new = (usual if config is None else config[name] for config in (before, after))
        if old == new:
            continue
        sides = {"before": (before, old), "after": (after, new)} if setting is None or setting.is_logged else {}
        values = {side: _shown(value) for side, (config, value) in sides.items() if config is not None and with_values}
        is_cut = len(values) > 1 and values["before"] == values["after"]  # they differ in what is not shown
        found.append({"field": name} if is_cut else {"field": name, **values})
    return found


def changed(field: str, before: Any, after: Any) -> list[dict[str, Any]]:
    """Return the change of a field whose values may be shown. Times become epoch milliseconds."""
    return [{"field": field, "before": _shown(before), "after": _shown(after)}]


def moved(before: Project | None, after: Project | None) -> list[dict[str, Any]]:
    """Return the change of the project, by ids: a reader may know one of the names only."""
    ids = [None if project is None else project.public_id for project in (before, after)]
    return [] if ids[0] == ids[1] else changed("project_id", *ids)


def of_policy(before: Any, after: Any) -> list[dict[str, Any]]:
    """Return the change of the escalation policy, by ids."""
    return [] if before == after else changed(POLICY, before and before.public_id, after and after.public_id)


def draft(
    caller: Caller | None,
    monitor: Monitor,
    changes: Sequence[Mapping[str, Any]],
    *,
    project: Project | None,
    action: Action | None = None,
    source: Monitor | None = None,
) -> Entry:
    """Return an unsaved entry for the log of `project`. Without a caller, staff or a command acts for the owner.

    Without an action it is an edit: a pause or a resumption if nothing else changed. `source` is the monitor that this
    one is a copy of.
    """
    if action is None:
        is_switch = [change["field"] for change in changes] == ["enabled"]
        action = _SWITCHES[changes[0]["after"]] if is_switch else Action.MONITOR_UPDATED
    return audit.services.draft(
        action,
        actor=monitor.owner if caller is None else caller.user,
        by_token=caller is not None and caller.project is not None,
        project=project,
        monitor_id=monitor.pk,
        target_id="" if monitor.kind.has_secret_id else monitor.public_id,
        target_name=monitor.name,
        details={"changes": list(changes)}
        | ({"copied_from": source.public_id} if source is not None and not source.kind.has_secret_id else {}),
    )


def record(
    caller: Caller | None,
    monitors: Iterable[Monitor],
    changes: Iterable[Sequence[Mapping[str, Any]]],
    *,
    action: Action | None = None,
    source: Monitor | None = None,
) -> None:
    """Record the changes of each monitor, with a single INSERT. `source` is that of a copy."""
    audit.services.record_all(
        draft(caller, monitor, made, project=monitor.project, action=action, source=source)
        for monitor, made in zip(monitors, changes, strict=False)
    )


def changes_of(monitor: Monitor, caller: Caller) -> QuerySet[Entry]:
    """Return the entries of a monitor that the caller can access.

    A new owner does not see those from before. Only the owner sees those of other projects, which name their members.
    """
    entries = Entry.objects.filter(monitor_id=monitor.pk)
    if monitor.owned_since is not None:
        entries = entries.filter(at__gte=monitor.owned_since)
    return entries if monitor.owner_id == caller.user.pk else entries.filter(project_id=monitor.project_id)


def _shown(value: Any) -> Any:
    """Return a value as a number, boolean, None or short text, without credentials in addresses."""
    if isinstance(value, tuple):
        return _shown("; ".join(map(_in_words, value))) if value else None
    if isinstance(value, datetime):
        return to_ms(value)
    return one_line(without_credentials(value), limit=MAX_VALUE) if isinstance(value, str) else value


def _in_words(item: Any) -> str:
    """Return an item of a list as text: a struct as its values in a row."""
    return " ".join(map(str, msgspec.to_builtins(item).values())) if isinstance(item, msgspec.Struct) else str(item)

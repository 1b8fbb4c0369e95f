"""The audit log of a project or an account, and the changes of a monitor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils.html import format_html_join

from audit.actions import MEANINGS, Action
from audit.models import Entry
from core.clock import from_ms
from core.templatetags.pulsekeeper import when
from core.user_agents import name_of
from dashboard.durations import MS_OF, format_duration
from dashboard.pages import PageRequest, read_only, render_page
from dashboard.paging import first_page
from locations.selectors import usable_by
from monitors import types
from monitors.changes import changes_of
from monitors.selectors import get_monitor, show_to
from projects import access, log
from projects.models import Project

PAGE = 50
NEWEST = 10
"""Changes on the page of a monitor."""
MOST_DIGITS = 18

_NOBODY = {
    Entry.ActorType.STAFF: "Staff",
    Entry.ActorType.OPERATOR: "The operator",
    Entry.ActorType.ANONYMOUS: "Not signed in",
}
_BESIDE = {Entry.ActorType.TOKEN: "by a project token", Entry.ActorType.OPERATOR: "by a command"}
_WORDS = {
    "web": "on the web",
    "api": "over the API",
    "mfa": "second factor",
    "totp": "app",
    "recovery_codes": "recovery code",
}
_FIELDS = {
    "type": "Type",
    "enabled": "Active",
    "muted_until": "Muted until",
    "project_id": "Project",
    "depends_on": "Depends on",
}
"""Labels of changes that are not settings."""
_ONE_SIDED = (Action.MONITOR_CREATED, Action.MONITOR_DELETED)
_LABELS = {"door": "", "ways": "by ", "type": "by ", "before": "was ", "copied_from": "copied from "}


def _shown(entry: Entry, project: Project | None, names: Mapping[str, str]) -> dict[str, Any]:
    """Return what the log shows of an entry: the target only if it is not the project whose log this is.

    `names` are those of projects and locations, by id.
    """
    actor_type = Entry.ActorType(entry.actor_type)
    is_own = project is not None and (entry.target_id, entry.target_name) == (project.public_id, project.name)
    return {
        "entry": entry,
        "project": project,
        "what": MEANINGS.get(entry.action, entry.action),  # of a newer version, after going back
        "is_failure": entry.action.endswith(".failed"),
        "details": _details(entry),
        "changes": [
            change_in_words(change, names, hidden="not shown" if entry.action in _ONE_SIDED else "changed")
            for change in entry.details.get("changes", ())
        ],
        "target": "" if is_own else entry.target_name,
        "who": entry.actor_email or _NOBODY.get(actor_type, "A deleted account"),
        "beside": _BESIDE.get(actor_type, ""),
        "browser": name_of(entry.user_agent) if entry.user_agent else "",
    }


def _details(entry: Entry) -> str:
    """Return details like `on the web · by password, second factor`."""
    parts = []
    for name, value in entry.details.items():
        if name == "changes":
            continue
        values = value if isinstance(value, list) else [value]
        text = ", ".join(_WORDS.get(str(one), str(one)) for one in values)
        parts.append(_LABELS.get(name, f"{name}: ") + text)
    return " · ".join(parts)


def change_in_words(change: Mapping[str, Any], names: Mapping[str, str], *, hidden: str = "changed") -> tuple[str, str]:
    """Return the label of a changed field of a monitor, and its values as HTML, or `hidden` without values."""
    name = change["field"]
    setting = types.settings().get(name)
    label = _FIELDS.get(name) or (setting.label if setting else name)
    values = [_word(name, change[side], names) for side in ("before", "after") if side in change]
    return label, format_html_join(" → ", "{}", ([value] for value in values)) or hidden


def _word(name: str, value: Any, names: Mapping[str, str]) -> str:
    setting = types.settings().get(name)
    if value is None or value == "":
        return (setting.placeholder if setting else "") or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "muted_until":
        return when(from_ms(value), "log")
    if name == "type" and value in types.names():
        return types.get(value).label
    if setting is not None and setting.unit is not None:
        return format_duration(value * MS_OF[setting.unit])
    if name == "locations":
        return "; ".join(names.get(one, one) for one in value.split("; "))
    return names.get(value, str(value))


def _names(request: PageRequest, entries: Sequence[Entry]) -> dict[str, str]:
    """Return the names of the caller's projects and locations that changes of monitors name, by id."""
    changes = [change for entry in entries for change in entry.details.get("changes", ())]
    ids = {
        field: {
            public_id
            for change in changes
            if change["field"] == field
            for side in ("before", "after")
            for public_id in str(change.get(side) or "").split("; ")
        }
        for field in ("project_id", "locations")
    }
    names: dict[str, str] = {}
    if ids["project_id"]:
        found = access.accessible_projects(request.caller).filter(public_id__in=ids["project_id"])
        names.update(found.values_list("public_id", "name"))
    if ids["locations"]:
        usable = usable_by(request.caller).filter(public_id__in=ids["locations"])
        names.update((location.public_id, location.title) for location in usable)
    return names


def log_context(
    request: PageRequest, entries: QuerySet[Entry], *, size: int | None = None, subject: str = ""
) -> dict[str, Any]:
    """Return a page of the log, filtered by the query's `action` and `before`. Invalid values are ignored.

    The filter offers the actions whose names begin with `subject`.
    """
    action = request.GET.get("action", "")
    wanted = action if action in MEANINGS else ""
    before = request.GET.get("before", "")
    if wanted:
        entries = entries.filter(action=wanted)
    if before.isascii() and before.isdigit() and len(before) <= MOST_DIGITS:
        entries = entries.filter(pk__lt=int(before))
    rows, last = first_page(entries.order_by("-pk"), size or PAGE)
    projects = Project.objects.in_bulk({row.project_id for row in rows if row.project_id})
    names, viewer = _names(request, rows), request.caller.user
    return {
        "entries": [
            _shown(log.redact(entry, viewer=viewer), projects.get(entry.project_id or 0), names) for entry in rows
        ],
        "actions": [(name, meaning) for name, meaning in MEANINGS.items() if name.startswith(subject)],
        "action": wanted,
        "later": bool(before),
        "next": last and last.pk,
    }


@read_only
def of_project(request: PageRequest, project_id: str) -> HttpResponse:
    entries = log.of_project(request.caller, project_id)
    project = access.get_project(request.caller, project_id)
    return render_page(request, "projects/log", project=project, **log_context(request, entries))


@read_only
def of_monitor(request: PageRequest, monitor_id: str) -> HttpResponse:
    """Return the changes of a monitor; for its page, the newest of them as a fragment."""
    monitor = get_monitor(request.caller, monitor_id)
    entries = changes_of(monitor, request.caller)
    show_to(request.caller, monitor)
    if request.htmx:
        return render_page(request, "monitors/changed", monitor=monitor, **log_context(request, entries, size=NEWEST))
    return render_page(
        request, "monitors/changes", monitor=monitor, **log_context(request, entries, subject="monitor.")
    )

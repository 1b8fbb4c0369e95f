"""The audit log of a project or an account."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse

from audit.actions import MEANINGS
from audit.models import Entry
from core.user_agents import name_of
from dashboard.pages import PageRequest, read_only, render_page
from dashboard.paging import first_page
from projects import access, log
from projects.models import Project

PAGE = 50
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
_LABELS = {"door": "", "ways": "by ", "type": "by ", "before": "was "}


def _shown(entry: Entry, project: Project | None) -> dict[str, Any]:
    """Return what the log shows of an entry: the target only if it is not the project whose log this is."""
    actor_type = Entry.ActorType(entry.actor_type)
    is_own = project is not None and (entry.target_id, entry.target_name) == (project.public_id, project.name)
    return {
        "entry": entry,
        "project": project,
        "what": MEANINGS.get(entry.action, entry.action),  # of a newer version, after going back
        "is_failure": entry.action.endswith(".failed"),
        "details": _details(entry),
        "target": "" if is_own else entry.target_name,
        "who": entry.actor_email or _NOBODY.get(actor_type, "A deleted account"),
        "beside": _BESIDE.get(actor_type, ""),
        "browser": name_of(entry.user_agent) if entry.user_agent else "",
    }


def _details(entry: Entry) -> str:
    """Return details like `on the web · by password, second factor`."""
    parts = []
    for name, value in entry.details.items():
        values = value if isinstance(value, list) else [value]
        text = ", ".join(_WORDS.get(str(one), str(one)) for one in values)
        parts.append(_LABELS.get(name, f"{name}: ") + text)
    return " · ".join(parts)


def log_context(request: PageRequest, entries: QuerySet[Entry]) -> dict[str, Any]:
    """Return a page of the log, filtered by the query's `action` and `before`. Invalid values are ignored."""
    action = request.GET.get("action", "")
    wanted = action if action in MEANINGS else ""
    before = request.GET.get("before", "")
    if wanted:
        entries = entries.filter(action=wanted)
    if before.isascii() and before.isdigit() and len(before) <= MOST_DIGITS:
        entries = entries.filter(pk__lt=int(before))
    rows, last = first_page(entries.order_by("-pk"), PAGE)
    projects = Project.objects.in_bulk({row.project_id for row in rows if row.project_id})
    return {
        "entries": [
            _shown(log.redact(entry, viewer=request.caller.user), projects.get(entry.project_id or 0)) for entry in rows
        ],
        "actions": list(MEANINGS.items()),
        "action": wanted,
        "later": bool(before),
        "next": last and last.pk,
    }


@read_only
def of_project(request: PageRequest, project_id: str) -> HttpResponse:
    entries = log.of_project(request.caller, project_id)
    project = access.get_project(request.caller, project_id)
    return render_page(request, "projects/log", project=project, **log_context(request, entries))

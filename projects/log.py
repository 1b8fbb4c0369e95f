"""The audit log for callers: record their actions, and return the entries that they may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast, Length

import audit.services
from accounts.models import User
from audit.actions import Action
from audit.models import Entry
from projects import access
from projects.access import Caller
from projects.models import Membership, Project

ENTRY_CHARS = Length("target_name") + Length("user_agent") + Length(Cast("details", TextField()))
"""How much text a list reads of an entry."""


def record(caller: Caller, action: Action, **what: Any) -> None:
    """Record an action of a caller."""
    audit.services.record(action, actor=caller.user, by_token=caller.project is not None, **what)


def record_of_project(caller: Caller, action: Action, project: Project, **details: Any) -> None:
    record(caller, action, project=project, target_id=project.public_id, target_name=project.name, details=details)


def record_of_member(user: User, action: Action, member: Membership, **details: Any) -> None:
    """Record an action of `user` on a membership. The member's own log shows it too."""
    audit.services.record(
        action,
        actor=user,
        subject=member.user,
        project=member.project,
        target_id=member.public_id,
        target_name=member.email,
        details={"role": member.role} | details,
    )


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a monitor to another owner. `target_id` is empty if the id is a secret."""

    monitor_id: int
    target_id: str
    target_name: str
    left: Project | None
    giver: User
    arrived: Project | None
    receiver: User


def record_moves(caller: Caller, moves: Iterable[Move]) -> None:
    """Record each move in the logs of both sides, with a single INSERT."""
    entries = []
    for move in moves:
        sides = (
            # Not of the monitor's page, which the new owner reads.
            (Action.MONITOR_RELEASED, None, move.left, move.giver, "to", move.arrived),
            (Action.MONITOR_RECEIVED, move.monitor_id, move.arrived, move.receiver, "from", move.left),
        )
        entries += [
            audit.services.draft(
                action,
                actor=caller.user,
                by_token=caller.project is not None,
                subject=owner,
                project=project,
                monitor_id=monitor_id,
                target_id=move.target_id,
                target_name=move.target_name,
                details={} if other is None else {word: other.public_id},
            )
            for action, monitor_id, project, owner, word, other in sides
        ]
    audit.services.record_all(entries)


def record_counts(caller: Caller, action: Action, counts: Mapping[Project | None, int], **details: Any) -> None:
    """Record an action on many monitors: an entry for each project with their number, with a single INSERT."""
    audit.services.record_all(
        audit.services.draft(
            action,
            actor=caller.user,
            by_token=caller.project is not None,
            project=project,
            target_id="" if project is None else project.public_id,
            target_name="" if project is None else project.name,
            details={"monitors": count} | details,
        )
        for project, count in counts.items()
    )


def of_account(caller: Caller, *, action: str | None = None) -> QuerySet[Entry]:
    caller.require_session()
    return _with(action, audit.services.of_person(caller.user.pk))


def of_project(caller: Caller, project_id: str, *, action: str | None = None) -> QuerySet[Entry]:
    """Return the log of a project. Raises Forbidden for members and viewers, and NotFound for other callers."""
    caller.require_session()
    project = access.get_project(caller, project_id, roles=access.MANAGERS, for_reading=True)
    return _with(action, Entry.objects.filter(project_id=project.pk))


def redact(entry: Entry, *, viewer: User) -> Entry:
    """Clear what the viewer may not see, in any log. Never save the entry.

    Address and browser are visible only to the person who acted; for unknown actors, to the owner of the affected
    account. Staff stay anonymous.
    """
    if entry.actor_id == viewer.pk:
        return entry
    if entry.actor_type == Entry.ActorType.STAFF:
        entry.actor_public_id = entry.actor_email = ""
    if entry.actor_id is not None or entry.subject_id != viewer.pk:
        entry.address, entry.user_agent = None, ""
    return entry


def _with(action: str | None, entries: QuerySet[Entry]) -> QuerySet[Entry]:
    return entries if action is None else entries.filter(action=action)

"""List, create, rename and delete projects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, Q, QuerySet

import audit.services
from accounts.models import User
from audit.actions import Action
from core.errors import LimitReached, ProjectsShared
from core.etags import IfMatch
from projects import access, log
from projects.access import Caller
from projects.models import IdempotencyKey, Membership, Project, Role
from projects.placement import POLICY, policy_of

MAX_PROJECTS = 200
"""Limit of projects of an account."""

monitor_counts: list[Callable[[datetime], Mapping[str, Count]]] = []
"""Hooks of higher layers that return what to annotate projects with."""
before_projects_deleted: list[Callable[[Collection[int]], None]] = []
"""Hooks that lock rows of higher layers, in key order, before these projects are deleted."""


def list_projects(caller: Caller, *, now: datetime) -> QuerySet[Project]:
    """Return the caller's projects, annotated with the number of their monitors, total and by status."""
    caller.require_session()
    projects = access.accessible_projects(caller).select_related("escalation_policy")
    projects = projects.defer("escalation_policy__steps")
    for counts_at in monitor_counts:
        projects = projects.annotate(**counts_at(now))
    return projects


def create_project(caller: Caller, *, name: str, now: datetime) -> Project:
    caller.require_session()
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=caller.user.pk)  # concurrent creations count each other
        if Membership.objects.filter(user=caller.user, role=Role.OWNER).count() >= MAX_PROJECTS:
            raise LimitReached("The limit of projects per account is reached.", limit=MAX_PROJECTS)
        project = Project.objects.create(name=name, created_at=now)
        Membership.objects.create(project=project, user=caller.user, role=Role.OWNER)
        log.record_of_project(caller, Action.PROJECT_CREATED, project)
    return project


def update_project(caller: Caller, public_id: str, given: Mapping[str, Any], *, if_match: IfMatch = None) -> Project:
    """Change the name, the escalation policy of its monitors, or both."""
    caller.require_session()
    with transaction.atomic():
        project = access.lock_project(caller, public_id, roles=access.MANAGERS, if_match=if_match)
        details: dict[str, Any] = {"before": project.name} if "name" in given else {}
        project.name = given.get("name", project.name)
        if POLICY in given:
            before, owner = project.escalation_policy, access.owner_of(project)
            project.escalation_policy = policy_of(caller, given, project=project, owner=owner, stored=before)
            details |= {POLICY: given[POLICY]}
        project.save(update_fields=["name", "escalation_policy"] if POLICY in given else ["name"])
        log.record_of_project(caller, Action.PROJECT_UPDATED, project, **details)
    return project


def delete_project(caller: Caller, public_id: str, *, if_match: IfMatch = None) -> None:
    """Delete a project. Its monitors are detached and stay with their owner; its tokens are deleted."""
    caller.require_session()
    with transaction.atomic():
        owners = [Role.OWNER]
        project = access.lock_project(caller, public_id, roles=owners, for_deletion=True, if_match=if_match)
        log.record_of_project(caller, Action.PROJECT_DELETED, project)
        _delete_locked([project.pk])


def require_alone(user: User) -> None:
    """Raise ProjectsShared if one of the account's own projects has other members. Nobody can join them afterwards."""
    own = _locked_places(user).filter(user=user, role=Role.OWNER).values("project")
    places = Membership.objects.filter(project__in=own).exclude(user=user)
    shared = Project.objects.filter(pk__in=places.filter(user__isnull=False).values("project")).order_by("name")
    if names := ", ".join(f"“{name}”" for name in shared.values_list("name", flat=True)):
        raise ProjectsShared(f"Other people are members of {names}; remove them, or delete the projects, first.")
    places.filter(user=None).delete()


def leave_all(user: User) -> None:
    """Delete the projects of an account that is being deleted, and end its other memberships.

    Invitations to its address and its idempotency keys are deleted too.
    """
    places = _locked_places(user)
    owned = list(places.filter(user=user, role=Role.OWNER).values_list("project", flat=True))
    audit.services.forget_projects(owned)
    _delete_locked(owned)
    places.delete()
    key = Caller(user).key
    IdempotencyKey.objects.filter(Q(caller=key) | Q(caller__startswith=f"{key} ")).delete()


def _locked_places(user: User) -> QuerySet[Membership]:
    """Return the account's memberships and the invitations to its address, with their projects locked."""
    places = Membership.objects.filter(Q(user=user) | Q(user=None, invited_email=user.email))
    # Every change of a project or its roles takes this lock. In key order, to prevent deadlocks.
    list(Project.objects.select_for_update().filter(pk__in=places.values("project")).order_by("pk"))
    return places


def _delete_locked(ids: Collection[int]) -> None:
    for lock in before_projects_deleted:
        lock(ids)
    Project.objects.filter(pk__in=ids).delete()

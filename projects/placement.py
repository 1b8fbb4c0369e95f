"""Place objects in a project, or outside of projects, within the quota of an account."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import Model, QuerySet

from accounts.models import User
from core.db import get_or_not_found
from core.errors import ApiError, Forbidden, LimitReached, NotFound, ReadOnly, Unauthorized, ValidationFailed
from projects import access
from projects.access import Caller, Placed
from projects.models import Project

POLICY = "escalation_policy_id"
"""The field of monitors and projects that names their escalation policy."""
MAX_LINKS = 10_000
"""How many monitors the channels, windows and status pages of an account choose together."""
links: list[type[Model]] = []
"""The models of these links."""


def place(caller: Caller, given: Mapping[str, Any]) -> tuple[Project | None, User]:
    """Return the project that `given["project_id"]` names, and the account whose limits apply.

    Without a project, this is the caller's account. The project is locked: until the transaction ends it cannot be
    deleted, nor the caller removed from it. Raises ReadOnly if the caller is a viewer of it.
    """
    wanted = given.get("project_id")
    if caller.project is not None:
        if "project_id" in given and wanted != caller.project.public_id:
            raise ValidationFailed("a project token works only in its own project.", field="project_id")
        wanted = caller.project.public_id
    if wanted is None:
        return None, caller.user
    try:
        project = access.lock_project(caller, wanted)
    except ReadOnly:
        raise
    except ApiError:
        if caller.project is not None:
            raise Unauthorized from None  # the project was just deleted, with its tokens
        raise ValidationFailed("project not found.", field="project_id") from None
    return project, access.owner_of(project)


def enforce_quota(owner: User, model: type[Model], *, limit: int, error: type[ApiError]) -> None:
    """Lock the owner, so that concurrent creations count each other. Raise `error` if they own `limit` rows."""
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    if model._default_manager.filter(owner=owner).count() >= limit:
        raise error(limit=limit)


def enforce_links(owner_id: int, *, now_chosen: int, before: int = 0) -> None:
    """Raise LimitReached if an object of the locked owner cannot choose that many monitors instead of `before`.

    Exports, lists and alerts read the links of an account together.
    """
    if now_chosen <= before:
        return
    found = sum(access.owned(model._default_manager.all(), User(pk=owner_id)).count() for model in links)
    if found - before + now_chosen > MAX_LINKS:
        raise LimitReached(
            f"An account can select {MAX_LINKS:,} monitors in all its alert channels, maintenance windows and status "
            "pages together; select all monitors, or those of a project, instead.",
            limit=MAX_LINKS,
        )


def require_same_project(row: Placed, given: Mapping[str, Any], *, reason: str) -> None:
    """Raise ValidationFailed for a `project_id` other than the row's. It may be sent back unchanged."""
    project_id = None if row.project is None else row.project.public_id
    if given.get("project_id", project_id) != project_id:
        raise ValidationFailed(reason, field="project_id")


def move(
    caller: Caller, given: Mapping[str, Any], *, project: Project | None, owner: User
) -> tuple[Project | None, User]:
    """Return the new project of an object in `project`, and the account that it then counts against.

    Both projects are locked. An object that moves out of every project keeps its owner. Raises Forbidden if the owner
    changes and the caller may not transfer the object.
    """
    wanted = given.get("project_id")
    if wanted is None and caller.project is None:
        return None, owner
    if project is not None:
        # In key order: two concurrent moves in opposite directions would otherwise deadlock.
        access.lock_projects(caller, {project.public_id, wanted})
    arriving, receiver = place(caller, given)
    if receiver.pk != owner.pk:
        require_giving(caller, project, owner)
    return arriving, receiver


def _policies() -> QuerySet[Any]:
    """Return all escalation policies, of a higher layer."""
    model: Any = Project._meta.get_field("escalation_policy").related_model
    rows: QuerySet[Any] = model._default_manager.all()
    return rows


def policy_of(
    caller: Caller,
    given: Mapping[str, Any],
    *,
    project: Project | None,
    owner: User,
    stored: Any = None,
    locks: bool = True,
) -> Any:
    """Return the escalation policy for what is, or will be, in this place: the one that `given` names, or the stored.

    It is of the project, or its owner's without a project, and the caller can access it, or it is the stored one.
    Raises ValidationFailed. It is locked until the transaction ends if `locks`: otherwise it could be deleted before
    its monitor is stored.
    """
    wanted = given.get(POLICY, stored and stored.public_id)
    if wanted is None:
        return None
    is_stored = stored is not None and wanted == stored.public_id
    rows = _policies()
    rows = rows if is_stored else access.accessible(caller, rows)
    try:
        policy = get_or_not_found(rows.select_for_update(no_key=True) if locks else rows, public_id=wanted)
    except NotFound:
        raise ValidationFailed("escalation policy not found.", field=POLICY) from None
    if not applies(policy, project=project, owner=owner):
        reason = "does not apply there; name another one, or null." if is_stored else "does not apply here."
        raise ValidationFailed(reason, field=POLICY)
    return policy


def policy_ids(keys: Collection[int | None]) -> dict[int, str]:
    """Return the public ids of escalation policies by key. No query is made if there are none."""
    wanted = {key for key in keys if key is not None}
    return dict(_policies().filter(pk__in=wanted).values_list("pk", "public_id")) if wanted else {}


def applies(policy: Any, *, project: Project | None, owner: User) -> bool:
    """Return whether an escalation policy may be used in this place: it is of the project, or the owner's alone."""
    if policy.project_id is None:
        return bool(policy.owner_id == owner.pk)
    return project is not None and policy.project_id == project.pk


def require_giving(caller: Caller, project: Project | None, owner: User) -> None:
    """Raise Forbidden unless the caller is the owner or an admin of the object's project.

    The role is read under the project's lock, so a role that is being removed no longer counts.
    """
    if caller.user.pk == owner.pk:
        return
    if project is None:  # only its owner can access an object without a project
        raise NotFound
    try:
        access.lock_project(caller, project.public_id, roles=access.MANAGERS)
    except Forbidden:
        raise Forbidden("Only owners and admins of a project can move its monitors to another owner.") from None

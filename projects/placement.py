"""Where a new object goes: into a project, or to its owner alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounts.models import User
from core.errors import ApiError, Forbidden, NotFound, Unauthorized, ValidationFailed
from projects import access
from projects.access import Caller
from projects.models import Project


def place(caller: Caller, given: Mapping[str, Any]) -> tuple[Project | None, User]:
    """Return the project that `given["project_id"]` names, and the account whose limits apply.

    Without a project that account is the caller's. The project is locked, so it is not deleted, nor the caller
    removed from it, before the transaction ends.
    """
    wanted = given.get("project_id")
    if caller.project is not None:
        if "project_id" in given and wanted != caller.project.public_id:
            raise ValidationFailed("a project token works in its own project only.", field="project_id")
        try:
            project = access.lock_project(caller, caller.project.public_id)
        except ApiError:
            raise Unauthorized from None  # the project was just deleted with its tokens
        return project, access.owner_of(project)
    if wanted is None:
        return None, caller.user
    try:
        project = access.lock_project(caller, wanted)
    except ApiError:
        raise ValidationFailed("you have no such project.", field="project_id") from None
    return project, access.owner_of(project)


def move(
    caller: Caller, given: Mapping[str, Any], *, project: Project | None, owner: User
) -> tuple[Project | None, User]:
    """Return where something in `project` goes, and the account it counts against then; both projects are locked.

    Out of every project it stays its owner's. Raises Forbidden if it goes to another owner and the caller may not
    give it away.
    """
    wanted = given.get("project_id")
    if wanted is None and caller.project is None:
        return None, owner
    if project is not None:
        # In key order: two moves in opposite directions would otherwise wait for each other.
        access.lock_projects(caller, {project.public_id, wanted})
    arriving, receiver = place(caller, given)
    if receiver.pk != owner.pk:
        require_giving(caller, project, owner)
    return arriving, receiver


def require_giving(caller: Caller, project: Project | None, owner: User) -> None:
    """Raise Forbidden unless the caller is the owner or an admin of the project that something leaves.

    The role is read under the project's lock, so a role that is being removed no longer counts.
    """
    if caller.user.pk == owner.pk:
        return
    if project is None:  # only the owner can access objects without a project
        raise NotFound
    try:
        access.lock_project(caller, project.public_id, roles=access.MANAGERS)
    except Forbidden:
        raise Forbidden(
            "Only an owner or admin of the project that a monitor leaves may move it to another owner."
        ) from None

"""Where something new goes: into a project, or beside them all, to its owner alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounts.models import User
from core.errors import ApiError, Unauthorized, ValidationFailed
from projects import access
from projects.access import Caller
from projects.models import Project


def place(
    caller: Caller, given: Mapping[str, Any], *, keeping: User | None = None
) -> tuple[Project | None, User]:
    """The project that `given["project_id"]` names, and the account it counts against (decisions 5 and 43).

    Without a project that is `keeping`, or the caller. The project is held: it is not deleted, nor the caller removed
    from it, before the transaction ends.
    """
    wanted = given.get("project_id")
    if caller.project is not None:
        if "project_id" in given and wanted != caller.project.public_id:
            raise ValidationFailed("a project token works in its own project only.", field="project_id")
        try:
            project = access.hold_project(caller, caller.project.public_id)
        except ApiError:
            raise Unauthorized from None  # the project has just gone, and its tokens with it
        return project, access.owner_of(project)
    if wanted is None:
        return None, caller.user if keeping is None else keeping
    try:
        project = access.hold_project(caller, wanted)
    except ApiError:
        raise ValidationFailed("you have no such project.", field="project_id") from None
    return project, access.owner_of(project)

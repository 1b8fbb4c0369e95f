"""Read the current content of an account: its projects and everything in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from accounts.models import User
from manifests.entries import Existing, Intervals, MonitorRef, ProjectRef
from projects import access
from projects.access import Caller
from projects.models import Membership, Role


@dataclass(slots=True)
class Account:
    """Everything that the user can access by the API. `project_refs` are by primary key of the project."""

    caller: Caller
    project_refs: dict[int, ProjectRef]
    owners: dict[int, User]
    existing: dict[str, list[Existing]] = field(default_factory=dict)

    def project_ref(self, project_id: int | None) -> ProjectRef | None:
        return None if project_id is None else self.project_refs.get(project_id)

    def knows(self, project_id: int | None) -> bool:
        """Return whether a file can name this project: the user may have lost the role in it."""
        return project_id is None or project_id in self.project_refs

    def monitor_refs(self) -> dict[int, MonitorRef]:
        """Return all monitors by primary key."""
        return {one.pk: MonitorRef(one.id, one.name) for one in self.existing["monitors"]}


def open_account(user: User) -> Account:
    """Return the account with its projects. `manifests.resources` reads the rest."""
    caller = Caller(user)
    owners = {user.pk: user}
    project_refs = {}
    roles = Membership.objects.filter(project__in=access.accessible_projects(caller), role=Role.OWNER).select_related(
        "project", "user__plan"
    )
    for role in roles.order_by("project"):
        if role.user is None:  # an invitation is not accepted yet
            continue
        owners[role.user.pk] = role.user
        project_refs[role.project.pk] = ProjectRef(
            role.project.name, role.user.pk, intervals_of(role.user), id=role.project.public_id
        )
    return Account(caller, project_refs, owners)


def intervals_of(user: User) -> Intervals:
    """Return the intervals of the user's plan."""
    return Intervals(user.plan.min_interval_sec, user.plan.default_interval_sec)

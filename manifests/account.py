"""What an account has: its projects as places, and all that is in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from accounts.models import User
from manifests.entries import Handle, Pace, Place, Present
from projects import access
from projects.access import Caller
from projects.models import Membership, Role


@dataclass(slots=True)
class Account:
    """What its person may see and change, as over the API. `places` by the keys of projects."""

    caller: Caller
    places: dict[int, Place]
    owners: dict[int, User]
    present: dict[str, list[Present]] = field(default_factory=dict)

    def place(self, project_id: int | None) -> Place | None:
        return None if project_id is None else self.places.get(project_id)

    def knows(self, project_id: int | None) -> bool:
        """Whether a file can say where this is: its person may have no role in the project any more."""
        return project_id is None or project_id in self.places

    def handles(self) -> dict[int, Handle]:
        """Of all monitors, by their keys."""
        return {one.pk: Handle(one.id, one.name) for one in self.present["monitors"]}


def open_account(user: User) -> Account:
    """With its projects, and nothing else yet: `manifests.resources` reads that."""
    caller = Caller(user)
    owners = {user.pk: user}
    places = {}
    roles = Membership.objects.filter(
        project__in=access.accessible_projects(caller), role=Role.OWNER
    ).select_related("project", "user__plan")
    for role in roles.order_by("project"):
        if role.user is None:  # an invitation is never an owner's
            continue
        owners[role.user.pk] = role.user
        places[role.project.pk] = Place(
            role.project.name, role.user.pk, pace_of(role.user), id=role.project.public_id
        )
    return Account(caller, places, owners)


def pace_of(user: User) -> Pace:
    """Return the intervals of the user's plan."""
    return Pace(user.plan.min_interval_sec, user.plan.default_interval_sec)


def ambiguous(names: Iterable[str]) -> Collection[str]:
    """Those that are there more than once."""
    seen: set[str] = set()
    return {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]

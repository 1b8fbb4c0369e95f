"""Entries of a manifest and existing objects of an account, in one form that can be compared.

The values of both are a dict of their fields, named as in files, including defaults. They refer to projects by
ProjectRef, and to monitors by MonitorRef, which are the same objects on both sides.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from accounts.models import User
from core.db import LockTimeoutError, advisory_lock, lock_timeout
from core.errors import TooManyRequests
from core.waiting import RETRY_SEC
from monitors.configuration import Limits
from monitors.models import Monitor
from monitors.selectors import shown_id
from monitors.services import limits_at
from projects import access
from projects.access import Caller
from projects.models import Membership, Role
from pulsekeeper.manifest.problems import Path
from pulsekeeper.manifest.secrets import Keep

Values = dict[str, Any]


@dataclass(eq=False, slots=True)
class ProjectRef:
    """A project of the file, of the account, or of both. `id` is None until it is created."""

    name: str
    owner: User
    id: str | None = None
    is_viewed: bool = False
    """Whether the caller is a viewer of it."""
    policy_id: str | None = None
    """The stored escalation policy."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Person:
    """A person in a schedule or policy; without an address if they have left."""

    id: str
    email: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.email or self.id


@dataclass(eq=False, slots=True)
class Existing:
    """An existing object of the account. `name` identifies it in files.

    `row` has few columns and `values` is empty until `Resource.load` reads the rest.
    """

    row: Any
    name: str
    project_ref: ProjectRef | None
    values: Values = field(default_factory=dict)
    is_over: bool = False  # only maintenance windows: they have no further occurrence

    def __str__(self) -> str:
        return self.name

    @property
    def id(self) -> str:
        public_id: str = self.row.public_id
        return public_id

    def shown_id(self, caller: Caller) -> str:
        """Return its id in an export for this reader."""
        return shown_id(self.row, caller) if isinstance(self.row, Monitor) else self.id


@dataclass(eq=False, slots=True)
class Entry:
    """A valid entry of one section of a file. Planning sets the fields after `keeps`.

    `given` has the fields as returned by its serializer, `keeps` the secrets that keep their stored value.
    """

    section: str
    path: Path
    given: Values = field(default_factory=dict)
    keeps: dict[Path, Keep] = field(default_factory=dict)
    project_ref: ProjectRef | None = None
    existing: Existing | None = None
    values: Values | None = None  # None if the entry is invalid
    config: Any = None  # only monitors: the source of `values`

    def __str__(self) -> str:
        return self.name

    @property
    def id(self) -> str | None:
        return self.given.get("id")

    @property
    def name(self) -> str:
        name: str = self.given.get("slug") or self.given["name"]
        return name


MonitorRef = Existing | Entry
"""A monitor that other entries refer to: an existing one, or the entry of a new one."""


@dataclass(slots=True)
class Account:
    """Everything that the user can access by the API.

    Projects and monitors are by primary key, `existing` is by section; `manifests.resources` reads all but projects.
    """

    caller: Caller
    project_refs: dict[int, ProjectRef] = field(default_factory=dict)
    monitor_refs: dict[int, Existing] = field(default_factory=dict)
    existing: dict[str, list[Existing]] = field(default_factory=dict)
    _limits: dict[ProjectRef | None, Limits] = field(default_factory=dict)
    _people: dict[ProjectRef | None, dict[str, Person]] = field(default_factory=dict)

    def limits_at(self, project_ref: ProjectRef | None) -> Limits:
        """Return what monitors in a project may have. Read once for each project."""
        if project_ref not in self._limits:
            key = next((key for key, one in self.project_refs.items() if one is project_ref), None)
            self._limits[project_ref] = limits_at(key, self.owner_of(project_ref), caller=self.caller)
        return self._limits[project_ref]

    def people(self, project_ref: ProjectRef | None) -> dict[str, Person]:
        """Return the members of a project, or the caller alone, by id. Read once for each project."""
        if project_ref not in self._people:
            users = [self.caller.user]
            if project_ref is not None and project_ref.id is not None:
                places = Membership.objects.filter(project__public_id=project_ref.id, user__is_active=True)
                users = [place.user for place in places.select_related("user") if place.user is not None]
            self._people[project_ref] = {user.public_id: Person(user.public_id, user.email) for user in users}
        return self._people[project_ref]

    def project_ref(self, project_id: int | None) -> ProjectRef | None:
        return None if project_id is None else self.project_refs.get(project_id)

    def knows(self, project_id: int | None) -> bool:
        """Return whether a file can name this project: the user may have lost the role in it."""
        return project_id is None or project_id in self.project_refs

    def policy_ref(self, public_id: str) -> Existing | str:
        """Return an escalation policy of the account, or the id of one that the caller cannot access."""
        found = (one for one in self.existing.get("escalation_policies", ()) if one.id == public_id)
        return next(found, public_id)

    def owner_of(self, project_ref: ProjectRef | None) -> User:
        return self.caller.user if project_ref is None else project_ref.owner


def take_turn(caller: Caller, *, patience_sec: float | None) -> None:
    """Wait until no other apply or import of the account runs, and let others wait until the transaction ends.

    Raises TooManyRequests after `patience_sec` (None: never).
    """
    try:
        with nullcontext() if patience_sec is None else lock_timeout(patience_sec):
            advisory_lock(f"manifest {caller.user.pk}")
    except LockTimeoutError:
        raise TooManyRequests(wait=RETRY_SEC) from None


def open_account(caller: Caller) -> Account:
    """Return what the caller can access, without projects whose owner has not accepted the invitation yet."""
    account = Account(caller)
    roles = Membership.objects.filter(project__in=access.accessible_projects(account.caller), role=Role.OWNER)
    roles = roles.exclude(user=None).select_related("project__escalation_policy", "user__plan")
    for role in roles.defer("project__escalation_policy__steps").order_by("project"):
        assert role.user is not None
        project, policy = role.project, role.project.escalation_policy
        project_ref = ProjectRef(project.name, role.user, project.public_id, is_viewed=caller.views(project))
        project_ref.policy_id = None if policy is None else policy.public_id
        account.project_refs[project.pk] = project_ref
    return account

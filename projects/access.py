"""Access to everything that belongs to a tenant. Rows of other tenants raise NotFound."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, NoReturn, Protocol, TypeVar

from django.db.models import CASCADE, F, ForeignKey, Model, Q, QuerySet, Subquery

from accounts.models import User
from core.api.converters import is_public_id
from core.db import IsAmong, get_or_not_found
from core.errors import Forbidden, NotFound, ReadOnly, ReauthenticationRequired, SessionRequired
from core.etags import IfMatch, require_match
from projects.models import Membership, Project, Role

M = TypeVar("M", bound=Model)


class Placed(Protocol):
    """A row that may be in a project."""

    pk: Any
    owner_id: Any
    project: Any

    @property
    def tagged_settings(self) -> Any: ...


P = TypeVar("P", bound=Placed)

EVERY_ROLE: Collection[str] = tuple(Role.values)
RECENT = timedelta(minutes=5)
"""The same as allauth's REAUTHENTICATION_TIMEOUT for pages."""
MANAGERS: Collection[str] = (Role.OWNER, Role.ADMIN)
WRITERS: Collection[str] = (*MANAGERS, Role.MEMBER)


@dataclass(frozen=True)
class Caller:
    """The caller: a user with a session, or a project token, which acts in `project` only.

    `is_viewer`: the token of a member who became a viewer. `is_read_only`: that, or a token with the access `read`.
    """

    user: User
    project: Project | None = None
    signed_in_at: datetime | None = None  # of an API session
    is_read_only: bool = False
    is_viewer: bool = False

    # DRF's IsAuthenticated reads this.
    is_authenticated = True
    is_active = True

    @property
    def key(self) -> str:
        """Return the caller's key for rows and messages: the user, and the project of a project token."""
        return f"user:{self.user.pk}" + (f" project:{self.project.pk}" if self.project else "")

    @property
    def account(self) -> str:
        """Return the key of the user behind the credentials, for limits."""
        return f"user:{self.user.pk}"

    @cached_property
    def viewed(self) -> frozenset[int]:
        """The keys of the projects in which the caller is a viewer.

        Read once. What changes anything reads the role again, under the lock of the project.
        """
        if self.project is not None:
            return frozenset([self.project.pk] if self.is_viewer else ())
        return frozenset(_projects_of(self.user).filter(role=Role.VIEWER).values_list("project", flat=True))

    def views(self, row: object) -> bool:
        """Return whether the row is in a project in which the caller is a viewer."""
        if hasattr(row, "project_key"):
            key = row.project_key
        elif getattr(row, "owner_id", None) == self.user.pk:
            return False  # what is in a project has the project's owner
        else:
            key = row.pk if isinstance(row, Project) else getattr(row, "project_id", None)
        return key is not None and key in self.viewed

    def only_reads(self, row: object) -> bool:
        """Return whether the caller must not change the row, which it can access, nor see the secret in its id."""
        return self.is_read_only or self.views(row)

    def require_session(self) -> None:
        if self.project is not None:
            raise SessionRequired

    def require_write(self, row: object = None, project_id: object = None) -> None:
        """Raise ReadOnly for a token that only reads, and where the caller is a viewer.

        That is the project of `row`, or the one that a body names by `project_id`, which may be any JSON value.
        """
        if self.is_read_only:
            raise ReadOnly
        if isinstance(project_id, str) and is_public_id(project_id):
            places = _projects_of(self.user).filter(project__public_id=project_id, role=Role.VIEWER)
            if places.exists():
                raise ReadOnly
        if self.views(row):
            raise ReadOnly

    def require_recent_session(self, *, now: datetime) -> None:
        """Require a session created within RECENT, for sensitive requests that take no password."""
        self.require_session()
        if self.signed_in_at is None or now - self.signed_in_at > RECENT:
            raise ReauthenticationRequired


def _projects_of(user: User) -> QuerySet[Membership]:
    return Membership.objects.filter(user=user)


def accessible(caller: Caller, queryset: QuerySet[M]) -> QuerySet[M]:
    """Filter rows with `owner` and `project`: the caller's own, and those in projects where the caller has a role."""
    if caller.project is not None:
        return queryset.filter(project=caller.project)
    return queryset.filter(_of(caller.user, _projects_of(caller.user)))


def writable(caller: Caller, queryset: QuerySet[M]) -> QuerySet[M]:
    """Filter rows as `accessible` does, without those of projects in which the caller is a viewer."""
    if caller.is_read_only:
        raise ReadOnly
    if caller.project is not None:
        return queryset.filter(project=caller.project)
    written = _projects_of(caller.user).filter(role__in=WRITERS)
    return queryset.filter(_of(caller.user, written))


def _of(user: User, places: QuerySet[Membership]) -> Q:
    return Q(owner=user) | Q(IsAmong(F("project"), Subquery(places.order_by().values("project"))))


def refuse(caller: Caller, queryset: QuerySet[M]) -> NoReturn:
    """Raise ReadOnly if the caller can read one of these rows, which are not writable, else NotFound."""
    raise ReadOnly if accessible(caller, queryset).exists() else NotFound


@cache
def key_to(root: type[Model], model: type[Model]) -> str | None:
    """Return the lookup of the row of `root` with which rows of `model` are deleted, such as `monitor__owner`, or None.

    It is the shortest chain of foreign keys that cascade; of two, the one without null, or whose keys come first.
    """
    lookups: dict[Any, str] = {model: "pk"}
    for reached in (queue := [model]):
        keys = [key for key in reached._meta.concrete_fields if isinstance(key, ForeignKey)]
        for key in sorted(keys, key=attrgetter("null")):
            if key.remote_field.on_delete is CASCADE and key.related_model not in lookups:
                lookups[key.related_model] = f"{lookups[reached]}__{key.name}".removeprefix("pk__")
                queue.append(key.related_model)
    return lookups.get(root)


def owned(queryset: QuerySet[M], user: User) -> QuerySet[M]:
    """Filter the rows that foreign keys delete with the account, or else with a project that it owns.

    Raises LookupError for a model without such keys.
    """
    if key := key_to(User, queryset.model):
        return queryset.filter(**{key: user.pk})
    if key := key_to(Project, queryset.model):
        return queryset.filter(**{f"{key}__in": owned_projects(user)})
    raise LookupError(queryset.model._meta.label)


def owned_projects(user: User) -> QuerySet[Membership, Any]:
    """Return the keys of the projects that the account owns, for subqueries."""
    return _projects_of(user).filter(role=Role.OWNER).values("project")


def accessible_projects(caller: Caller, *, roles: Collection[str] = EVERY_ROLE) -> QuerySet[Project]:
    """Return the project of the token, or those where the user has one of the roles."""
    if caller.project is not None:
        return Project.objects.filter(pk=caller.project.pk)
    return Project.objects.filter(pk__in=_projects_of(caller.user).filter(role__in=roles).values("project"))


def get_project(
    caller: Caller, public_id: str, *, roles: Collection[str] = EVERY_ROLE, for_reading: bool = False
) -> Project:
    """Return the project if the caller has one of `roles` in it.

    Raises Forbidden for another role, else NotFound. Where viewers are not among `roles`, ReadOnly is raised for them
    unless it is `for_reading`.
    """
    # One query: between two queries the role could end, and a foreign project would raise Forbidden.
    places = _projects_of(caller.user).filter(project__public_id=public_id).select_related("project")
    if caller.project is not None:
        places = places.filter(project=caller.project)
    place = get_or_not_found(places)
    if place.role not in roles:
        raise ReadOnly if place.role == Role.VIEWER and not for_reading else Forbidden
    return place.project


def project_named(public_id: str) -> Project | None:
    """Return a project without access checks, for operators on the server."""
    return Project.objects.filter(public_id=public_id).first()


def has_role(caller: Caller, project: Project, roles: Collection[str]) -> bool:
    return Membership.objects.filter(project=project, user=caller.user, role__in=roles).exists()


def roles_of(caller: Caller) -> dict[int, str]:
    """Return the caller's roles by primary key of the project, for pages that offer what a role may do."""
    return dict(_projects_of(caller.user).values_list("project", "role"))


def lock_project(
    caller: Caller,
    public_id: str,
    *,
    roles: Collection[str] = WRITERS,
    for_deletion: bool = False,
    if_match: IfMatch = None,
) -> Project:
    """Return the project as `get_project` does, and lock its row until the end of the transaction.

    Raises ChangedMeanwhile, and ReadOnly for viewers unless they are among `roles`.

    Take this lock before you create, change or delete anything that depends on a project or on a role in it: roles are
    read under the lock, so a role that is being removed no longer counts.
    """
    if caller.is_read_only:
        raise ReadOnly
    found = get_project(caller, public_id, roles=roles)
    get_or_not_found(Project.objects.select_for_update(no_key=not for_deletion), pk=found.pk)
    found = get_project(caller, public_id, roles=roles)
    require_match(found, if_match)
    return found


def lock(
    get: Callable[[Caller, str], P],
    caller: Caller,
    public_id: str,
    *,
    for_deletion: bool = False,
    with_owner: bool = False,
    if_match: IfMatch = None,
) -> P:
    """Return the row that `get` returns, locked after its project and read under the lock.

    Raises NotFound, ReadOnly, or ChangedMeanwhile if the row has none of the tags `if_match`.

    Deleting the project locks the two in this order too. `with_owner`: its owner is locked between the two, so that
    concurrent changes count each other against a limit.
    """
    found = get(caller, public_id)
    if found.project is not None:
        lock_project(caller, found.project.public_id)
    if with_owner:
        get_or_not_found(User.objects.select_for_update(no_key=True), pk=found.owner_id)
    rows: QuerySet[Any] = type(found)._default_manager.select_for_update(no_key=not for_deletion)  # type: ignore[attr-defined]
    get_or_not_found(rows, pk=found.pk)
    found = get(caller, public_id)
    require_match(found, if_match)
    return found


def lock_projects(caller: Caller, public_ids: Collection[str | None]) -> None:
    """Lock the projects that the caller can access, in key order, until the end of the transaction."""
    projects = accessible_projects(caller).filter(public_id__in=[one for one in public_ids if one])
    list(projects.select_for_update(no_key=True).order_by("pk").values_list("pk"))


def owner_of(project: Project) -> User:
    return User.objects.select_related("plan").get(memberships__project=project, memberships__role=Role.OWNER)

"""Create, change and delete locations, issue join tokens, and let agents join.

Locks are taken in one order: the project, the owner, the location; then its tokens and agents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

import audit.services
from accounts.models import User
from audit.actions import Action
from core import credentials
from core.bulk import BulkResult
from core.db import get_or_not_found
from core.errors import (
    Forbidden,
    JoinTokenInvalid,
    LimitReached,
    LocationInUse,
    LocationLimit,
    NoAgents,
    ValidationFailed,
)
from core.etags import IfMatch, require_match
from locations.agents import AGENT_PREFIX, require_accepted
from locations.models import Agent, JoinToken, Location
from locations.selectors import get_usable, usable_by, with_agents
from projects import access
from projects.access import Caller
from projects.placement import enforce_quota, place

JOIN_PREFIX = "join_"
TOKEN_LIFETIME = timedelta(hours=1)
KEPT = timedelta(days=1)
"""How long an expired join token is kept, to say why it fails."""
MAX_TOKENS = 20
"""Limit of join tokens of a location that are valid at the same time."""
MAX_NAME = 100
MAX_AGENTS = 20
"""Limit of agents of a private location."""
_SHARED_ID = re.compile("[a-z0-9-]{1,40}")

before_location_deleted: list[Callable[[Location], None]] = []
"""Hooks of higher layers, called with the location locked: an ApiError prevents the deletion."""
on_agent_revoked: list[Callable[[Agent], None]] = []
"""Hooks of higher layers, called after the deletion of an agent is committed."""


def list_locations(caller: Caller, *, now: datetime) -> QuerySet[Location]:
    return with_agents(usable_by(caller), now=now)


def get_location(caller: Caller, public_id: str, *, now: datetime) -> Location:
    return get_or_not_found(list_locations(caller, now=now), public_id=public_id)


def create_location(caller: Caller, given: Mapping[str, Any], *, now: datetime) -> tuple[Location, str]:
    """Create a private location. Return it with a join token, which is shown once."""
    caller.require_session()
    with transaction.atomic():
        project, owner = place(caller, given)
        if project is not None and not access.has_role(caller, project, access.MANAGERS):
            raise Forbidden
        if owner.plan.location_limit is not None:
            enforce_quota(owner, Location, limit=owner.plan.location_limit, error=LocationLimit)
        location = Location.objects.create(owner=owner, project=project, created_at=now, name=given["name"])
        record(Action.LOCATION_CREATED, location, actor=caller.user)
        token = _issue_token(location, actor=caller.user, now=now)
    return get_location(caller, location.public_id, now=now), token


def create_shared(public_id: str, *, name: str, now: datetime) -> tuple[Location, str]:
    """Create a location of all accounts, for operators. Raises ValidationFailed."""
    check_shared_id(public_id)
    if not 0 < len(name) <= MAX_NAME:
        raise ValidationFailed(f"must have 1 to {MAX_NAME} characters.", field="name")
    with transaction.atomic():
        location, is_new = Location.objects.get_or_create(
            public_id=public_id, defaults={"name": name, "created_at": now}
        )
        if not is_new:
            raise ValidationFailed("is taken.", field="id")
        record(Action.LOCATION_CREATED, location)
        return location, _issue_token(location, now=now)


def check_shared_id(public_id: str) -> None:
    """Raise ValidationFailed unless the text may be the id of a shared location. `loc…` is for private ones."""
    if not _SHARED_ID.fullmatch(public_id) or public_id.startswith("loc"):
        raise ValidationFailed("must be 1 to 40 of a-z, 0-9 and -, and not begin with loc.", field="id")


def update_location(
    caller: Caller, public_id: str, given: Mapping[str, Any], *, now: datetime, if_match: IfMatch = None
) -> Location:
    with transaction.atomic():
        location = _lock(caller, public_id, if_match=if_match)
        before = {"name": location.title, "preselected": location.preselected}
        changed = [field for field in given if given[field] != before[field]]
        if location.is_default and "name" in changed:
            raise ValidationFailed("is that of the setting LOCATION_NAME.", field="name")
        for field in changed:
            setattr(location, field, given[field])
        if changed:
            location.save(update_fields=changed)
            record(Action.LOCATION_UPDATED, location, actor=caller.user, fields=sorted(changed))
    return get_location(caller, public_id, now=now)


def delete_location(caller: Caller, public_id: str, *, if_match: IfMatch = None) -> None:
    """Delete a location with its agents. Raises LocationInUse."""
    with transaction.atomic():
        _delete(_lock(caller, public_id, right="delete", if_match=if_match), actor=caller.user)


def delete_locations_by_key(ids: Collection[int]) -> BulkResult[Location]:
    """Delete unused locations, for operators."""
    done, used = [], 0
    with transaction.atomic():
        for location in Location.objects.select_for_update().filter(pk__in=ids).order_by("pk"):
            key = location.pk
            try:
                _delete(location)
            except LocationInUse:
                used += 1
            else:
                location.pk = key  # for the log
                done.append(location)
    return BulkResult(done, {"in use": used} if used else {})


def _delete(location: Location, *, actor: User | None = None) -> None:
    """Delete a location that is locked."""
    if location.is_default:
        raise LocationInUse("The default location cannot be deleted: the workers are there.")
    for check in before_location_deleted:
        check(location)
    record(Action.LOCATION_DELETED, location, actor=actor)
    _notify_revoked(list(location.agents.all()))
    location.delete()


def _lock(caller: Caller, public_id: str, *, right: str = "change", if_match: IfMatch = None) -> Location:
    """Return the location, locked, if the caller manages it. Staff with this right manage shared ones.

    Raises SessionRequired, NotFound, Forbidden, or ChangedMeanwhile.
    """
    caller.require_session()
    location = access.lock(get_usable, caller, public_id, for_deletion=right == "delete")
    if not may_manage(caller, location, right=right):
        raise Forbidden
    require_match(location, if_match)
    return location


def may_manage(caller: Caller, location: Location, *, right: str = "change") -> bool:
    """Return whether the caller, who can access the location, manages it. `right`: what staff need for shared ones."""
    if location.project is not None:
        return access.has_role(caller, location.project, access.MANAGERS)
    return location.is_private or (caller.user.is_staff and caller.user.has_perm(f"locations.{right}_location"))


def record(action: Action, location: Location, *, actor: User | None = None, **details: Any) -> None:
    """Record an action on a location. Without `actor` it is one of the operator's."""
    audit.services.record(
        action,
        actor=actor or location.owner,
        project=location.project,
        target_id=location.public_id,
        target_name=location.title,
        details=details,
    )


def issue_join_token(caller: Caller, public_id: str, *, now: datetime) -> str:
    with transaction.atomic():
        return _issue_token(_lock(caller, public_id), actor=caller.user, now=now)


def issue_shared(public_id: str, *, now: datetime) -> str:
    """Issue a join token of a shared location, for operators. Raises NotFound.

    Not of private ones: an agent gets the settings of checks, header values included.
    """
    with transaction.atomic():
        shared = Location.objects.select_for_update(no_key=True).filter(owner=None)
        return _issue_token(get_or_not_found(shared, public_id=public_id), now=now)


def _issue_token(location: Location, *, actor: User | None = None, now: datetime) -> str:
    """Issue a join token of a location that is locked or new. The oldest ones beyond the limit are deleted."""
    if location.is_default:
        raise NoAgents
    plaintext, columns = credentials.issue(JOIN_PREFIX)
    valid = location.join_tokens.filter(used_at=None, expires_at__gt=now).order_by("-pk")
    location.join_tokens.filter(pk__in=list(valid.values_list("pk", flat=True)[MAX_TOKENS - 1 :])).delete()
    location.join_tokens.create(**columns, expires_at=now + TOKEN_LIFETIME)
    record(Action.JOIN_TOKEN_ISSUED, location, actor=actor)
    return plaintext


def delete_old_tokens(now: datetime) -> None:
    JoinToken.objects.filter(expires_at__lte=now - KEPT).delete()


def join(*, token: str, name: str, version: str, protocol: int, now: datetime) -> tuple[Agent, str]:
    """Return a new agent and its credential.

    Raises AgentOutdated, JoinTokenInvalid, or LimitReached, which does not use up the token.
    """
    require_accepted(protocol)
    with transaction.atomic():
        # The location is locked before its tokens, as by its deletion. Then the token is read again.
        found = _find_token(token)
        list(Location.objects.select_for_update(no_key=True).filter(pk=found.location_id).values_list("pk"))
        found = _find_token(token)
        if found.used_at is not None:
            raise JoinTokenInvalid("token: was used before; each is for one agent.")
        if found.expires_at <= now:
            raise JoinTokenInvalid("token: has expired; each is valid for one hour.")
        location = found.location
        if location.is_private and location.agents.count() >= MAX_AGENTS:
            raise LimitReached("The limit of agents per location is reached; revoke some first.", limit=MAX_AGENTS)
        found.used_at = now
        found.save(update_fields=["used_at"])
        credential, columns = credentials.issue(AGENT_PREFIX)
        agent = location.agents.create(**columns, created_at=now, name=name, version=version, protocol=protocol)
        _record_agent(Action.AGENT_JOINED, agent, actor=None)
    return agent, credential


def _find_token(token: str) -> JoinToken:
    tokens = JoinToken.objects.select_related("location__owner", "location__project")
    found = credentials.find(tokens, token, prefix=JOIN_PREFIX)
    if found is None:
        raise JoinTokenInvalid
    return found


def list_agents(caller: Caller, location_id: str) -> QuerySet[Agent]:
    return Agent.objects.filter(location=get_usable(caller, location_id))


def revoke_agent(caller: Caller, location_id: str, agent_id: str) -> None:
    """Delete an agent: its next request is answered with 401."""
    with transaction.atomic():
        location = _lock(caller, location_id)
        agent = get_or_not_found(location.agents.select_related("location__project"), public_id=agent_id)
        _revoke([agent], actor=caller.user)


def revoke_agents(agents: QuerySet[Agent]) -> BulkResult[Agent]:
    """Revoke agents of any location, for operators. Concurrent calls revoke and record each one once."""
    with transaction.atomic():
        locked = agents.select_for_update(of=["self"]).select_related("location__owner", "location__project")
        found = list(locked.order_by("pk"))
        _revoke(found)
    return BulkResult(found)


def _revoke(agents: Collection[Agent], *, actor: User | None = None) -> None:
    for agent in agents:
        _record_agent(Action.AGENT_REVOKED, agent, actor=actor or agent.location.owner)
    Agent.objects.filter(pk__in=[agent.pk for agent in agents]).delete()
    _notify_revoked(agents)


def _record_agent(action: Action, agent: Agent, *, actor: User | None) -> None:
    location = agent.location
    audit.services.record(
        action,
        actor=actor,
        subject=location.owner,
        project=location.project,
        target_id=agent.public_id,
        target_name=agent.name,
        details={"location": location.public_id},
    )


def _notify_revoked(agents: Collection[Agent]) -> None:
    for agent in agents:
        for follow in on_agent_revoked:
            transaction.on_commit(partial(follow, agent))

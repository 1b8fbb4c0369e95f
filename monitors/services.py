"""Operations on monitors. Those that take a caller are one transaction; `projects.access` decides who may call them.

Those on many monitors run in the caller's transaction, with a constant number of statements. All take locks in one
order: states, projects, owners, registrations. Who changes many has locked the projects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

import audit.services
from accounts.models import User
from audit import origin
from audit.actions import Action
from audit.models import Entry
from checks.spec import CheckSpec
from core.egress import literal_address
from core.errors import LocationInUse, MonitorLimit, NotFound, PrivateAddress, ValidationFailed
from core.etags import IfMatch, require_match
from core.ids import random_text
from core.outbound import guard, private_networks_advice
from core.text import copy_name
from locations.models import Location
from locations.selectors import lock_against_deletion, online_agents, usable, usable_by
from monitors import changes, configuration, dependencies, locking, types
from monitors.configuration import Limits, apply_floor, check_type, config_columns, watched_domain
from monitors.edits import RECONFIGURED, changes_domain, reconfigure, switch
from monitors.expiry.registrations import lock_registrations
from monitors.heartbeats.log import hide_earlier
from monitors.models import (
    LEASE_MARGIN,
    NOBODY,
    DnsAlert,
    ExpiryWarning,
    LocationFailure,
    Monitor,
    MonitorState,
    PingExcess,
    StatusChange,
)
from monitors.selectors import by_ids, get_monitor, named
from monitors.slots import refill_slots
from monitors.types.settings import DEFAULT_LOCATION, MAX_LOCATIONS, MAX_NAME, MonitorConfig
from projects import access, log, placement
from projects.access import Caller
from projects.models import Project

before_monitors_deleted: list[Callable[[Collection[int]], None]] = []
"""Hooks that lock rows of higher layers, in key order, before these monitors are deleted."""

DELETED_AT_ONCE = 250
"""Monitors of an account that are deleted in one transaction: each may have 400 days of uptime."""
FIRST_CLAIM = 1
CONFIGURED = (
    *("enabled", "config_version", "registration"),
    *(*MonitorConfig.columns, "tag_keys", "config", "header_values"),
)
"""Columns of a monitor that a change of its config may change."""
_CREATED_PAUSED = [{"field": "enabled", "after": False}]
PLACED = ("project", "owner", "owned_since", "escalation_policy")
"""Columns of a monitor that a move may change."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A monitor to create, or the complete target state of an existing one.

    `monitors.configuration` has settled the config with the owner's minimum interval. `parents` are those that
    `dependencies.replace` stores; None keeps the present ones. `policy` is what `placement.policy_of` returned.
    """

    owner: User
    project: Project | None
    config: MonitorConfig
    enabled: bool = True
    parents: Sequence[Monitor] | None = None
    policy: Any = None


def permits_host(host: str) -> bool:
    """Return whether probes may connect to this host if it is a literal address. Names are checked at the socket."""
    address = literal_address(host)
    return address is None or guard().permits(address)


def config_of(caller: Caller, given: Mapping[str, Any]) -> MonitorConfig:
    """Return the config that creating from `given` would store, for a test run."""
    with transaction.atomic():
        project, owner = placement.place(caller, given)
    return complete(given, limits_at(project.pk if project else None, owner, caller=caller))


def config_of_change(caller: Caller, public_id: str, given: Mapping[str, Any]) -> MonitorConfig:
    """Return the config that a PATCH of `given` would leave, to test it before it is saved.

    Stored header values are used where that PATCH would keep them.
    """
    monitor = get_monitor(caller, public_id)
    caller.require_write(monitor)
    project, owner = monitor.project, monitor.owner
    if "project_id" in given:
        with transaction.atomic():
            project, owner = placement.move(caller, given, project=project, owner=owner)
    return _patched(caller, monitor, given, project=project, owner=owner)


def limits_at(
    project_id: int | None, owner: User, *, caller: Caller | None = None, kept: Collection[str] = ()
) -> Limits:
    """Return what a monitor of this owner may have in the project with this key.

    The caller names only locations that it can see, and those that are `kept`.
    """
    found = locations_at(project_id, owner.pk, caller=caller, kept=kept)
    return Limits(
        floor_sec=owner.plan.min_interval_sec,
        default_sec=owner.plan.default_interval_sec,
        permits_host=permits_host,
        locations={location.public_id: location.is_private for location in found},
        preselected=preselected_of(found),
    )


def locations_at(
    project_id: int | None, owner_id: int, *, caller: Caller | None, kept: Collection[str] = ()
) -> QuerySet[Location]:
    """Return the locations that a monitor may name there, as in `limits_at`."""
    found = usable(project_id=project_id, owner_id=owner_id)
    if caller is not None:
        found = found.filter(Q(pk__in=usable_by(caller).values("pk")) | Q(public_id__in=kept))
    return found.order_by("pk")


def preselected_of(locations: Iterable[Location]) -> tuple[str, ...]:
    """Return the locations of a new monitor that names none."""
    found = tuple(location.public_id for location in locations if location.preselected)[:MAX_LOCATIONS]
    return found or (DEFAULT_LOCATION,)


def complete(given: Mapping[str, Any], limits: Limits) -> MonitorConfig:
    """Return a new monitor's config. Raises ValidationFailed."""
    with _advising():
        return configuration.complete(given, limits)


@contextmanager
def _advising() -> Iterator[None]:
    """Say who can allow a private address, in the words for the caller."""
    try:
        yield
    except PrivateAddress as error:
        advice = private_networks_advice(staff=origin.is_staff())
        raise PrivateAddress(error.bare_reason, field=error.field or "url", advice=advice) from None


def test_spec(config: MonitorConfig) -> CheckSpec:
    """Return the spec of a test run. Raises ValidationFailed for a heartbeat, which has nothing to test."""
    kind = types.get(config.type)
    if kind.waits:
        raise ValidationFailed(f"a {kind.name} waits for pings, so there is nothing to test.", field="type")
    return kind.spec(config, run_id=f"test-{random_text(10)}")


def create_monitor(caller: Caller, given: Mapping[str, Any], *, now: datetime) -> Monitor:
    """Create a monitor whose first check, if it has one, is already claimed as FIRST_CLAIM by the caller.

    If that check is never made, the lease expires and the monitor is due like any other.
    """
    with transaction.atomic():
        parents = lock_parents(caller, given.get(dependencies.FIELD, ()))
        project, owner = placement.place(caller, given)
        owner = lock_owner(owner)
        config = complete(given, limits_at(project.pk if project else None, owner, caller=caller))
        enforce_quota(owner)
        policy = placement.policy_of(caller, given, project=project, owner=owner)
        draft = Draft(owner, project, config, parents=parents, policy=policy)
        (monitor,) = store_new(caller, [draft], is_claimed=True, now=now)
    return monitor


def lock_parents(caller: Caller, public_ids: Sequence[str]) -> list[Monitor]:
    """Return the monitors with these ids, for a draft of a new monitor, locked as by `lock_monitors`.

    Raises DependencyRefused.
    """
    return dependencies.named(public_ids, lock_monitors(caller, public_ids))


def copy_monitor(caller: Caller, public_id: str, given: Mapping[str, Any], *, now: datetime) -> Monitor:
    """Create a monitor with the settings of another one, changed as by a PATCH of `given`.

    Secrets are dropped where a PATCH drops them, and in another project, as are policies of this one. The first check
    is that of `create_monitor`. Raises ReadOnly if the caller only reads the source.
    """
    with transaction.atomic():
        source = _source_of(caller, public_id)
        dependencies.load([source], caller=caller)
        parents = lock_parents(caller, given.get(dependencies.FIELD, dependencies.shown_ids(source, caller)))
        project, owner = _place_copy(caller, source, given)
        owner = lock_owner(owner)
        if owner.pk != source.owner_id and dependencies.FIELD not in given:
            parents = []
        config = _copied(caller, source, given, project=project, owner=owner)
        enforce_quota(owner)
        is_enabled, policy = given.get("enabled", True), source.escalation_policy
        if policy is not None and not placement.applies(policy, project=project, owner=owner):
            policy = None
        policy = placement.policy_of(caller, given, project=project, owner=owner, stored=policy)
        draft = Draft(owner, project, config, enabled=is_enabled, parents=parents, policy=policy)
        (monitor,) = store_new(caller, [draft], is_claimed=True, now=now, source=source)
    return monitor


def config_of_copy(caller: Caller, public_id: str, given: Mapping[str, Any]) -> MonitorConfig:
    """Return the config that `copy_monitor` would store, for a test run."""
    source = _source_of(caller, public_id)
    with transaction.atomic():
        project, owner = _place_copy(caller, source, given)
    return _copied(caller, source, given, project=project, owner=owner)


def _source_of(caller: Caller, public_id: str) -> Monitor:
    source = get_monitor(caller, public_id)
    caller.require_write(source)
    return source


def _place_copy(caller: Caller, source: Monitor, given: Mapping[str, Any]) -> tuple[Project | None, User]:
    """Return the project and owner of a copy: by default in the project of its source."""
    return placement.place(caller, {"project_id": source.project and source.project.public_id, **given})


def _copied(
    caller: Caller, source: Monitor, given: Mapping[str, Any], *, project: Project | None, owner: User
) -> MonitorConfig:
    """Return the config of a copy in this place. Another project does not get the secrets."""
    stored, is_here = source.full_config, project == source.project
    if not is_here:
        stored = configuration.without_secrets(stored, moved=owner.pk != source.owner_id)
    limits = limits_at(project.pk if project else None, owner, caller=caller, kept=source.locations if is_here else ())
    with _advising():
        return configuration.patch(stored, {"name": copy_name(source.name, limit=MAX_NAME), **given}, limits)


def store_new(
    caller: Caller | None,
    drafts: Sequence[Draft],
    *,
    is_claimed: bool,
    now: datetime,
    source: Monitor | None = None,
) -> list[Monitor]:
    """Store new monitors, whose owners are locked, and return them in the given order.

    The first checks are claimed as FIRST_CLAIM by the caller if `is_claimed`, and otherwise due at once. `source` is
    the monitor that they are copies of.
    """
    _lock_locations(drafts)
    needs_agents = is_claimed and any(DEFAULT_LOCATION not in draft.config.locations for draft in drafts)
    agents = online_agents(now) if needs_agents else {}
    domains = [watched_domain(draft.config) for draft in drafts]
    registrations = lock_registrations(filter(None, domains), now=now)
    monitors = []
    transitions: list[StatusChange] = []
    for draft, domain in zip(drafts, domains, strict=True):
        registration = registrations.get(domain or "")
        columns = config_columns(draft.config)
        monitor = Monitor(
            owner=draft.owner,
            project=draft.project,
            escalation_policy=draft.policy,
            registration=registration,
            created_at=now,
            **columns,
        )
        state = MonitorState(monitor=monitor, domain_expires_at=registration.expires_at if registration else None)
        if monitor.schedule is not None and monitor.kind.fires:
            state.next_due_at = monitor.schedule.next_after(now)
        elif is_claimed and draft.enabled and not monitor.kind.waits:
            state.claim, state.claimed_at, state.slot_at = FIRST_CLAIM, now, now
            state.agent_id = _first_agent(draft.config.locations, agents)
            state.next_due_at = now + timedelta(milliseconds=monitor.timeout_ms) + LEASE_MARGIN
        elif not monitor.kind.waits:
            state.next_due_at = now
        if not draft.enabled:
            transitions += switch(monitor, enabled=False, since=None, now=now)
        monitors.append(monitor)
    Monitor.objects.bulk_create(monitors)
    MonitorState.objects.bulk_create(monitor.state for monitor in monitors)
    refill_slots(monitors)
    StatusChange.objects.bulk_create(transitions)
    dependent = _store_parents(caller, (pair for pair in zip(monitors, drafts, strict=True) if pair[1].parents))
    made = [
        changes.compare(None, draft.config)
        + ([] if draft.enabled else _CREATED_PAUSED)
        + dependent.get(monitor.pk, [])
        + changes.of_policy(None, draft.policy)
        for monitor, draft in zip(monitors, drafts, strict=True)
    ]
    changes.record(caller, monitors, made, action=Action.MONITOR_CREATED, source=source)
    return monitors


def _store_parents(caller: Caller | None, drafts: Iterable[tuple[Monitor, Draft]]) -> dict[int, list[dict[str, Any]]]:
    """Store the parents of those drafts that have some. Return the changes for the audit log by the monitor's key."""
    choices = [
        dependencies.Choice(monitor, draft.owner.pk, [parent.pk for parent in draft.parents])
        for monitor, draft in drafts
        if draft.parents is not None
    ]
    return dependencies.replace(caller, choices)


def has_first_check(given: Mapping[str, Any], *, source: Monitor | None = None) -> bool:
    """Return whether the new monitor is checked at once. A heartbeat waits for a ping, a schedule for its time.

    `source` is the monitor that is copied with the changes `given`.
    """
    if source is not None:
        given = {"type": source.type, "schedule": source.options["schedule"], **given}
    is_polled = not types.get(given.get("type", types.DEFAULT)).waits and not given.get("schedule")
    return is_polled and given.get("enabled", True)


def release_first_claim(monitor: Monitor, *, now: datetime) -> None:
    """Make the first check due after no worker made it in time, so that it need not wait for the lease to expire."""
    MonitorState.objects.filter(pk=monitor.pk, claim=FIRST_CLAIM, claimed_at__isnull=False, started_slot=None).update(
        next_due_at=now
    )


def _patched(
    caller: Caller, monitor: Monitor, given: Mapping[str, Any], *, project: Project | None, owner: User
) -> MonitorConfig:
    """Return the config that a PATCH leaves in this place."""
    limits = limits_at(project.pk if project else None, owner, caller=caller, kept=monitor.locations)
    return patched(monitor, given, limits, owner=owner)


def patched(monitor: Monitor, given: Mapping[str, Any], limits: Limits, *, owner: User) -> MonitorConfig:
    """Return the config that a PATCH leaves within these limits. A new owner does not get the secrets."""
    stored = monitor.full_config
    if owner.pk != monitor.owner_id:
        stored = configuration.without_secrets(stored, moved=True)
    with _advising():
        return configuration.patch(stored, given, limits)


def move_of(monitor: Monitor, project: Project | None, owner: User) -> log.Move:
    """Return a move to another owner for the audit log, without a heartbeat's id, the secret of its ping URL."""
    target_id = "" if monitor.kind.has_secret_id else monitor.public_id
    return log.Move(monitor.pk, target_id, monitor.name, monitor.project, monitor.owner, project, owner)


def update_monitor(
    caller: Caller, public_id: str, given: Mapping[str, Any], *, now: datetime, if_match: IfMatch = None
) -> Monitor:
    """Apply the given fields, validated as the merged monitor.

    Raises ChangedMeanwhile, and Forbidden for a move to another owner without the right to give the monitor away. Such
    a move drops its secrets; header values are also dropped when the request goes to another server
    (`configuration.patch`).
    """
    with transaction.atomic():
        monitor, parents = lock_with_parents(caller, public_id, given, if_match=if_match)
        update_locked(caller, monitor, given, parents=parents, now=now)
    return monitor


def update_locked(
    caller: Caller, monitor: Monitor, given: Mapping[str, Any], *, parents: Sequence[Monitor] | None, now: datetime
) -> None:
    """Apply the given fields to what `lock_with_parents` returned, in its transaction. See `update_monitor`."""
    project, owner = (monitor.project, monitor.owner)
    if "project_id" in given:
        project, owner = placement.move(caller, given, project=project, owner=owner)
        if owner.pk != monitor.owner_id:
            owner = lock_owner(owner)
            enforce_quota(owner)
            log.record_moves(caller, [move_of(monitor, project, owner)])
            hide_earlier([monitor], now=now)
    if parents is not None and owner.pk == monitor.owner_id:
        lock_owner(owner)
    config = _patched(caller, monitor, given, project=project, owner=owner)
    # Write the project and the policy only if the caller changes them: the present ones may be deleted concurrently.
    placed, policy = placed_by(given), None
    if placed:
        stored = monitor.escalation_policy
        policy = placement.policy_of(caller, given, project=project, owner=owner, stored=stored)
    is_enabled = given.get("enabled", monitor.enabled)
    draft = Draft(owner, project, config, enabled=is_enabled, parents=parents, policy=policy)
    store_changed(caller, [(monitor, draft)], placed, now=now)


def placed_by(given: Mapping[str, Any]) -> Sequence[str]:
    """Return which columns of PLACED a change of these fields writes."""
    if "project_id" in given:
        return PLACED
    return ("escalation_policy",) if placement.POLICY in given else ()


def leave_out(caller: Caller, public_id: str, location_id: str, *, now: datetime) -> None:
    """Check a monitor from its other locations only. A quorum that they cannot reach becomes all of them.

    Raises NotFound, also for a location that it does not name, and ValidationFailed if it names no other.
    """
    with transaction.atomic():
        monitor = lock_monitor(caller, public_id)
        others = [name for name in monitor.locations if name != location_id]
        if len(others) == len(monitor.locations):
            raise NotFound
        given: dict[str, Any] = {"locations": others}
        if monitor.quorum is not None:
            given["quorum"] = min(monitor.quorum, len(others))
        update_monitor(caller, public_id, given, now=now)


def store_changed(
    caller: Caller, drafts: Sequence[tuple[Monitor, Draft]], placed: Sequence[str] = PLACED, *, now: datetime
) -> None:
    """Change locked monitors to their drafts, whose owners are locked. `placed`: those of PLACED to write."""
    _lock_locations([draft for monitor, draft in drafts if monitor.locations != [*draft.config.locations]])
    domains = {watched_domain(draft.config) for monitor, draft in drafts if changes_domain(monitor, draft.config)}
    registrations = lock_registrations(filter(None, domains), now=now)
    if moved := [monitor.pk for monitor, draft in drafts if monitor.owner_id != draft.owner.pk]:
        dependencies.forget(moved)
    dependent = _store_parents(caller, drafts)
    transitions: list[StatusChange] = []
    entries = []
    for monitor, draft in drafts:
        found = list(dependent.get(monitor.pk, ()))
        if "escalation_policy" in placed:
            found += changes.of_policy(monitor.escalation_policy, draft.policy)
            monitor.escalation_policy = draft.policy
        entries += _logged(caller, monitor, draft, found)
        transitions += reconfigure(monitor, draft.config, enabled=draft.enabled, registrations=registrations, now=now)
        monitor.project, monitor.owner = draft.project, draft.owner
    monitors = [monitor for monitor, _ in drafts]
    locking.write_columns(monitors, (*CONFIGURED, *placed))
    locking.write_columns([monitor.state for monitor in monitors], RECONFIGURED)
    refill_slots(monitors)
    StatusChange.objects.bulk_create(transitions)
    audit.services.record_all(entries)


def _logged(caller: Caller, monitor: Monitor, draft: Draft, others: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Return the entries for a change of a locked monitor to its draft: one, or none if nothing changes.

    `others` are the changes of its parents and its policy. A move between projects is in the logs of both, without
    values of other settings: readers of one may have no access to the other. `log.record_moves` records a move to
    another owner.
    """
    is_move = monitor.project != draft.project or monitor.owner_id != draft.owner.pk
    made = changes.compare(monitor.full_config, draft.config, with_values=not is_move)
    if monitor.enabled != draft.enabled:
        made += changes.changed("enabled", monitor.enabled, draft.enabled)
    made += [{"field": each["field"]} if is_move else dict(each) for each in others]
    logs = [draft.project]
    if is_move and monitor.owner_id == draft.owner.pk:
        made += changes.moved(monitor.project, draft.project)
        logs = [project for project in (monitor.project, draft.project) if project is not None]
    entries = [changes.draft(caller, monitor, made, project=project) for project in logs] if made else []
    for entry in entries[:-1]:
        entry.monitor_id = None  # the monitor's page shows the last one
    return entries


def create_monitors(caller: Caller | None, drafts: Sequence[Draft], *, now: datetime) -> list[Monitor]:
    """Create monitors and return them in the given order. Raises MonitorLimit without creating any.

    The first checks are due at once and claimed by the scheduler's next tick. No caller waits for them, so they must
    not fill the queue of checks whose callers wait.
    """
    owners = _lock_owners_with_quota(drafts)
    return store_new(caller, [_under(owners[draft.owner.pk], draft) for draft in drafts], is_claimed=False, now=now)


def update_monitors(caller: Caller, drafts: Mapping[int, Draft], *, now: datetime) -> None:
    """Change the monitors with these keys and skip deleted ones. Raises MonitorLimit if an owner exceeds the quota.

    The previous values are read under the lock, as in `update_monitor`, so concurrent changes are included.
    """
    monitors = lock_for_update(drafts.keys())
    drafts = {key: drafts[key] for key in monitors}
    moved = {key: draft for key, draft in drafts.items() if monitors[key].owner_id != draft.owner.pk}
    owners = _lock_owners_with_quota(list(moved.values()))
    if moved:
        hide_earlier([monitors[key] for key in moved], now=now)
    changed = []
    for key, draft in drafts.items():
        check_type(monitors[key].type, draft.config.type)
        changed.append((monitors[key], _under(owners.get(draft.owner.pk, monitors[key].owner), draft)))
    store_changed(caller, changed, now=now)


def set_parents(caller: Caller, parents: Mapping[int, Sequence[int]]) -> None:
    """Replace the parents of monitors, by keys, as `dependencies.replace` does. Raises DependencyRefused."""
    monitors = Monitor.objects.select_related("project").in_bulk(list(parents))
    choices = [
        dependencies.Choice(monitors[key], monitors[key].owner_id, keys)
        for key, keys in parents.items()
        if key in monitors
    ]
    made = {key: found for key, found in dependencies.replace(caller, choices).items() if found}
    changes.record(caller, [monitors[key] for key in made], made.values())


def delete_monitor(caller: Caller, public_id: str, *, if_match: IfMatch = None) -> None:
    """Delete a monitor at once. Its results become inaccessible; checks.results.retention removes them soon after."""
    with transaction.atomic():
        delete_locked(caller, [lock_monitor(caller, public_id, if_match=if_match)])


def delete_some_of(user: User) -> bool:
    """Delete DELETED_AT_ONCE monitors of an account. Return whether more may be left."""
    owned = Monitor.objects.filter(owner=user)
    with transaction.atomic():
        ids = list(owned.order_by().values_list("pk", flat=True)[:DELETED_AT_ONCE])
        locking.lock_monitors(ids, owned.none())
        _delete(ids)
    return len(ids) == DELETED_AT_ONCE


def delete_all_of(user: User) -> None:
    """Delete all monitors of an account. Their states are locked in the order in which results are recorded."""
    owned = Monitor.objects.filter(owner=user)
    locking.lock_monitors(owned.values_list("pk", flat=True), owned.none())
    _delete(list(owned.values_list("pk", flat=True)))


def delete_locked(caller: Caller | None, monitors: Collection[Monitor]) -> None:
    """Delete monitors whose states are locked. Their entries in the audit log stay."""
    gone = [changes.compare(monitor.full_config, None) for monitor in monitors]
    changes.record(caller, monitors, gone, action=Action.MONITOR_DELETED)
    _delete([monitor.pk for monitor in monitors])


def _delete(ids: Collection[int]) -> None:
    """Delete monitors by key. Lock what workers lock of them first, in the order of workers."""
    unprocessed: list[QuerySet[Any]] = [
        StatusChange.objects.filter(processed_at=None),
        ExpiryWarning.objects.filter(processed_at=None),
        DnsAlert.objects.all(),
        PingExcess.objects.filter(processed_at=None),
        LocationFailure.objects.all(),
    ]
    for rows in unprocessed:
        list(rows.filter(monitor__in=ids).select_for_update().order_by("pk").values_list("pk"))
    dependencies.lock_rows(ids)
    for lock in before_monitors_deleted:
        lock(ids)
    Monitor.objects.filter(pk__in=ids).delete()


def lock_monitor(caller: Caller, public_id: str, *, if_match: IfMatch = None) -> Monitor:
    """Return a monitor with its state locked. That lock serializes PATCH, recording and deletion.

    Raises NotFound, ReadOnly, or ChangedMeanwhile.
    """
    return lock_with_parents(caller, public_id, {}, if_match=if_match)[0]


def lock_with_parents(
    caller: Caller, public_id: str, given: Mapping[str, Any], *, if_match: IfMatch = None
) -> tuple[Monitor, list[Monitor] | None]:
    """Return a monitor as `lock_monitor` does, and its parents that a PATCH of `given` names, None if it names none.

    Parents that the caller can only read will do. Raises DependencyRefused too.
    """
    wanted: Sequence[str] | None = given.get(dependencies.FIELD)
    rows = Monitor.objects.select_related("registration", "project", "owner__plan", "escalation_policy")
    rows_to_lock = access.writable(caller, rows.filter(named([public_id])))
    if wanted:
        rows_to_lock |= access.accessible(caller, rows.filter(named(wanted)))
    # One query finds and locks the states: reading the monitor before the lock would be of no use.
    found = by_ids(locking.lock_monitors(rows_to_lock.values("pk"), rows_to_lock).values())
    if public_id not in found:
        access.refuse(caller, Monitor.objects.filter(named([public_id])))
    monitor = found[public_id]
    if wanted:
        caller.require_write(monitor)  # it may be found as its own parent
    require_match(monitor, if_match)
    return monitor, None if wanted is None else dependencies.named(wanted, found)


def lock_monitors(caller: Caller, public_ids: Collection[str]) -> dict[str, Monitor]:
    """Return those monitors that the caller can access, by the given ids, locked against deletion until the transaction
    ends.

    Take this lock before that of a project, as changes and deletions of monitors do.
    """
    if not public_ids:
        return {}
    visible = access.accessible(caller, Monitor.objects.filter(named(public_ids)))
    states = MonitorState.objects.select_for_update(no_key=True).filter(pk__in=visible.values("pk"))
    list(states.order_by("pk").values_list("pk"))
    # A thousand of them may be chosen, and their settings may take megabytes.
    found = list(visible.defer("config", "header_values", "url"))
    by_id = by_ids(found)
    return {public_id: by_id[public_id] for public_id in public_ids if public_id in by_id}


def lock_owner(owner: User) -> User:
    """Lock the owner's row and return it with its current plan.

    Concurrent creations then count against the quota one after the other, and the plan's minimum interval also applies
    during a change of plan.
    """
    locked = User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    if locked.plan_id == owner.plan_id:
        locked.plan = owner.plan  # already loaded with the owner
    return locked


def _lock_locations(drafts: Sequence[Draft]) -> None:
    """Prevent the deletion of the locations that these monitors will name. Raises ValidationFailed."""
    names = {name for draft in drafts for name in draft.config.locations} - {DEFAULT_LOCATION}
    if names and names != lock_against_deletion(names):
        raise ValidationFailed("a location was just deleted.", field="locations")


def _first_agent(locations: Sequence[str], agents: Mapping[str, Sequence[int]]) -> int | None:
    """Return who makes a first check: a worker if possible, else an agent, or NOBODY."""
    if DEFAULT_LOCATION in locations:
        return None
    return next((agents[name][0] for name in locations if name in agents), NOBODY)


def require_unnamed(location: Location) -> None:
    """Raise LocationInUse if monitors name the location, which is locked."""
    if Monitor.objects.filter(locations__contains=[location.public_id]).exists():
        raise LocationInUse


def enforce_quota(owner: User, *, count: int = 1) -> None:
    """Raise MonitorLimit if `count` more monitors exceed the plan's limit. The caller has locked the owner's row."""
    limit = owner.plan.monitor_limit
    if limit is not None and Monitor.objects.filter(owner=owner).count() + count > limit:
        raise MonitorLimit(limit=limit)


def lock_for_update(monitor_ids: Collection[int]) -> dict[int, Monitor]:
    """Lock monitors and return the existing ones by key, with what `update_monitors` reads."""
    related = ("registration", "project", "owner__plan", "escalation_policy")
    return locking.lock_monitors(monitor_ids, Monitor.objects.select_related(*related))


def _lock_owners_with_quota(drafts: Sequence[Draft]) -> dict[int, User]:
    """Lock the new owners in key order and return them by key. Raises MonitorLimit."""
    counts = Counter(draft.owner.pk for draft in drafts)
    owners = {draft.owner.pk: draft.owner for draft in drafts}
    for key in sorted(owners):
        owners[key] = lock_owner(owners[key])
        enforce_quota(owners[key], count=counts[key])
    return owners


def _under(owner: User, draft: Draft) -> Draft:
    """Return the draft for the locked owner, whose plan's minimum interval may have changed since validation."""
    return replace(draft, owner=owner, config=apply_floor(draft.config, floor_sec=owner.plan.min_interval_sec))

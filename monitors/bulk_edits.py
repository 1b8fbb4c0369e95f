"""Change many monitors: each in a transaction of its own, so that one that is refused does not affect the others.

What a person's edit changed is kept for UNDO_TIME, to undo it: the values from before, encrypted because they may
contain secrets, and the tag of the settings after it. An undo leaves monitors alone that were changed since.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import QuerySet
from msgspec import to_builtins

from accounts.models import User
from audit import origin
from audit.actions import Action
from core.errors import ApiError, ChangedMeanwhile, NotFound, Overloaded, ValidationFailed
from core.etags import etag
from core.shares import Shares
from core.turns import take_time
from core.waiting import limit_waiting
from monitors import changes, configuration, dependencies, services, types
from monitors.configuration import Limits
from monitors.models import BulkEdit, BulkEditItem, Monitor
from monitors.selectors import by_ids, named
from monitors.services import Draft
from monitors.types.settings import MAX_LOCATIONS, MonitorConfig
from monitors.types.tags import settle_tags, tag_key
from projects import access, log, placement
from projects.access import Caller
from projects.models import Project

MAX_MONITORS = 1_000
PATIENCE_SEC = 20.0
"""Time limit of making a change, or of undoing it; proxies time out soon after."""
PLANNING_SEC = 10.0
"""Time limit of planning a change, which is before that."""
BATCH_SIZE = 200
"""Monitors in memory with their settings."""
UNDO_TIME = timedelta(minutes=10)
EDITS_KEPT = 5
"""Edits of an account that can be undone."""
_SHOWN_RULES = [{"type": "text_contains", "value": "x"}, {"type": "json_field", "path": "x"}]
_BASES: Sequence[Mapping[str, Any]] = ({}, {"method": "POST", "content_rules": _SHOWN_RULES})


editors = Shares(at_once=1, most_waiting=8, most_present=2, patience_sec=10.0)
"""Edits of a web process: several at once would take the turns of all other requests for seconds."""


@contextmanager
def editing(caller: Caller) -> Iterator[None]:
    """Run the block in turn with the edits of other accounts. Raises TooManyRequests."""
    take_time()
    with limit_waiting(caller.account, most=1, kind="manifest"), editors.turn(*origin.users()):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to change: the fields of a PATCH, and then tags to add and to remove, and ids of parents to add."""

    given: Mapping[str, Any] = field(default_factory=dict)
    add_tags: Sequence[str] = ()
    remove_tags: Sequence[str] = ()
    add_parents: Sequence[str] = ()

    @property
    def parents(self) -> dict[str, Sequence[str]]:
        """Return the parents that it names, as the field of a PATCH; empty if it changes none."""
        named = [*self.given.get(dependencies.FIELD, ()), *self.add_parents]
        return {dependencies.FIELD: named} if named or dependencies.FIELD in self.given else {}

    def of(self, monitor: Monitor) -> Mapping[str, Any]:
        """Return the fields of the PATCH of this monitor."""
        if not self.add_tags and not self.remove_tags:
            return self.given
        removed = set(map(tag_key, self.remove_tags))
        tags = [tag for tag in self.given.get("tags", monitor.tags) if tag_key(tag) not in removed]
        present = set(map(tag_key, tags))
        return {**self.given, "tags": [*tags, *(tag for tag in self.add_tags if tag_key(tag) not in present)]}


class Planned(NamedTuple):
    """What a change does to a monitor: its changes as in the audit log, none if nothing changes, or the error."""

    key: int
    public_id: str
    name: str
    changes: Sequence[Mapping[str, Any]]
    error: ApiError | None = None


class Outcome(NamedTuple):
    """The result for a monitor: changed or restored, unchanged, or refused."""

    public_id: str
    name: str
    is_changed: bool
    error: ApiError | None = None


def chosen(monitors: QuerySet[Monitor]) -> list[int]:
    """Return the keys of the monitors to change. Raises ValidationFailed if they are too many."""
    keys = list(monitors.order_by("pk").values_list("pk", flat=True)[: MAX_MONITORS + 1])
    if len(keys) > MAX_MONITORS:
        raise ValidationFailed(
            f"More than {MAX_MONITORS:,} monitors match; narrow the filters and change them in parts.",
            limit=MAX_MONITORS,
        )
    return keys


def plan(caller: Caller, keys: Sequence[int], change: Change) -> list[Planned]:
    """Return what a change would do to each monitor that exists and that the caller may change, without changing any.

    Raises ValidationFailed if no monitor could be changed like this.
    """
    if "project_id" in change.given:
        with transaction.atomic():
            placement.place(caller, change.given)
    settle_tags(change.given.get("tags", ()))
    planning, found = _Planning(caller, keys, change), list[Planned]()
    for start in range(0, len(keys), BATCH_SIZE):
        found += planning.run(keys[start : start + BATCH_SIZE])
    if all(each.error is not None for each in found):
        _require_possible(caller, change.given)
    return found


def run(
    caller: Caller, planned: Sequence[Planned], change: Change, *, now: datetime, edit: BulkEdit | None = None
) -> list[Outcome]:
    """Change the monitors that the plan changes, and return the outcome of each. `edit` keeps what an undo needs.

    After PATIENCE_SEC the remaining ones are refused.
    """
    outcomes, fields, counts = list[Outcome](), set[str](), Counter[Project | None]()
    end = time.monotonic() + PATIENCE_SEC
    for key, public_id, name, wanted, error in planned:
        if error is None and wanted:
            try:
                if time.monotonic() >= end:
                    raise Overloaded("Not processed in time; repeat the change.")
                counts[_run_one(caller, key, public_id, change, now=now, edit=edit)] += 1
                fields.update(each["field"] for each in wanted)
            except ApiError as refused:
                error = refused
        outcomes.append(Outcome(public_id, name, bool(wanted) and error is None, error))
    _log(caller, Action.MONITORS_CHANGED, counts, fields)
    return outcomes


def start_edit(caller: Caller, *, now: datetime) -> BulkEdit:
    """Return a new edit to undo later, in place of the oldest ones of the account."""
    edit = BulkEdit.objects.create(user=caller.user, created_at=now)
    of_account = BulkEdit.objects.filter(user=caller.user).order_by("-pk").values_list("pk", flat=True)
    BulkEdit.objects.filter(pk__in=list(of_account[EDITS_KEPT:])).delete()
    return edit


def get_edit(caller: Caller, public_id: str, *, now: datetime) -> BulkEdit:
    """Return an edit of the caller that can still be undone. Raises NotFound."""
    caller.require_session()
    found = BulkEdit.objects.filter(user=caller.user, public_id=public_id, created_at__gt=now - UNDO_TIME).first()
    if found is None:
        raise NotFound("The ten minutes to undo this change are over.")
    return found


def items_of(caller: Caller, edit: BulkEdit) -> QuerySet[BulkEditItem]:
    """Return what can be undone, of the monitors that the caller can still access."""
    return edit.items.filter(monitor__in=access.accessible(caller, Monitor.objects.all()).values("pk"))


def undo(caller: Caller, edit: BulkEdit, *, now: datetime) -> list[Outcome]:
    """Restore the monitors that are as the edit left them. The others stay, and may be tried again."""
    outcomes, counts, end = list[Outcome](), Counter[Project | None](), time.monotonic() + PATIENCE_SEC
    columns = ("pk", "monitor", "monitor__public_id", "monitor__name")
    for item, key, public_id, name in list(items_of(caller, edit).order_by("monitor").values_list(*columns)):
        error = None
        try:
            if time.monotonic() >= end:
                raise Overloaded("Not processed in time; undo again.")
            counts[_restore(caller, item, key, public_id, now=now)] += 1
        except ApiError as refused:
            error = refused
        outcomes.append(Outcome(public_id, name, error is None, error))
    edit.undone_at = now
    edit.save(update_fields=["undone_at"])
    _log(caller, Action.EDIT_UNDONE, counts, set())
    return outcomes


def forget(now: datetime) -> None:
    """Delete what undoing needed once it is too late for it."""
    BulkEdit.objects.filter(created_at__lte=now - UNDO_TIME).delete()


class _Planning:
    """Validates a change for many monitors. What depends on their place only, and dependencies, are read once."""

    def __init__(self, caller: Caller, keys: Sequence[int], change: Change) -> None:
        self.caller, self.change = caller, change
        self._parents: list[int] = []
        self._dependencies: dependencies.Preview | None = None
        for ids in change.parents.values() if keys else ():
            found = by_ids(access.accessible(caller, Monitor.objects.filter(named(ids))))
            self._parents = [parent.pk for parent in dependencies.named(ids, found)]
            self._dependencies = dependencies.Preview(caller, keys, self._parents)
        self._limits: dict[tuple[Any, ...], Limits] = {}
        self._moves: dict[tuple[Any, ...], tuple[Project | None, User] | ApiError] = {}
        self._policies: dict[tuple[Any, ...], Any] = {}
        self._arrived = Counter[int]()
        self._end = time.monotonic() + PLANNING_SEC

    def run(self, keys: Collection[int]) -> Iterator[Planned]:
        rows = (
            Monitor.objects.select_related("project", "owner__plan", "escalation_policy")
            .filter(pk__in=keys)
            .order_by("pk")
        )
        for monitor in access.writable(self.caller, rows):
            try:
                found = self._changes(monitor)
            except ApiError as error:
                yield Planned(monitor.pk, monitor.public_id, monitor.name, [], error)
            else:
                yield Planned(monitor.pk, monitor.public_id, monitor.name, found)

    def _changes(self, monitor: Monitor) -> list[dict[str, Any]]:
        if time.monotonic() >= self._end:
            raise Overloaded("Not processed in time; repeat the change.")
        given = self.change.of(monitor)
        project, owner = self._place(monitor, given) if "project_id" in given else (monitor.project, monitor.owner)
        limits = self._limits_at(project, owner, monitor.locations)
        config, enabled = services.patched(monitor, given, limits, owner=owner), given.get("enabled", monitor.enabled)
        found = changes.compare(monitor.full_config, config)
        if enabled != monitor.enabled:
            found += changes.changed("enabled", monitor.enabled, enabled)
        found += changes.moved(monitor.project, project)
        if services.placed_by(given):
            found += changes.of_policy(monitor.escalation_policy, self._policy_of(monitor, given, project, owner))
        if self._dependencies is not None:
            choice = dependencies.Choice(monitor, owner.pk, self._parents)
            found += self._dependencies.changes(choice, adds=dependencies.FIELD not in self.change.given)
        if owner.pk != monitor.owner_id:
            services.enforce_quota(owner, count=self._arrived[owner.pk] + 1)
            self._arrived[owner.pk] += 1
        return found

    def _place(self, monitor: Monitor, given: Mapping[str, Any]) -> tuple[Project | None, User]:
        key = monitor.project_id, monitor.owner_id
        if key not in self._moves:
            try:
                with transaction.atomic():
                    self._moves[key] = placement.move(self.caller, given, project=monitor.project, owner=monitor.owner)
            except ApiError as error:
                self._moves[key] = error
        found = self._moves[key]
        if isinstance(found, ApiError):
            raise found
        return found

    def _policy_of(self, monitor: Monitor, given: Mapping[str, Any], project: Project | None, owner: User) -> Any:
        stored = monitor.escalation_policy
        key = project and project.pk, owner.pk, monitor.escalation_policy_id
        if key not in self._policies:
            try:
                self._policies[key] = placement.policy_of(
                    self.caller, given, project=project, owner=owner, stored=stored, locks=False
                )
            except ApiError as error:
                self._policies[key] = error
        found = self._policies[key]
        if isinstance(found, ApiError):
            raise found
        return found

    def _limits_at(self, project: Project | None, owner: User, kept: Sequence[str]) -> Limits:
        project_id = None if project is None else project.pk
        key = project_id, owner.pk, *kept
        if key not in self._limits:
            self._limits[key] = services.limits_at(project_id, owner, caller=self.caller, kept=kept)
        return self._limits[key]


def _require_possible(caller: Caller, given: Mapping[str, Any]) -> None:
    """Raise ValidationFailed if no monitor of any type could take these fields, in the caller's own place."""
    project = caller.project
    limits = services.limits_at(None if project is None else project.pk, caller.user, caller=caller)
    refused: list[ValidationFailed] = []
    for kind in types.REGISTRY.values():
        for base in _BASES:
            whole = {"type": kind.name, "url": kind.example, "interval_sec": limits.floor_sec, **base}
            whole["locations"] = [*limits.locations][:MAX_LOCATIONS]
            try:
                configuration.patch(configuration.build(whole), given, limits)
            except ValidationFailed as error:
                refused.append(error)
            else:
                return
    raise refused[0]


def _run_one(
    caller: Caller, key: int, public_id: str, change: Change, *, now: datetime, edit: BulkEdit | None
) -> Project | None:
    """Change a monitor, keep what an undo needs, and return the project of its entry in the audit log."""
    with transaction.atomic():
        monitor, parents_before, parents = _lock(caller, public_id, change)
        before, owner_id = monitor.full_config, monitor.owner_id
        place = monitor.enabled, monitor.project, monitor.escalation_policy
        services.update_locked(caller, monitor, change.of(monitor), parents=parents, now=now)
        if edit is not None:
            stored = None if monitor.owner_id != owner_id else _before(monitor, before, *place)
            if stored is not None and parents is not None:
                stored[dependencies.FIELD] = [parent.public_id for parent in parents_before]
            BulkEditItem.objects.create(edit=edit, monitor_id=key, etag=etag(monitor), before=stored)
    return monitor.project


def _lock(
    caller: Caller, public_id: str, change: Change
) -> tuple[Monitor, Sequence[Monitor], Sequence[Monitor] | None]:
    """Return a locked monitor, the parents that the caller sees, and the new ones, None if they stay."""
    monitor, parents = services.lock_with_parents(caller, public_id, change.parents)
    if parents is None:
        return monitor, (), None
    dependencies.load([monitor], caller=caller)
    monitor.parent_keys = None  # they are about to change, and are part of its ETag
    present = [] if dependencies.FIELD in change.given else monitor.shown_parents
    return monitor, monitor.shown_parents, [*present, *(parent for parent in parents if parent not in present)]


def _before(
    monitor: Monitor,
    before: MonitorConfig,
    enabled: bool,  # noqa: FBT001
    project: Project | None,
    policy: Any,
) -> dict[str, Any]:
    """Return the earlier values of what was changed, as a PATCH has them."""
    after = monitor.full_config
    names = [name for name in ("type", *types.settings()) if before[name] != after[name]]
    found = {name: to_builtins(before[name]) for name in names}
    if enabled != monitor.enabled:
        found["enabled"] = enabled
    if project != monitor.project:
        found["project_id"] = None if project is None else project.public_id
    if policy != monitor.escalation_policy:
        found[placement.POLICY] = None if policy is None else policy.public_id
    return found


def _restore(caller: Caller, item: int, key: int, public_id: str, *, now: datetime) -> Project | None:
    """Restore a monitor, unless it was changed since. Parents that are gone are left out."""
    with transaction.atomic():
        found = BulkEditItem.objects.filter(pk=item, monitor=key).first()
        before = (found and found.before) or {}
        monitor, parents = services.lock_with_parents(caller, public_id, _parents_in(caller, before))
        # Another request may have restored it.
        if found is None or etag(monitor) != found.etag or not BulkEditItem.objects.filter(pk=item).delete()[0]:
            raise ChangedMeanwhile("Changed since.")
        if found.before is None:
            raise ValidationFailed("It has another owner now; move it back yourself.")
        project, owner = monitor.project, monitor.owner
        if "project_id" in before:
            project, owner = placement.move(caller, before, project=project, owner=owner)
        if parents is not None:
            services.lock_owner(owner)
        limits = services.limits_at(
            project.pk if project else None, owner, caller=caller, kept=before.get("locations", monitor.locations)
        )
        config = configuration.settle(configuration.merge(monitor.full_config, before), limits)
        placed, policy = services.placed_by(before), None
        if placed:
            stored = monitor.escalation_policy
            policy = placement.policy_of(caller, before, project=project, owner=owner, stored=stored)
        enabled = before.get("enabled", monitor.enabled)
        draft = Draft(owner, project, config, enabled=enabled, parents=parents, policy=policy)
        services.store_changed(caller, [(monitor, draft)], placed, now=now)
    return monitor.project


def _parents_in(caller: Caller, before: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return those of the earlier parents that are left, as the field of a PATCH; empty if they were not changed."""
    if dependencies.FIELD not in before:
        return {}
    ids = before[dependencies.FIELD]
    left = by_ids(access.accessible(caller, Monitor.objects.filter(named(ids))))
    return {dependencies.FIELD: [public_id for public_id in ids if public_id in left]}


def _log(caller: Caller, action: Action, counts: Mapping[Project | None, int], fields: Collection[str]) -> None:
    log.record_counts(caller, action, counts, **({"fields": sorted(fields)} if fields else {}))

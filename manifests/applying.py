"""Apply a manifest: one transaction for the whole file, and one apply at a time per account.

A dry run does the same and rolls back, so that both accept the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import transaction

from accounts.models import User
from alerts.transports import KINDS
from core.errors import ApiError, Forbidden, MonitorLimit, NotFound, ReadOnly, ValidationFailed
from core.throttles import count_request
from manifests.account import Entry, Existing, MonitorRef, ProjectRef, open_account, take_turn
from manifests.parsing import Manifest
from manifests.planning import POLICIES, POLICY, Plan, locate_error
from manifests.resources import RESOURCES
from manifests.resources.oncall import ref_id
from monitors import operations, services, types
from monitors.dependencies import FIELD, DependencyRefused
from monitors.models import Monitor
from monitors.services import Draft, move_of, update_monitor
from oncall.models import EscalationPolicy
from projects import access, log, placement
from projects.access import Caller
from projects.models import Project
from projects.services import create_project, update_project
from pulsekeeper.manifest.changes import Change, FieldChange, Report, compare_fields
from pulsekeeper.manifest.problems import InvalidManifest, Path, format_path

TRIES = 5
MAX_FAILURES = 20  # of the entries that are tried while rows are locked
RESOURCE_OF = {resource.section: resource for resource in RESOURCES}


def apply(
    manifest: Manifest, caller: Caller, *, prune: bool, dry_run: bool, now: datetime, patience_sec: float | None = None
) -> Report:
    """Apply the manifest and return the changes.

    Raises InvalidManifest with the problems, or TooManyRequests if it requests consent by e-mail too often, or if
    another apply or import of the account runs for `patience_sec` (None: wait). Nothing is changed then.
    """
    for _ in range(TRIES):
        with suppress(NotFound), transaction.atomic():  # an object was deleted or moved after planning
            take_turn(caller, patience_sec=patience_sec)  # others plan after this one
            applying = _Applying(Plan(manifest, open_account(caller), now=now), prune=prune, now=now)
            if not dry_run:
                applying.count_mails()
            report = replace(applying.run(), applied=not dry_run)
            transaction.set_rollback(dry_run)
            return report
    raise InvalidManifest([manifest.document.problem((), "the account kept changing; apply again.")])


class _Applying:
    def __init__(self, planned: Plan, *, prune: bool, now: datetime) -> None:
        self.plan, self.account, self.now = planned, planned.account, now
        self.caller = planned.account.caller
        desired = [entry for entry in planned.entries if entry.values is not None]
        self.new = [entry for entry in desired if entry.existing is None]
        self.changed = {entry: names for entry in desired if (names := _changed_fields(entry))}
        self.new_monitors = [entry for entry in self.new if entry.section == "monitors"]
        self.changed_monitors = {
            entry: entry.existing for entry in self.changed if entry.section == "monitors" and entry.existing
        }
        self.transferred = {
            entry: existing
            for entry, existing in self.changed_monitors.items()
            if self.account.owner_of(existing.project_ref) != self.account.owner_of(entry.project_ref)
        }
        self.gone = planned.unmentioned if prune else {}
        self.dependent = self._find_dependent(desired)
        self.unmentioned = 0 if prune else sum(map(len, planned.unmentioned.values()))
        self.projects: dict[object, Project | None] = {None: None}  # by ProjectRef
        self.new_ids: dict[Entry, str] = {}  # of what was created
        self.monitor_keys: dict[MonitorRef, int] = {}  # of new monitors too
        self.locked: Mapping[int, Monitor] = {}

    def _find_dependent(self, desired: Sequence[Entry]) -> list[Entry]:
        """Return the monitors whose parents are stored: also unchanged ones if the file moves or deletes a parent."""
        left = {*self.transferred.values(), *self.gone.get("monitors", ())}
        return [
            entry
            for entry in desired
            if entry.section == "monitors"
            for parents in [RESOURCE_OF["monitors"].monitor_refs(entry.values or {})]
            if FIELD in self.changed.get(entry, ())
            or (parents and (entry.existing is None or entry in self.transferred))
            or not left.isdisjoint(parents)
        ]

    def count_mails(self) -> None:
        """Count addresses whose owner has to agree as invitations. Raises TooManyRequests. Locks no rows."""
        for entry in [] if self.plan.problems else [*self.new, *self.changed]:
            values = entry.values or {}
            if entry.section != "channels" or KINDS[values["kind"]].consent not in self.changed.get(entry, values):
                continue
            count_request("invite", self.caller.account)

    def run(self) -> Report:
        """Apply the plan. Locks are taken in the common order: monitor states, projects, owners, then the rest."""
        changes = self._changes()  # first, while all objects have their old names
        if changes or self.plan.problems:
            self._require_write()
        if changes:
            self._lock()
            self._make_projects()
            if not self.plan.problems:
                self._delete()
            self._update_monitors()
            self._create_monitors()
            self._store_parents()
            self._make_others()
            self._store_policies()
        if self.plan.problems:
            raise InvalidManifest(self.plan.problems)
        polled = [one for one in self.new_monitors if not types.get(one.config.type).waits]
        return Report(changes, self.plan.notes, self.unmentioned, sum(map(_is_enabled, polled)))

    def _require_write(self) -> None:
        """Raise ReadOnly if the file names a project of which the caller is a viewer."""
        if any(project_ref.is_viewed for _, project_ref in self.plan.project_refs):
            raise ReadOnly

    def _lock(self) -> None:
        changed = {existing.row.pk: existing for existing in self.changed_monitors.values()}
        gone = [one.row.pk for one in self.gone.get("monitors", [])]
        referenced = [
            monitor_ref.row.pk
            for entry in (*self.new, *self.changed, *self.dependent)
            for monitor_ref in RESOURCE_OF[entry.section].monitor_refs(entry.values or {})
            if isinstance(monitor_ref, Existing)
        ]
        dependent = [entry.existing.row.pk for entry in self.dependent if entry.existing]
        of_policies = Monitor.objects.filter(
            escalation_policy__in=[one.row.pk for one in self.gone.get(POLICIES, [])]
        ).values_list("pk", flat=True)
        self.locked = services.lock_for_update({*changed, *gone, *referenced, *dependent, *of_policies})
        for key, planned in changed.items():
            found = self.locked.get(key)
            if found is None or not self.account.knows(found.project_id):
                raise NotFound
            if self.account.project_ref(found.project_id) is not planned.project_ref:
                raise NotFound
        used = {project_ref for _, project_ref in self.plan.project_refs}
        used |= {existing.project_ref for existing in self.transferred.values() if existing.project_ref}
        for _, project_ref in sorted(self.account.project_refs.items()):
            if project_ref in used:
                self.projects[project_ref] = access.lock_project(self.caller, project_ref.id or "")
        owners = {project_ref.owner.pk for project_ref in used} | {self.caller.user.pk}
        list(User.objects.select_for_update(no_key=True, of=["self"]).filter(pk__in=owners).order_by("pk"))
        self._lock_policies()

    def _lock_policies(self) -> None:
        """Lock the existing policies that monitors of the file have, against deletion."""
        entries = (*self.changed_monitors, *self.new_monitors)
        found = (entry.values[POLICY] for entry in entries if entry.values)
        keys = {policy.row.pk for policy in found if isinstance(policy, Existing)}
        rows = EscalationPolicy.objects.filter(pk__in=keys).order_by("pk").select_for_update(no_key=True)
        if len(rows.values_list("pk")) < len(keys):
            raise NotFound

    def _make_projects(self) -> None:
        for path, project_ref in self.plan.project_refs:
            if project_ref.id is None:
                project = create_project(self.caller, name=project_ref.name, now=self.now)
                project_ref.id, self.projects[project_ref] = project.public_id, project
            elif project_ref in self.plan.renamed:
                with self._collect_errors(path):
                    update_project(self.caller, project_ref.id, {"name": project_ref.name})

    def _delete(self) -> None:
        for section, gone in reversed(self.gone.items()):
            if section == "monitors":
                operations.delete([one.row.pk for one in gone], caller=self.caller)
                continue
            for one in gone:
                with suppress(NotFound):  # already deleted by another request
                    RESOURCE_OF[section].delete(self.caller, one.id)

    def _update_monitors(self) -> None:
        self._check_transfers()
        drafts = {existing.row.pk: self._draft(entry) for entry, existing in self.changed_monitors.items()}
        moves = [
            move_of(
                self.locked[existing.row.pk], self.projects[entry.project_ref], self.account.owner_of(entry.project_ref)
            )
            for entry, existing in self.transferred.items()
        ]
        with self._collect_errors(("monitors",)):
            services.update_monitors(self.caller, drafts, now=self.now)
            log.record_moves(self.caller, moves)

    def _check_transfers(self) -> None:
        """Check the right to transfer monitors to another owner, once for each project that they leave."""
        for left in {existing.project_ref for existing in self.transferred.values()}:
            try:
                placement.require_giving(self.caller, self.projects[left], self.account.owner_of(left))
            except Forbidden as error:
                for entry, existing in self.transferred.items():
                    if existing.project_ref is left:
                        self.plan.problem(entry.path, error.reason or error.code)

    def _create_monitors(self) -> None:
        drafts = [self._draft(entry) for entry in self.new_monitors]
        with self._collect_errors(("monitors",)):
            made = services.create_monitors(self.caller, drafts, now=self.now)
            for entry, monitor in zip(self.new_monitors, made, strict=True):
                self.new_ids[entry], self.monitor_keys[entry] = monitor.public_id, monitor.pk

    def _store_parents(self) -> None:
        """Store which monitors depend on which, once all exist. Skip it if some could not be created or changed."""
        if self.plan.problems:
            return

        def key_of(monitor_ref: MonitorRef) -> int:
            key: int = monitor_ref.row.pk if isinstance(monitor_ref, Existing) else self.monitor_keys[monitor_ref]
            return key

        entries = {key_of(entry.existing or entry): entry for entry in self.dependent}
        parents = {key: [*map(key_of, (entry.values or {})[FIELD].monitor_refs)] for key, entry in entries.items()}
        try:
            services.set_parents(self.caller, parents)
        except DependencyRefused as error:
            path = () if error.child is None else entries[error.child.pk].path
            self.plan.problem(*locate_error(path, error))

    def _draft(self, entry: Entry) -> Draft:
        """Return the draft of a monitor. A policy of the file that is new, too, follows in `_store_policies`."""
        owner, policy = self.account.owner_of(entry.project_ref), entry.values and entry.values[POLICY]
        if isinstance(policy, Existing):
            row = None if policy in self.gone.get(POLICIES, ()) else policy.row
        else:  # one that the caller cannot access stays
            row = entry.existing.row.escalation_policy if isinstance(policy, str) and entry.existing else None
        return Draft(owner, self.projects[entry.project_ref], entry.config, _is_enabled(entry), policy=row)

    def _make_others(self) -> None:
        """Update before creating: an update may free the slug of a new page.

        Skip entries that refer to monitors that could not be created.
        """
        failed = set(self.new_monitors) - self.new_ids.keys()
        for entry in sorted((*self.changed, *self.new), key=lambda entry: entry.section == POLICIES):
            if len(self.plan.problems) >= MAX_FAILURES:
                self.plan.problem((), "there may be more problems: not every entry was tried.")
                return
            resource, values = RESOURCE_OF[entry.section], entry.values or {}
            if entry.section == "monitors" or failed & resource.monitor_refs(values):
                continue
            if not self.new_ids.keys() >= set(resource.new_refs(values)):
                continue
            body = resource.body(values, self.changed.get(entry, values), self.new_ids)
            with self._collect_errors(entry.path):
                if entry.existing is None:
                    self.new_ids[entry] = resource.create(self.caller, body, now=self.now).public_id
                else:
                    resource.update(self.caller, entry.existing.id, body, now=self.now)

    def _store_policies(self) -> None:
        """Set the policies of monitors that are new themselves, and those of projects, once all exist."""
        if self.plan.problems:
            return
        for entry in (*self.changed_monitors, *self.new_monitors):
            policy = entry.values and entry.values[POLICY]
            if isinstance(policy, Entry):
                public_id = entry.existing.id if entry.existing else self.new_ids[entry]
                with self._collect_errors((*entry.path, POLICY)):
                    update_monitor(self.caller, public_id, {placement.POLICY: self.new_ids[policy]}, now=self.now)
        paths = {project_ref: path for path, project_ref in self.plan.project_refs}
        for project_ref, ref in self.plan.policies.items():
            with self._collect_errors((*paths[project_ref], POLICY)):
                given = {placement.POLICY: None if ref is None else ref_id(ref, self.new_ids)}
                update_project(self.caller, project_ref.id or "", given)

    @contextmanager
    def _collect_errors(self, path: Path) -> Iterator[None]:
        """Collect errors as problems and roll back this step, so that later steps can report theirs."""
        try:
            with transaction.atomic():
                yield
        except NotFound:  # `apply` plans again
            raise
        except MonitorLimit as error:
            self.plan.problem(path, f"exceed the plan's limit of {error.limit} together with other monitors.")
        except ValidationFailed as error:
            self.plan.problem(*locate_error(path, error))
        except ApiError as error:
            self.plan.problem(path, error.reason or error.code)

    def _changes_of(self, project_ref: ProjectRef) -> tuple[FieldChange, ...]:
        """Return the changes of an existing project."""
        before, after = dict[str, Any](), dict[str, Any]()
        if project_ref in self.plan.renamed:
            before["name"], after["name"] = self.plan.renamed[project_ref], project_ref.name
        if project_ref in self.plan.policies:
            stored = project_ref.policy_id
            before[POLICY], after[POLICY] = stored and self.account.policy_ref(stored), self.plan.policies[project_ref]
        return compare_fields(before, after, list(before))

    def _changes(self) -> list[Change]:
        document = self.plan.manifest.document
        found = []
        for path, project_ref in self.plan.project_refs:
            name = project_ref.name
            if project_ref.id is None:
                found.append(Change("create", "project", name, line=document.line(path), path=format_path(path)))
            elif fields := self._changes_of(project_ref):
                found.append(Change("update", "project", name, None, document.line(path), fields, format_path(path)))
        new = set(self.new)
        for entry in self.plan.entries:
            about = (RESOURCE_OF[entry.section].noun, entry.name, _name_of(entry), document.line(entry.path))
            written = format_path(entry.path)
            if entry in new:
                found.append(Change("create", *about, path=written))
            elif entry in self.changed and entry.existing and entry.values:
                fields = compare_fields(entry.existing.values, entry.values, self.changed[entry])
                found.append(Change("update", *about, fields, written))
        found += [
            Change("delete", RESOURCE_OF[section].noun, one.name, _name_of(one))
            for section, gone in self.gone.items()
            for one in gone
        ]
        return found


def _changed_fields(entry: Entry) -> list[str]:
    """Return the fields that differ between the existing object and the file."""
    if entry.existing is None or entry.values is None:
        return []
    return [name for name, value in entry.values.items() if entry.existing.values[name] != value]


def _name_of(one: Entry | Existing) -> str | None:
    return one.project_ref.name if one.project_ref else None


def _is_enabled(entry: Entry) -> bool:
    return bool(entry.values and entry.values["enabled"])

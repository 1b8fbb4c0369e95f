"""Apply a manifest: one transaction for the whole file, and one apply at a time per account.

A dry run does the same and rolls back, so that both accept the same files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

from django.db import transaction

from accounts.models import User
from core.db import advisory_lock
from core.errors import ApiError, Forbidden, MonitorLimit, NotFound, ValidationFailed
from manifests.account import open_account
from manifests.changes import Change, Report, compare_fields
from manifests.entries import Entry, Existing, MonitorRef, ProjectRef
from manifests.parsing import Manifest
from manifests.planning import Plan, changed_fields, locate_error, plan
from manifests.problems import InvalidManifest, Path
from manifests.resources import all_resources
from manifests.resources.base import ChosenScope, Resource, ServiceResource, WriteContext
from manifests.resources.pages import Group
from monitors import bulk, operations, types
from monitors.models import Monitor
from monitors.services import move_of
from projects import access, log, placement
from projects.log import Move
from projects.models import Project
from projects.services import create_project, rename_project

TRIES = 5


class ConcurrentChangeError(Exception):
    """An object was deleted or moved after planning, so the plan must be repeated."""


def apply(manifest: Manifest, user: User, *, prune: bool, dry_run: bool, now: datetime) -> Report:
    """Apply the manifest and return the changes. Raises InvalidManifest with all problems and changes nothing then."""
    for _ in range(TRIES):
        try:
            with transaction.atomic():
                # A concurrent apply of the same account plans after this one.
                advisory_lock(f"declared {user.pk}")
                resources = all_resources(user)
                planned = plan(manifest, open_account(user), resources, now=now)
                report = _Applying(planned, resources, prune=prune, now=now).run()
                transaction.set_rollback(dry_run)
                return report
        except ConcurrentChangeError:
            continue
    raise InvalidManifest([manifest.document.problem((), "the account kept changing; apply again.")])


class _Applying:
    def __init__(self, planned: Plan, resources: Sequence[Resource], *, prune: bool, now: datetime) -> None:
        self.plan, self.resources, self.now = (
            planned,
            {resource.section: resource for resource in resources},
            now,
        )
        self.caller = planned.account.caller
        desired = [entry for entry in planned.entries if entry.values is not None]
        self.new = [entry for entry in desired if entry.existing is None]
        self.changed = [(entry, names) for entry in desired if (names := changed_fields(entry))]
        self.transferred = [entry for entry, _ in self.changed if self._changes_owner(entry)]
        self.gone = planned.unmentioned if prune else []
        self.unmentioned = 0 if prune else len(planned.unmentioned)
        self.projects: dict[str, Project] = {}
        self.monitor_ids: dict[str, str] = {}
        self.locked: Mapping[int, Monitor] = {}

    def run(self) -> Report:
        """Apply the plan. Locks are taken in the common order: monitor states, projects, owners, then the rest."""
        changes = self._changes()  # first, while all objects have their old names
        if changes:
            self._lock()
            self._make_projects()
            if not self.plan.problems:
                self._delete()
            self._update_monitors()
            self._create_monitors()
            self._make_others()
        if self.plan.problems:
            raise InvalidManifest(self.plan.problems)
        polled = [one for one in self.new if one.section == "monitors" and not types.get(one.config.type).waits]
        return Report(changes, self.plan.notes, self.unmentioned, sum(map(_is_enabled, polled)))

    def _lock(self) -> None:
        named = [*self.new, *(entry for entry, _ in self.changed)]
        changed = {
            one.existing.pk: one.existing for one, _ in self.changed if one.existing and one.section == "monitors"
        }
        others = Monitor.objects.filter(public_id__in={one.key for entry in named for one in _monitor_refs(entry)})
        gone = {one.pk for one in self.gone if one.section == "monitors"}
        self.locked = bulk.lock_monitors({*changed, *gone, *others.values_list("pk", flat=True)})
        if not changed.keys() <= self.locked.keys():
            raise ConcurrentChangeError
        if any(self._was_moved(self.locked[key], planned) for key, planned in changed.items()):
            raise ConcurrentChangeError
        there = [project_ref for _, project_ref in self.plan.project_refs]
        there += [
            entry.existing.project_ref for entry in self.transferred if entry.existing and entry.existing.project_ref
        ]
        named_places = {project_ref.id: project_ref for project_ref in there if project_ref.id is not None}
        for public_id in sorted(named_places, key=self._project_key):
            try:
                self.projects[public_id] = access.lock_project(self.caller, public_id)
            except NotFound:
                raise ConcurrentChangeError from None
        owners = {project_ref.owner for project_ref in named_places.values()} | {self.caller.user.pk}
        list(User.objects.select_for_update(no_key=True, of=["self"]).filter(pk__in=owners).order_by("pk"))

    def _changes_owner(self, entry: Entry) -> bool:
        if entry.section != "monitors" or entry.existing is None:
            return False
        return self._owner_of(entry.existing.project_ref).pk != self._owner_of(entry.project_ref).pk

    def _was_moved(self, monitor: Monitor, planned: Existing) -> bool:
        """Return whether a locked monitor was moved since the plan was made."""
        account = self.plan.account
        return (
            not account.knows(monitor.project_id) or account.project_ref(monitor.project_id) is not planned.project_ref
        )

    def _check_transfers(self) -> list[Move]:
        """Check the right to transfer monitors to another owner. Return the moves for the audit log."""
        by_place: dict[ProjectRef | None, list[Entry]] = defaultdict(list)
        for entry in self.transferred:
            by_place[entry.existing.project_ref if entry.existing else None].append(entry)
        for project_ref, entries in by_place.items():
            project = None if project_ref is None else self.projects[project_ref.id or ""]
            try:
                placement.require_giving(self.caller, project, self._owner_of(project_ref))
            except NotFound:
                raise ConcurrentChangeError from None
            except Forbidden as error:
                for entry in entries:
                    self.plan.problem(entry.path, error.reason or error.code)
        return [
            move_of(self.locked[entry.existing.pk], self._project(entry), self._owner_of(entry.project_ref))
            for entry in self.transferred
            if entry.existing
        ]

    def _project_key(self, public_id: str) -> int:
        return next(key for key, project_ref in self.plan.account.project_refs.items() if project_ref.id == public_id)

    def _make_projects(self) -> None:
        for path, project_ref in self.plan.project_refs:
            if project_ref.id is None:
                project = create_project(self.caller, name=project_ref.name, now=self.now)
                project_ref.id, self.projects[project.public_id] = project.public_id, project
            elif project_ref.id in self.plan.renamed:
                with self._collect_errors(path):
                    rename_project(self.caller, project_ref.id, name=project_ref.name)

    def _delete(self) -> None:
        for section, resource in reversed(self.resources.items()):
            gone = [one for one in self.gone if one.section == section]
            if isinstance(resource, ServiceResource):
                for one in gone:
                    with suppress(NotFound):  # already deleted by another request
                        resource.delete(self._context(), one)
            else:
                operations.delete([one.pk for one in gone])

    def _update_monitors(self) -> None:
        moves = self._check_transfers()
        changes = [self._change(entry) for entry, _ in self.changed if entry.section == "monitors"]
        with self._collect_errors(("monitors",)):
            bulk.update_monitors(changes, now=self.now)
            log.record_moves(self.caller, moves)

    def _make_others(self) -> None:
        """Update before creating: an update may free the slug of a new page.

        Skip entries that refer to monitors that could not be created.
        """
        new = {entry.monitor_ref for entry in self.new if entry.section == "monitors"}
        failed = {monitor_ref for monitor_ref in new if monitor_ref.key not in self.monitor_ids}
        for entry, names in [*self.changed, *((entry, list[str]()) for entry in self.new)]:
            resource, values = self.resources[entry.section], entry.values
            if (
                not isinstance(resource, ServiceResource)
                or values is None
                or not failed.isdisjoint(_monitor_refs(entry))
            ):
                continue
            with self._collect_errors(entry.path, resource):
                if entry.existing is None:
                    resource.create(self._context(), values)
                else:
                    resource.update(self._context(), entry.existing, values, set(names))

    def _create_monitors(self) -> None:
        entries = [entry for entry in self.new if entry.section == "monitors"]
        news = [
            bulk.New(
                self._owner_of(entry.project_ref),
                self._project(entry),
                entry.config,
                enabled=_is_enabled(entry),
            )
            for entry in entries
        ]
        with self._collect_errors(("monitors",)):
            for entry, monitor in zip(entries, bulk.create_monitors(news, now=self.now), strict=True):
                self.monitor_ids[entry.monitor_ref.key] = monitor.public_id

    def _change(self, entry: Entry) -> bulk.Change:
        assert entry.existing is not None  # else the project is new
        return bulk.Change(
            entry.existing.pk,
            self._owner_of(entry.project_ref),
            self._project(entry),
            entry.config,
            _is_enabled(entry),
        )

    def _project(self, entry: Entry) -> Project | None:
        return None if entry.project_ref is None else self.projects[entry.project_ref.id or ""]

    def _owner_of(self, project_ref: ProjectRef | None) -> User:
        account = self.plan.account
        return account.caller.user if project_ref is None else account.owners[project_ref.owner]

    def _context(self) -> WriteContext:
        return WriteContext(self.plan.account, self.monitor_ids, self.now)

    @contextmanager
    def _collect_errors(self, path: Path, resource: Resource | None = None) -> Iterator[None]:
        """Collect errors as problems and roll back this step, so that later steps can report theirs."""
        try:
            with transaction.atomic():
                yield
        except NotFound:
            raise ConcurrentChangeError from None
        except MonitorLimit as error:
            self.plan.problem(path, f"exceed the plan's limit of {error.limit} together with other monitors.")
        except ValidationFailed as error:
            where, message = locate_error(resource, path, error) if resource else (path, str(error))
            self.plan.problem(where, message)
        except ApiError as error:
            self.plan.problem(path, error.reason or error.code)

    def _changes(self) -> list[Change]:
        document = self.plan.manifest.document
        found = []
        for path, project_ref in self.plan.project_refs:
            line = document.mark(path).line
            if project_ref.id is None:
                found.append(Change("create", "project", project_ref.name, line=line))
            elif project_ref.id in self.plan.renamed:
                fields = compare_fields(
                    {"name": self.plan.renamed[project_ref.id]}, {"name": project_ref.name}, ["name"]
                )
                found.append(Change("update", "project", project_ref.name, line=line, fields=fields))
        changed = {id(entry): names for entry, names in self.changed}
        new = set(map(id, self.new))
        for entry in self.plan.entries:
            noun, line = self.resources[entry.section].noun, document.mark(entry.path).line
            project = entry.project_ref.name if entry.project_ref else None
            if id(entry) in new:
                found.append(Change("create", noun, entry.name, project, line))
            elif id(entry) in changed and entry.existing and entry.values:
                fields = compare_fields(entry.existing.values, entry.values, changed[id(entry)])
                found.append(Change("update", noun, entry.name, project, line, fields))
        found += [
            Change(
                "delete",
                self.resources[one.section].noun,
                one.name,
                one.project_ref.name if one.project_ref else None,
            )
            for one in self.gone
        ]
        return found


def _is_enabled(entry: Entry) -> bool:
    return bool(entry.values and entry.values["enabled"])


def _monitor_refs(entry: Entry) -> list[MonitorRef]:
    """Return the monitors that the entry refers to."""
    values = entry.values or {}
    scope = values.get("monitors")
    found = list(scope.monitor_refs) if isinstance(scope, ChosenScope) else []
    for group in values.get("groups", []):
        if isinstance(group, Group):
            found += [monitor_ref for monitor_ref, _ in group.monitors]
    return found

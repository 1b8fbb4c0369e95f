"""Making it so: one transaction for a whole file, and one file after the other for an account.

A dry run is the same, rolled back: what it lets pass is what apply lets pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

from django.db import transaction

from accounts.models import User
from core.db import hold
from core.errors import ApiError, Forbidden, MonitorLimit, NotFound, ValidationFailed
from manifests.account import open_account
from manifests.changes import Change, Report, compared
from manifests.entries import Entry, Handle, Place, Present
from manifests.parsing import Declaration
from manifests.planning import Plan, blamed, differing, plan
from manifests.problems import Path, Refused
from manifests.resources import all_kinds
from manifests.resources.base import Kind, Making, Single
from manifests.resources.pages import Group
from manifests.resources.scopes import Chosen
from monitors import bulk, operations
from monitors.configuration import MonitorType
from monitors.models import Monitor
from monitors.services import move_of
from projects import access, log, places
from projects.log import Move
from projects.models import Project
from projects.services import create_project, rename_project

TRIES = 5


class _GoneError(Exception):
    """What was to be changed was deleted or moved after the plan was made: there has to be another plan."""


def apply(declaration: Declaration, user: User, *, prune: bool, dry_run: bool, now: datetime) -> Report:
    """What was done, or would be. Raises Refused, with every problem that was found, and then nothing was done."""
    for _ in range(TRIES):
        try:
            with transaction.atomic():
                # Two applies of one account: the second plans on what the first has left.
                hold(f"declared {user.pk}")
                kinds = all_kinds(user)
                planned = plan(declaration, open_account(user), kinds, now=now)
                report = _Applying(planned, kinds, prune=prune, now=now).run()
                transaction.set_rollback(dry_run)
                return report
        except _GoneError:
            continue
    raise Refused([declaration.document.problem((), "the account kept changing meanwhile; apply again.")])


class _Applying:
    def __init__(self, planned: Plan, kinds: Sequence[Kind], *, prune: bool, now: datetime) -> None:
        self.plan, self.kinds, self.now = planned, {kind.section: kind for kind in kinds}, now
        self.caller = planned.account.caller
        wanted = [entry for entry in planned.entries if entry.shape is not None]
        self.new = [entry for entry in wanted if entry.present is None]
        self.changed = [(entry, names) for entry in wanted if (names := differing(entry))]
        self.given_away = [entry for entry, _ in self.changed if self._leaves_its_owner(entry)]
        self.gone = planned.unmentioned if prune else []
        self.kept = 0 if prune else len(planned.unmentioned)
        self.projects: dict[str, Project] = {}
        self.monitor_ids: dict[str, str] = {}
        self.held: Mapping[int, Monitor] = {}

    def run(self) -> Report:
        """Locks in the order of everybody else: states of monitors, projects, owners, then all others."""
        changes = self._changes()  # before anything is done, while everything has its old name
        if changes:
            self._hold()
            self._make_projects()
            if not self.plan.problems:
                self._delete()
            self._update_monitors()
            self._create_monitors()
            self._make_others()
        if self.plan.problems:
            raise Refused(self.plan.problems)
        polled = [
            one for one in self.new if one.kind == "monitors" and one.config.type is not MonitorType.HEARTBEAT
        ]
        return Report(changes, self.plan.notes, self.kept, sum(map(_is_enabled, polled)))

    def _hold(self) -> None:
        named = [*self.new, *(entry for entry, _ in self.changed)]
        changed = {
            one.present.pk: one.present for one, _ in self.changed if one.present and one.kind == "monitors"
        }
        others = Monitor.objects.filter(public_id__in={one.key for entry in named for one in _handles(entry)})
        gone = {one.pk for one in self.gone if one.kind == "monitors"}
        self.held = bulk.lock_monitors({*changed, *gone, *others.values_list("pk", flat=True)})
        if not changed.keys() <= self.held.keys():
            raise _GoneError
        if any(self._is_elsewhere(self.held[key], planned) for key, planned in changed.items()):
            raise _GoneError
        there = [place for _, place in self.plan.places]
        there += [entry.present.place for entry in self.given_away if entry.present and entry.present.place]
        named_places = {place.id: place for place in there if place.id is not None}
        for public_id in sorted(named_places, key=self._project_key):
            try:
                self.projects[public_id] = access.hold_project(self.caller, public_id)
            except NotFound:
                raise _GoneError from None
        owners = {place.owner for place in named_places.values()} | {self.caller.user.pk}
        list(User.objects.select_for_update(no_key=True, of=["self"]).filter(pk__in=owners).order_by("pk"))

    def _leaves_its_owner(self, entry: Entry) -> bool:
        if entry.kind != "monitors" or entry.present is None:
            return False
        return self._owner_of(entry.present.place).pk != self._owner_of(entry.place).pk

    def _is_elsewhere(self, monitor: Monitor, planned: Present) -> bool:
        """Whether a monitor that is held now was moved after the plan was made."""
        account = self.plan.account
        return not account.knows(monitor.project_id) or account.place(monitor.project_id) is not planned.place

    def _give_away(self) -> list[Move]:
        """Require the right to give away what leaves its owner, and return those moves for the audit log."""
        by_place: dict[Place | None, list[Entry]] = defaultdict(list)
        for entry in self.given_away:
            by_place[entry.present.place if entry.present else None].append(entry)
        for place, entries in by_place.items():
            project = None if place is None else self.projects[place.id or ""]
            try:
                places.require_giving(self.caller, project, self._owner_of(place))
            except NotFound:
                raise _GoneError from None
            except Forbidden as error:
                for entry in entries:
                    self.plan.problem(entry.path, error.reason or error.code)
        return [
            move_of(self.held[entry.present.pk], self._project(entry), self._owner_of(entry.place))
            for entry in self.given_away
            if entry.present
        ]

    def _project_key(self, public_id: str) -> int:
        return next(key for key, place in self.plan.account.places.items() if place.id == public_id)

    def _make_projects(self) -> None:
        for path, place in self.plan.places:
            if place.id is None:
                project = create_project(self.caller, name=place.name, now=self.now)
                place.id, self.projects[project.public_id] = project.public_id, project
            elif place.id in self.plan.renamed:
                with self._blaming(path):
                    rename_project(self.caller, place.id, name=place.name)

    def _delete(self) -> None:
        for section, kind in reversed(self.kinds.items()):
            gone = [one for one in self.gone if one.kind == section]
            if isinstance(kind, Single):
                for one in gone:
                    with suppress(NotFound):  # somebody else has deleted it meanwhile
                        kind.delete(self._making(), one)
            else:
                operations.delete([one.pk for one in gone])

    def _update_monitors(self) -> None:
        moves = self._give_away()
        changes = [self._change(entry) for entry, _ in self.changed if entry.kind == "monitors"]
        with self._blaming(("monitors",)):
            bulk.update_monitors(changes, now=self.now)
            log.record_moves(self.caller, moves)

    def _make_others(self) -> None:
        """Those that change first: one may give up the slug that a new one takes. Where monitors had no room, what
        refers to them has nothing to say of its own."""
        new = {entry.handle for entry in self.new if entry.kind == "monitors"}
        unmade = {handle for handle in new if handle.key not in self.monitor_ids}
        for entry, names in [*self.changed, *((entry, list[str]()) for entry in self.new)]:
            kind, shape = self.kinds[entry.kind], entry.shape
            if not isinstance(kind, Single) or shape is None or not unmade.isdisjoint(_handles(entry)):
                continue
            with self._blaming(entry.path, kind):
                if entry.present is None:
                    kind.create(self._making(), shape)
                else:
                    kind.update(self._making(), entry.present, shape, set(names))

    def _create_monitors(self) -> None:
        entries = [entry for entry in self.new if entry.kind == "monitors"]
        news = [
            bulk.New(
                self._owner_of(entry.place), self._project(entry), entry.config, enabled=_is_enabled(entry)
            )
            for entry in entries
        ]
        with self._blaming(("monitors",)):
            for entry, monitor in zip(entries, bulk.create_monitors(news, now=self.now), strict=True):
                self.monitor_ids[entry.handle.key] = monitor.public_id

    def _change(self, entry: Entry) -> bulk.Change:
        assert entry.present is not None  # or it would be new
        return bulk.Change(
            entry.present.pk,
            self._owner_of(entry.place),
            self._project(entry),
            entry.config,
            _is_enabled(entry),
        )

    def _project(self, entry: Entry) -> Project | None:
        return None if entry.place is None else self.projects[entry.place.id or ""]

    def _owner_of(self, place: Place | None) -> User:
        account = self.plan.account
        return account.caller.user if place is None else account.owners[place.owner]

    def _making(self) -> Making:
        return Making(self.plan.account, self.monitor_ids, self.now)

    @contextmanager
    def _blaming(self, path: Path, kind: Kind | None = None) -> Iterator[None]:
        """What one objects to must not hide what the next has to say: it is kept, and what it did undone."""
        try:
            with transaction.atomic():
                yield
        except NotFound:
            raise _GoneError from None
        except MonitorLimit as error:
            self.plan.problem(path, f"are more than the plan's {error.limit} with what else there is.")
        except ValidationFailed as error:
            where, message = blamed(kind, path, error) if kind else (path, str(error))
            self.plan.problem(where, message)
        except ApiError as error:
            self.plan.problem(path, error.reason or error.code)

    def _changes(self) -> list[Change]:
        document = self.plan.declaration.document
        found = []
        for path, place in self.plan.places:
            line = document.mark(path).line
            if place.id is None:
                found.append(Change("create", "project", place.name, line=line))
            elif place.id in self.plan.renamed:
                fields = compared({"name": self.plan.renamed[place.id]}, {"name": place.name}, ["name"])
                found.append(Change("update", "project", place.name, line=line, fields=fields))
        changed = {id(entry): names for entry, names in self.changed}
        new = set(map(id, self.new))
        for entry in self.plan.entries:
            noun, line = self.kinds[entry.kind].noun, document.mark(entry.path).line
            project = entry.place.name if entry.place else None
            if id(entry) in new:
                found.append(Change("create", noun, entry.name, project, line))
            elif id(entry) in changed and entry.present and entry.shape:
                fields = compared(entry.present.shape, entry.shape, changed[id(entry)])
                found.append(Change("update", noun, entry.name, project, line, fields))
        found += [
            Change("delete", self.kinds[one.kind].noun, one.name, one.place.name if one.place else None)
            for one in self.gone
        ]
        return found


def _is_enabled(entry: Entry) -> bool:
    return bool(entry.shape and entry.shape["enabled"])


def _handles(entry: Entry) -> list[Handle]:
    """The monitors that it refers to."""
    shape = entry.shape or {}
    scope = shape.get("monitors")
    found = list(scope.handles) if isinstance(scope, Chosen) else []
    for group in shape.get("groups", []):
        if isinstance(group, Group):
            found += [handle for handle, _ in group.monitors]
    return found

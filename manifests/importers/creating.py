"""Create imported monitors as the API does, in one transaction, and skip existing ones.

An existing monitor has the same type, name and URL in the same project, so a file can be imported again. Duplicates in
a file are separate monitors. A monitor that was renamed since is imported again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q

from audit.actions import Action
from core.api.fields import validated
from core.errors import LimitReached, PrivateAddress, ValidationFailed
from manifests.account import take_turn
from manifests.importers.mapped import CreatedMonitor, Imported, MappedMonitor, Note, Outcome
from monitors import services, types
from monitors.models import Monitor
from monitors.serializers import MonitorInputSerializer
from monitors.services import Draft, complete, lock_owner
from projects import access, log, placement
from projects.access import Caller
from projects.models import Membership, Project, Role
from projects.serializers import ProjectInputSerializer
from projects.services import create_project


@dataclass(slots=True)
class Report:
    """The outcomes in the order of the file, and what was created, or would have been in a dry run."""

    outcomes: list[Imported] = field(default_factory=list)
    monitors: list[Monitor] = field(default_factory=list)
    projects: list[Project] = field(default_factory=list)


def import_monitors(
    caller: Caller,
    mapped: Sequence[MappedMonitor],
    *,
    place: Mapping[str, Any],
    now: datetime,
    dry_run: bool = False,
    up_to_limit: bool = False,
    patience_sec: float | None = None,
) -> Report:
    """Create the monitors that do not exist yet, in the project `place["project_id"]` if that is given.

    A project token works in its own project. If `place` has no project, not even None, groups become projects of the
    caller, found by name or created.

    Creates nothing with `dry_run`, and if it raises ValidationFailed (unknown project), MonitorLimit (plan) or
    TooManyRequests (another apply or import of the account runs for `patience_sec`; None: wait). With `up_to_limit`,
    monitors beyond the plan's limit are skipped instead. The scheduler makes the first checks at once.
    """
    with transaction.atomic():
        take_turn(caller, patience_sec=patience_sec)
        report = _Importing(caller, mapped, place=place, up_to_limit=up_to_limit, now=now).run(dry_run=dry_run)
        transaction.set_rollback(dry_run)
    return report


class _Importing:
    def __init__(
        self,
        caller: Caller,
        mapped: Sequence[MappedMonitor],
        *,
        place: Mapping[str, Any],
        up_to_limit: bool,
        now: datetime,
    ) -> None:
        """Lock the projects, then the owner: a concurrent import waits, and then finds these monitors."""
        self.caller, self.mapped, self.now = caller, mapped, now
        self.has_groups = "project_id" not in place and caller.project is None
        self.project, owner = placement.place(caller, place)
        self.projects = self._lock_projects() if self.has_groups else {}
        self.owner = lock_owner(owner)
        limit = self.owner.plan.monitor_limit if up_to_limit else None
        self.room = None if limit is None else limit - Monitor.objects.filter(owner=self.owner).count()
        """How many monitors may be created. None: `create_monitors` decides."""
        self.refused: dict[str, ValidationFailed] = {}  # by group
        self.report = Report()

    def run(self, *, dry_run: bool) -> Report:
        among = Q(project=self.project) | Q(project__in=self.projects.values())
        monitors = Monitor.objects.filter(among, owner=self.owner)
        self.existing = Counter(_key(*row) for row in monitors.values_list("project", "type", "name", "url"))
        drafts: dict[int, Draft] = {}
        outcomes: dict[int, Imported] = {}
        for index, each in enumerate(self.mapped):
            try:
                found = self._plan(each, has_room=self.room is None or len(drafts) < self.room)
            except PrivateAddress as error:  # the advice is given once, for all of them
                note = Note("here", f"{error.field}: {error.bare_reason}")
                outcomes[index] = Imported(each.name, Outcome.SKIPPED, (note,), is_private=True)
            except ValidationFailed as error:
                outcomes[index] = Imported(each.name, Outcome.SKIPPED, (Note("here", str(error)),))
            else:
                if isinstance(found, Draft):
                    drafts[index] = found
                else:
                    outcomes[index] = found
        self.report.monitors = services.create_monitors([*drafts.values()], now=self.now)
        for index, monitor in zip(drafts, self.report.monitors, strict=True):
            notes, created = tuple(self._notes(self.mapped[index], monitor)), _created(monitor, dry_run=dry_run)
            outcomes[index] = Imported(
                self.mapped[index].name, Outcome.CREATED, notes, created, _name_of(monitor.project)
            )
        self.report.outcomes = [outcomes[index] for index in range(len(self.mapped))]
        counts = Counter(monitor.project for monitor in self.report.monitors)
        log.record_counts(self.caller, Action.MONITORS_IMPORTED, counts)
        return self.report

    def _plan(self, each: MappedMonitor, *, has_room: bool) -> Draft | Imported:
        """Return the monitor to create, or why none is created. Raises ValidationFailed."""
        config = complete(validated(MonitorInputSerializer, each.body or {}), self.owner.plan)
        in_group = self.has_groups and bool(each.group)
        project = self.projects.get(each.group) if in_group else self.project
        if not in_group or project is not None:
            key = _key(None if project is None else project.pk, config.type, config.name, config.url)
            if self.existing[key] > 0:
                self.existing[key] -= 1
                return Imported(each.name, Outcome.EXISTING, project=_name_of(project))
        if not has_room:
            limit = self.owner.plan.monitor_limit
            return Imported(
                each.name, Outcome.SKIPPED, (Note("plan", f"exceeds the plan's limit of {limit} monitors"),)
            )
        if in_group and project is None:
            project = self._create_project(each.group)
        return Draft(self.owner, project, config, enabled=each.enabled)

    def _lock_projects(self) -> dict[str, Project]:
        """Lock and return the existing projects of the groups, by name: the oldest of those with the same name.

        Only the caller's own: anyone may add a person to a project, which must not receive that person's monitors.
        """
        names = {each.group for each in self.mapped if each.group}
        found = Membership.objects.filter(user=self.caller.user, role=Role.OWNER, project__name__in=names)
        projects: dict[str, Project] = {}
        for public_id, name in found.order_by("project").values_list("project__public_id", "project__name"):
            if name not in projects:
                projects[name] = access.lock_project(self.caller, public_id, roles=[Role.OWNER])
        return projects

    def _create_project(self, group: str) -> Project:
        """Create the project of a group. Raises ValidationFailed, the same for all monitors of the group."""
        if group in self.refused:
            raise self.refused[group]
        try:
            given = validated(ProjectInputSerializer, {"name": group})
            project = create_project(self.caller, **given, now=self.now)
        except (ValidationFailed, LimitReached) as error:
            self.refused[group] = ValidationFailed(f"its project {group} cannot be created: {error}")
            raise self.refused[group] from None
        self.projects[group] = project
        self.report.projects.append(project)
        return project

    def _notes(self, mapped: MappedMonitor, monitor: Monitor) -> list[Note]:
        """Return notes about changes by the plan and by the chosen project."""
        wanted = (mapped.body or {}).get("interval_sec")
        notes = [] if mapped.enabled else [Note("paused", "it stays paused")]
        if wanted is not None and monitor.interval_sec != wanted:
            why = "the minimum of the plan" if monitor.interval_sec > wanted else "the maximum"
            notes.append(Note("interval", f"{wanted} s becomes {monitor.interval_sec} s, {why}"))
        if mapped.group and not self.has_groups:
            notes.append(Note("group", f"{mapped.group} is not imported: all monitors get the same project"))
        return notes


def _created(monitor: Monitor, *, dry_run: bool) -> CreatedMonitor:
    schedule = monitor.schedule
    pings = monitor.kind.waits and not dry_run
    return CreatedMonitor(
        id=None if dry_run else monitor.public_id,
        type=monitor.type,
        url=monitor.url,
        interval_sec=monitor.interval_sec,
        schedule=None if schedule is None else schedule.expression,
        timezone=None if schedule is None else schedule.timezone,
        ping_url=monitor.ping_url if pings else None,
    )


def _name_of(project: Project | None) -> str | None:
    return None if project is None else project.name


def _key(project: int | None, kind: str, name: str, url: str) -> tuple[object, ...]:
    """Return the key that identifies a monitor. The type counts by its family, as it may change within it."""
    return (project, types.get(kind).family, name, url)

"""Create imported monitors and channels as the API does, in one transaction, and skip existing ones.

An existing monitor has the same type, name and URL in the same project, so a file can be imported again. Duplicates in
a file are separate monitors. A monitor that was renamed since is imported again.

A channel is created for the created monitors that name it. An existing one has the same kind and settings in the same
place. If it has chosen monitors, it chooses the created ones too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q

from alerts import confirmation
from alerts.models import AlertChannel
from alerts.selectors import list_channels
from alerts.serializers import ChannelInputSerializer
from alerts.services import add_monitors, create_channel, identifying_settings
from alerts.transports import KINDS
from audit.actions import Action
from core.api.fields import validated
from core.errors import ApiError, LimitReached, PrivateAddress, ValidationFailed
from core.throttles import count_request
from manifests.account import take_turn
from monitors import services, types
from monitors.models import Monitor
from monitors.serializers import MonitorInputSerializer
from monitors.services import Draft, complete, limits_at, lock_owner
from projects import access, log, placement
from projects.access import Caller
from projects.models import Membership, Project, Role
from projects.serializers import ProjectInputSerializer
from projects.services import create_project
from pulsekeeper.importers.mapped import (
    CreatedMonitor,
    Imported,
    ImportedChannel,
    MappedChannel,
    MappedFile,
    MappedMonitor,
    Note,
    Outcome,
)


@dataclass(slots=True)
class Report:
    """The outcomes of `MappedFile.items`, and what was created, or would have been in a dry run.

    `extended` are the existing channels that choose created monitors.
    """

    outcomes: list[Imported] = field(default_factory=list)
    monitors: list[Monitor] = field(default_factory=list)
    projects: list[Project] = field(default_factory=list)
    channels: list[AlertChannel] = field(default_factory=list)
    extended: list[AlertChannel] = field(default_factory=list)


def import_monitors(
    caller: Caller,
    mapped: MappedFile,
    *,
    place: Mapping[str, Any],
    now: datetime,
    dry_run: bool = False,
    up_to_limit: bool = False,
    patience_sec: float | None = None,
) -> Report:
    """Create the monitors and channels that do not exist yet, in the project `place["project_id"]` if that is given.

    A project token works in its own project. If `place` has no project, not even None, groups become projects of the
    caller, found by name or created.

    Creates nothing with `dry_run`, and if it raises ValidationFailed (unknown project), MonitorLimit (plan) or
    TooManyRequests (another apply or import of the account runs for `patience_sec`; None: wait. Or too many e-mail
    addresses are asked for consent). With `up_to_limit`, monitors beyond the plan's limit are skipped instead. The
    scheduler makes the first checks at once.
    """
    with transaction.atomic():
        take_turn(caller, patience_sec=patience_sec)
        if not dry_run:
            _count_mails(caller, mapped.channels)
        report = _Importing(caller, mapped, place=place, up_to_limit=up_to_limit, now=now).run(dry_run=dry_run)
        transaction.set_rollback(dry_run)
    return report


def _count_mails(caller: Caller, channels: Sequence[MappedChannel]) -> None:
    """Count addresses whose owner has to agree as invitations. Raises TooManyRequests. Locks no rows."""
    for each in channels:
        body = each.body or {}
        kind = KINDS.get(body.get("kind", ""))
        if kind is not None and kind.consent and body.get(kind.consent) != caller.user.email:
            count_request("invite", caller.account)


class _Importing:
    def __init__(
        self,
        caller: Caller,
        mapped: MappedFile,
        *,
        place: Mapping[str, Any],
        up_to_limit: bool,
        now: datetime,
    ) -> None:
        """Lock the projects, then the owner: a concurrent import waits, and then finds these monitors."""
        self.caller, self.mapped, self.channels, self.now = caller, mapped.monitors, mapped.channels, now
        self.has_groups = "project_id" not in place and caller.project is None
        if self.channels:  # creating one locks this row too, before projects
            confirmation.own_address(caller)
        self.project, owner = placement.place(caller, place)
        self.projects = self._lock_projects() if self.has_groups else {}
        self.owner = lock_owner(owner)
        self.limits = limits_at(self.project.pk if self.project else None, self.owner, caller=caller)
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
        self.report.monitors = services.create_monitors(self.caller, [*drafts.values()], now=self.now)
        for index, monitor in zip(drafts, self.report.monitors, strict=True):
            notes, created = tuple(self._notes(self.mapped[index], monitor)), _created(monitor, dry_run=dry_run)
            outcomes[index] = Imported(
                self.mapped[index].name, Outcome.CREATED, notes, created, _name_of(monitor.project)
            )
        monitors_of: dict[str, list[Monitor]] = defaultdict(list)
        for index, monitor in zip(drafts, self.report.monitors, strict=True):
            for key in self.mapped[index].channels:
                monitors_of[key].append(monitor)
        existing = self._existing_channels() if self.channels else []
        self.report.outcomes = [
            *(outcomes[index] for index in range(len(self.mapped))),
            *(self._import_channel(each, monitors_of[each.key], existing, dry_run=dry_run) for each in self.channels),
        ]
        counts = Counter(monitor.project for monitor in self.report.monitors)
        log.record_counts(self.caller, Action.MONITORS_IMPORTED, counts)
        return self.report

    def _plan(self, each: MappedMonitor, *, has_room: bool) -> Draft | Imported:
        """Return the monitor to create, or why none is created. Raises ValidationFailed."""
        config = complete(validated(MonitorInputSerializer, each.body or {}), self.limits)
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

    def _existing_channels(self) -> list[AlertChannel]:
        """Return the channels in the place of the import, those first that need not choose a monitor."""
        found = list_channels(self.caller).filter(owner=self.owner, project=self.project).prefetch_related(None)
        return sorted(found.order_by("pk"), key=lambda channel: channel.scope == AlertChannel.Scope.CHOSEN)

    def _import_channel(
        self, each: MappedChannel, monitors: Sequence[Monitor], existing: list[AlertChannel], *, dry_run: bool
    ) -> Imported:
        """Create a channel for these monitors, or find it."""
        try:
            given = validated(ChannelInputSerializer, each.body or {}) | {"enabled": each.enabled}
            settings = identifying_settings(given)
            same = (one for one in existing if one.kind == given["kind"] and settings.items() <= one.config.items())
            if (found := next(same, None)) is not None:
                adds = bool(monitors) and found.scope == AlertChannel.Scope.CHOSEN
                if adds:
                    add_monitors(self.caller, found.public_id, monitors)
                    self.report.extended.append(found)
                shown = ImportedChannel(found.public_id, found.kind, found.hint, len(monitors) if adds else 0)
                return Imported(each.name, Outcome.EXISTING, project=_name_of(found.project), channel=shown)
            if not monitors:
                return Imported(each.name, Outcome.SKIPPED, (Note("here", "no created monitor uses it"),))
            given |= {"monitors": AlertChannel.Scope.CHOSEN, "monitor_ids": [one.public_id for one in monitors]}
            given |= {} if self.project is None else {"project_id": self.project.public_id}
            channel, _ = create_channel(self.caller, given, now=self.now)
        except ApiError as error:
            return Imported(each.name, Outcome.SKIPPED, (Note("here", str(error)),))
        existing.append(channel)
        self.report.channels.append(channel)
        shown = ImportedChannel(None if dry_run else channel.public_id, channel.kind, channel.hint, len(monitors))
        return Imported(each.name, Outcome.CREATED, project=_name_of(channel.project), channel=shown)

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

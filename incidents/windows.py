"""Maintenance windows: create, change and roll forward, and find the monitors that they cover."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

from django.contrib.postgres.aggregates import ArrayAgg
from django.db import transaction
from django.db.models import (
    BooleanField,
    Case,
    Exists,
    F,
    Func,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Cast, Concat

from core.db import IsAmong, compiled_once
from core.errors import ValidationFailed, WindowLimit
from core.etags import IfMatch
from incidents import recurrence
from incidents.models import MaintenanceWindow
from incidents.recurrence import Occurrence, Schedule
from incidents.selectors import get_window
from monitors.models import Monitor
from monitors.selectors import named
from monitors.services import lock_monitors
from monitors.uptime.daily import leave_out
from projects import access
from projects.access import WRITERS, Caller
from projects.models import Membership, Project
from projects.placement import enforce_links, enforce_quota, place, require_same_project

logger = logging.getLogger(__name__)

MAX_WINDOWS = 100
MAX_CHOSEN = 1_000
SCOPES = ("all", "chosen")
ROLLED_AT_ONCE = 200


def schedule_of(window: MaintenanceWindow) -> Schedule:
    return Schedule(window.starts_at, window.ends_at, window.time_zone, window.rrule)


def occurrence_of(window: MaintenanceWindow, *, now: datetime) -> Occurrence | None:
    """Return the active or next occurrence at `now`, even if the window was not rolled forward yet."""
    if window.current_starts_at is None or window.current_ends_at is None:
        return None
    if window.current_ends_at > now:
        return Occurrence(window.current_starts_at, window.current_ends_at)
    return next(_occurrences(window, after=now), None)


def upcoming(window: MaintenanceWindow, *, now: datetime, until: datetime) -> Iterator[Occurrence]:
    """Return the active occurrence at `now` and those that begin before `until`; none if the rule is invalid."""
    first = occurrence_of(window, now=now)
    if first is None or first.starts_at >= until:
        return
    yield from takewhile(lambda found: found.starts_at < until, _occurrences(window, after=now))


def _occurrences(window: MaintenanceWindow, *, after: datetime) -> Iterator[Occurrence]:
    """Return the occurrences of a stored rule that end after `after`. An invalid one, stored with other code or time
    zone data, must not stop the others."""
    try:
        yield from schedule_of(window).occurrences(after=after)
    except (ValidationFailed, ZoneInfoNotFoundError):
        logger.exception("maintenance window %s can no longer be read, and is over", window.public_id)


def create_window(caller: Caller, given: Mapping[str, Any], *, now: datetime) -> MaintenanceWindow:
    schedule = Schedule(given["starts_at"], given["ends_at"], given.get("time_zone", "UTC"), given.get("rrule") or "")
    current = recurrence.check(schedule, now=now)  # before any lock, because an unusual rule takes time
    chosen = given.get("monitor_ids", [])
    with transaction.atomic():
        lock_monitors(caller, chosen)
        project, owner = place(caller, given)
        tags = given.get("monitor_tags", ())
        monitors = _choose(caller, project, scope=given["monitors"], monitor_ids=chosen, tags=tags)
        enforce_quota(owner, MaintenanceWindow, limit=MAX_WINDOWS, error=WindowLimit)
        enforce_links(owner.pk, now_chosen=len(monitors))
        window = MaintenanceWindow(
            owner=owner,
            project=project,
            created_at=now,
            name=given["name"],
            all_monitors=given["monitors"] == "all",
            current_starts_at=current.starts_at,
            current_ends_at=current.ends_at,
            **asdict(schedule),
        )
        window.select_tags(tags)
        window.save(force_insert=True)
        window.monitors.set(monitors)
        return get_window(caller, window.public_id)


def update_window(
    caller: Caller, public_id: str, given: Mapping[str, Any], *, now: datetime, if_match: IfMatch = None
) -> MaintenanceWindow:
    """Change these fields and validate the merged window; unchanged times may be in the past."""
    with transaction.atomic():
        lock_monitors(caller, given.get("monitor_ids", []))
        with_owner = bool(given.get("monitor_ids"))
        window = access.lock(get_window, caller, public_id, with_owner=with_owner, if_match=if_match)
        require_same_project(window, given, reason="cannot be changed; create a new window.")
        before = schedule_of(window)
        fields = ["name", *asdict(before)]
        for name in given.keys() & set(fields):
            setattr(window, name, given[name] or "")
        after = schedule_of(window)
        if after != before:
            window.current_starts_at, window.current_ends_at = recurrence.check(after, now=now)
        _rechoose(caller, window, given)
        changed = [*fields, "all_monitors", "monitor_tags", "monitor_tag_keys"]
        window.save(update_fields=[*changed, "current_starts_at", "current_ends_at"])
        return get_window(caller, public_id)


def end_window(caller: Caller, public_id: str, *, now: datetime) -> None:
    """End an active window that does not recur. Raises ValidationFailed for others."""
    with transaction.atomic():
        window = access.lock(get_window, caller, public_id)
        following = occurrence_of(window, now=now)
        if window.rrule or following is None or following.starts_at > now:
            raise ValidationFailed("Only an active window that does not recur can be ended. Delete this one instead.")
        window.ends_at = window.previous_ends_at = now
        window.current_starts_at = window.current_ends_at = None
        window.save(update_fields=["ends_at", "previous_ends_at", "current_starts_at", "current_ends_at"])


def delete_window(caller: Caller, public_id: str, *, if_match: IfMatch = None) -> None:
    """Delete a window. Suppressed notifications that still apply are sent at once."""
    with transaction.atomic():
        access.lock(get_window, caller, public_id, if_match=if_match).delete()


def roll_forward(now: datetime) -> int:
    """Move windows whose occurrence has ended to their next one, and return their number. Call it before
    `covered`, in a transaction only with these windows locked.

    Waits for windows that another process is moving instead of skipping them: `covered` would treat them as inactive.
    """
    rolled = 0
    while True:
        with transaction.atomic():
            over = list(
                MaintenanceWindow.objects.select_for_update(no_key=True)
                .filter(current_ends_at__lte=now)
                .order_by("pk")[:ROLLED_AT_ONCE]
            )
            for window in over:
                window.previous_ends_at = window.current_ends_at
                window.current_starts_at, window.current_ends_at = occurrence_of(window, now=now) or (None, None)
            MaintenanceWindow.objects.bulk_update(over, ["current_starts_at", "current_ends_at", "previous_ends_at"])
        rolled += len(over)
        if len(over) < ROLLED_AT_ONCE:
            return rolled


def covered(monitor_ids: Collection[int], now: datetime) -> set[int]:
    """Return which of these monitors are under maintenance at `now`.

    Only the current occurrence of each window counts, and the one before it for a `now` that is older than another
    process's, so call `roll_forward(now)` first.
    """
    return {pk for (pk,) in _covered(monitor_ids, now)}


class _SelectedByTag(Func):
    """Whether a monitor has a tag of one of the windows of its place, by the windows and the monitor's columns.

    The keys of all these windows are collected once, and those of each monitor looked up: comparing the tags of each
    monitor with those of each window took seconds for 10,000 and 100.
    """

    output_field = BooleanField()

    def as_sql(self, compiler: Any, connection: Any, *_: Any, **__: Any) -> Any:
        compiled = [compiler.compile(each) for each in self.get_source_expressions()]
        (windows, first), (keys, _), (owner, _), (project, _) = compiled
        statement = f"""(
            SELECT jsonb_object_agg(selecting.place || tag.key, true)
              FROM {windows} AS selecting (place, keys)
             CROSS JOIN jsonb_array_elements_text(selecting.keys) AS tag (key)
        ) ?| ARRAY(
            SELECT place || tag.key
              FROM jsonb_array_elements_text({keys}) AS tag (key)
             CROSS JOIN unnest(ARRAY['owner ' || {owner} || ' ', 'project ' || {project} || ' ']) AS place
             WHERE place IS NOT NULL
        )"""  # noqa: S608 - SQL by Django
        return statement, first


def _place() -> Case:
    """Return the place of a window, as _SelectedByTag has it."""
    text = TextField()
    owner = Concat(Value("owner ", text), Cast("owner", text), Value(" ", text))
    return Case(
        When(project=None, then=owner),
        default=Concat(Value("project ", text), Cast("project", text), Value(" ", text)),
    )


def _on(now: datetime) -> QuerySet[MaintenanceWindow]:
    """Return the windows that are active at `now`, or were at a `now` that is older than another process's."""
    return MaintenanceWindow.objects.filter(
        Q(current_starts_at__lte=now, current_ends_at__gt=now) | Q(previous_ends_at__gt=now)
    )


def covering(now: datetime, *, among: Func | None = None) -> Exists | Q:
    """Match monitors that are under maintenance at `now`, by the rules of `covered`. `among`: keys of the monitors."""
    on = _on(now)
    tagged = on.filter(all_monitors=False, monitor_tag_keys__isnull=False)
    if among is not None:
        places = Monitor.objects.filter(pk__in=among).order_by()
        tagged = tagged.filter(Q(owner__in=places.values("owner")) | Q(project__in=places.values("project")))
    whole, chosen = on.filter(all_monitors=True), on.filter(all_monitors=False, monitors=OuterRef("pk"))
    has_access = Q(owner=OuterRef("owner")) | Exists(
        Membership.objects.filter(user=OuterRef("owner"), project=OuterRef(OuterRef("project")), role__in=WRITERS)
    )
    return (
        Exists(whole.filter(project=OuterRef("project")))
        | Exists(whole.filter(project=None, owner=OuterRef("owner")))
        | Exists(chosen.filter(project=OuterRef("project")))
        | Exists(chosen.filter(has_access, project=None))
        # Unlike the others, this is computed for each monitor, so only for those with tags.
        | Q(tag_keys__isnull=False)
        & Q(
            _SelectedByTag(
                Subquery(tagged.annotate(place=_place()).values("place", "monitor_tag_keys")),
                F("tag_keys"),
                F("owner_id"),
                F("project_id"),
            )
        )
    )


_covered = compiled_once(
    lambda keys, now: Monitor.objects.filter(covering(now, among=keys), pk__in=keys).order_by().values_list("pk")
)


@dataclass(frozen=True, slots=True)
class Coming:
    """An occurrence of a window, and the monitors that it covers among those in question."""

    name: str
    starts_at: datetime
    ends_at: datetime
    monitor_ids: frozenset[int]


def coming(monitors: Sequence[Monitor], *, now: datetime, until: datetime) -> list[Coming]:
    """Return the active or next occurrence of each window that covers any of these monitors before `until`.

    Follows the rules of `covered`; always three queries.
    """
    by_id = {monitor.pk: monitor for monitor in monitors}
    projects = {monitor.project_id for monitor in monitors if monitor.project_id is not None}
    tags = sorted({key for monitor in monitors for key in monitor.tag_keys})
    chosen = MaintenanceWindow.monitors.through.objects.filter(monitor__in=by_id)
    found = list(
        MaintenanceWindow.objects.filter(current_ends_at__isnull=False, current_starts_at__lt=until).filter(
            Q(all_monitors=True, project__in=projects)
            | Q(all_monitors=True, project=None, owner__in={monitor.owner_id for monitor in monitors})
            | Q(all_monitors=False, monitor_tag_keys__has_any_keys=tags)
            & (Q(project__in=projects) | Q(project=None, owner__in={monitor.owner_id for monitor in monitors}))
            | Q(all_monitors=False, pk__in=chosen.values("maintenancewindow"))
        )
    )
    # Arrays of keys: a hundred windows may each name a thousand monitors.
    of_window = dict(
        chosen.filter(maintenancewindow__in=[window.pk for window in found if not window.all_monitors])
        .values_list("maintenancewindow")
        .annotate(ids=ArrayAgg("monitor"))
    )
    # A person's window covers only monitors that the person can change.
    owners = {window.owner_id for window in found if window.project_id is None and not window.all_monitors}
    written = Membership.objects.filter(user__in=owners, project__in=projects, role__in=WRITERS)
    places = set(written.values_list("user", "project"))

    def covers_chosen(window: MaintenanceWindow, monitor: Monitor) -> bool:
        if window.project_id is not None:
            return monitor.project_id == window.project_id
        return monitor.owner_id == window.owner_id or (window.owner_id, monitor.project_id) in places

    members: dict[tuple[str, int | None], set[int]] = defaultdict(set)
    for monitor in monitors:
        members["project", monitor.project_id].add(monitor.pk)
        members["owner", monitor.owner_id].add(monitor.pk)
    result = []
    for window in found:
        occurrence = occurrence_of(window, now=now)
        if occurrence is None or occurrence.starts_at >= until:
            continue
        in_project = window.project_id is not None
        ids = members["project", window.project_id] if in_project else members["owner", window.owner_id]
        if not window.all_monitors:
            keys = set(window.monitor_tag_keys)
            tagged = {pk for pk in ids if not keys.isdisjoint(by_id[pk].tag_keys)} if keys else set()
            ids = tagged | {pk for pk in of_window.get(window.pk, ()) if covers_chosen(window, by_id[pk])}
        if ids:
            result.append(Coming(window.name, *occurrence, frozenset(ids)))
    return sorted(result, key=lambda one: (one.starts_at, one.ends_at, one.name))


def note_maintenance(now: datetime) -> None:
    """Exclude active maintenance from daily uptime, up to its planned end.

    Editing or deleting a window does not change the past.
    """
    on = dict(_on(now).order_by().values_list("pk", "owner"))
    projects = set(MaintenanceWindow.objects.filter(pk__in=on, project__isnull=False).values_list("project", flat=True))
    chosen = MaintenanceWindow.monitors.through.objects.filter(maintenancewindow__in=on).values("monitor")
    # Found by indexes: `covering` alone would be computed for each monitor of all accounts, each minute.
    near = Q(owner__in=set(on.values())) | Q(project__in=projects) | Q(IsAmong(F("pk"), Subquery(chosen)))
    found = Monitor.objects.filter(near).filter(covering(now)).only("owner", "project", "tag_keys")
    monitors = list(found) if on else []
    spans: dict[tuple[int, datetime], datetime] = {}
    for one in coming(monitors, now=now, until=now + timedelta.resolution) if monitors else ():
        for monitor_id in one.monitor_ids:
            key = monitor_id, one.starts_at
            spans[key] = max(one.ends_at, spans.get(key, one.ends_at))
    leave_out(spans, now=now)


def _rechoose(caller: Caller, window: MaintenanceWindow, given: Mapping[str, Any]) -> None:
    """Change the chosen monitors. An unchanged choice is not checked, so a window survives the deletion of its
    monitors."""
    scope, stored = given.get("monitors", window.scope), {m.public_id for m in window.chosen}
    monitor_ids = given.get("monitor_ids", [] if scope == "all" else stored)
    tags = given.get("monitor_tags", () if scope == "all" else window.monitor_tags)
    loses_tags = bool(window.monitor_tags) and not tags
    window.select_tags(tags)
    is_same = (scope, set(monitor_ids)) == (window.scope, stored)
    if is_same and not (tags if scope == "all" else loses_tags and not stored):
        return
    monitors = _choose(caller, window.project, scope=scope, monitor_ids=monitor_ids, tags=tags)
    enforce_links(window.owner_id, now_chosen=len(monitors), before=window.monitors.count())
    window.monitors.set(monitors)
    window.all_monitors = scope == "all"


def _choose(
    caller: Caller, project: Project | None, *, scope: str, monitor_ids: Collection[str], tags: Collection[str]
) -> list[Monitor]:
    if scope == "all":
        if monitor_ids or tags:
            field = "monitor_ids" if monitor_ids else "monitor_tags"
            raise ValidationFailed('apply only with "monitors": "chosen".', field=field)
        return []
    if not monitor_ids and not tags:
        raise ValidationFailed("select at least one monitor or tag.", field="monitor_ids")
    monitors = access.accessible(caller, Monitor.objects.only("public_id", "type", "owner_id", "project_id"))
    monitors = monitors.filter(named(monitor_ids))
    if project is not None:
        monitors = monitors.filter(project=project)
    found = list(monitors)
    missing = set(monitor_ids) - {public_id for one in found for public_id in (one.public_id, one.reading_id)}
    for monitor in found:
        caller.require_write(monitor)  # its alerts are suppressed
    if missing:
        where = " in this project" if project else ""
        raise ValidationFailed(f"monitor {min(missing)} not found{where}.", field="monitor_ids")
    return found

"""The public content of a status page: everything that renderings show, and nothing else about the monitors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any

from dateutil.relativedelta import relativedelta
from django.db.models import F, Prefetch, QuerySet

from checks.spec import Verdict
from incidents import windows
from incidents.models import Incident
from locations.models import Location
from locations.selectors import with_agents
from monitors.models import LocationFailure
from monitors.partial import failing_from
from monitors.selectors import began_at, status_of
from monitors.uptime.daily import History, daily_uptimes
from statuspages.models import NoteUpdate, PageMonitor, PageNote, StatusPage
from statuspages.selectors import shown_monitors

DAYS = 90
PAST = timedelta(days=14)
AHEAD = timedelta(days=14)
MOST_OUTAGES = 200
"""Limit on past outages, newest first: a flapping monitor must not fill the page with thousands."""

MOST_NAMED = 2_000
"""Limit on the monitors that all windows together name: 100 windows of 1,000 monitors would take 100 MB. Later
windows are left out, except the first one."""

MOST_NOTES, MOST_UPDATES = 50, 20
"""Limits on notes, and on the updates of each, newest first."""

UP, SLOW, DOWN = Verdict.UP.value, Verdict.SLOW.value, Verdict.DOWN.value
DEGRADED, MAINTENANCE, PAUSED, UNKNOWN = "degraded", "maintenance", "paused", "unknown"


@dataclass(frozen=True, slots=True)
class IncidentEntry:
    """An outage of a monitor, a note, or both. The newest update comes first."""

    key: str
    title: str
    started_at: datetime
    resolved_at: datetime | None
    monitor: str | None = None
    updates: list[NoteUpdate] = field(default_factory=list)

    @property
    def lasted(self) -> timedelta | None:
        return None if self.resolved_at is None else self.resolved_at - self.started_at

    @property
    def day(self) -> date:
        return self.started_at.astimezone(UTC).date()

    @property
    def changed_at(self) -> datetime:
        return max([self.resolved_at or self.started_at, *(update.at for update in self.updates)])


@dataclass(frozen=True, slots=True)
class Content:
    """`groups` and `maintenance` are as in the JSON of the page; `incidents` are newest first."""

    state: str
    sentence: str
    groups: list[dict[str, Any]]
    incidents: list[IncidentEntry]
    maintenance: list[dict[str, Any]]

    @property
    def current(self) -> list[IncidentEntry]:
        return [one for one in self.incidents if one.resolved_at is None]

    @property
    def past(self) -> list[IncidentEntry]:
        return [one for one in self.incidents if one.resolved_at is not None]


def content_of(page: StatusPage, *, now: datetime) -> Content:
    """Return the content of a page. The number of queries does not depend on the number of monitors."""
    items = shown_monitors(page)
    monitors = [item.monitor for item in items]
    histories = daily_uptimes(monitors, days=DAYS, now=now)
    coming = windows.coming(monitors, now=now, until=now + AHEAD)
    covered = {pk for one in coming if one.starts_at <= now for pk in one.monitor_ids}
    failing = failing_from(monitors)
    entries = {
        item: _monitor(item, histories[item.monitor_id], covered, is_partial=item.monitor_id in failing, now=now)
        for item in items
    }
    if page.show_locations:
        _add_locations(entries, failing, now=now)
    groups = [
        {"name": group.name, "monitors": [entries[item] for item in members]}
        for group, members in groupby(items, key=lambda item: item.group)
    ]
    incidents = recent_incidents(page, items, now=now)
    state, sentence = _overall(list(entries.values()), incidents)
    return Content(state, sentence, groups, incidents, _maintenance(page, items, coming, now=now))


def recent_incidents(page: StatusPage, items: Sequence[PageMonitor], *, now: datetime) -> list[IncidentEntry]:
    """Return the incidents of the last days and the open ones, newest first. `items` are the shown monitors."""
    return _incidents(page, items, since=now - PAST, until=now + AHEAD, and_open=True)


def incidents_of_month(page: StatusPage, first: date) -> list[IncidentEntry]:
    """Return the incidents of the month from its `first` day on, newest first."""
    since = datetime(first.year, first.month, 1, tzinfo=UTC)
    return _incidents(page, shown_monitors(page), since=since, until=since + relativedelta(months=1), and_open=False)


def _monitor(
    item: PageMonitor, history: History, covered: set[int], *, is_partial: bool, now: datetime
) -> dict[str, Any]:
    """`since` is when the status began: for an outage the first failed check. `is_partial`: from some locations."""
    monitor, state = item.monitor, item.monitor.state
    if not monitor.enabled:
        status = PAUSED
    elif monitor.pk in covered and state.status == DOWN:
        status = MAINTENANCE
    else:
        status = status_of(monitor, now=now) or UNKNOWN
    if is_partial and status in (UP, SLOW):
        status = MAINTENANCE if monitor.pk in covered else DEGRADED
    return {
        "name": item.name,
        "status": status,
        "since": began_at(state),
        "uptime_7d": history.percent(7),
        "uptime_30d": history.percent(30),
        "uptime_90d": history.percent(),
        "days": {"first": f"{history.start}", "uptime": history.percents()},
    }


def _add_locations(
    entries: Mapping[PageMonitor, dict[str, Any]], failing: Mapping[int, Sequence[LocationFailure]], *, now: datetime
) -> None:
    """Add `locations` to the monitors with several: the name and the status of each."""
    names = {name for item in entries for name in item.monitor.locations}
    found = with_agents(Location.objects.filter(public_id__in=names), now=now)
    known = {one.public_id: one for one in found}
    for item, entry in entries.items():
        failed = {failure.location_id for failure in failing.get(item.monitor_id, ())}
        if len(item.monitor.locations) > 1 and entry["status"] != PAUSED:
            entry["locations"] = [
                {"name": one.title, "status": _seen_from(one, failed, entry["status"])}
                for one in map(known.get, item.monitor.locations)
                if one is not None
            ]


def _seen_from(location: Location, failed: Collection[int | None], status: str) -> str:
    if status == UNKNOWN or not location.is_online:
        return UNKNOWN
    if (None if location.is_default else location.pk) in failed:
        return MAINTENANCE if status == MAINTENANCE else DOWN
    return UP if failed else status


def _maintenance(
    page: StatusPage, items: Sequence[PageMonitor], coming: Sequence[windows.Coming], *, now: datetime
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    named = 0
    for one in coming:
        named += len(one.monitor_ids)
        if found and named > MOST_NAMED:
            break
        found.append(
            {
                "title": one.name if page.show_window_names else "Scheduled maintenance",
                "starts_at": one.starts_at,
                "ends_at": one.ends_at,
                "active": one.starts_at <= now,
                "monitors": [item.name for item in items if item.monitor_id in one.monitor_ids],
            }
        )
    return found


def _incidents(
    page: StatusPage, items: Sequence[PageMonitor], *, since: datetime, until: datetime, and_open: bool
) -> list[IncidentEntry]:
    """Return the incidents that began in [since, until), newest first, and with `and_open` earlier open ones."""
    shown = [item.monitor_id for item in items]
    incidents = (
        Incident.objects.filter(monitor__in=shown, confirmed_at__isnull=False)
        .only("public_id", "monitor", "started_at", "resolved_at")
        .annotate(cause=F("caused_by__monitor"))
    )
    notes = list(_notes(page, created_at__gte=since, created_at__lt=until))
    began = incidents.filter(started_at__gte=since, started_at__lt=until)
    outages = list(began.order_by("-started_at")[:MOST_OUTAGES])
    if and_open:
        notes += _notes(page, created_at__lt=since, resolved_at=None)
        outages += incidents.filter(started_at__lt=since, resolved_at=None).order_by("-started_at")[:MOST_OUTAGES]
    names: dict[int | None, str] = {item.monitor_id: item.name for item in items}
    announced = {note.incident_id for note in notes}
    entries = [_of_note(note, names) for note in notes]
    entries += [
        IncidentEntry(
            outage.public_id,
            _title(names[pk], names.get(outage.cause), is_over=outage.resolved_at is not None),
            outage.started_at,
            outage.resolved_at,
            names[pk],
        )
        for outage in outages
        if outage.pk not in announced and (pk := outage.monitor_id) in names
    ]
    return sorted(entries, key=lambda one: one.started_at, reverse=True)


def _title(name: str, cause: str | None, *, is_over: bool) -> str:
    """Return the title of an outage. `cause`: the name of the monitor that it depends on, if the page shows that."""
    verb = "was" if is_over else "is"
    return f"{name} {verb} down" + (f" because {cause} {verb}" if cause else "")


def _notes(page: StatusPage, **period: Any) -> QuerySet[PageNote]:
    """Return the newest notes of a period, with their newest updates first."""
    updates = Prefetch("updates", NoteUpdate.objects.order_by("-pk")[:MOST_UPDATES], to_attr="shown_updates")
    notes = PageNote.objects.filter(page=page, **period).select_related("incident").prefetch_related(updates)
    return notes.order_by("-created_at")[:MOST_NOTES]


def _of_note(note: PageNote, names: dict[int | None, str]) -> IncidentEntry:
    incident = note.incident
    shown = None if incident is None else names.get(incident.monitor_id)
    started_at = note.created_at if incident is None or shown is None else incident.started_at
    return IncidentEntry(note.public_id, note.title, started_at, note.resolved_at, shown, note.shown_updates)  # type: ignore[attr-defined]


def _overall(monitors: Sequence[dict[str, Any]], incidents: Sequence[IncidentEntry]) -> tuple[str, str]:
    """Return the overall status and a sentence for it."""
    count, by = len(monitors), Counter(one["status"] for one in monitors)
    if by[DOWN]:
        if by[DOWN] == count:
            return DOWN, "All systems are down" if count > 1 else f"{monitors[0]['name']} is down"
        return DOWN, f"{by[DOWN]} of {count} {'is' if by[DOWN] == 1 else 'are'} down"
    if any(one.updates and one.resolved_at is None for one in incidents):
        return SLOW, "We are investigating an incident"
    if by[MAINTENANCE]:
        return MAINTENANCE, "Maintenance in progress"
    if by[DEGRADED]:
        return DEGRADED, f"{by[DEGRADED]} of {count} {'is' if by[DEGRADED] == 1 else 'are'} degraded"
    if by[SLOW]:
        return SLOW, "Degraded performance"
    if by[UNKNOWN] and by[UP]:
        return UNKNOWN, f"No current data for {by[UNKNOWN]} of {count}"
    if by[UP]:
        return UP, "All systems operational"
    return UNKNOWN, "No current data" if count else "No monitors yet"

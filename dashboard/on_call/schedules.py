"""On-call schedules: the list, and the page of one with its calendar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from core.api.fields import validated
from core.clock import from_ms, to_ms
from core.hours import Span
from core.zones import TIME_ZONES
from dashboard.forms import time_zones
from dashboard.on_call import calendar, words
from dashboard.on_call.calendar import Week, day_of, in_words, monday_of, month_of, timeline
from dashboard.on_call.overrides import OverrideForm, SwapForm
from dashboard.on_call.people import Person, Roster, roster_of, rosters
from dashboard.pages import PageRequest, action, page, render_page
from dashboard.paging import first_page
from oncall import rotation, selectors, services
from oncall.models import OnCallSchedule
from oncall.selectors import Row
from oncall.serializers import OnCallOverrideSerializer
from projects.access import Caller

AHEAD = timedelta(days=30)
PAGE = 20
MOST_SHOWN = 200
"""Shifts in the list below a calendar."""
WEEK, MONTH = "week", "month"
_MOMENT = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule with who is on call now and next, and the gaps within AHEAD."""

    schedule: OnCallSchedule
    roster: Roster
    now: rotation.Now
    gaps: Sequence[Span]

    @property
    def person(self) -> Person | None:
        return None if self.now.user_id is None else self.roster[self.now.user_id]

    @property
    def next(self) -> Person | None:
        return None if self.now.next_user_id is None else self.roster[self.now.next_user_id]

    @property
    def is_lasting(self) -> bool:
        """Return whether the person is on call for as long as `rotation.now` looks ahead."""
        return self.person is not None and self.next is None

    @property
    def unreachable(self) -> list[Person]:
        """Return the people of the layers who have no confirmed contact."""
        named = {user_id for layer in self.schedule.layers for user_id in layer["user_ids"]}
        people = (person for user_id, person in self.roster.people.items() if user_id in named)
        return sorted((one for one in people if not one.is_reachable), key=lambda person: person.email)


def views_of(caller: Caller, schedules: Sequence[OnCallSchedule], *, now: datetime) -> list[ScheduleView]:
    """Return the schedules as lists show them. Four queries."""
    named = {user_id for schedule in schedules for user_id in selectors.named_in(schedule)}
    people = selectors.people_of(schedules, among=named)
    found = rosters(caller, [people[schedule] for schedule in schedules])
    return [_view(schedule, roster, now=now) for schedule, roster in zip(schedules, found, strict=True)]


def _view(schedule: OnCallSchedule, roster: Roster, *, now: datetime) -> ScheduleView:
    parsed, present = selectors.parsed(schedule), roster.people
    gaps = rotation.gaps_between(parsed, now, now + AHEAD, present)
    return ScheduleView(schedule, roster, rotation.now(parsed, now, present), gaps)


def page_of(rows: QuerySet[Any], after: str) -> tuple[list[Any], Row | None]:
    """Return a page of rows by name: those that follow the row with the public id `after`."""
    rows = rows.order_by("name", "pk")
    last = rows.filter(public_id=after).first() if after else None
    if last is not None:
        rows = rows.filter(Q(name__gt=last.name) | Q(name=last.name, pk__gt=last.pk))
    return first_page(rows, PAGE)


@page
@selectors.computing()
def index(request: PageRequest) -> HttpResponse:
    after = request.GET.get("after", "")
    rows, last = page_of(selectors.list_schedules(request.caller), after)
    views = views_of(request.caller, rows, now=request.now)
    return render_page(request, "on_call/schedules", schedules=views, next=last, later=bool(after), tab="schedules")


@dataclass(frozen=True, slots=True)
class Range:
    """What a calendar shows: a week or a month of a zone, and the days to which its arrows lead."""

    view: str
    zone: str
    day: date
    weeks: Sequence[Week]
    earlier: date
    later: date

    @classmethod
    def read(cls, query: Any, schedule: OnCallSchedule, *, now: datetime) -> Range:
        """Return the range that a URL names. What is invalid is ignored."""
        own_zone = schedule.time_zone if schedule.time_zone in TIME_ZONES else "UTC"
        zone = query.get("zone", "")
        zone = zone if zone in TIME_ZONES else own_zone
        try:
            day = date.fromisoformat(query.get("at", ""))
        except ValueError:
            day = day_of(now, zone)
        day = min(max(day, calendar.FIRST_DAY), calendar.LAST_DAY)
        if query.get("view") == MONTH:
            first = day.replace(day=1)
            last = first - timedelta(days=1)
            following = (day.replace(day=28) + timedelta(days=4)).replace(day=1)
            return cls(MONTH, zone, day, month_of(day, zone), last.replace(day=1), following)
        monday = monday_of(day)
        week, jump = Week.of(monday, zone), timedelta(weeks=1)
        return cls(WEEK, zone, day, [week], monday - jump, monday + jump)

    @property
    def title(self) -> str:
        if self.view == MONTH:
            return f"{self.day:%B %Y}"
        first, last = self.weeks[0].days[0], self.weeks[0].days[-1]
        return f"{first:%-d %b} to {last:%-d %b %Y}"

    @property
    def starts_at(self) -> datetime:
        return self.weeks[0].starts_at

    @property
    def ends_at(self) -> datetime:
        return self.weeks[-1].ends_at


@dataclass(frozen=True, slots=True)
class OverrideView:
    """A stored override, with its times in a zone."""

    override: dict[str, Any]
    person: Person
    starts: str
    ends: str


@page
@selectors.computing()
def show(request: PageRequest, schedule_id: str) -> HttpResponse:
    return _show(request, selectors.get_schedule(request.caller, schedule_id))


def _show(request: PageRequest, schedule: OnCallSchedule, **forms: Any) -> HttpResponse:
    """Render the page of a schedule, with the range that the URL names. Forms with errors replace the empty ones."""
    now, roster, parsed = request.now, roster_of(request.caller, schedule), selectors.parsed(schedule)
    shown, view = Range.read(request.GET, schedule, now=now), _view(schedule, roster, now=now)
    parts = timeline(parsed, roster, shown.starts_at, shown.ends_at)
    swap = SwapForm(schedule=parsed, roster=roster, zone=shown.zone, now=now)
    overrides = [_override(one, roster, shown.zone) for one in schedule.overrides if from_ms(one["ends_at"]) > now]
    return render_page(
        request,
        "on_call/schedule",
        shown=view,
        times=_times(view, shown.zone),
        range=shown,
        own_zone=parsed.zone,
        bands=calendar.bands(parsed, roster, shown.weeks, now=now, with_layers=shown.view == WEEK),
        parts=[
            (
                in_words(span.starts_at, shown.zone),
                in_words(span.ends_at, shown.zone),
                person,
                to_ms(span.starts_at),
                to_ms(span.ends_at),
                number == 0 and _is_on_call(person, parsed, roster, shown.starts_at - _MOMENT),
                number == len(parts) - 1 and _is_on_call(person, parsed, roster, shown.ends_at),
            )
            for number, (span, person) in enumerate(parts[:MOST_SHOWN])
        ],
        cut=len(parts) > MOST_SHOWN,
        now_ms=to_ms(now),
        today=day_of(now, shown.zone),
        zones=time_zones(),
        layers=[LayerView(layer, roster, parsed.zone) for layer in schedule.layers],
        overrides=sorted(overrides, key=lambda one: int(one.override["starts_at"])),
        policies=selectors.list_policies(request.caller)
        .filter(steps__contains=_step_to(schedule))
        .order_by("name", "pk"),
        **{"override_form": OverrideForm(roster=roster, zone=shown.zone, query=request.GET), "swap_form": swap} | forms,
    )


def _is_on_call(person: Person | None, schedule: rotation.Schedule, roster: Roster, at: datetime) -> bool:
    """Return whether the person is on call then, or no one if it is None: the range of the page cuts their shift."""
    return rotation.on_call(schedule, at, roster.people) == (None if person is None else person.public_id)


def _times(view: ScheduleView, zone: str) -> dict[str, str]:
    """Return when the present shift ends, the next begins, and the first gap lasts, in the zone of the page."""
    found = {"until": view.now.until, "next": view.now.next_at}
    if view.gaps:
        found |= {"gap_from": view.gaps[0].starts_at, "gap_to": view.gaps[0].ends_at}
    return {name: in_words(at, zone) for name, at in found.items() if at is not None}


def _step_to(schedule: OnCallSchedule) -> list[dict[str, Any]]:
    """Return what the steps of a policy contain that notifies the schedule."""
    return [{"targets": [{"type": "schedule", "id": schedule.public_id}]}]


def _override(override: dict[str, Any], roster: Roster, zone: str) -> OverrideView:
    times = (in_words(from_ms(override[name]), zone) for name in ("starts_at", "ends_at"))
    return OverrideView(override, roster[override["user_id"]], *times)


def _back(request: PageRequest, schedule_id: str, message: str) -> HttpResponse:
    """Redirect to the range that the page showed."""
    messages.success(request, message)
    kept = {name: request.GET[name] for name in ("view", "at", "zone") if name in request.GET}
    return redirect(f"{reverse('on_call_schedule', args=[schedule_id])}{f'?{urlencode(kept)}' if kept else ''}")


@action
def add_override(request: PageRequest, schedule_id: str) -> HttpResponse:
    caller, schedule = request.caller, selectors.get_schedule(request.caller, schedule_id)
    caller.require_write(schedule)
    shown = Range.read(request.GET, schedule, now=request.now)
    form = OverrideForm(request.POST, roster=roster_of(caller, schedule), zone=shown.zone)
    if form.save(request, lambda: services.add_override(caller, schedule_id, form.given())):
        return _back(request, schedule_id, "Override added.")
    form.focus_error()
    return _show(request, schedule, override_form=form)


@action
def remove_override(request: PageRequest, schedule_id: str) -> HttpResponse:
    caller, data = request.caller, request.POST
    caller.require_write(selectors.get_schedule(caller, schedule_id))
    times = {name: _number(data.get(name, "")) for name in ("starts_at", "ends_at")}
    given = validated(OnCallOverrideSerializer, {"user_id": data.get("user_id", ""), **times})
    services.remove_override(caller, schedule_id, given)
    return _back(request, schedule_id, "Override removed.")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


@action
def swap(request: PageRequest, schedule_id: str) -> HttpResponse:
    caller, schedule = request.caller, selectors.get_schedule(request.caller, schedule_id)
    caller.require_write(schedule)
    shown, roster = Range.read(request.GET, schedule, now=request.now), roster_of(caller, schedule)
    form = SwapForm(request.POST, schedule=selectors.parsed(schedule), roster=roster, zone=shown.zone, now=request.now)
    if form.save(request, lambda: services.swap_shifts(caller, schedule_id, **form.cleaned_data)):
        return _back(request, schedule_id, "Shifts swapped.")
    form.focus_error()
    return _show(request, schedule, swap_form=form)


@action
def renew_calendar(request: PageRequest, schedule_id: str) -> HttpResponse:
    """Create the link of the calendar, and show it once. The one before ends."""
    url = services.new_calendar(request.caller, schedule_id)
    return _show(request, selectors.get_schedule(request.caller, schedule_id), calendar_url=url)


@dataclass(frozen=True, slots=True)
class LayerView:
    """A stored layer in words."""

    layer: dict[str, Any]
    roster: Roster
    zone: str

    @property
    def people(self) -> list[Person]:
        return [self.roster[user_id] for user_id in self.layer["user_ids"]]

    @property
    def every(self) -> str:
        return words.turn(self.layer["every"])

    @property
    def starts(self) -> str:
        return in_words(from_ms(self.layer["starts_at"]), self.zone)

    @property
    def hours(self) -> str:
        return words.hours(self.layer["hours"])

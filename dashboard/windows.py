"""Maintenance windows: a calendar in lists, and their form."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby, islice
from operator import attrgetter
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from core.clock import utc_now
from core.errors import ApiError, NotFound
from dashboard.pages import PageRequest, page
from dashboard.recurring import in_words
from dashboard.window_forms import EditWindowForm, NewWindowForm
from incidents import selectors, windows
from incidents.models import MaintenanceWindow

AHEAD = timedelta(days=30)
MOST_SHOWN = 200
SECTION = "maintenance"


@dataclass(frozen=True, slots=True)
class Shown:
    """A window as pages show it."""

    window: MaintenanceWindow

    @property
    def recurs(self) -> str:
        return in_words(self.window.rrule)

    @property
    def covers(self) -> str:
        window = self.window
        if window.all_monitors:
            return f"all of {window.project.name}" if window.project else "all of your monitors"
        count = len(windows.chosen_of(window))
        return "1 chosen monitor" if count == 1 else f"{count} chosen monitors"


@dataclass(frozen=True, slots=True)
class Occurring:
    """A window at one of its times. `starts` and `ends` are by its own clock."""

    shown: Shown
    starts_at: datetime
    ends_at: datetime

    @property
    def starts(self) -> datetime:
        return self.starts_at.astimezone(ZoneInfo(self.shown.window.time_zone))

    @property
    def ends(self) -> datetime:
        return self.ends_at.astimezone(ZoneInfo(self.shown.window.time_zone))

    @property
    def day(self) -> date:
        return self.starts.date()

    @property
    def span(self) -> str:
        """`02:00 to 03:30`, or with the day on which it ends."""
        same_day = self.ends.date() == self.day
        return f"{self.starts:%H:%M} to {self.ends:{'%H:%M' if same_day else '%a %-d %b, %H:%M'}}"

    @property
    def lasts(self) -> timedelta:
        return self.ends_at - self.starts_at


@dataclass(frozen=True, slots=True)
class Calendar:
    """`on`: what is under way. `days`: what begins within AHEAD, by day, `cut` where that is more than MOST_SHOWN.
    `later`: windows whose next time is after that. `over`: those that have none."""

    on: list[Occurring]
    days: list[tuple[date, list[Occurring]]]
    later: list[Occurring]
    over: list[Shown]
    cut: bool

    @classmethod
    def of(cls, found: Iterable[MaintenanceWindow], *, now: datetime) -> Calendar:
        until = now + AHEAD
        near: list[Iterator[Occurring]] = []
        later, over = [], []
        for window in found:
            shown = Shown(window)
            following = windows.occurrence_of(window, now=now)
            if following is None:
                over.append(shown)
            elif following[0] >= until:
                later.append(Occurring(shown, *following))
            else:
                near.append(_times(shown, now=now, until=until))
        rows = list(islice(heapq.merge(*near, key=attrgetter("starts_at")), MOST_SHOWN + 1))
        coming = sorted(
            (row for row in rows[:MOST_SHOWN] if row.starts_at > now), key=lambda row: row.starts_at
        )
        by_day = groupby(sorted(coming, key=lambda row: (row.day, row.starts_at)), key=lambda row: row.day)
        return cls(
            on=[row for row in rows if row.starts_at <= now],
            days=[(day, list(on_it)) for day, on_it in by_day],
            later=sorted(later, key=lambda row: row.starts_at),
            over=over,
            cut=len(rows) > MOST_SHOWN,
        )


@page
def index(request: PageRequest) -> HttpResponse:
    found = selectors.list_windows(request.caller).order_by("name", "pk")
    calendar = Calendar.of(found, now=utc_now())
    return render(request, "dashboard/windows/list.html", {"section": SECTION, "calendar": calendar})


@page
def create(request: PageRequest) -> HttpResponse:
    caller = request.caller
    form = NewWindowForm(request.POST or None, caller=caller)
    if request.method == "POST" and form.is_valid():
        now = utc_now()
        given = form.given()
        made = form.attempt(
            lambda: form.make_once(
                request, caller, lambda: windows.create_window(caller, given, now=now).public_id, now=now
            )
        )
        if made is not None:
            messages.success(request, "The window is in the calendar.")
            return redirect("maintenance")
    return render(request, "dashboard/windows/new.html", {"section": SECTION, "form": form})


@page
def edit(request: PageRequest, window_id: str) -> HttpResponse:
    caller, now = request.caller, utc_now()
    window = selectors.get_window(caller, window_id)
    form = EditWindowForm(request.POST or None, caller=caller, window=window)
    if request.method == "POST" and form.is_valid():
        given = form.given()
        if form.attempt(lambda: windows.update_window(caller, window_id, given, now=now)) is not None:
            messages.success(request, "The window is saved.")
            return redirect("maintenance")
    context = {"section": SECTION, "form": form, "shown": Shown(window), "next": _next(window, now=now)}
    return render(request, "dashboard/windows/edit.html", context)


@require_POST
@page
def end(request: PageRequest, window_id: str) -> HttpResponse:
    """One that is on, and is not to recur, ends in a second: what was held back is told then, as at any end."""
    now = utc_now()
    window = selectors.get_window(request.caller, window_id)
    following = windows.occurrence_of(window, now=now)
    if window.rrule or following is None or following[0] > now:
        messages.error(
            request, "Only a window that is on and does not recur can be ended; this one can be deleted."
        )
        return redirect("maintenance")
    try:
        given = {"ends_at": now + timedelta(seconds=1)}
        windows.update_window(request.caller, window_id, given, now=now)
    except NotFound:
        raise
    except ApiError as error:
        messages.error(request, error.reason or error.code)
    else:
        messages.success(request, f"{window.name} is over.")
    return redirect("maintenance")


@require_POST
@page
def delete(request: PageRequest, window_id: str) -> HttpResponse:
    windows.delete_window(request.caller, window_id)
    messages.success(request, "The window is deleted.")
    return redirect("maintenance")


def _times(shown: Shown, *, now: datetime, until: datetime) -> Iterator[Occurring]:
    for starts_at, ends_at in windows.upcoming(shown.window, now=now, until=until):
        yield Occurring(shown, starts_at, ends_at)


def _next(window: MaintenanceWindow, *, now: datetime) -> Occurring | None:
    following = windows.occurrence_of(window, now=now)
    return None if following is None else Occurring(Shown(window), *following)

"""Maintenance windows: the calendar and the form."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from itertools import groupby, islice, starmap
from operator import attrgetter
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from core.clock import utc_now
from dashboard.pages import PageRequest, action, button, done, errors_as_messages, page, render_page
from dashboard.recurring import in_words
from dashboard.window_forms import WindowForm
from incidents import selectors, windows
from incidents.models import MaintenanceWindow

AHEAD = timedelta(days=30)
MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class WindowView:
    """A window with the data that pages show."""

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
class Occurrence:
    """One occurrence of a window. `day` and `span` are in the window's time zone."""

    shown: WindowView
    starts_at: datetime
    ends_at: datetime

    def _local(self, moment: datetime) -> datetime:
        return moment.astimezone(ZoneInfo(self.shown.window.time_zone))

    @property
    def day(self) -> date:
        return self._local(self.starts_at).date()

    @property
    def span(self) -> str:
        """Return `02:00 to 03:30`, with the date of the end if it differs."""
        start, end = self._local(self.starts_at), self._local(self.ends_at)
        return f"{start:%H:%M} to {end:{'%H:%M' if end.date() == start.date() else '%a %-d %b, %H:%M'}}"

    @property
    def lasts(self) -> timedelta:
        return self.ends_at - self.starts_at


@dataclass(frozen=True, slots=True)
class Calendar:
    """Windows by time.

    `active`: now. `days`: starting within AHEAD, by day; `cut` if there are more than MOST_SHOWN. `later`: the next
    occurrence of others. `over`: windows without a next occurrence.
    """

    active: list[Occurrence]
    days: list[tuple[date, list[Occurrence]]]
    later: list[Occurrence]
    over: list[WindowView]
    cut: bool

    @classmethod
    def of(cls, found: Iterable[MaintenanceWindow], *, now: datetime) -> Calendar:
        until = now + AHEAD
        near: list[Iterator[Occurrence]] = []
        later, over = [], []
        for window in found:
            shown = WindowView(window)
            following = windows.occurrence_of(window, now=now)
            if following is None:
                over.append(shown)
            elif following[0] >= until:
                later.append(Occurrence(shown, *following))
            else:
                near.append(starmap(partial(Occurrence, shown), windows.upcoming(window, now=now, until=until)))
        rows = list(islice(heapq.merge(*near, key=attrgetter("starts_at")), MOST_SHOWN + 1))
        coming = sorted((row for row in rows[:MOST_SHOWN] if row.starts_at > now), key=attrgetter("day", "starts_at"))
        return cls(
            active=[row for row in rows if row.starts_at <= now],
            days=[(day, list(rows_of_day)) for day, rows_of_day in groupby(coming, key=attrgetter("day"))],
            later=sorted(later, key=attrgetter("starts_at")),
            over=over,
            cut=len(rows) > MOST_SHOWN,
        )


@page
def index(request: PageRequest) -> HttpResponse:
    found = selectors.list_windows(request.caller).order_by("name", "pk")
    return render_page(request, "windows/list", calendar=Calendar.of(found, now=utc_now()))


@page
def create(request: PageRequest) -> HttpResponse:
    caller = request.caller
    form = WindowForm(request.POST or None, caller=caller)
    if form.create(request, lambda now: windows.create_window(caller, form.given(), now=now)):
        return done(request, "Maintenance scheduled.", "maintenance")
    return render_page(request, "windows/form", form=form)


@page
def edit(request: PageRequest, window_id: str) -> HttpResponse:
    caller, now = request.caller, utc_now()
    window = selectors.get_window(caller, window_id)
    form = WindowForm(request.POST or None, caller=caller, stored=window)
    if form.save(request, lambda: windows.update_window(caller, window_id, form.given(), now=now)):
        return done(request, "Window saved.", "maintenance")
    shown, following = WindowView(window), windows.occurrence_of(window, now=now)
    upcoming = following and Occurrence(shown, *following)
    return render_page(request, "windows/form", form=form, shown=shown, next=upcoming)


@action
def end(request: PageRequest, window_id: str) -> HttpResponse:
    """End an active window that does not recur. Suppressed alerts are sent, as after any end."""
    now = utc_now()
    window = selectors.get_window(request.caller, window_id)
    following = windows.occurrence_of(window, now=now)
    if window.rrule or following is None or following[0] > now:
        messages.error(request, "Only an active window that does not recur can be ended. Delete this one instead.")
        return redirect("maintenance")
    with errors_as_messages(request):
        windows.update_window(request.caller, window_id, {"ends_at": now + timedelta(seconds=1)}, now=now)
        messages.success(request, f"{window.name} has ended.")
    return redirect("maintenance")


delete = button(windows.delete_window, "Window deleted.", "maintenance")

"""Maintenance windows: the calendar, and the form with local times and a recurrence in words or as a rule."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import groupby, islice, starmap
from operator import attrgetter
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.text import get_text_list

from core.forms import conditional
from core.text import copy_name
from dashboard.deletion import Deletable, deletion
from dashboard.forms import LongSelect, ProjectField, ScopeForm, Value, selected, time_zone_choices
from dashboard.pages import PageRequest, action, done, errors_as_messages, page, render_page
from incidents import selectors, windows
from incidents.models import MaintenanceWindow
from incidents.serializers import MAX_RULE
from projects.access import Caller

AHEAD = timedelta(days=30)
MOST_SHOWN = 200
MAX_NAME = 200
ONCE, RULE = "once", "rule"
REPEATS = {
    ONCE: "Never",
    "daily": "Every day",
    "weekly": "Every week, on selected days",
    "monthly": "Every month, on the day of the start",
    RULE: "Custom rule, RFC 5545 (advanced)",
}
_SCHEDULE = {"starts_at", "ends_at", "time_zone", "repeats", "days", "until", "rrule"}
DAYS = {
    "MO": "Monday",
    "TU": "Tuesday",
    "WE": "Wednesday",
    "TH": "Thursday",
    "FR": "Friday",
    "SA": "Saturday",
    "SU": "Sunday",
}
FREQUENCIES = ("daily", "weekly", "monthly")
_PERIODS = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"}


def write_recurrence(repeats: str, until: date | None, days: Collection[str] = ()) -> str:
    """Return a rule. `repeats` is one of FREQUENCIES; `days` are for weekly ones. `until` is the last local day, or
    None if the rule does not end."""
    by_day = f";BYDAY={','.join(day for day in DAYS if day in days)}" if days else ""
    return f"FREQ={repeats.upper()}{by_day}{f';UNTIL={until:%Y%m%d}' if until else ''}"


def read_recurrence(rrule: str) -> tuple[str, date | None, list[str]] | None:
    """Return the arguments of `write_recurrence` for a rule, or None if the form cannot show it."""
    found = re.fullmatch(
        r"FREQ=(DAILY|WEEKLY|MONTHLY)(?:;BYDAY=([A-Z,]+))?(?:;UNTIL=(\d{8}))?", rrule.upper(), re.ASCII
    )
    if found is None:
        return None
    until = _day(found[3]) if found[3] else None
    if found[3] and until is None:
        return None
    repeats, days = found[1].lower(), found[2].split(",") if found[2] else []
    if any(day not in DAYS for day in days) or (days and repeats != "weekly"):
        return None
    return repeats, until, days


def in_words(rrule: str) -> str:
    """Describe a rule: `every week on Monday and Friday until 31 Dec 2027`, or `custom rule` if it is more complex."""
    if not rrule:
        return "once"
    parts = dict(part.split("=", 1) for part in rrule.upper().split(";") if "=" in part)
    days = [DAYS.get(day, "") for day in parts.get("BYDAY", "").split(",") if day]
    if parts.keys() - {"FREQ", "BYDAY", "UNTIL", "COUNT"} or "" in days or parts.get("FREQ") not in _PERIODS:
        return "custom rule"
    words = f"every {_PERIODS[parts['FREQ']]}"
    if days:
        words += f" on {get_text_list(days, 'and')}"
    if "COUNT" in parts:
        words += f", {parts['COUNT']} times"
    if "UNTIL" in parts:
        until = _day(parts["UNTIL"][:8])
        words += f" until {until:%-d %b %Y}" if until else f" until {parts['UNTIL']}"
    return words


def _day(text: str) -> date | None:
    try:
        return datetime.strptime(text, "%Y%m%d").date()  # noqa: DTZ007  (a day)
    except ValueError:
        return None


class _LocalTimeField(forms.DateTimeField):
    """A local time, without its time zone, which is another field."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")


class WindowForm(ScopeForm):
    """The form of the window `stored`, or of a new one, which may be a copy of `source`."""

    only_writable = True
    name = forms.CharField(max_length=MAX_NAME, help_text="Status pages can show it.")
    starts_at = _LocalTimeField(label="Starts")
    ends_at = _LocalTimeField(label="Ends")
    time_zone = forms.ChoiceField(
        widget=LongSelect,
        help_text="Of the start and the end. A recurring window keeps its local time in summer and winter.",
    )
    repeats = forms.ChoiceField(label="Repeats", choices=list(REPEATS.items()), widget=forms.RadioSelect, initial=ONCE)
    days = conditional(
        forms.MultipleChoiceField(
            label="Days",
            choices=list(DAYS.items()),
            widget=forms.CheckboxSelectMultiple,
            help_text="Without a choice: the day of the start.",
        )
    )
    until = conditional(
        forms.DateField(
            label="Last day",
            widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
            help_text="Optional, at most 10 years after the start. Without it the window recurs until you delete it. "
            "Months without the day of the start are skipped.",
        )
    )
    rrule = conditional(
        forms.CharField(
            label="Rule",
            max_length=MAX_RULE,
            widget=forms.TextInput(
                attrs={"class": "code", "placeholder": "FREQ=MONTHLY;BYDAY=2TU", "spellcheck": "false"}
            ),
            help_text="DAILY or less often, at the time of the start. Without COUNT or UNTIL it does not end.",
        )
    )
    monitors = forms.ChoiceField(
        label="Monitors",
        choices=[("all", "All my monitors, or all of the window's project"), ("chosen", "Selected monitors")],
        widget=forms.RadioSelect,
        initial="all",
    )

    def __init__(
        self,
        data: Any = None,
        *,
        caller: Caller,
        stored: MaintenanceWindow | None = None,
        source: MaintenanceWindow | None = None,
    ) -> None:
        base = stored or source
        initial = {"time_zone": "UTC"} if base is None else _initial_of(base)
        if source is not None:
            initial["name"] = copy_name(source.name, limit=MAX_NAME)
        super().__init__(data, caller=caller, chosen_label="Selected monitors", stored=stored, initial=initial)
        zone: Any = self.fields["time_zone"]
        name, zones = initial["time_zone"], time_zone_choices()
        zone.choices = zones if name in dict(zones) else [(name, name), *zones]  # the API accepts more names
        if stored is None:
            zone.widget.attrs["data-own-zone"] = data is None and source is None
            self.fields["project_id"] = ProjectField(
                self.projects,
                help_text="Members of the project can see and change the window. It covers the project's monitors.",
            )

    def clean(self) -> None:
        super().clean()
        repeats = self.cleaned_data.get("repeats")
        if repeats == "weekly":
            starts_at, days = self.cleaned_data.get("starts_at"), self.cleaned_data.get("days")
            if starts_at and days and list(DAYS)[starts_at.weekday()] not in days:
                self.add_error("days", f"The window starts on a {starts_at:%A}: add that day, or change the start.")
        if repeats == RULE:
            self.require("rrule", "Enter a rule.")

    def given(self) -> dict[str, Any]:
        """Return the body, for a stored window only the changes: the form drops seconds, and may hide monitors."""
        given = {name: self.cleaned_data[name] for name in {"name", "project_id"} & self.sent}
        return given | (self._schedule() if _SCHEDULE & self.sent else {}) | self.scope()

    def refuse(self, field: str | None, reason: str) -> None:
        """Rephrase the error with the labels of this form."""
        reason = reason.removeprefix(f"{field}: ")
        if field is not None and field.startswith("monitor_tags["):
            field = "monitor_tags"
        if field == "rrule" and self.cleaned_data["repeats"] != RULE:
            field = "ends_at" if "begins before" in reason else "until"
        for ours, theirs in (("the last day", "UNTIL"), ("the start", "starts_at"), ("the rule", "rrule")):
            reason = reason.replace(theirs, ours)
        super().refuse(field, reason)

    def _schedule(self) -> dict[str, Any]:
        cleaned, repeats, rrule = self.cleaned_data, self.cleaned_data["repeats"], None
        if repeats in FREQUENCIES:
            days = cleaned["days"] or [list(DAYS)[cleaned["starts_at"].weekday()]]
            rrule = write_recurrence(repeats, cleaned["until"], days if repeats == "weekly" else ())
        elif repeats == RULE:
            rrule = cleaned["rrule"]
        zone = ZoneInfo(cleaned["time_zone"])
        return {
            "starts_at": _instant(cleaned["starts_at"], zone),
            "ends_at": _instant(cleaned["ends_at"], zone),
            "time_zone": cleaned["time_zone"],
            "rrule": rrule,
        }


def _initial_of(window: MaintenanceWindow) -> dict[str, Any]:
    zone = ZoneInfo(window.time_zone)
    starts_at = window.starts_at.astimezone(zone)
    initial: dict[str, Any] = {
        "name": window.name,
        "project_id": window.project and window.project.public_id,
        "starts_at": _local_as_utc(starts_at),
        "ends_at": _local_as_utc(window.ends_at.astimezone(zone)),
        "time_zone": window.time_zone,
        "repeats": RULE if window.rrule else ONCE,
        "rrule": window.rrule,
        "monitors": window.scope,
        "monitor_ids": [monitor.public_id for monitor in window.chosen],
        "monitor_tags": window.monitor_tags,
    }
    if recurrence := read_recurrence(window.rrule):
        repeats, until, days = recurrence
        days = days or [list(DAYS)[starts_at.weekday()]]
        initial |= {"repeats": repeats, "until": until, "days": days, "rrule": ""}
    return initial


def _local_as_utc(local: datetime) -> datetime:
    """Return the local time labelled as UTC, the time zone that Django's form fields use."""
    return local.replace(second=0, microsecond=0, tzinfo=UTC)


def _instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of a local time. If it occurs twice, return the first, as `incidents.recurrence` does."""
    return local.replace(tzinfo=zone, fold=0).astimezone(UTC)


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
        return selected(len(window.chosen), window.monitor_tags)

    @property
    def deletable(self) -> Deletable:
        window, zone = self.window, ZoneInfo(self.window.time_zone)
        chosen = sorted(monitor.public_id for monitor in window.chosen)
        settings = {
            "Name": (window.name, window.name),
            **{
                label: (f"{at.astimezone(zone):%-d %b %Y, %H:%M}", at.isoformat())
                for label, at in (("Starts", window.starts_at), ("Ends", window.ends_at))
            },
            "Time zone": (window.time_zone, window.time_zone),
            "Repeats": (self.recurs, window.rrule),
            "Monitors": (self.covers, [window.scope, chosen, *window.monitor_tags]),
        }
        return Deletable(window, window.name, [Value(label, label, *value) for label, value in settings.items()])


@dataclass(frozen=True, slots=True)
class Occurrence(WindowView):
    """One occurrence of a window. `day` and `span` are in the window's time zone."""

    starts_at: datetime
    ends_at: datetime

    @property
    def day(self) -> date:
        return self.starts_at.astimezone(ZoneInfo(self.window.time_zone)).date()

    @property
    def span(self) -> str:
        """Return `02:00 to 03:30`, with the date of the end if it differs."""
        start, end = (at.astimezone(ZoneInfo(self.window.time_zone)) for at in (self.starts_at, self.ends_at))
        return f"{start:%H:%M} to {end:{'%H:%M' if end.date() == start.date() else '%a %-d %b, %H:%M'}}"

    @property
    def lasts(self) -> timedelta:
        return self.ends_at - self.starts_at


def calendar_of(found: Iterable[MaintenanceWindow], *, now: datetime) -> dict[str, Any]:
    """Return windows by time.

    `active`: occurrences now. `days`: those starting within AHEAD, by day; `cut` if there are more than MOST_SHOWN.
    `later`: the next occurrence of other windows. `over`: windows without a next occurrence.
    """
    until = now + AHEAD
    near: list[Iterator[Occurrence]] = []
    later, over = [], []
    for window in found:
        following = windows.occurrence_of(window, now=now)
        if following is None:
            over.append(WindowView(window))
        elif following.starts_at >= until:
            later.append(Occurrence(window, *following))
        else:
            near.append(starmap(partial(Occurrence, window), windows.upcoming(window, now=now, until=until)))
    rows = list(islice(heapq.merge(*near, key=attrgetter("starts_at")), MOST_SHOWN + 1))
    coming = sorted((row for row in rows[:MOST_SHOWN] if row.starts_at > now), key=attrgetter("day", "starts_at"))
    return {
        "active": [row for row in rows if row.starts_at <= now],
        "days": [(day, list(rows_of_day)) for day, rows_of_day in groupby(coming, key=attrgetter("day"))],
        "later": sorted(later, key=attrgetter("starts_at")),
        "over": over,
        "cut": len(rows) > MOST_SHOWN,
    }


@page
def index(request: PageRequest) -> HttpResponse:
    found = selectors.list_windows(request.caller).order_by("name", "pk")
    return render_page(request, "windows/list", calendar=calendar_of(found, now=request.now))


@page
def create(request: PageRequest) -> HttpResponse:
    """Create a window, or a copy of the window `?from=`."""
    caller = request.caller
    source = selectors.get_window(caller, request.GET["from"]) if "from" in request.GET else None
    caller.require_write(source)
    form = WindowForm(request.POST or None, caller=caller, source=source)
    if form.create(request, lambda: windows.create_window(caller, form.given(), now=request.now)):
        return done(request, "Maintenance scheduled.", "maintenance")
    return render_page(request, "windows/form", form=form, source=source)


@page
def edit(request: PageRequest, window_id: str) -> HttpResponse:
    caller, now = request.caller, request.now
    window = selectors.get_window(caller, window_id)
    caller.require_write(window)
    form = WindowForm(request.POST or None, caller=caller, stored=window)
    if form.save(
        request, lambda: windows.update_window(caller, window_id, form.given(), now=now, if_match=form.if_match)
    ):
        return done(request, "Window saved.", "maintenance")
    following = windows.occurrence_of(window, now=now)
    upcoming = following and Occurrence(window, *following)
    deletable = WindowView(window).deletable
    return render_page(request, "windows/form", form=form, window=window, next=upcoming, deletable=deletable)


@action
def end(request: PageRequest, window_id: str) -> HttpResponse:
    """End an active window that does not recur. Suppressed alerts are sent, as after any end."""
    with errors_as_messages(request):
        windows.end_window(request.caller, window_id, now=request.now)
        messages.success(request, "Maintenance ended.")
    return redirect("maintenance")


delete = deletion(
    windows.delete_window,
    lambda request, window_id: WindowView(selectors.get_window(request.caller, window_id)).deletable,
    "Window deleted.",
    "maintenance",
)

"""When a monitor's runs are expected: the part of its form for interval or schedule, with a live preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import HttpResponse
from django.utils.text import capfirst

from core.errors import ValidationFailed
from dashboard.pages import PageRequest, read_only, render_page
from monitors import cron
from monitors.selectors import get_monitor
from monitors.types.schedule import UTC, parse_schedule

INTERVAL, SCHEDULE = "interval", "schedule"
CHOICES = [(INTERVAL, "At an interval"), (SCHEDULE, "On a schedule")]
SETTINGS = ("interval_sec", "schedule", "timezone")
"""Settings that the template of the form places."""
PRESETS = (
    ("*/15 * * * *", "every 15 minutes"),
    ("0 * * * *", "every hour"),
    ("0 3 * * *", "every night at 3:00"),
    ("0 9 * * MON-FRI", "weekdays at 9:00"),
    ("0 3 * * SUN", "Sundays at 3:00"),
    ("0 3 1 * *", "the first of the month"),
)
SHOWN = 5
DAY_SEC = 86_400


def of(schedule: str | None) -> str:
    return SCHEDULE if schedule else INTERVAL


def chosen(cleaned: Mapping[str, Any]) -> str:
    return cleaned.get("timing") or of(cleaned.get("schedule"))


def unused(timing: str) -> frozenset[str]:
    """Return the settings that the timing does not use."""
    return frozenset({"interval_sec"} if timing == SCHEDULE else {"schedule", "timezone"})


def default_grace_sec(cleaned: Mapping[str, Any]) -> int:
    """Return the grace of a job without one: an hour if its runs are a day or more apart, else a minute."""
    gap_sec = cleaned.get("interval_sec") or 0
    if chosen(cleaned) == SCHEDULE:
        try:
            gap_sec = (
                cron.schedule(cleaned.get("schedule") or "", cleaned.get("timezone") or UTC).least_gap().total_seconds()
            )
        except cron.BadScheduleError:  # the service refuses it
            gap_sec = 0
    return 3_600 if gap_sec >= DAY_SEC else 60


def prepare(fields: Mapping[str, forms.Field], *, suggests_own_zone: bool) -> None:
    """Set up the widgets. `suggests_own_zone`: the user's time zone replaces the default (zones.js)."""
    fields["schedule"].widget.attrs |= {"class": "code", "placeholder": "30 3 * * MON-FRI", "autocomplete": "off"}
    fields["timezone"].widget.attrs |= {"list": "time-zones", "autocomplete": "off", "spellcheck": "false"}
    if suggests_own_zone:
        fields["timezone"].widget.attrs["data-own-zone"] = ""


@read_only
def preview(request: PageRequest) -> HttpResponse:
    """Show what the typed schedule means: in words, and its next times in its time zone and the viewer's."""
    given, caller = request.GET, request.caller
    owner = get_monitor(caller, given["monitor"]).owner if "monitor" in given else caller.user
    context: dict[str, Any] = {}
    if expression := given.get("schedule", "").strip():
        floor_sec = owner.plan.min_interval_sec
        try:
            schedule = parse_schedule(expression, given.get("timezone") or UTC, floor_sec=floor_sec)
        except ValidationFailed as error:
            reason = error.reason.removeprefix(f"{error.field}: ")
            context = {"is_zone": error.field == "timezone", "problem": capfirst(reason)}
        else:
            times = schedule.upcoming(request.now, SHOWN)
            # As text, because templates convert times to their own zone.
            rows = [(at, f"{schedule.local(at):%a %-d %b %Y, %H:%M}") for at in times]
            context = {"schedule": schedule, "times": rows}
    return render_page(request, "monitors/schedule_preview", **context)

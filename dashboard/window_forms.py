"""The form of a maintenance window: local times in a time zone, and a recurrence in words or as a rule."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django import forms

from core.forms import conditional
from dashboard.forms import ProjectField, ScopeForm
from dashboard.recurring import DAYS, FREQUENCIES, Recurrence, read
from incidents.models import MaintenanceWindow
from incidents.serializers import MAX_RULE
from incidents.windows import chosen_of, scope_of
from projects.access import Caller

ONCE, RULE = "once", "rule"
REPEATS = {
    ONCE: "Never",
    "daily": "Every day",
    "weekly": "Every week, on chosen days",
    "monthly": "Every month, on the day of the start",
    RULE: "Custom rule, RFC 5545 (advanced)",
}
_SCHEDULE = {"starts_at", "ends_at", "time_zone", "repeats", "days", "until", "rrule"}


@cache
def _zones() -> list[tuple[str, str]]:
    names = sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/"))
    return [(name, name.replace("_", " ")) for name in ["UTC", *names]]


class _LocalTimeField(forms.DateTimeField):
    """A local time, without its time zone, which is another field."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")


class WindowForm(ScopeForm):
    """The form of the window `stored`, or of a new one."""

    name = forms.CharField(max_length=200, help_text="Status pages can show it.")
    starts_at = _LocalTimeField(label="Starts")
    ends_at = _LocalTimeField(label="Ends")
    time_zone = forms.ChoiceField(
        help_text="Of these times. A recurring window keeps its local time in summer and winter."
    )
    repeats = forms.ChoiceField(label="Repeats", choices=list(REPEATS.items()), widget=forms.RadioSelect, initial=ONCE)
    days = conditional(
        forms.MultipleChoiceField(
            label="On which days", choices=list(DAYS.items()), widget=forms.CheckboxSelectMultiple
        )
    )
    until = conditional(
        forms.DateField(
            label="Last day",
            widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
            help_text="At most 10 years after the start. Months without that day are skipped.",
        )
    )
    rrule = conditional(
        forms.CharField(
            label="Rule",
            max_length=MAX_RULE,
            widget=forms.TextInput(
                attrs={"class": "code", "placeholder": "FREQ=MONTHLY;BYDAY=2TU;COUNT=24", "spellcheck": "false"}
            ),
            help_text="DAILY or less often, with COUNT or UNTIL. It repeats at the time of the start.",
        )
    )
    monitors = forms.ChoiceField(
        label="Which monitors",
        choices=[("all", "All of mine, or of the window's project"), ("chosen", "Selected monitors")],
        widget=forms.RadioSelect,
        initial="all",
    )

    def __init__(self, data: Any = None, *, caller: Caller, stored: MaintenanceWindow | None = None) -> None:
        initial = {"time_zone": "UTC"} if stored is None else _initial_of(stored)
        super().__init__(data, caller=caller, chosen_label="Selected monitors", stored=stored, initial=initial)
        zone: Any = self.fields["time_zone"]
        name, zones = initial["time_zone"], _zones()
        zone.choices = zones if name in dict(zones) else [(name, name), *zones]  # the API accepts more names
        if stored is None:
            zone.widget.attrs["data-own-zone"] = data is None
            self.fields["project_id"] = ProjectField(
                self.projects,
                help_text="Members of the project can see and change the window. It covers the project's monitors.",
            )

    def clean(self) -> None:
        super().clean()
        repeats = self.cleaned_data.get("repeats")
        if repeats in FREQUENCIES:
            self.require("until", "Enter the last day.")
        if repeats == "weekly":
            self.require("days", "Choose at least one day.")
            starts_at, days = self.cleaned_data.get("starts_at"), self.cleaned_data.get("days")
            if starts_at and days and list(DAYS)[starts_at.weekday()] not in days:
                self.add_error("days", f"The window starts on a {starts_at:%A}: add that day, or change the start.")
        if repeats == RULE:
            self.require("rrule", "Enter a rule.")

    def given(self) -> dict[str, Any]:
        """Return the body for the service, for a stored window only the changes.

        The form drops seconds, and a member may not see all selected monitors.
        """
        sent = self.sent
        given = {name: self.cleaned_data[name] for name in {"name", "project_id"} & sent}
        given |= self._schedule() if _SCHEDULE & sent else {}
        return given | (self.scope() if {"monitors", "monitor_ids"} & sent else {})

    def refuse(self, field: str | None, reason: str) -> None:
        """Rephrase the error with the labels of this form."""
        reason = reason.removeprefix(f"{field}: ")
        if field == "rrule" and self.cleaned_data["repeats"] != RULE:
            field = "ends_at" if "begins before" in reason else "until"
        for ours, theirs in (("the last day", "UNTIL"), ("the start", "starts_at"), ("the rule", "rrule")):
            reason = reason.replace(theirs, ours)
        super().refuse(field, reason)

    def _schedule(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        zone = ZoneInfo(cleaned["time_zone"])
        return {
            "starts_at": _instant(cleaned["starts_at"], zone),
            "ends_at": _instant(cleaned["ends_at"], zone),
            "time_zone": cleaned["time_zone"],
            "rrule": self._rrule(),
        }

    def _rrule(self) -> str | None:
        cleaned = self.cleaned_data
        if cleaned["repeats"] == ONCE:
            return None
        if cleaned["repeats"] == RULE:
            return str(cleaned["rrule"])
        days = tuple(cleaned["days"]) if cleaned["repeats"] == "weekly" else ()
        return Recurrence(cleaned["repeats"], cleaned["until"], days).rrule()


def _initial_of(window: MaintenanceWindow) -> dict[str, Any]:
    zone = ZoneInfo(window.time_zone)
    starts_at = window.starts_at.astimezone(zone)
    recurrence = read(window.rrule)
    initial = {
        "name": window.name,
        "starts_at": _local_as_utc(starts_at),
        "ends_at": _local_as_utc(window.ends_at.astimezone(zone)),
        "time_zone": window.time_zone,
        "repeats": RULE if window.rrule else ONCE,
        "rrule": window.rrule,
        "monitors": scope_of(window),
        "monitor_ids": [monitor.public_id for monitor in chosen_of(window)],
    }
    if recurrence is not None:
        days = recurrence.days or (list(DAYS)[starts_at.weekday()],)
        initial |= {"repeats": recurrence.repeats, "until": recurrence.until, "days": list(days), "rrule": ""}
    return initial


def _local_as_utc(local: datetime) -> datetime:
    """Return the local time labelled as UTC, the time zone that Django's form fields use."""
    return local.replace(second=0, microsecond=0, tzinfo=UTC)


def _instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of a local time. If it occurs twice, return the first, as `incidents.recurrence` does."""
    return local.replace(tzinfo=zone, fold=0).astimezone(UTC)

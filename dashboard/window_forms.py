"""The form of maintenance windows: local times in a time zone, and a recurrence in words or as a rule."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django import forms

from core.forms import ServiceForm, conditional
from dashboard.choosing import MonitorsField, ProjectField, monitor_choices, project_choices
from dashboard.once import OnceForm
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
_WHEN = ("starts_at", "ends_at", "time_zone", "repeats", "days", "until", "rrule")
_AIM = ("monitors", "monitor_ids")


@cache
def _zones() -> list[tuple[str, str]]:
    names = sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/"))
    return [(name, name.replace("_", " ")) for name in ["UTC", *names]]


class _ClockField(forms.DateTimeField):
    """A local time, without its time zone, which is another field."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")


class _WindowForm(ServiceForm):
    name = forms.CharField(max_length=200, help_text="Status pages can show it.")
    starts_at = _ClockField(label="Starts")
    ends_at = _ClockField(label="Ends")
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
                attrs={
                    "class": "code",
                    "placeholder": "FREQ=MONTHLY;BYDAY=2TU;COUNT=24",
                    "spellcheck": "false",
                }
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

    def __init__(self, data: Any = None, *, caller: Caller, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.projects = project_choices(caller)
        self.fields["monitor_ids"] = conditional(
            MonitorsField(monitors=monitor_choices(caller), label="Selected monitors")
        )
        zone: Any = self.fields["time_zone"]
        zone.choices = _with(_zones(), self.initial.get("time_zone"))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("monitors") == "chosen" and not cleaned.get("monitor_ids") and "monitor_ids" not in self.errors:
            self.add_error("monitor_ids", "Choose at least one monitor.")
        repeats = cleaned.get("repeats")
        if repeats in FREQUENCIES and not cleaned.get("until") and "until" not in self.errors:
            self.add_error("until", "Enter the last day.")
        if repeats == "weekly" and "days" not in self.errors:
            self._check_days(cleaned.get("days") or [], cleaned.get("starts_at"))
        if repeats == RULE and not cleaned.get("rrule") and "rrule" not in self.errors:
            self.add_error("rrule", "Enter a rule.")
        return cleaned

    def refuse(self, field: str | None, reason: str) -> None:
        """Rephrase the error with the labels of this form."""
        reason = reason.removeprefix(f"{field}: ")
        if field == "rrule" and self.cleaned_data["repeats"] != RULE:
            field = "ends_at" if "begins before" in reason else "until"
        for ours, theirs in (("the last day", "UNTIL"), ("the start", "starts_at"), ("the rule", "rrule")):
            reason = reason.replace(theirs, ours)
        super().refuse(field, reason)

    def _check_days(self, days: list[str], starts_at: datetime | None) -> None:
        if not days:
            self.add_error("days", "Choose at least one day.")
        elif starts_at is not None and list(DAYS)[starts_at.weekday()] not in days:
            self.add_error("days", f"The window starts on a {starts_at:%A}: add that day, or change the start.")

    def _when(self) -> dict[str, Any]:
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

    def _aim(self) -> dict[str, Any]:
        aim = {"monitors": self.cleaned_data["monitors"]}
        return aim | ({"monitor_ids": self.cleaned_data["monitor_ids"]} if aim["monitors"] == "chosen" else {})


class NewWindowForm(_WindowForm, OnceForm):
    def __init__(self, data: Any = None, *, caller: Caller) -> None:
        super().__init__(data, caller=caller, initial={"time_zone": "UTC"})
        self.fields["time_zone"].widget.attrs["data-own-zone"] = data is None
        self.fields["project_id"] = ProjectField(
            projects=self.projects,
            none="None (personal)",
            label="Project",
            help_text="Members of the project can see and change the window. It covers the project's monitors.",
        )

    def given(self) -> dict[str, Any]:
        """Return the body for the service."""
        cleaned = self.cleaned_data
        return {"name": cleaned["name"], "project_id": cleaned["project_id"]} | self._when() | self._aim()


class EditWindowForm(_WindowForm):
    def __init__(self, data: Any = None, *, caller: Caller, window: MaintenanceWindow) -> None:
        super().__init__(data, caller=caller, initial=_initial_of(window))

    def given(self) -> dict[str, Any]:
        """Return only the changed fields: the form drops seconds, and a member may not see all selected monitors."""
        changed = set(self.changed_data)
        given = {"name": self.cleaned_data["name"]} if "name" in changed else {}
        return given | (self._when() if changed & set(_WHEN) else {}) | (self._aim() if changed & set(_AIM) else {})


def _initial_of(window: MaintenanceWindow) -> dict[str, Any]:
    zone = ZoneInfo(window.time_zone)
    starts_at = window.starts_at.astimezone(zone)
    recurrence = read(window.rrule)
    initial = {
        "name": window.name,
        "starts_at": _clock(starts_at),
        "ends_at": _clock(window.ends_at.astimezone(zone)),
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


def _clock(local: datetime) -> datetime:
    """Return the local time labelled as UTC, the time zone that Django's form fields use."""
    return local.replace(second=0, microsecond=0, tzinfo=UTC)


def _instant(clock: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of a local time. If it occurs twice, return the first, as `incidents.recurrence` does."""
    return clock.replace(tzinfo=zone, fold=0).astimezone(UTC)


def _with(zones: list[tuple[str, str]], name: str | None) -> list[tuple[str, str]]:
    """Add a stored time zone that the list lacks: the API accepts more names."""
    return zones if name is None or any(zone == name for zone, _ in zones) else [(name, name), *zones]

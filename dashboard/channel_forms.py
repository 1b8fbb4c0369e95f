"""The forms of alert channels. Secret settings are never shown, and an edit that leaves them empty keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms

from alerts.models import DEFAULT_TOPICS, AlertChannel, Topic
from alerts.transports import KINDS
from alerts.transports.base import ChannelKind, Setting
from core.forms import ServiceForm, conditional
from dashboard.choosing import MonitorsField, ProjectField, monitor_choices, project_choices
from dashboard.once import OnceForm
from projects.access import Caller

Scope = AlertChannel.Scope

TOPIC_NAMES = {
    Topic.DOWN: "Down: an outage is confirmed",
    Topic.RECOVERED: "Recovered: the outage is over",
    Topic.SLOW: "Slow: it responds, but slower than its threshold",
    Topic.EXPIRY: "Expiry: a certificate or a domain expires soon",
    Topic.REMINDER: "Reminders: it is still down and not acknowledged",
}
SCOPE_NAMES = {
    Scope.ALL: "All my monitors, or all of the channel's project",
    Scope.PROJECT: "Monitors of one project",
    Scope.CHOSEN: "Chosen monitors",
}
_AIM = ("monitors", "scope_project_id", "monitor_ids")


class _ChannelForm(ServiceForm):
    """The fields that all channels have, after those of the kind."""

    name = forms.CharField(max_length=200)
    topics = forms.MultipleChoiceField(
        label="Send alerts when",
        choices=[(topic.value, name) for topic, name in TOPIC_NAMES.items()],
        widget=forms.CheckboxSelectMultiple,
        required=False,
        initial=[topic.value for topic in DEFAULT_TOPICS],
    )
    remind_every_hours = forms.IntegerField(
        label="Reminder interval (hours)",
        min_value=1,
        max_value=168,
        initial=24,
        help_text="While an outage continues and is not acknowledged. 1 to 168.",
    )
    monitors = forms.ChoiceField(
        label="Monitors",
        choices=[(scope.value, name) for scope, name in SCOPE_NAMES.items()],
        widget=forms.RadioSelect,
        initial=Scope.ALL.value,
    )

    def __init__(self, data: Any = None, *, caller: Caller, kind: ChannelKind, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.kind = kind
        self.projects = project_choices(caller)
        self.fields["scope_project_id"] = conditional(
            ProjectField(projects=self.projects, none="Choose a project", label="Project")
        )
        self.fields["monitor_ids"] = conditional(
            MonitorsField(monitors=monitor_choices(caller), label="Chosen monitors")
        )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        monitors = cleaned.get("monitors")
        if monitors == Scope.PROJECT and not cleaned.get("scope_project_id"):
            self.add_error("scope_project_id", "Choose a project.")
        if monitors == Scope.CHOSEN and not cleaned.get("monitor_ids") and "monitor_ids" not in self.errors:
            self.add_error("monitor_ids", "Choose at least one monitor.")
        return cleaned

    def own_fields(self) -> Iterator[forms.BoundField]:
        return (self[setting.name] for setting in self.kind.settings)

    def _own_given(self) -> dict[str, Any]:
        given = {setting.name: self.cleaned_data[setting.name] for setting in self.kind.settings}
        return {name: value for name, value in given.items() if value}

    def _aim(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        aim: dict[str, Any] = {"monitors": cleaned["monitors"]}
        if cleaned["monitors"] == Scope.PROJECT:
            aim["scope_project_id"] = cleaned["scope_project_id"]
        if cleaned["monitors"] == Scope.CHOSEN:
            aim["monitor_ids"] = cleaned["monitor_ids"]
        return aim

    def refuse(self, field: str | None, reason: str) -> None:
        """Show errors of a single monitor, such as `monitor_ids[3]`, at the field."""
        if field is not None and field.startswith("monitor_ids["):
            reason = reason.partition(": ")[2]
            field = "monitor_ids"
        super().refuse(field, reason)


class NewChannelForm(_ChannelForm, OnceForm):
    def __init__(self, data: Any = None, *, caller: Caller, kind: ChannelKind, example: str = "") -> None:
        super().__init__(data, caller=caller, kind=kind)
        self.fields["name"].required = False
        self.fields["name"].help_text = "Default: derived from the channel's address."
        self.fields["project_id"] = ProjectField(
            projects=self.projects,
            none="None: mine alone",
            label="Project",
            help_text="Members of the project can see and change its channels, which send alerts of its monitors.",
        )
        self.fields |= {setting.name: _field(setting) for setting in kind.settings}
        if example:
            field = self.fields[kind.settings[0].name]
            field.widget.attrs["placeholder"] = example
            field.help_text = f"Format: {example}"

    def given(self) -> dict[str, Any]:
        """Return the equivalent body for the API."""
        cleaned = self.cleaned_data
        given = {name: cleaned[name] for name in ("topics", "remind_every_hours", "project_id")}
        if cleaned["name"]:
            given["name"] = cleaned["name"]
        return {"kind": self.kind.name} | given | self._own_given() | self._aim()


class EditChannelForm(_ChannelForm):
    enabled = forms.BooleanField(label="Send alerts", required=False)

    def __init__(self, data: Any = None, *, caller: Caller, channel: AlertChannel) -> None:
        initial = {
            "name": channel.name,
            "topics": channel.topics,
            "remind_every_hours": channel.remind_every_hours,
            "monitors": channel.scope,
            "scope_project_id": channel.scope_project and channel.scope_project.public_id,
            "monitor_ids": [monitor.public_id for monitor in channel.monitors.all()],
            "enabled": channel.enabled,
        }
        super().__init__(data, caller=caller, kind=KINDS[channel.kind], initial=initial)
        config = channel.config
        for setting in self.kind.settings:
            field = self.fields[setting.name] = _field(setting)
            if not setting.secret:
                field.initial = config.get(setting.name)
                continue
            field.required = False
            field.widget.attrs.pop("placeholder", None)
            now = f"Currently {channel.hint}" if setting is self.kind.settings[0] else "The value is never shown"
            field.help_text = f"{now}. Leave empty to keep it."

    def given(self) -> dict[str, Any]:
        """Return only the changes: a member may not see all selected monitors."""
        plain = ("name", "topics", "remind_every_hours", "enabled")
        given = {name: self.cleaned_data[name] for name in plain if name in self.changed_data}
        aim = self._aim() if set(_AIM) & set(self.changed_data) else {}
        own = {name: value for name, value in self._own_given().items() if name in self.changed_data}
        return given | own | aim


def _field(setting: Setting) -> forms.Field:
    """Return the field of one setting."""
    if setting.choices:
        return forms.ChoiceField(
            label=setting.label,
            choices=[(choice, choice) for choice in setting.choices],
            initial=setting.default() if setting.default else None,
            help_text=setting.help,
        )
    attrs = {"class": "code", "autocomplete": "off", "spellcheck": "false", "placeholder": setting.example}
    if setting.input_type == "email":
        attrs = {"autocomplete": "email"}
    elif setting.input_type == "url":
        attrs["inputmode"] = "url"
    return forms.CharField(
        label=setting.label,
        max_length=setting.max_length,
        required=setting.required,
        initial=setting.default() if setting.default and not setting.secret else None,
        strip=setting.strip,
        widget=forms.EmailInput(attrs=attrs) if setting.input_type == "email" else forms.TextInput(attrs=attrs),
        help_text=setting.help,
    )

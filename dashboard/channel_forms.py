"""The form of an alert channel. Secret settings are never shown, and an edit that leaves them empty keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms

from alerts.models import DEFAULT_TOPICS, AlertChannel, Topic
from alerts.transports.base import ChannelKind, Setting
from core.forms import conditional
from dashboard.forms import ProjectField, ScopeForm
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


class ChannelForm(ScopeForm):
    """The form of the channel `stored`, or of a new one of a kind. The settings of the kind are fields too.

    `example` is the format of the first setting.
    """

    enabled = forms.BooleanField(label="Send alerts", required=False)
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

    def __init__(
        self,
        data: Any = None,
        *,
        caller: Caller,
        kind: ChannelKind,
        example: str = "",
        stored: AlertChannel | None = None,
    ) -> None:
        initial = None if stored is None else _initial_of(stored)
        super().__init__(data, caller=caller, chosen_label="Chosen monitors", stored=stored, initial=initial)
        self.kind = kind
        self.fields["scope_project_id"] = conditional(ProjectField(self.projects, none="Choose a project"))
        self.fields |= {setting.name: _field(setting, stored) for setting in kind.settings}
        first = self.fields[kind.settings[0].name]
        if stored is None:
            del self.fields["enabled"]
            self.fields["name"].required = False
            self.fields["name"].help_text = "Default: derived from the channel's address."
            self.fields["project_id"] = ProjectField(
                self.projects,
                none="None: mine alone",
                help_text="Members of the project can see and change its channels, which send alerts of its monitors.",
            )
        elif kind.settings[0].secret:
            first.help_text = f"Currently {stored.hint}. Leave empty to keep it."
        if example:
            first.widget.attrs["placeholder"] = example
            first.help_text = f"Format: {example}"

    def clean(self) -> None:
        super().clean()
        if self.cleaned_data.get("monitors") == Scope.PROJECT:
            self.require("scope_project_id", "Choose a project.")

    def own_fields(self) -> Iterator[forms.BoundField]:
        return (self[setting.name] for setting in self.kind.settings)

    def given(self) -> dict[str, Any]:
        """Return the body for the service, for a stored channel only the changes: a member may not see all monitors."""
        cleaned, sent = self.cleaned_data, self.sent
        plain = {"name", "enabled", "topics", "remind_every_hours", "project_id"} & sent
        own = [setting.name for setting in self.kind.settings if setting.name in sent]
        given = {"kind": self.kind.name} | {name: cleaned[name] for name in plain if name != "name" or cleaned[name]}
        given |= {name: cleaned[name] for name in own if cleaned[name]}
        return given | (self.scope() if {"monitors", "scope_project_id", "monitor_ids"} & sent else {})

    def scope(self) -> dict[str, Any]:
        scope = super().scope()
        if scope["monitors"] == Scope.PROJECT:
            scope["scope_project_id"] = self.cleaned_data["scope_project_id"]
        return scope

    def refuse(self, field: str | None, reason: str) -> None:
        """Show errors of a single monitor, such as `monitor_ids[3]`, at the field."""
        if field is not None and field.startswith("monitor_ids["):
            field, reason = "monitor_ids", reason.partition(": ")[2]
        super().refuse(field, reason)


def _initial_of(channel: AlertChannel) -> dict[str, Any]:
    return {name: getattr(channel, name) for name in ("name", "topics", "remind_every_hours", "enabled")} | {
        "monitors": channel.scope,
        "scope_project_id": channel.scope_project and channel.scope_project.public_id,
        "monitor_ids": [monitor.public_id for monitor in channel.monitors.all()],
    }


def _field(setting: Setting, channel: AlertChannel | None) -> forms.Field:
    """Return the field of one setting. A secret one of a stored channel is empty and may stay so."""
    keeps = setting.secret and channel is not None
    initial = setting.default() if setting.default and (setting.choices or not setting.secret) else None
    if channel is not None and not setting.secret:
        initial = channel.config.get(setting.name)
    help_text = "The value is never shown. Leave empty to keep it." if keeps else setting.help
    common: dict[str, Any] = {"label": setting.label, "initial": initial, "help_text": help_text}
    if setting.choices:
        choices = [(choice, choice) for choice in setting.choices]
        return forms.ChoiceField(choices=choices, required=not keeps, **common)
    attrs = {"class": "code", "autocomplete": "off", "spellcheck": "false"}
    if not keeps:
        attrs["placeholder"] = setting.example
    if setting.input_type == "email":
        attrs = {"autocomplete": "email"}
    elif setting.input_type == "url":
        attrs["inputmode"] = "url"
    return forms.CharField(
        max_length=setting.max_length,
        required=setting.required and not keeps,
        strip=setting.strip,
        widget=forms.EmailInput(attrs=attrs) if setting.input_type == "email" else forms.TextInput(attrs=attrs),
        **common,
    )

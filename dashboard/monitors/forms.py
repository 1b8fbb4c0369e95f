"""The form of a monitor: converts input to a body for the API, and assigns the API's errors to fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
from django import forms
from django.forms.boundfield import BoundField
from django.http import QueryDict
from django.utils.html import format_html_join
from django.utils.text import capfirst

from alerts.selectors import list_channels
from checks.addresses import UntestedError, bare
from checks.probes.dns.spec import RECORD_TYPES
from checks.probes.tcp.spec import STARTTLS_PROTOCOLS
from core import throttles
from core.api.fields import validated
from core.clock import utc_now
from core.errors import ValidationFailed
from core.forms import conditional
from core.text import quote
from dashboard.durations import MS_OF, parse_duration
from dashboard.forms import (
    ChosenField,
    CommasField,
    DurationField,
    LongChoices,
    MultilineField,
    ObjectForm,
    Picker,
    PlainRenderer,
    ProjectField,
    choices_of,
    project_choices,
    separated,
    time_zones,
)
from dashboard.monitors import schedules
from dashboard.monitors.form_rows import HeaderRow, Row, RuleRow, blank_rule, filled
from dashboard.monitors.notified import Notified, notified, selected_place
from dashboard.monitors.tags import offered
from dashboard.on_call.choosing import PolicyChoiceField, policies_of
from locations.models import Location
from locations.selectors import with_agents
from monitors import configuration, types
from monitors.checking import interactive
from monitors.dependencies import FIELD, MAX_PARENTS, load, possible_parents, shown_ids
from monitors.models import Monitor
from monitors.selectors import list_monitors
from monitors.serializers import MonitorInputSerializer, MonitorPatchSerializer
from monitors.services import locations_at, preselected_of
from monitors.types.base import MonitorType
from monitors.types.content import Rule
from monitors.types.http import Header
from monitors.types.settings import MAX_NAME, MonitorConfig, Setting
from projects.access import Caller
from projects.placement import POLICY

SCOPE = "create-and-test"
PARENTS_OFFERED = "parents_offered"
"""Hidden field beside the checkboxes of parents."""
LOCATIONS_OFFERED = "locations_offered"
"""Hidden field beside the checkboxes of locations, with the ids of all that were shown."""
PARTS = {"port": "", "encryption": "", "record_type": "A", "resolver": ""}
"""The fields of which addresses are made, with their defaults."""
_DEFAULTS: dict[str, Any] = {"name": "", "check_ssl": True, "grace_sec": None}
"""Defaults of the form of a new monitor that differ from the API's. An empty grace follows the schedule."""
_ENCRYPTIONS = [("", "None"), ("tls", "TLS"), *((name, f"STARTTLS, {name}") for name in STARTTLS_PROTOCOLS)]
_MOVING = "Shared with its members. Another owner's project gets the monitor without header values and body."
_PLACE = re.compile(r"(\w{1,40})\[(\d{1,3})\](?:\.(\w{1,40}))?")
_TARGETS = {
    "content_rules": "rules",
    "request_headers": "headers",
    "type": "kinds",
    "locations": "locations",
    FIELD: "parents",
}
_LOCATIONS = ("locations", "quorum")


def form_field(setting: Setting) -> forms.Field:
    common: dict[str, Any] = {"label": setting.label, "help_text": setting.help, "required": False}
    attributes = {"placeholder": setting.placeholder} if setting.placeholder else {}
    if setting.item in (Rule, Header):
        return forms.Field(**common)  # without an input: shows errors of all rows together
    if setting.inline:
        common["widget"] = forms.TextInput(attrs={"autocomplete": "off", **attributes})
        return CommasField(empty_value="", **common)
    if setting.item is not None:
        common["widget"] = forms.Textarea(attrs={"class": "code", "rows": 5, **attributes})
        return LinesField(empty=None if setting.nullable else [], strip=False, **common)
    if setting.choices:
        return forms.ChoiceField(choices=[(choice, choice) for choice in setting.choices], **common)
    if setting.type is bool:
        return forms.BooleanField(**common)
    if setting.unit:
        return DurationField(unit=setting.unit, minimum=setting.minimum, maximum=setting.maximum, **common)
    if setting.type is int:
        if setting.nullable:
            common["widget"] = forms.TextInput(attrs={"inputmode": "numeric", **attributes})
        return forms.IntegerField(min_value=setting.minimum, max_value=setting.maximum, **common)
    if setting.multiline:
        attributes |= {"class": "code", "rows": "5", "spellcheck": "false"}
        return MultilineField(strip=False, empty_value=None, widget=forms.Textarea(attrs=attributes), **common)
    widget = forms.TextInput(attrs=attributes | ({"spellcheck": "false"} if attributes else {}))
    return forms.CharField(
        max_length=setting.max_length, empty_value=None if setting.nullable else "", widget=widget, **common
    )


class LinesField(forms.CharField):
    """A list of texts, one per line, without blank lines. Without any it is `empty`."""

    def __init__(self, *, empty: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._empty = empty

    def clean(self, value: Any) -> Any:
        return [line for _, line in _numbered_lines(super().clean(value))] or self._empty

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value


def _numbered_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers among all lines."""
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


class MonitorForm(ObjectForm):
    """The form of the monitor `stored`, or of a new one, such as a copy of `source`, with the values of `config`."""

    default_renderer = PlainRenderer
    use_required_attribute = False  # the type decides which fields are required

    type = forms.ChoiceField(label="Type", widget=forms.RadioSelect)
    port = conditional(
        forms.IntegerField(min_value=1, max_value=65_535, widget=forms.TextInput(attrs={"inputmode": "numeric"}))
    )
    encryption = conditional(forms.ChoiceField(choices=_ENCRYPTIONS))
    record_type = conditional(
        forms.ChoiceField(choices=[(name, name) for name in RECORD_TYPES], help_text="The records to ask for.")
    )
    resolver = conditional(
        forms.CharField(
            max_length=100,
            help_text="An IP address. Left empty: this server's.",
            widget=forms.TextInput(attrs={"class": "code", "placeholder": "192.0.2.53", "spellcheck": "false"}),
        )
    )
    channels = forms.MultipleChoiceField(label="Notifications", widget=forms.CheckboxSelectMultiple, required=False)
    channels_before = forms.CharField(max_length=10_000, required=False, widget=forms.HiddenInput)
    depends_on = conditional(
        ChosenField(
            label="Depends on",
            widget=Picker,
            help_text=f"While one of these is down, alerts of this monitor are held. Up to {MAX_PARENTS}.",
        )
    )
    timing = conditional(forms.ChoiceField(label="Runs", choices=schedules.CHOICES, widget=forms.RadioSelect))

    def __init__(
        self,
        data: QueryDict | None = None,
        *,
        caller: Caller,
        config: MonitorConfig,
        project: str | None = None,
        stored: Monitor | None = None,
        source: Monitor | None = None,
        channels: Sequence[str] = (),
        parents: Sequence[str] = (),
    ) -> None:
        initial = _initial(config, is_new=stored is None) | {"project_id": project, "channels": channels or None}
        initial[FIELD] = [*parents]
        initial["channels_before"] = " ".join(channels) if stored is not None else ""
        super().__init__(data, stored=stored, initial=initial)
        self._caller = caller
        self._base = stored or source  # whose family, locations and header values it keeps
        self.completed = ""
        self._lacks_tls = False
        self.plan = (caller.user if stored is None else stored.owner).plan
        self.settings = types.settings()
        self._offer_policies()
        self.fields |= {name: form_field(setting) for name, setting in self.settings.items()}
        self.fields["locations"] = ChosenField(
            label=self.fields["locations"].label, required=False, widget=forms.CheckboxSelectMultiple
        )
        self.fields["project_id"] = ProjectField(
            project_choices(caller),
            none="None: personal",
            help_text="Shared with its members." if stored is None else _MOVING,
        )
        names = types.names() if self._base is None else types.family(self._base.kind)
        self.types = [types.get(name) for name in names]
        self.fields["type"].choices = [(kind.name, kind.label) for kind in self.types]  # type: ignore[attr-defined]
        for name, setting in self.settings.items():
            self.fields[name].help_text = _help_text(setting, self.types)
            self.fields[name].suggestions = setting.suggestions  # type: ignore[attr-defined]
            if self._base is None and _has_defaults_by_type(setting):
                # Assigned, because the widget has its own list.
                self.fields[name].choices = [("", "By the type"), *self.fields[name].choices]  # type: ignore[attr-defined]
        if stored is None:
            self.fields["grace_sec"].widget.attrs["placeholder"] = "1m; daily or rarer: 1h"
        self.fields["url"].label = self.kind.url_label
        self.fields["url"].widget.attrs |= {"placeholder": self.kind.placeholder, "spellcheck": "false"}
        interval, floor_ms = self.fields["interval_sec"], self.plan.min_interval_sec * MS_OF["s"]
        interval.suggestions = [one for one in interval.suggestions if parse_duration(one) >= floor_ms]  # type: ignore[attr-defined]
        schedules.prepare(self.fields, suggests_own_zone=data is None and stored is None and config["schedule"] is None)
        if data is not None:
            visible = list_channels(caller).exclude(project__in=caller.viewed).prefetch_related(None)
            self.fields["channels"].choices = list(visible.values_list("public_id", "name"))  # type: ignore[attr-defined]
        self.fields["tags"].widget.attrs["list"] = "tag-names"
        self._offer_locations(is_blank=stored is None and _is_blank(config))
        self.fields[FIELD].choices = lambda: self.possible_parents  # type: ignore[attr-defined]
        if self.is_bound and self.data.keys().isdisjoint((FIELD, PARENTS_OFFERED)):
            self.data.setlist(FIELD, [*parents])
        headers = () if self._base is None else config["request_headers"]
        data = data and self.data  # with the stored values that the user chose
        self.rules = RuleRow.rows(data, config, blank=blank_rule(config))
        self.headers = HeaderRow.rows(data, config, blank={}, stored=headers)
        self.rows: Mapping[str, Sequence[Row]] = {"content_rules": self.rules, "request_headers": self.headers}

    def _offer_policies(self) -> None:
        """Offer the escalation policies of all places. The page shows the field only if there are any."""
        choices, chosen = policies_of(self._caller, self._base.escalation_policy_id if self._base else None)
        self.initial[POLICY], self.offers_policies = chosen, bool(choices)
        self.fields[POLICY] = PolicyChoiceField(
            choices,
            none="None: that of the project, if it has one",
            help_text="Replaces the channels above for outages.",
        )
        if self.is_bound and POLICY not in self.data:
            self.data[POLICY] = self.initial[POLICY] or ""

    def _offer_locations(self, *, is_blank: bool) -> None:
        """Offer the locations of the selected place. A form that was sent without them keeps the initial values."""
        owner_id = self._caller.user.pk if self.stored is None else self.stored.owner_id
        kept = () if self._base is None else self._base.locations
        project, self._owner_id = selected_place(self._caller, self["project_id"].value(), owner_id=owner_id)
        found = locations_at(project.pk if project else None, self._owner_id, caller=self._caller, kept=kept)
        self.offered: Sequence[Location] = list(with_agents(found, now=utc_now()))
        self.fields["locations"].choices = [(one.public_id, one.title) for one in self.offered]  # type: ignore[attr-defined]
        if is_blank:
            self.initial["locations"] = preselected_of(self.offered)
        if self.is_bound and self.data.keys().isdisjoint(("locations", LOCATIONS_OFFERED)):
            self.data.setlist("locations", list(self.initial["locations"]))
            self.data["quorum"] = str(self.initial["quorum"] or "")

    def select_locations(self, given: QueryDict) -> None:
        """Select those that `given`, the values of a form for another place, selects.

        A new monitor also gets the preselected ones that were not offered there.
        """
        chosen: list[str] = given.getlist("locations")
        if self.stored is None:
            before = given.get(LOCATIONS_OFFERED, "").split()
            chosen += [name for name in preselected_of(self.offered) if name not in before]
        self.initial.update(locations=chosen, quorum=given.get("quorum"))

    @property
    def offers_locations(self) -> bool:
        return len(self.offered) > 1

    @property
    def location_rows(self) -> list[tuple[Location, bool]]:
        """Return the locations that are offered, and whether each is selected."""
        chosen = self["locations"].value() or ()
        return [(location, location.public_id in chosen) for location in self.offered]

    @cached_property
    def possible_parents(self) -> LongChoices:
        """Return the monitors that this one can depend on in the selected place, those that are selected first."""
        children = () if self.stored is None else (self.stored.pk,)
        found = possible_parents(list_monitors(self._caller), owners=[self._owner_id], children=children)
        chosen = set(self[FIELD].value() or ())
        return LongChoices(sorted(choices_of(self._caller, found), key=lambda choice: choice[0] not in chosen))

    @property
    def opens_parents(self) -> bool:
        return bool(self[FIELD].value() or self.errors.get(FIELD))

    @cached_property
    def known_tags(self) -> list[str]:
        """Return the tags to complete."""
        return [tag.name for tag in offered(self._caller)]

    presets = schedules.PRESETS
    time_zones = staticmethod(time_zones)

    @property
    def kind(self) -> MonitorType:
        """Return the selected type, or the default one."""
        value = self["type"].value()
        return types.get(value if value in types.names() else types.DEFAULT)

    def compared(self, *, blank: bool = False) -> Iterator[BoundField]:
        """Return the fields of the selected type, and those of its rows."""
        names = {"type", "timing", "project_id", POLICY, FIELD, *self.kind.parts, *self.kind.asked} - self.rows.keys()
        yield from (field for field in self.visible_fields() if field.name in names)
        for row in self._asked_rows():
            if blank or any(row[name].data or row[name].initial for name in row.typed):
                yield from row

    def is_valid(self) -> bool:
        valid = super().is_valid()
        return all([valid, *(row.is_valid() for row in self._asked_rows())])  # a list, to validate all rows

    def clean(self) -> None:
        kind = types.get(self.cleaned_data.get("type", self.kind.name))
        asked = dict(kind.asked)
        hidden = (self.settings.keys() - asked.keys()) | (PARTS.keys() - set(kind.parts))
        if "schedule" in asked:
            unused = schedules.unused(schedules.chosen(self.cleaned_data))
            hidden |= unused
            if "schedule" not in unused | self.errors.keys() and not self.cleaned_data["schedule"]:
                self.add_error("schedule", "Enter a cron expression, or choose the interval.")
        for name in hidden:
            self.errors.pop(name, None)
            asked.pop(name, None)
        if self.stored is None and "grace_sec" in asked and self.cleaned_data.get("grace_sec", "") is None:
            self.cleaned_data["grace_sec"] = schedules.default_grace_sec(self.cleaned_data)
        for name, setting in asked.items():
            required = setting.type is int and not setting.nullable
            if required and self.cleaned_data.get(name, "") is None:
                self.add_error(name, "This field is required.")
        # A scheduler fires from the first one that is online.
        order = list(self.initial["locations"])
        self.cleaned_data["locations"].sort(key=lambda name: order.index(name) if name in order else len(order))
        if "url" in asked and not self.errors:
            self._complete_address(kind)

    def _complete_address(self, kind: MonitorType) -> None:
        """Make the address of what is typed; `completed` is what to report about it."""
        typed = self.cleaned_data["url"]
        parts = self._parts(kind, typed)
        if self.stored is not None and parts == self._parts(kind, self.stored.url, PARTS):
            url: str | None = self.stored.url
        else:
            url = self.attempt(lambda: kind.complete(parts, self._begins_tls))
        if url is None:
            return
        if typed not in (url, parts["url"] if kind.takes_host else url):
            self.completed = f"The address was completed to {url}."
            if self._lacks_tls:
                self.completed += " https:// did not respond."
            for name, value in parts.items():
                self.data[name] = value if kind.takes_host else url
        self.cleaned_data["url"] = url

    def _parts(self, kind: MonitorType, text: str, values: Mapping[str, Any] | None = None) -> dict[str, str]:
        """Return the parts of an address. Those that the text does not name are `values`, by default what is typed."""
        values = self.cleaned_data if values is None else values
        return {name: str(values.get(name) or "") for name in kind.parts} | kind.split(bare(text))

    def _begins_tls(self, host: str, port: int) -> bool:
        throttles.count_request(SCOPE, self._caller.account)
        try:
            begins = interactive.begins_tls(self._caller, host, port)
        except UntestedError:
            reason = "could not be tested for https; enter it with https:// or http://."
            raise ValidationFailed(reason, field="url") from None
        self._lacks_tls = not begins
        return begins

    @property
    def address(self) -> str:
        """Return the address that the typed parts make, empty for a type that takes a URL."""
        if not self.kind.takes_host:
            return ""
        values = {name: self[name].value() for name in PARTS}
        parts = self._parts(self.kind, str(self["url"].value() or ""), values)
        try:
            return self.kind.complete(parts, self._begins_tls)
        except ValidationFailed:
            return ""

    def body(self) -> dict[str, Any]:
        """Return a body for the API, for a stored monitor only the changed fields. Requires valid data."""
        kind = types.get(self.cleaned_data["type"])
        body = {"type": kind.name, "project_id": self.cleaned_data["project_id"]}
        unused = schedules.unused(schedules.chosen(self.cleaned_data)) if "schedule" in kind.asked else frozenset()
        for name, setting in kind.asked.items():
            if name in unused:
                continue
            value = self.cleaned_data[name]
            if name in self.rows:
                value = msgspec.to_builtins([row.item() for row in filled(self.rows[name])])
            if value or not _is_omitted(setting):
                body[name] = value
        if "schedule" in unused:
            body["schedule"] = None
        if "check_ssl" in body and not self._reads_certificates(body):
            body["check_ssl"] = False
        if "name" not in body and (title := kind.title(body.get("url", ""))):
            body["name"] = title[:MAX_NAME]
        chosen, before = self.cleaned_data[FIELD], self.initial[FIELD]
        body[POLICY] = self.cleaned_data[POLICY]
        body[FIELD] = [each for each in before if each in chosen] + [each for each in chosen if each not in before]
        if self.stored is None:
            return body
        before = _unchanged_body(self.stored) | {FIELD: before, POLICY: self.initial[POLICY]}
        return {name: value for name, value in body.items() if value != before[name]}

    def _reads_certificates(self, body: Mapping[str, Any]) -> bool:
        """Return whether `check_ssl`, which is on by default, is possible with the address and the other settings."""
        is_encrypted = body["url"].lower().startswith(("https:", "tls:")) or body.get("follow_redirects", False)
        return bool(body.get("tls_verify", True) and (is_encrypted or self._base is not None))

    @property
    def notified(self) -> Notified:
        """Return the channels for what is selected now."""
        return notified(
            self._caller,
            kind=self.kind,
            project_id=self["project_id"].value(),
            chosen=self["channels"].value() or (),
            tags=separated(tags) if isinstance(tags := self["tags"].value() or (), str) else tags,
            policy_id=self[POLICY].value(),
            owner_id=self._caller.user.pk if self.stored is None else self.stored.owner_id,
        )

    def channel_changes(self) -> tuple[set[str], set[str]]:
        """Return the ids of the channels that the user selected, and of those no longer selected."""
        before, now = set(self.cleaned_data["channels_before"].split()), set(self.cleaned_data["channels"])
        return now - before, before - now

    def given(self) -> dict[str, Any]:
        """Return the validated body. Raises ValidationFailed."""
        return validated(MonitorInputSerializer if self.stored is None else MonitorPatchSerializer, self.body())

    def refuse(self, field: str | None, reason: str) -> None:
        """Add an error of the API. `content_rules[1].path` is a field of the second row that was sent.

        `records[1]` is the second line of a list of texts that is not blank, `tags[1]` the second one between commas.
        """
        place = _PLACE.fullmatch(field or "")
        if place is None or place[1] not in self.fields:
            return super().refuse(field, reason)
        if place[1] == FIELD:
            label = dict(self.possible_parents).get(self.cleaned_data[FIELD][int(place[2])], "A monitor")
            self.add_error(FIELD, f"{label}: {reason.removeprefix(f'{field}: ')}")
            return None
        if place[1] == "locations":
            return super().refuse("locations", reason.removeprefix(f"{field}: "))
        if self.settings[place[1]].inline:
            text = separated(self[place[1]].value())[int(place[2])]
            self.add_error(place[1], f"{quote(text)} {reason.removeprefix(f'{field}: ')}")
            return None
        if place[1] not in self.rows:
            number, _ = _numbered_lines(self[place[1]].value())[int(place[2])]
            self.add_error(place[1], f"Line {number} {reason.removeprefix(f'{field}: ')}")
            return None
        row = filled(self.rows[place[1]])[int(place[2])]
        name = row.aliases.get(place[3], place[3])
        row.add_error(name if name in row.fields else None, capfirst(reason.removeprefix(f"{field}: ")))
        return None

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Return the errors for a list of links: the id of the field, its label, and the text."""
        for form in (self, *self._asked_rows()):
            for name, errors in form.errors.items():
                for text in errors:
                    if name in form.fields:
                        yield _TARGETS.get(name, form[name].auto_id), str(form[name].label), str(text)
                    else:
                        yield "", "", str(text)

    @property
    def sections(self) -> dict[str, list[tuple[BoundField, str]]]:
        """Return the fields of each section and the types that have them, without rows and what the template places."""
        found: dict[str, list[tuple[BoundField, str]]] = {}
        for name, setting in self.settings.items():
            if name not in self.rows and name not in (*schedules.SETTINGS, *_LOCATIONS):
                found.setdefault(setting.section, []).append((self[name], self.data_for[name]))
        return found

    @cached_property
    def data_for(self) -> dict[str, str]:
        """Return types for the attribute `data-for`: those that have a setting, and those that get results in a way."""
        kinds = types.REGISTRY.values()
        names = [*self.settings, *PARTS]
        return {name: " ".join(kind.name for kind in kinds if name in (*kind.asked, *kind.parts)) for name in names} | {
            "probed": " ".join(kind.name for kind in self.types if not kind.waits),
            "takes_parts": " ".join(kind.name for kind in self.types if kind.parts),
            "takes_host": " ".join(kind.name for kind in self.types if kind.takes_host),
            "waiting": " ".join(types.waiting()),
            "firing": " ".join(types.firing()),
        }

    @property
    def opens_advanced(self) -> bool:
        """Return whether a field in Advanced has an error or a value other than the default."""
        advanced = {name for name, setting in self.settings.items() if setting.section == "advanced"}
        wrong = advanced & set(self.errors) or any(row.errors for row in self.headers)
        typed = any(row["name"].value() for row in self.headers)
        unusual = any(
            self[name].value() not in (None, "", self.settings[name].default, _DEFAULTS.get(name))
            for name in advanced - set(self.rows)
            if not _has_defaults_by_type(self.settings[name])
        )
        return bool(wrong or typed or unusual)

    def _asked_rows(self) -> list[Row]:
        return [row for name, rows in self.rows.items() if name in self.kind.asked for row in rows]


def _help_text(setting: Setting, kinds: Sequence[MonitorType]) -> str:
    """Return the help text of a setting: one text for each group of types that differs."""
    texts: dict[str, list[str]] = {}
    for kind in kinds:
        if setting.name in kind.asked:
            texts.setdefault(kind.helps.get(setting.name, setting.help), []).append(kind.name)
    if len(texts) < 2:
        return next(iter(texts), setting.help)
    rows = ((" ".join(names), text) for text, names in texts.items())
    return format_html_join("", '<span data-for="{}">{}</span>', rows)


def _is_omitted(setting: Setting) -> bool:
    """Return whether an empty field means that the body does not have the setting, instead of an empty value."""
    return bool(setting.choices) or (setting.type is str and not setting.nullable and not setting.blank)


def _has_defaults_by_type(setting: Setting) -> bool:
    return bool(setting.choices) and any(setting.name in kind.defaults for kind in types.REGISTRY.values())


def parents_of(monitor: Monitor, caller: Caller) -> list[str]:
    """Return the ids of the parents that the caller sees."""
    load([monitor], caller=caller)
    return shown_ids(monitor, caller)


def _initial(config: MonitorConfig, *, is_new: bool) -> dict[str, Any]:
    initial = {"type": config.type, "timing": schedules.of(config["schedule"])} | PARTS
    initial |= {name: config[name] for name in types.settings()} | types.get(config.type).split(config.url)
    if is_new and _is_blank(config):
        # Nothing is typed yet, so use the defaults of the type.
        initial |= _DEFAULTS | {name: "" for name, one in types.settings().items() if _has_defaults_by_type(one)}
    return initial


def _is_blank(config: MonitorConfig) -> bool:
    return config == configuration.build({"interval_sec": config.interval_sec, "type": config.type})


def _unchanged_body(monitor: Monitor) -> dict[str, Any]:
    """Return the body that an unchanged form of a stored monitor would send."""
    config = monitor.public_config
    # As JSON values, because a tuple never equals the list of a body.
    body = msgspec.json.decode(msgspec.json.encode({name: config[name] for name in types.settings()}))
    for header in body["request_headers"]:
        header.pop("value_dropped", None)
    for name, setting in types.settings().items():
        if setting.multiline:
            body[name] = (body[name] or "").replace("\r\n", "\n") or None
    return {**body, "type": config.type, "project_id": monitor.project and monitor.project.public_id}

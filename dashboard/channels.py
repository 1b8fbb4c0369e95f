"""Alert channels: list, create, edit, test, and the delivery log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

import msgspec
from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.text import capfirst

from alerts import selectors, services, templates, testing
from alerts.events import DEFAULT_TOPICS, WORDS, Payload, Topic
from alerts.models import AlertChannel, Delivery
from alerts.transports import KINDS
from alerts.transports.base import ChannelKind, Setting
from core import mail
from core.api.idempotency import Created
from core.errors import ApiError
from core.forms import conditional
from core.text import copy_name
from core.waiting import limit_waiting
from dashboard.deletion import Deletable, deletion
from dashboard.forms import (
    LongSelect,
    MultilineField,
    ProjectField,
    ScopeForm,
    project_choices,
    selected,
    time_zone_choices,
)
from dashboard.hours import HoursField, write_hours
from dashboard.pages import PageRequest, action, button, count_request, done, errors_as_messages, page, render_page
from dashboard.paging import Position, first_page
from monitors.filters import tags_of, with_any_tag
from monitors.selectors import hidden_ids, list_monitors, shown_id
from monitors.types.tags import tag_key
from notifications.outbox import SendResult
from projects.access import EVERY_ROLE, Caller

PAGE = 30
MAX_ITEMS, MAX_NAME = 3, 200

Scope = AlertChannel.Scope
STATE_NAMES = dict(Delivery.State.choices) | {Delivery.State.DEAD.value: "Given up"}
TOPIC_NAMES = {
    Topic.DOWN: "Down: an outage is confirmed",
    Topic.RECOVERED: "Recovered: the outage is over",
    Topic.SLOW: "Slow: it responds, but slower than its threshold",
    Topic.EXPIRY: "Expiry: a certificate or a domain expires soon",
    Topic.REMINDER: "Reminders: it is still down and not acknowledged",
    Topic.DNS_CHANGE: "DNS changes: a DNS monitor finds other records",
    Topic.TOO_OFTEN: "Too often: a job runs more often than expected",
    Topic.PARTIAL_OUTAGE: "Partial outage: it fails from some of its locations, and is up from the others",
    Topic.LOCATION_OFFLINE: "Location offline: no agent of a private location is connected",
    Topic.ON_CALL_GAP: "No one on call: a schedule has a gap in the next 24 hours, or a policy reaches no one",
    Topic.ON_CALL: "Hand-overs: your on-call shift begins or ends",
}
OUTSIDE_NAMES = {
    AlertChannel.Outside.HOLD: "Wait until they begin, and send what is still true then",
    AlertChannel.Outside.DROP: "Send nothing",
}
TEMPLATE_NAMES = {"down": "Outage", "recovered": "Recovery"}
SCOPE_NAMES = {
    Scope.ALL: "All my monitors, or all of the channel's project",
    Scope.PROJECT: "Monitors of one project",
    Scope.CHOSEN: "Selected monitors",
}


class ChannelForm(ScopeForm):
    """The form of the channel `stored`, or of a new one, which may be a copy of `source`.

    Settings of the kind are fields, the first like `example`.
    """

    needs: ClassVar = {**ScopeForm.needs, Scope.PROJECT: ("scope_project_id", "Choose a project.")}
    enabled = forms.BooleanField(label="Send alerts", required=False)
    name = forms.CharField(max_length=MAX_NAME)
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
    delay_min = conditional(
        forms.IntegerField(
            label="Delay (minutes)",
            min_value=0,
            max_value=1_440,
            initial=0,
            help_text="How long an outage lasts, without being acknowledged, before it is sent. 0: it is sent at once.",
        )
    )
    hours = HoursField(label="Hours")
    timezone = conditional(forms.ChoiceField(label="Time zone of the hours", widget=LongSelect, initial="UTC"))
    outside = conditional(
        forms.ChoiceField(
            label="Outside of the hours",
            choices=[(outside.value, name) for outside, name in OUTSIDE_NAMES.items()],
            widget=forms.RadioSelect,
            initial=AlertChannel.Outside.HOLD.value,
        )
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
        source: AlertChannel | None = None,
    ) -> None:
        base = stored or source
        initial = None if base is None else _initial_of(base, caller)
        if source is not None:
            initial = {**_initial_of(source, caller), "name": copy_name(source.name, limit=MAX_NAME)}
        super().__init__(data, caller=caller, chosen_label="Selected monitors", stored=stored, initial=initial)
        self.kind = kind
        self.secret_fields = {setting.name for setting in kind.settings if setting.secret}
        self.fields["scope_project_id"] = conditional(
            ProjectField(project_choices(caller, roles=EVERY_ROLE), none="Choose a project")
        )
        self.fields |= {setting.name: _field(setting, base) for setting in kind.settings}
        first = self.fields[kind.settings[0].name]
        self.fields |= _template_fields(base)
        zones, zone = time_zone_choices(), "UTC" if base is None else base.time_zone
        field: Any = self.fields["timezone"]
        field.choices = zones if zone in dict(zones) else [(zone, zone), *zones]  # the API accepts more names
        field.widget.attrs["data-own-zone"] = data is None and not (base and base.hours)
        if stored is None:
            del self.fields["enabled"]
            self.fields["name"].required = False
            self.fields["name"].help_text = "Default: derived from the channel's address."
            self.fields["project_id"] = ProjectField(
                self.projects,
                none="None: personal",
                help_text="Members of the project can see and change its channels, which send alerts of its monitors.",
            )
        if base is not None and kind.settings[0].secret:
            first.help_text = f"Currently {base.hint}. Leave empty to keep it."
        if example:
            first.widget.attrs["placeholder"] = example
            first.help_text = f"Format: {example}"

    variables: ClassVar = templates.VARIABLES

    def templates(self) -> dict[str, dict[str, str]]:
        """Return the templates that were entered, as in the API."""
        return {
            name: {part: self.cleaned_data.get(f"template_{name}_{part}") or "" for part in templates.PARTS}
            for name in templates.NAMES
        }

    def template_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name.startswith("template_")]

    @property
    def shows_templates(self) -> bool:
        """Whether there is a template, or an error in one."""
        return any(field.value() or field.errors for field in self.template_fields())

    def own_fields(self) -> Iterator[forms.BoundField]:
        return (self[setting.name] for setting in self.kind.settings)

    def given(self) -> dict[str, Any]:
        """Return the body for the service, for a stored channel only the changes: a member may not see all monitors."""
        given: dict[str, Any] = {} if self.stored else {"kind": self.kind.name}
        plain = {"enabled", "topics", "remind_every_hours", "project_id", "hours"}
        unless_empty = {"name", "delay_min", "timezone", "outside", *(setting.name for setting in self.kind.settings)}
        for name in self.sent & (plain | unless_empty):
            if name in plain or self.cleaned_data[name] not in (None, ""):
                given[name] = self.cleaned_data[name]
        if not (self.cleaned_data["hours"] or (self.stored and self.stored.hours)):
            given.pop("timezone", None)  # the page preselects the user's own
        if any(name.startswith("template_") for name in self.sent):
            given["templates"] = self.templates()
        return given | self.scope()

    def refuse(self, field: str | None, reason: str) -> None:
        """Show errors of a single monitor, such as `monitor_ids[3]`, at the field."""
        if field is not None and field.startswith(("monitor_ids[", "monitor_tags[")):
            field, reason = field.partition("[")[0], reason.partition(": ")[2]
        if field == "templates":  # `templates: down.body: line 2: …`
            _, path, reason = reason.split(": ", 2)
            field = f"template_{path.replace('.', '_')}"
        super().refuse(field, reason)


def _initial_of(channel: AlertChannel, caller: Caller) -> dict[str, Any]:
    plain = ("name", "topics", "remind_every_hours", "enabled", "delay_min", "hours", "outside")
    return {name: getattr(channel, name) for name in plain} | {
        "timezone": channel.time_zone,
        "project_id": channel.project and channel.project.public_id,
        "monitors": channel.scope,
        "scope_project_id": channel.scope_project and channel.scope_project.public_id,
        "monitor_ids": [shown_id(monitor, caller) for monitor in channel.monitors.all()],
        "monitor_tags": channel.monitor_tags,
    }


def _template_fields(channel: AlertChannel | None) -> dict[str, forms.Field]:
    """Return the fields `template_down_title` and so on."""
    stored = {} if channel is None else channel.templates
    code = {"class": "code", "spellcheck": "false"}
    fields: dict[str, forms.Field] = {}
    for name, label in TEMPLATE_NAMES.items():
        texts = stored.get(name, {})
        fields[f"template_{name}_title"] = forms.CharField(
            label=f"{label}: title",
            required=False,
            max_length=templates.MAX_CHARS,
            initial=texts.get("title", ""),
            widget=forms.TextInput(attrs=code),
        )
        fields[f"template_{name}_body"] = MultilineField(
            label=f"{label}: text",
            required=False,
            max_length=templates.MAX_CHARS,
            strip=False,
            initial=texts.get("body", ""),
            widget=forms.Textarea(attrs={**code, "rows": 4}),
        )
    return fields


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


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel with the data that pages show to the caller, or to those who may change it."""

    channel: AlertChannel
    dead: int = 0
    caller: Caller | None = None

    @property
    def name(self) -> str:
        return selectors.shown_name(self.channel, self.caller)

    @property
    def hint(self) -> str | None:
        return selectors.shown_hint(self.channel, self.caller)

    @property
    def chosen(self) -> list[tuple[str, str]]:
        """Return ids and names of the selected monitors."""
        return [(shown_id(monitor, self.caller), monitor.name or monitor.url) for monitor in self.channel.chosen]

    @property
    def kind(self) -> ChannelKind:
        return KINDS[self.channel.kind]

    @property
    def state(self) -> tuple[str, str]:
        """Return status and text of the badge."""
        if self.kind.problem() and self.channel.enabled:
            return "failed", "No mail server"
        if self.channel.confirmed_at is None:
            return "waiting", "Waiting for confirmation" if self.channel.confirmation_digest else "Not confirmed"
        if not self.channel.enabled:
            return "", "Disabled"
        return ("dead", "Failing") if self.channel.failures else ("sent", "Confirmed")

    @property
    def hours(self) -> list[str]:
        return write_hours(self.channel.hours)

    @property
    def templates(self) -> str:
        return ", ".join(TEMPLATE_NAMES[name].lower() for name in self.channel.templates)

    @property
    def scope(self) -> str:
        channel = self.channel
        if channel.scope == Scope.PROJECT:
            return f"of {channel.scope_project.name}" if channel.scope_project else "of a deleted project"
        if channel.scope == Scope.CHOSEN:
            return selected(len(channel.chosen), channel.monitor_tags)
        return "all monitors of the project" if channel.project_id else "all monitors"

    @property
    def tags(self) -> list[tuple[str, int]]:
        """Return the tags that select monitors, with the number of those that have each now, as the caller sees."""
        channel = self.channel
        if self.caller is None or channel.scope != Scope.CHOSEN or not channel.monitor_tags:
            return []
        place = {"project": channel.project_id} if channel.project_id else {"owner": channel.owner_id}
        found = list_monitors(self.caller).filter(with_any_tag(map(tag_key, channel.monitor_tags)), **place)
        counts = {tag_key(tag.name): tag.monitors for tag in tags_of(found)}
        return [(tag, counts.get(tag_key(tag), 0)) for tag in channel.monitor_tags]


@page
def index(request: PageRequest) -> HttpResponse:
    found = list(selectors.list_channels(request.caller).order_by("name", "pk"))
    dead = selectors.count_dead(found)
    channels = [ChannelView(channel, dead.get(channel.pk, 0), request.caller) for channel in found]
    return render_page(request, "channels/list", channels=channels)


@page
def show(request: PageRequest, channel_id: str) -> HttpResponse:
    """Show a channel and its delivery log."""
    channel = selectors.get_channel(request.caller, channel_id)
    return render_page(request, "channels/detail", **_detail(request, channel))


def _detail(request: PageRequest, channel: AlertChannel) -> dict[str, Any]:
    """Return a channel and the requested page of its log."""
    state = request.GET.get("state", "")
    state = state if state in STATE_NAMES else ""
    before = Position.read(request.GET.get("before", ""))
    found = selectors.deliveries_of(channel, limit=PAGE + 1, state=state or None, before=before)
    rows, last = first_page(found, PAGE)
    keys = {item.payload["monitor_id"] for row in rows for item in row.items.all()} - {None}
    hidden = hidden_ids(request.caller, keys)
    if request.caller.views(channel):
        for row in rows:
            row.last_error = None  # it may say where alerts go
    return {
        "shown": ChannelView(channel, selectors.count_dead([channel]).get(channel.pk, 0), request.caller),
        "deliveries": [_shown_delivery(row, hidden, now=request.now) for row in rows],
        "state": state,
        "states": [("", "All"), *STATE_NAMES.items()],
        "next": last and str(Position(last.created_at, last.pk)),
        "later": "before" in request.GET,
    }


def _shown_delivery(delivery: Delivery, hidden: Mapping[str, str], *, now: datetime) -> dict[str, Any]:
    """Return what the log shows of a delivery: the name, event and path, if any, of its first items."""
    items = []
    for item in delivery.items.all()[:MAX_ITEMS]:
        payload = msgspec.convert(item.payload, Payload)
        payload = replace(payload, monitor_id=hidden.get(payload.monitor_id or "", payload.monitor_id))
        name = payload.location or payload.title or payload.monitor or payload.monitor_id or "Test"
        items.append((name, WORDS[payload.event_type].log, payload.path))
    is_open = delivery.state in (Delivery.State.WAITING, Delivery.State.GATHERING)
    return {
        "delivery": delivery,
        "state_name": STATE_NAMES[delivery.state],
        "next_try_at": delivery.next_try_at if is_open and delivery.next_try_at > now else None,
        "events": items,
        "more": max(0, len(delivery.items.all()) - MAX_ITEMS),
    }


@page
def create(request: PageRequest) -> HttpResponse:
    """Let the user choose a kind, then enter its settings, or copy the channel `?from=`. A new secret is shown once."""
    caller = request.caller
    source = selectors.get_channel(caller, request.GET["from"]) if "from" in request.GET else None
    caller.require_write(source)
    kind = KINDS.get(request.GET.get("kind", "") if source is None else source.kind)
    variant = kind.variant(request.GET.get("service", "")) if kind is not None else None
    if kind is None or (source is None and kind.variants() and variant is None):
        return _choose_kind(request)
    example = variant.example if variant else ""
    form = ChannelForm(request.POST or None, caller=caller, kind=kind, example=example, source=source)

    if "preview" in request.POST:
        return _preview(request, form, "channels/new", kind=kind, variant=variant, source=source)

    def make() -> Created:
        copied_from = None if source is None else source.public_id
        channel, secret = services.create_channel(caller, form.given(), now=request.now, copied_from=copied_from)
        return Created(channel.public_id, {"secret": secret})

    created = form.create(request, make, limit="invite" if kind.consent else None)
    if created is None:
        return render_page(request, "channels/new", form=form, kind=kind, variant=variant, source=source)
    channel = selectors.get_channel(caller, created.object_id)
    secret = (created.answer or {}).get("secret")
    if secret is not None:
        return render_page(request, "channels/created", shown=ChannelView(channel), secret=secret)
    messages.success(request, "Channel created.")
    if channel.confirmed_at is None:
        _report_confirmation_request(request, channel, "A confirmation request was sent")
    return redirect("alert_channel", channel.public_id)


def _choose_kind(request: PageRequest) -> HttpResponse:
    """Show the kinds and variants to choose from, without variants that also exist as a kind."""
    own = {kind.scheme for kind in KINDS.values()}
    variants = [(kind, variant) for kind in KINDS.values() for variant in kind.variants() if variant.key not in own]
    kinds = [kind for kind in KINDS.values() if not kind.variants()]
    return render_page(request, "channels/choose", kinds=kinds, variants=variants)


@page
def edit(request: PageRequest, channel_id: str) -> HttpResponse:
    caller = request.caller
    channel = selectors.get_channel(caller, channel_id)
    caller.require_write(channel)
    form = ChannelForm(request.POST or None, caller=caller, kind=KINDS[channel.kind], stored=channel)
    if "preview" in request.POST:
        found = ChannelView(channel)
        return _preview(request, form, "channels/edit", shown=found, deletable=_deletable(form))
    changes_address = form.is_valid() and form.kind.consent in form.given()
    saved = form.save(
        request,
        lambda: services.update_channel(caller, channel_id, form.given(), now=request.now, if_match=form.if_match),
        limit="invite" if changes_address else None,
    )
    if saved is not None:
        return done(request, "Channel saved.", "alert_channel", channel_id)
    return render_page(request, "channels/edit", form=form, shown=ChannelView(channel), deletable=_deletable(form))


def _preview(request: PageRequest, form: ChannelForm, template: str, **context: Any) -> HttpResponse:
    """Show what the entered templates make of sample events: beside them, or in the whole page without scripts."""
    form.is_valid()
    previews = []
    for name, parts in form.templates().items():
        if any(parts.values()):
            preview: dict[str, Any] = {"name": TEMPLATE_NAMES[name]}
            try:
                preview["message"] = templates.preview(form.kind.name, name, parts, now=request.now)
            except (ApiError, templates.TemplateError) as error:
                preview["error"] = capfirst(str(error).removeprefix(f"templates: {name}."))
            previews.append(preview)
    if request.htmx:
        return render_page(request, "channels/_preview", previews=previews)
    return render_page(request, template, form=form, previews=previews, **context)


def _deletable(form: ChannelForm) -> Deletable:
    return Deletable(form.stored, form.stored.name, form.values())


def _read(request: PageRequest, channel_id: str) -> Deletable:
    channel = selectors.get_channel(request.caller, channel_id)
    return _deletable(ChannelForm(caller=request.caller, kind=KINDS[channel.kind], stored=channel))


delete = deletion(services.delete_channel, _read, "Channel deleted.", "alert_channels")
replay = button(
    services.replay, "The delivery is retried for another 24 hours.", "alert_channel", to_first_id=True, takes_now=True
)


@action
def test(request: PageRequest, channel_id: str) -> HttpResponse:
    """Send a test. Show the result beside the button, or as a message without scripts."""
    channel = selectors.get_channel(request.caller, channel_id)
    request.caller.require_write(channel)
    try:
        count_request(request, "test-channel")
        with limit_waiting(request.caller.account):
            result = testing.send_test(channel)
    except ApiError as error:
        result = SendResult(delivered=False, detail=str(error))
    if request.htmx:
        return render_page(request, "channels/_tested", **_detail(request, channel), result=result)
    if result.delivered:
        messages.success(request, f"Delivered. {result.detail}")
    else:
        messages.error(request, f"Not delivered. {result.detail}")
    return redirect("alert_channel", channel_id)


@action
def ask_again(request: PageRequest, channel_id: str) -> HttpResponse:
    """Request confirmation of an address again."""
    request.caller.require_write(selectors.get_channel(request.caller, channel_id))
    with errors_as_messages(request):
        count_request(request, "invite")
        channel = services.ask_again(request.caller, channel_id, now=request.now)
        if channel.confirmed_at is None:
            _report_confirmation_request(request, channel, "Another request was sent")
        else:
            messages.success(request, "The address is already confirmed.")
    return redirect("alert_channel", channel_id)


def _report_confirmation_request(request: PageRequest, channel: AlertChannel, text: str) -> None:
    """Report that the confirmation mail was sent, or only printed."""
    if problem := mail.server_problem(staff=request.caller.user.is_staff):
        messages.warning(request, f"The request to {channel.hint} was not sent, only written to the log. {problem}")
    else:
        messages.success(request, f"{text} to {channel.hint}.")

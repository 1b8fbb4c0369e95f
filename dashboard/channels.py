"""Alert channels: list, create, edit, test, and the delivery log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from alerts import selectors, services, testing
from alerts.models import AlertChannel, Delivery
from alerts.transports import KINDS
from alerts.transports.base import ChannelKind
from core import mail
from core.api.idempotency import Created
from core.clock import EPOCH, MAX_MS, utc_now
from core.errors import ApiError, NotFound
from core.waiting import waiting_place
from dashboard import limits
from dashboard.channel_forms import EditChannelForm, NewChannelForm
from dashboard.deliveries import STATE_NAMES, ShownDelivery
from dashboard.pages import PageRequest, page

PAGE = 30
MICROSECOND = timedelta(microseconds=1)

Scope = AlertChannel.Scope

SECTION = "alert-channels"


@dataclass(frozen=True, slots=True)
class Shown:
    """A channel with the data that pages show."""

    channel: AlertChannel
    dead: int = 0

    @property
    def kind(self) -> ChannelKind:
        return KINDS[self.channel.kind]

    @property
    def problem(self) -> str | None:
        """Return the reason why no alert can be sent, independent of the last delivery."""
        return self.kind.problem()

    @property
    def state(self) -> tuple[str, str]:
        """Return status and text of the badge."""
        if self.problem and self.channel.enabled:
            return "failed", "No mail server"
        if self.channel.confirmed_at is None:
            return (
                "waiting",
                "Waiting for confirmation" if self.channel.confirmation_digest else "Not confirmed",
            )
        if not self.channel.enabled:
            return "", "Disabled"
        return ("dead", "Failing") if self.channel.failures else ("sent", "Confirmed")

    @property
    def scope(self) -> str:
        channel = self.channel
        if channel.scope == Scope.PROJECT:
            return f"of {channel.scope_project.name}" if channel.scope_project else "of a deleted project"
        if channel.scope == Scope.CHOSEN:
            count = len(self.chosen)
            return "1 chosen monitor" if count == 1 else f"{count} chosen monitors"
        return "all monitors of the project" if channel.project_id else "all monitors"

    @property
    def chosen(self) -> list[Any]:
        """Return the selected monitors that are still in the project."""
        found = self.channel.monitors.all()
        return [one for one in found if self.channel.project_id in (None, one.project_id)]

    @property
    def topics(self) -> str:
        return ", ".join(self.channel.topics) or "nothing"


@page
def index(request: PageRequest) -> HttpResponse:
    found = list(selectors.list_channels(request.caller).order_by("name", "pk"))
    dead = selectors.count_dead(found)
    shown = [Shown(channel, dead.get(channel.pk, 0)) for channel in found]
    return render(request, "dashboard/channels/list.html", {"section": SECTION, "channels": shown})


@page
def show(request: PageRequest, channel_id: str) -> HttpResponse:
    """Show a channel and its delivery log."""
    channel = selectors.get_channel(request.caller, channel_id)
    return render(request, "dashboard/channels/detail.html", _detail(request, channel))


def _detail(request: PageRequest, channel: AlertChannel) -> dict[str, Any]:
    """Return a channel and the requested page of its log."""
    state = request.GET.get("state", "")
    state = state if state in STATE_NAMES else ""
    rows = selectors.deliveries_of(
        channel, limit=PAGE + 1, state=state or None, before=_position(request.GET.get("before", ""))
    )
    log, now = rows[:PAGE], utc_now()
    return {
        "section": SECTION,
        "shown": Shown(channel, selectors.count_dead([channel]).get(channel.pk, 0)),
        "deliveries": [ShownDelivery(row, now) for row in log],
        "state": state,
        "states": [("", "All"), *STATE_NAMES.items()],
        "next": _place(log[-1]) if len(rows) > PAGE else None,
        "later": "before" in request.GET,
    }


@page
def create(request: PageRequest) -> HttpResponse:
    """Let the user choose a kind, then enter its settings."""
    kind = KINDS.get(request.GET.get("kind", ""))
    variant = kind.variant(request.GET.get("service", "")) if kind is not None else None
    if kind is None or (kind.variants() and variant is None):
        return render(request, "dashboard/channels/choose.html", _choices())
    example = variant.example if variant else ""
    form = NewChannelForm(request.POST or None, caller=request.caller, kind=kind, example=example)
    if request.method == "POST" and form.is_valid():
        made = form.attempt(lambda: _create(request, form))
        if made is not None:
            return _created(request, made)
    context = {
        "section": SECTION,
        "form": form,
        "kind": kind,
        "variant": variant,
        "problem": kind.problem(),
    }
    return render(request, "dashboard/channels/new.html", context)


@page
def edit(request: PageRequest, channel_id: str) -> HttpResponse:
    caller = request.caller
    channel = selectors.get_channel(caller, channel_id)
    form = EditChannelForm(request.POST or None, caller=caller, channel=channel)
    if request.method == "POST" and form.is_valid():

        def save() -> AlertChannel:
            given = form.given()
            if form.kind.consent in given:
                limits.count(request, "invite")
            return services.update_channel(caller, channel_id, given, now=utc_now())

        if form.attempt(save) is not None:
            messages.success(request, "Channel saved.")
            return redirect("alert_channel", channel_id)
    context = {"section": SECTION, "form": form, "shown": Shown(channel), "scopes": Scope}
    return render(request, "dashboard/channels/edit.html", context)


@require_POST
@page
def delete(request: PageRequest, channel_id: str) -> HttpResponse:
    services.delete_channel(request.caller, channel_id)
    messages.success(request, "Channel deleted.")
    return redirect("alert_channels")


@require_POST
@page
def test(request: PageRequest, channel_id: str) -> HttpResponse:
    """Send a test. Show the result beside the button, or as a message without scripts."""
    channel = selectors.get_channel(request.caller, channel_id)
    try:
        limits.count(request, "test-channel")
        with waiting_place(request.caller.account):
            result = testing.send_test(channel)
    except ApiError as error:
        result = {"delivered": False, "detail": error.reason or error.code}
    if request.htmx:
        context = _detail(request, channel) | result
        return render(request, "dashboard/channels/_tested.html", context)
    if result["delivered"]:
        messages.success(request, f"Delivered. {result['detail']}")
    else:
        messages.error(request, f"Not delivered. {result['detail']}")
    return redirect("alert_channel", channel_id)


@require_POST
@page
def ask_again(request: PageRequest, channel_id: str) -> HttpResponse:
    """Request confirmation of an address again."""
    selectors.get_channel(request.caller, channel_id)
    try:
        limits.count(request, "invite")
        channel = services.ask_again(request.caller, channel_id, now=utc_now())
    except NotFound:
        raise
    except ApiError as error:
        messages.error(request, error.reason or error.code)
    else:
        if channel.confirmed_at is not None:
            messages.success(request, "The address is confirmed already.")
        else:
            _asked(request, channel, "Another request was sent")
    return redirect("alert_channel", channel_id)


@require_POST
@page
def replay(request: PageRequest, channel_id: str, delivery_id: str) -> HttpResponse:
    try:
        services.replay(request.caller, channel_id, delivery_id, now=utc_now())
    except NotFound:
        raise
    except ApiError as error:
        messages.error(request, error.reason or error.code)
    else:
        messages.success(request, "The delivery is retried for another 24 hours.")
    return redirect("alert_channel", channel_id)


def _create(request: PageRequest, form: NewChannelForm) -> Created:
    given, now = form.given(), utc_now()
    if form.kind.consent in given:
        limits.count(request, "invite")

    def make() -> Created:
        channel, secret = services.create_channel(request.caller, given, now=now)
        return Created(channel.public_id, {"secret": secret})

    return form.make_once(request, request.caller, make, now=now)


def _asked(request: PageRequest, channel: AlertChannel, said: str) -> None:
    """Report that the confirmation mail was sent, or only printed."""
    if mail.has_server():
        messages.success(request, f"{said} to {channel.hint}.")
    else:
        messages.warning(request, f"The request to {channel.hint} was only printed to the log. {mail.NO_SERVER}")


def _created(request: PageRequest, made: Created) -> HttpResponse:
    """Show a new secret once, or redirect to the channel."""
    channel = selectors.get_channel(request.caller, made.object_id)
    secret = (made.answer or {}).get("secret")
    if secret is None:
        messages.success(request, "Channel created.")
        if channel.confirmed_at is None:
            _asked(request, channel, "A request to confirm was sent")
        return redirect("alert_channel", made.object_id)
    context = {"section": SECTION, "shown": Shown(channel), "secret": secret}
    return render(request, "dashboard/channels/created.html", context)


def _choices() -> dict[str, Any]:
    """Return the kinds and variants to choose from, without the variants that have a kind of their own."""
    own = {kind.variant_key for kind in KINDS.values()}
    variants = [(kind, variant) for kind in KINDS.values() for variant in kind.variants()]
    return {
        "section": SECTION,
        "kinds": [kind for kind in KINDS.values() if not kind.variants()],
        "variants": [(kind, variant) for kind, variant in variants if variant.key not in own],
    }


def _place(delivery: Delivery) -> str:
    return f"{(delivery.created_at - EPOCH) // MICROSECOND}-{delivery.pk}"


def _position(text: str) -> tuple[datetime, int] | None:
    """Parse the value of `_place`. Return None, for the first page, if it is invalid."""
    found = re.fullmatch(r"([0-9]{1,18})-([0-9]{1,18})", text)
    if found is None or int(found[1]) > MAX_MS * 1000:
        return None
    return EPOCH + int(found[1]) * MICROSECOND, int(found[2])

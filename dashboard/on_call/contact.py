"""How the user is reached when an escalation policy notifies them, among the settings of the account."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.http import HttpResponse
from django.utils.text import capfirst

from alerts.models import AlertChannel
from core.api.fields import validated
from core.forms import conditional
from core.text import counted
from dashboard.forms import ObjectForm
from dashboard.hours import write_hours
from dashboard.on_call.policies import channel_problem
from dashboard.pages import PageRequest, done, page, render_page
from oncall import selectors, services
from oncall.models import Contact
from oncall.serializers import ContactSerializer

BLANK = 2
MAX_WAIT_MIN = 60


class ContactForm(ObjectForm):
    """A row for each rule, and empty ones. Rows without a channel are left out: without any, nothing is sent."""

    def __init__(self, data: Any = None, *, stored: Contact, channels: Sequence[AlertChannel]) -> None:
        super().__init__(data, stored=stored)
        choices = [("", "Not used"), *((channel.public_id, _label(channel)) for channel in channels)]
        count = min(len(stored.rules) + BLANK, services.MAX_RULES)
        if data is not None:
            sent = sum(re.fullmatch(r"channel-\d+", name, re.ASCII) is not None for name in data)
            count = min(max(len(stored.rules), sent), services.MAX_RULES)
        for number in range(count):
            rule = stored.rules[number] if number < len(stored.rules) else {"channel_id": "", "after_min": 0}
            title = f"Contact {number + 1}"
            self.fields[f"channel-{number}"] = conditional(
                forms.ChoiceField(choices=choices, label=title, initial=rule["channel_id"])
            )
            self.fields[f"after-{number}"] = conditional(
                forms.IntegerField(
                    min_value=0, max_value=MAX_WAIT_MIN, label=f"{title}: after (minutes)", initial=rule["after_min"]
                )
            )
        self._count = count
        self._sent_rows: list[int] = []

    def rows(self) -> Iterator[tuple[BoundField, BoundField]]:
        for number in range(self._count):
            yield self[f"channel-{number}"], self[f"after-{number}"]

    def given(self) -> list[dict[str, Any]]:
        """Return the validated rules. Raises ValidationFailed."""
        cleaned = self.cleaned_data
        self._sent_rows = [number for number in range(self._count) if cleaned[f"channel-{number}"]]
        rules = [
            {"channel_id": cleaned[f"channel-{number}"], "after_min": cleaned[f"after-{number}"] or 0}
            for number in self._sent_rows
        ]
        return list(validated(ContactSerializer, {"rules": rules})["rules"])

    def refuse(self, field: str | None, reason: str) -> None:
        found = re.fullmatch(r"rules\[(\d+)\]\.(channel_id|after_min)", field or "")
        if found is None or int(found[1]) >= len(self._sent_rows):
            return super().refuse(field, reason)
        name = "channel" if found[2] == "channel_id" else "after"
        self.add_error(f"{name}-{self._sent_rows[int(found[1])]}", capfirst(reason.removeprefix(f"{field}: ")))
        return None


def _label(channel: AlertChannel) -> str:
    """Return the name of a channel, and what may keep an alert from it, or delay it."""
    notes = [channel_problem(channel)]
    if channel.hours:
        notes.append(f"only {'; '.join(write_hours(channel.hours))} {channel.time_zone}")
    if channel.delay_min:
        notes.append(f"after another {counted(channel.delay_min, 'minute')}")
    shown = ", ".join(filter(None, notes))
    return f"{channel.name} ({shown})" if shown else channel.name


@page
def edit(request: PageRequest) -> HttpResponse:
    user = request.caller.user
    channels = list(selectors.own_channels([user]).order_by("name", "pk"))
    form = ContactForm(request.POST or None, stored=selectors.contact_of(user), channels=channels)
    if form.save(request, lambda: services.set_contact(request.caller, form.given(), if_match=form.if_match)):
        return done(request, "Saved.", "contact")
    form.focus_error()
    is_reachable = bool(selectors.contact_rules([user])[user])
    return render_page(request, "on_call/contact", form=form, channels=channels, is_reachable=is_reachable)

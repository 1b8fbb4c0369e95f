"""The simulator on the page of a policy: whom an outage would notify, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import forms

from alerts.selectors import list_channels, shown_name
from alerts.transports import KINDS
from core.clock import to_ms
from core.zones import first_moment
from dashboard.forms import LongSelect, PageForm, time_zone_choices
from dashboard.on_call.calendar import in_words
from dashboard.on_call.schedule_form import LocalTimeField, shown_time
from oncall.models import EscalationPolicy
from oncall.simulation import Line, foresee
from projects.access import Caller

MOST_SHOWN = 200
_LAST_YEAR = 9990


class SimulatorForm(PageForm):
    """A moment in a time zone. It is sent by GET: nothing is changed."""

    at = LocalTimeField(label="If an outage is confirmed at")
    zone = forms.ChoiceField(label="Time zone", widget=LongSelect, choices=time_zone_choices)

    def __init__(self, data: Any, *, now: datetime) -> None:
        is_sent = "at" in data
        super().__init__(data if is_sent else None, initial={"at": shown_time(now, "UTC"), "zone": "UTC"})
        self.fields["zone"].widget.attrs["data-own-zone"] = not is_sent
        if not is_sent:
            self.fields["at"].widget.attrs["data-own-time"] = to_ms(now)

    def clean_at(self) -> datetime:
        at: datetime = self.cleaned_data["at"]
        if at.year > _LAST_YEAR:  # the steps, and the turns after them, would end after Python's last year
            raise forms.ValidationError(f"Enter a date from 1971 to {_LAST_YEAR}.")
        return at


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A line of the result. `after` is the time since the outage. With `problem` nothing is sent."""

    at: str
    after: timedelta
    step: str
    who: str
    how: str
    problem: str


def simulated(caller: Caller, policy: EscalationPolicy, form: SimulatorForm) -> Sequence[Foreseen]:
    """Return what an outage at the moment of a valid form would send, at most MOST_SHOWN + 1 lines."""
    zone = form.cleaned_data["zone"]
    at = first_moment(zone, form.cleaned_data["at"])
    lines = foresee(policy, at, most=MOST_SHOWN + 1)
    ids = {line.channel.public_id for line in lines if line.channel is not None and line.user is None}
    known = {row.public_id: shown_name(row, caller) for row in list_channels(caller).filter(public_id__in=ids)}
    return [
        Foreseen(
            in_words(line.at, zone),
            line.at - at,
            _step_of(line),
            *_target_of(line, known),
            # To viewers it does not say where alerts go.
            problem="not reached" if line.reason and caller.views(policy) else line.reason,
        )
        for line in lines
    ]


def _step_of(line: Line) -> str:
    if line.step is None:
        return "Reached no one"
    return f"Step {line.step + 1}{f', round {line.round + 1}' if line.round else ''}"


def _target_of(line: Line, known: dict[str, str]) -> tuple[str, str]:
    """Return who is notified, and how. The names of people's own channels are theirs alone."""
    if line.step is None and line.user is not None:
        return line.user.email, "the owner, by e-mail"
    if line.user is not None:
        return line.user.email, KINDS[line.channel.kind].label if line.channel else ""
    if line.channel is not None:
        return known.get(line.channel.public_id, "a channel of the owner"), KINDS[line.channel.kind].label
    return "no one", ""

"""Forms on the page of a schedule: overrides, and swaps of two shifts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.utils.text import capfirst

from core.api.fields import validated
from core.clock import MAX_MS, from_ms, to_ms
from core.zones import first_moment
from dashboard.forms import LongSelect, PageForm
from dashboard.on_call.calendar import in_words
from dashboard.on_call.people import Roster
from dashboard.on_call.schedule_form import LocalTimeField, shown_time
from oncall import rotation
from oncall.rotation import Schedule
from oncall.serializers import OnCallOverrideSerializer
from oncall.services import SWAPPED_AHEAD

MOST_SWAPPED = 200
_SHIFT = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-(\w{1,64})", re.ASCII)


class OverrideForm(PageForm):
    """A person and a span, in the time zone that the page shows. The URL may have a span, `?from=&to=`."""

    user_id = forms.ChoiceField(label="Person", widget=LongSelect)
    starts_at = LocalTimeField(label="From")
    ends_at = LocalTimeField(label="To")

    def __init__(self, data: Any = None, *, roster: Roster, zone: str, query: Mapping[str, str] | None = None) -> None:
        initial = {
            name: shown_time(from_ms(int(text)), zone)
            for name, key in (("starts_at", "from"), ("ends_at", "to"))
            if (text := (query or {}).get(key, "")).isascii() and text.isdigit() and int(text[:16]) < MAX_MS // 2
        }
        super().__init__(data, initial=initial)
        self._zone = zone
        field = self.fields["user_id"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "Choose a person"), *roster.choices()]

    def given(self) -> dict[str, Any]:
        times = {name: to_ms(first_moment(self._zone, self.cleaned_data[name])) for name in ("starts_at", "ends_at")}
        return validated(OnCallOverrideSerializer, {"user_id": self.cleaned_data["user_id"], **times})

    def refuse(self, field: str | None, reason: str) -> None:
        name = (field or "").rpartition(".")[2]
        reason = reason.removeprefix(f"{field}: ").replace("starts_at", "the start")
        self.add_error(name if name in self.fields else None, capfirst(reason))


class SwapForm(PageForm):
    """Two shifts that exchange their people. The service finds those that have changed."""

    first = forms.CharField(label="Swap", widget=forms.Select)
    second = forms.CharField(label="With", widget=forms.Select)

    def __init__(self, data: Any = None, *, schedule: Schedule, roster: Roster, zone: str, now: datetime) -> None:
        super().__init__(data)
        now = now.replace(second=0, microsecond=0)
        shifts = rotation.shifts(schedule, now, now + SWAPPED_AHEAD, roster.people)[:MOST_SWAPPED]
        self.choices = [
            (
                f"{to_ms(shift.starts_at)}-{to_ms(shift.ends_at)}-{shift.user_id}",
                f"{roster[shift.user_id].name}: {in_words(shift.starts_at, zone)} to {in_words(shift.ends_at, zone)}",
            )
            for shift in shifts
        ]
        for field in self.fields.values():
            assert isinstance(field.widget, forms.Select)
            field.widget.choices = [("", "Choose a shift"), *self.choices]

    @property
    def is_possible(self) -> bool:
        return len({value.rpartition("-")[2] for value, _ in self.choices}) > 1

    def _shift(self, name: str) -> dict[str, Any]:
        found = _SHIFT.fullmatch(self.cleaned_data[name])
        if found is None or max(int(found[1]), int(found[2])) > MAX_MS:
            raise forms.ValidationError("Choose a shift.")
        return {"starts_at": int(found[1]), "ends_at": int(found[2]), "user_id": found[3]}

    def clean_first(self) -> dict[str, Any]:
        return self._shift("first")

    def clean_second(self) -> dict[str, Any]:
        return self._shift("second")

"""The form of a schedule: its layers, with people in order, the length of a turn, and hours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.utils.text import capfirst

from core.api.fields import validated
from core.clock import from_ms, to_ms
from core.forms import conditional
from core.hours import MAX_HOURS
from core.zones import first_moment, wall_time
from dashboard.forms import LongChoices, LongSelect, ProjectField, project_choices, time_zone_choices
from dashboard.on_call.people import roster_of
from dashboard.on_call.rows import RowsForm
from dashboard.on_call.words import DAYS
from oncall.models import OnCallSchedule
from oncall.serializers import OnCallScheduleInputSerializer, OnCallSchedulePatchSerializer
from oncall.services import MAX_LAYERS, MAX_PEOPLE, MOST_OF_UNIT
from projects.access import Caller, accessible_projects

MAX_NAME = 200
BLANK_PEOPLE, MORE_PEOPLE = 2, 3
"""Empty selects after the stored people, and those that the button adds."""
UNITS = [("hour", "hours"), ("day", "days"), ("week", "weeks")]
_DAYS = [(str(number), day) for number, day in enumerate(DAYS, start=1)]
_PLACE = re.compile(r"layers\[(\d+)\](?:\.(user_ids|every|starts_at|hours))?(?:\[(\d+)\])?.*")


class LocalTimeField(forms.DateTimeField):
    """A local time, without its time zone, which is another field."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")

    def clean(self, value: Any) -> Any:
        """Return a naive time from 1970 to 9998."""
        found = super().clean(value)
        if found is not None and not 1970 < found.year < 9999:
            raise forms.ValidationError("Enter a date from 1971 to 9998.")
        return found and found.replace(tzinfo=None)


def shown_time(at: datetime, zone_name: str) -> datetime:
    """Return the initial value of a LocalTimeField: the wall time, labelled with the zone of Django's form fields."""
    return wall_time(zone_name, at).replace(second=0, microsecond=0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LayerFields:
    """The bound fields of a layer. `is_blank`: a new one, without people. `has_more`: it just got empty rows."""

    number: int
    people: list[BoundField]
    length: BoundField
    unit: BoundField
    starts: BoundField
    place: BoundField
    hours: list[tuple[BoundField, BoundField, BoundField]]
    is_blank: bool
    has_more: bool

    @property
    def has_errors(self) -> bool:
        rows = [field for row in self.hours for field in row]
        return any(field.errors for field in (*self.people, self.length, self.unit, self.starts, self.place, *rows))


class ScheduleForm(RowsForm):
    """The form of the schedule `stored`, or of a new one.

    `more` is the button of a part that gets empty rows: `layers`, `people-0` or `hours-0` of the first layer.
    The input is then not validated.
    """

    name = forms.CharField(max_length=MAX_NAME)
    timezone = forms.ChoiceField(
        label="Time zone",
        widget=LongSelect,
        help_text="Turns change at the same time of its clocks in summer and winter.",
    )

    def __init__(
        self,
        data: Any = None,
        *,
        caller: Caller,
        stored: OnCallSchedule | None = None,
        project_id: str | None = None,
        more: str = "",
        now: datetime,
    ) -> None:
        zone = stored.time_zone if stored else "UTC"
        initial = {"timezone": zone, "name": stored.name if stored else "", "project_id": project_id}
        super().__init__(data, more=more, stored=stored, initial=initial)
        self._zone, self._now = zone, now
        self._layers: Sequence[dict[str, Any]] = stored.layers if stored else []
        zones, field = time_zone_choices(), self.fields["timezone"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = zones if zone in dict(zones) else [(zone, zone), *zones]  # the API accepts more names
        if stored is None:
            field.widget.attrs["data-own-zone"] = data is None
            projects = project_choices(caller)
            self.fields["project_id"] = ProjectField(
                projects, help_text="Its members can be on call, and can see and change the schedule."
            )
            place = project_id if data is None else data.get("project_id")
            stored = _unsaved(caller, place if place in dict(projects) else None)
        self.roster = roster_of(caller, stored)
        kept = [user_id for layer in self._layers for user_id in layer["user_ids"]]
        self._people = LongChoices([("", "No one"), *self.roster.choices(kept)])
        self._counts = [self._add_layer(number) for number in range(self._number_of_layers())]
        self._sent_rows: list[tuple[int, list[int]]] = []

    def _number_of_layers(self) -> int:
        if not self.is_bound:
            wanted = max(1, len(self._layers)) + 1
        else:
            wanted = max(len(self._layers), self.count_rows(r"layer-(\d+)-unit")) + (self.more == "layers")
        return min(wanted, MAX_LAYERS)

    def _add_layer(self, number: int) -> tuple[int, int]:
        """Add the fields of a layer. Return its numbers of people and of hours."""
        stored = self._layers[number] if number < len(self._layers) else None
        prefix, layer, fields = f"layer-{number}", stored or self._blank(number), self.fields
        user_ids, hours = layer["user_ids"], layer["hours"]
        people, spans = len(user_ids) + BLANK_PEOPLE, len(hours) + 1
        if self.is_bound:
            more = MORE_PEOPLE if self.more == f"people-{number}" else 0
            people = max(len(user_ids), self.count_rows(rf"{prefix}-person-(\d+)")) + more
            spans = max(len(hours), self.count_rows(rf"{prefix}-from-(\d+)")) + (self.more == f"hours-{number}")
            people = people or BLANK_PEOPLE
        people, spans = min(people, MAX_PEOPLE), min(spans, MAX_HOURS)
        title = f"Layer {number + 1}"
        for index in range(people):
            fields[f"{prefix}-person-{index}"] = conditional(
                forms.ChoiceField(
                    choices=self._people,
                    widget=LongSelect,
                    label=f"{title}: person {index + 1}",
                    initial=user_ids[index] if index < len(user_ids) else "",
                )
            )
        fields[f"{prefix}-count"] = forms.IntegerField(
            min_value=1,
            max_value=max(MOST_OF_UNIT.values()),
            label=f"{title}: a turn lasts",
            initial=layer["every"]["count"],
        )
        fields[f"{prefix}-unit"] = forms.ChoiceField(
            choices=UNITS, label=f"{title}: unit of a turn", initial=layer["every"]["unit"]
        )
        fields[f"{prefix}-starts"] = LocalTimeField(
            label=f"{title}: the first turn starts", initial=shown_time(from_ms(layer["starts_at"]), self._zone)
        )
        fields[f"{prefix}-place"] = forms.IntegerField(
            min_value=1, max_value=MAX_LAYERS, label=f"{title}: position", initial=number + 1
        )
        for index in range(spans):
            row = hours[index] if index < len(hours) else {"days": [], "from": None, "to": None}
            fields[f"{prefix}-days-{index}"] = conditional(
                forms.MultipleChoiceField(
                    choices=_DAYS,
                    widget=forms.CheckboxSelectMultiple,
                    label=f"{title}: days {index + 1}",
                    initial=[str(day) for day in row["days"]],
                )
            )
            for end in ("from", "to"):
                fields[f"{prefix}-{end}-{index}"] = conditional(
                    forms.TimeField(
                        widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"),
                        label=f"{title}: {end} {index + 1}",
                        initial=row[end] and time.fromisoformat(row[end]),
                    )
                )
        self.prefill(f"{prefix}-", f"{prefix}-unit")
        return people, spans

    def _blank(self, number: int) -> dict[str, Any]:
        """Return a layer that starts at 9:00 on this week's Monday, so that it applies at once."""
        wall = wall_time(self._zone, self._now)
        monday = datetime.combine(wall.date() - timedelta(days=wall.weekday()), time(9))
        starts_at = to_ms(first_moment(self._zone, monday))
        return {"user_ids": [], "every": {"unit": "week", "count": 1}, "starts_at": starts_at, "hours": []}

    def layers(self) -> Iterator[LayerFields]:
        for number, (people, spans) in enumerate(self._counts):
            prefix = f"layer-{number}"
            persons = [self[f"{prefix}-person-{index}"] for index in range(people)]
            length, unit, starts, place = (self[f"{prefix}-{name}"] for name in ("count", "unit", "starts", "place"))
            hours = [
                (self[f"{prefix}-days-{index}"], self[f"{prefix}-from-{index}"], self[f"{prefix}-to-{index}"])
                for index in range(spans)
            ]
            is_blank = number >= max(1, len(self._layers)) and not any(field.value() for field in persons)
            has_more = self.more in (f"people-{number}", f"hours-{number}")
            yield LayerFields(number, persons, length, unit, starts, place, hours, is_blank, has_more)

    @property
    def orders_layers(self) -> bool:
        """Return whether there are several layers with people."""
        return sum(not layer.is_blank for layer in self.layers()) > 1

    def clean(self) -> None:
        super().clean()
        for number in range(len(self._counts)):
            if self._chosen(number):
                self._clean_hours(number)
            else:
                self._forget(number)
        if not any(self._chosen(number) for number in range(len(self._counts))):
            self.add_error("layer-0-person-0", "Choose at least one person.")

    def _chosen(self, number: int) -> list[tuple[int, str]]:
        """Return the people of a layer, with the numbers of their selects."""
        values = (
            (index, self.cleaned_data.get(f"layer-{number}-person-{index}")) for index in range(self._counts[number][0])
        )
        return [(index, value) for index, value in values if value]

    def _forget(self, number: int) -> None:
        """Ignore the other fields of a layer without people."""
        wrong = any(name.startswith(f"layer-{number}-person-") for name in self.errors)
        for name in [] if wrong else [one for one in self.errors if one.startswith(f"layer-{number}-")]:
            del self.errors[name]

    def _clean_hours(self, number: int) -> None:
        for index in range(self._counts[number][1]):
            names = [f"layer-{number}-{part}-{index}" for part in ("days", "from", "to")]
            values = [self.cleaned_data.get(name) for name in names]
            if any(value or value == time() for value in values):
                for name, value in zip(names, values, strict=True):
                    if not value and value != time() and name not in self.errors:
                        self.add_error(name, "Select the days." if "days" in name else "Enter a time.")

    def given(self) -> dict[str, Any]:
        """Return the validated body, for a stored schedule only what changed. Raises ValidationFailed."""
        sent = self.sent
        body: dict[str, Any] = {
            name: self.cleaned_data[name] for name in ("name", "timezone", "project_id") if name in sent
        }
        if "timezone" in sent or any(name.startswith("layer-") for name in sent):
            body["layers"] = self._body_of_layers()
        return validated(OnCallScheduleInputSerializer if self.stored is None else OnCallSchedulePatchSerializer, body)

    def _body_of_layers(self) -> list[dict[str, Any]]:
        cleaned = self.cleaned_data
        numbers = [number for number in range(len(self._counts)) if self._chosen(number)]
        numbers.sort(key=lambda number: cleaned[f"layer-{number}-place"])
        self._sent_rows = [(number, [index for index, _ in self._chosen(number)]) for number in numbers]
        return [
            {
                "user_ids": [user_id for _, user_id in self._chosen(number)],
                "every": {name: cleaned[f"layer-{number}-{name}"] for name in ("unit", "count")},
                "starts_at": self._starts_at(number),
                "hours": self._hours(number),
            }
            for number in numbers
        ]

    def _starts_at(self, number: int) -> int:
        name = f"layer-{number}-starts"
        if number < len(self._layers) and not {name, "timezone"} & self.sent:
            return int(self._layers[number]["starts_at"])  # with its seconds
        return to_ms(first_moment(self.cleaned_data["timezone"], self.cleaned_data[name]))

    def _hours(self, number: int) -> list[dict[str, Any]]:
        cleaned, prefix = self.cleaned_data, f"layer-{number}"
        return [
            {
                "days": [int(day) for day in cleaned[f"{prefix}-days-{index}"]],
                **{end: f"{cleaned[f'{prefix}-{end}-{index}']:%H:%M}" for end in ("from", "to")},
            }
            for index in range(self._counts[number][1])
            if cleaned[f"{prefix}-days-{index}"]
        ]

    def refuse(self, field: str | None, reason: str) -> None:
        """Show errors of layers beside the fields that were sent."""
        place = _PLACE.fullmatch(field or "")
        if place is None or int(place[1]) >= len(self._sent_rows):
            return super().refuse(field, reason)
        number, indexes = self._sent_rows[int(place[1])]
        part = {"every": "count", "starts_at": "starts", "hours": "days-0"}.get(place[2] or "")
        if part is None:
            part = f"person-{indexes[int(place[3])] if place[3] and int(place[3]) < len(indexes) else 0}"
        self.add_error(f"layer-{number}-{part}", capfirst(reason.removeprefix(f"{field}: ")))
        return None


def _unsaved(caller: Caller, project_id: str | None) -> OnCallSchedule:
    """Return a schedule that shows who can be on call in a project, or without one."""
    project = None if project_id is None else accessible_projects(caller).filter(public_id=project_id).first()
    return OnCallSchedule(owner=caller.user, project=project)

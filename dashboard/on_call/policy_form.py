"""The form of an escalation policy: steps with the minutes before each, and whom it notifies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.utils.text import capfirst

from alerts.selectors import list_channels, shown_name
from core.api.fields import validated
from core.forms import conditional
from dashboard.forms import Choices, LongChoices, LongSelect, ProjectField, project_choices
from dashboard.on_call.people import Roster, roster_of
from dashboard.on_call.policies import channel_problem
from dashboard.on_call.rows import RowsForm
from oncall import selectors
from oncall.models import EscalationPolicy
from oncall.serializers import LONGEST_WAIT_MIN, EscalationPolicyInputSerializer, EscalationPolicyPatchSerializer
from oncall.services import MAX_STEPS, MAX_TARGETS
from projects.access import Caller, accessible_projects

MAX_NAME = 200
BLANK_TARGETS, MORE_TARGETS = 2, 3
_PLACE = re.compile(r"steps\[(\d+)\](?:\.(after_min|targets))?(?:\[(\d+)\])?.*")


@dataclass(frozen=True, slots=True)
class StepFields:
    number: int
    after: BoundField
    targets: list[BoundField]
    is_blank: bool

    @property
    def has_errors(self) -> bool:
        return any(field.errors for field in (self.after, *self.targets))


class PolicyForm(RowsForm):
    """The form of the policy `stored`, or of a new one.

    `more` is the button of a part that gets empty rows: `steps`, or `targets-0` of the first step. The input is then
    not validated.
    """

    name = forms.CharField(max_length=MAX_NAME)
    repeat = forms.IntegerField(
        min_value=0,
        max_value=9,
        initial=0,
        label="Repeats",
        help_text="How often it starts again, right after the last step.",
    )
    acknowledge_timeout_min = forms.IntegerField(
        min_value=0,
        max_value=LONGEST_WAIT_MIN,
        initial=0,
        label="Acknowledgement ends after (minutes)",
        help_text="An outage that is not resolved by then starts again with the first step. 0: never.",
    )

    def __init__(
        self,
        data: Any = None,
        *,
        caller: Caller,
        stored: EscalationPolicy | None = None,
        project_id: str | None = None,
        more: str = "",
    ) -> None:
        initial: dict[str, Any] = {"project_id": project_id}
        if stored is not None:
            initial = {name: getattr(stored, name) for name in ("name", "repeat", "acknowledge_timeout_min")}
        super().__init__(data, more=more, stored=stored, initial=initial)
        place = stored
        if place is None:
            projects = project_choices(caller)
            self.fields["project_id"] = ProjectField(
                projects, help_text="Its members can be notified, and can see and change the policy."
            )
            chosen = project_id if data is None else data.get("project_id")
            project = None
            if chosen in dict(projects):
                project = accessible_projects(caller).filter(public_id=chosen).first()
            place = EscalationPolicy(owner=caller.user, project=project, steps=[])
        self._steps = selectors.shown_steps(place, selectors.targets_of([place])[0])
        self.roster = roster_of(caller, place)
        self._targets = LongChoices([("", "No one"), *_choices(caller, place, self.roster)])
        self._counts = [self._add_step(number) for number in range(self._number_of_steps())]
        self._sent_rows: list[tuple[int, list[int]]] = []

    def _number_of_steps(self) -> int:
        if not self.is_bound:
            wanted = max(1, len(self._steps)) + 1
        else:
            wanted = max(len(self._steps), self.count_rows(r"step-(\d+)-after")) + (self.more == "steps")
        return min(wanted, MAX_STEPS)

    def _add_step(self, number: int) -> int:
        """Add the fields of a step. Return its number of targets."""
        step = self._steps[number] if number < len(self._steps) else {"after_min": 10 if number else 0, "targets": []}
        prefix, title, targets = f"step-{number}", f"Step {number + 1}", step["targets"]
        count = len(targets) + BLANK_TARGETS
        if self.is_bound:
            more = MORE_TARGETS if self.more == f"targets-{number}" else 0
            count = max(len(targets), self.count_rows(rf"{prefix}-target-(\d+)")) + more or BLANK_TARGETS
        count = min(count, MAX_TARGETS)
        self.fields[f"{prefix}-after"] = forms.IntegerField(
            min_value=0, max_value=LONGEST_WAIT_MIN, label=f"{title}: minutes before it", initial=step["after_min"]
        )
        for index in range(count):
            target = targets[index] if index < len(targets) else None
            self.fields[f"{prefix}-target-{index}"] = conditional(
                forms.ChoiceField(
                    choices=self._targets,
                    widget=LongSelect,
                    label=f"{title}: notifies {index + 1}",
                    initial=f"{target['type']}:{target['id']}" if target else "",
                )
            )
        self.prefill(f"{prefix}-", f"{prefix}-after")
        return count

    def steps(self) -> Iterator[StepFields]:
        for number, count in enumerate(self._counts):
            targets = [self[f"step-{number}-target-{index}"] for index in range(count)]
            is_blank = number >= max(1, len(self._steps)) and not any(field.value() for field in targets)
            yield StepFields(number, self[f"step-{number}-after"], targets, is_blank)

    def clean(self) -> None:
        super().clean()
        numbers = range(len(self._counts))
        for number in numbers:
            prefix = f"step-{number}-"
            if not self._chosen(number) and not any(name.startswith(f"{prefix}target") for name in self.errors):
                self.errors.pop(f"{prefix}after", None)  # a step without targets is ignored
        if not any(self._chosen(number) for number in numbers):
            self.add_error("step-0-target-0", "Choose at least one person, schedule or channel.")

    def _chosen(self, number: int) -> list[tuple[int, str]]:
        """Return the targets of a step, with the numbers of their selects."""
        values = (
            (index, self.cleaned_data.get(f"step-{number}-target-{index}")) for index in range(self._counts[number])
        )
        return [(index, value) for index, value in values if value]

    def given(self) -> dict[str, Any]:
        """Return the validated body, for a stored policy only what changed. Raises ValidationFailed."""
        sent, plain = self.sent, ("name", "repeat", "acknowledge_timeout_min", "project_id")
        body: dict[str, Any] = {name: self.cleaned_data[name] for name in plain if name in sent}
        if any(name.startswith("step-") for name in sent):
            numbers = [number for number in range(len(self._counts)) if self._chosen(number)]
            self._sent_rows = [(number, [index for index, _ in self._chosen(number)]) for number in numbers]
            body["steps"] = [
                {
                    "after_min": self.cleaned_data[f"step-{number}-after"],
                    "targets": [
                        dict(zip(("type", "id"), value.split(":", 1), strict=True)) for _, value in self._chosen(number)
                    ],
                }
                for number in numbers
            ]
        return validated(
            EscalationPolicyInputSerializer if self.stored is None else EscalationPolicyPatchSerializer, body
        )

    def refuse(self, field: str | None, reason: str) -> None:
        """Show errors of steps beside the fields that were sent."""
        place = _PLACE.fullmatch(field or "")
        if place is None or int(place[1]) >= len(self._sent_rows):
            return super().refuse(field, reason)
        number, indexes = self._sent_rows[int(place[1])]
        part = "after"
        if place[2] == "targets":
            part = f"target-{indexes[int(place[3])] if place[3] and int(place[3]) < len(indexes) else 0}"
        self.add_error(f"step-{number}-{part}", capfirst(reason.removeprefix(f"{field}: ")))
        return None


def _choices(caller: Caller, policy: EscalationPolicy, roster: Roster) -> Choices:
    """Return whom a policy can notify: people, schedules, channels, and what it has already."""
    found = [(f"user:{user_id}", label) for user_id, label in roster.choices()]
    schedules = selectors.list_schedules(caller).order_by("name", "pk")
    found += [
        (f"schedule:{row.public_id}", f"Whoever is on call in {row.name}")
        for row in schedules
        if selectors.belongs(row, policy)
    ]
    for channel in list_channels(caller).prefetch_related(None).order_by("name", "pk"):
        if selectors.belongs(channel, policy):
            problem = channel_problem(channel)
            label = f"Channel {shown_name(channel, caller)}{f' ({problem})' if problem else ''}"
            found.append((f"channel:{channel.public_id}", label))
    known = {value for value, _ in found}
    kept = ((target["type"], target["id"]) for step in policy.steps for target in step["targets"])
    for kind, public_id in dict.fromkeys(kept):  # the owner's own, in a policy of a project
        if kind != "user" and f"{kind}:{public_id}" not in known:
            found.append((f"{kind}:{public_id}", f"A {kind} of the owner"))
    return found

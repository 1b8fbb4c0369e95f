"""Escalation policies: the list, and the page of one, which reads as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.http import HttpResponse

from alerts.models import AlertChannel
from alerts.selectors import list_channels, shown_name
from dashboard.forms import choices_of
from dashboard.on_call import words
from dashboard.on_call.people import UNREACHABLE, Roster, rosters
from dashboard.on_call.schedules import page_of
from dashboard.on_call.simulator import MOST_SHOWN, SimulatorForm, simulated
from dashboard.pages import PageRequest, page, render_page
from monitors.selectors import list_monitors
from oncall import selectors
from oncall.models import EscalationPolicy, OnCallSchedule
from oncall.selectors import Targets
from projects.access import MANAGERS, Caller, accessible_projects

MOST_USES = 20
"""Monitors that the page of a policy lists."""


class TargetView(NamedTuple):
    """Whom a step notifies. `problem` is why they may not be reached, or empty."""

    text: str
    place: str
    public_id: str
    problem: str = ""


class StepView(NamedTuple):
    when: str
    targets: list[TargetView]


@dataclass(frozen=True, slots=True)
class PolicyView:
    policy: EscalationPolicy
    steps: list[StepView]
    reaches_no_one: bool

    @property
    def ending(self) -> str:
        return words.ending(self.policy.repeat, self.policy.acknowledge_timeout_min)


@dataclass(frozen=True, slots=True)
class Visible:
    """The schedules and channels that a caller can see, by public id."""

    schedules: Mapping[str, OnCallSchedule]
    channels: Mapping[str, AlertChannel]


def views_of(caller: Caller, policies: Sequence[EscalationPolicy]) -> list[PolicyView]:
    """Return the policies as lists show them, with a constant number of queries."""
    targets = selectors.targets_of(policies)
    found = dict(zip(policies, targets, strict=True))
    lost = selectors.unreachable(found)
    schedules = {one for each in targets for one in each.schedules}
    channels = {one for each in targets for one in each.channels}
    visible = Visible(
        {one.public_id: one for one in selectors.list_schedules(caller).filter(public_id__in=schedules)},
        {one.public_id: one for one in list_channels(caller).filter(public_id__in=channels)} if channels else {},
    )
    people = rosters(caller, [each.people for each in targets])
    return [
        PolicyView(policy, _steps(caller, policy, found[policy], roster, visible), policy in lost)
        for policy, roster in zip(policies, people, strict=True)
    ]


def _steps(
    caller: Caller, policy: EscalationPolicy, targets: Targets, roster: Roster, visible: Visible
) -> list[StepView]:
    steps, has_waited = [], False
    for number, step in enumerate(selectors.shown_steps(policy, targets)):
        shown = [_target(caller, target, targets, roster, visible) for target in step["targets"]]
        when = words.wait(number, step["after_min"], is_second_wait=has_waited)
        has_waited = has_waited or step["after_min"] > 0
        steps.append(StepView(when, shown))
    return steps


def _target(
    caller: Caller, target: Mapping[str, str], targets: Targets, roster: Roster, visible: Visible
) -> TargetView:
    """Return a target that exists. The owner's own schedules and channels have no name for others."""
    kind, public_id = target["type"], target["id"]
    if kind == "user":
        person = roster[public_id]
        return TargetView(person.email, "", public_id, "" if person.is_reachable else UNREACHABLE)
    if kind == "schedule":
        schedule = visible.schedules.get(public_id)
        if schedule is None:
            return TargetView("the person on call in a schedule of the owner", "", public_id)
        return TargetView(schedule.name, "on_call_schedule", public_id)
    problem = channel_problem(targets.channels[public_id])
    channel = visible.channels.get(public_id)
    if channel is None:
        return TargetView("a channel of the owner", "", public_id, problem)
    return TargetView(shown_name(channel, caller), "alert_channel", public_id, problem)


def channel_problem(channel: AlertChannel) -> str:
    """Return why a channel gets nothing, or an empty text."""
    if channel.confirmed_at is None:
        return "not confirmed"
    return "" if channel.enabled else "disabled"


@page
@selectors.computing()
def index(request: PageRequest) -> HttpResponse:
    after = request.GET.get("after", "")
    rows, last = page_of(selectors.list_policies(request.caller), after)
    found = views_of(request.caller, rows)
    return render_page(request, "on_call/policies", policies=found, next=last, later=bool(after), tab="policies")


@page
@selectors.computing()
def show(request: PageRequest, policy_id: str) -> HttpResponse:
    """Show a policy, and what it would do at the time of the URL."""
    caller, policy = request.caller, selectors.get_policy(request.caller, policy_id)
    form = SimulatorForm(request.GET, now=request.now)
    lines = simulated(caller, policy, form) if form.is_bound and form.is_valid() else None
    shown = views_of(caller, [policy])[0]
    cut = lines is not None and len(lines) > MOST_SHOWN
    monitors = list_monitors(caller).filter(escalation_policy=policy).order_by("name", "pk")[: MOST_USES + 1]
    return render_page(
        request,
        "on_call/policy",
        shown=shown,
        form=form,
        lines=lines and lines[:MOST_SHOWN],
        cut=cut,
        projects=accessible_projects(caller).filter(escalation_policy=policy).order_by("name", "pk"),
        monitors=choices_of(caller, monitors),
        most_uses=MOST_USES,
        manages=accessible_projects(caller, roles=MANAGERS).filter(escalation_policies=policy).exists(),
    )

"""Whom a policy would notify, and when, if an outage began at some time and no one acknowledged it.

The steps are those of `oncall.escalation`, and the people those of `oncall.reaching`, as for a real outage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from accounts.models import User
from alerts.events import EventType
from alerts.models import AlertChannel
from alerts.planning import REASONS, after_hours
from oncall import escalation
from oncall.escalation import NotifyOwner, Plan, Run
from oncall.models import EscalationPolicy
from oncall.reaching import Directory, Step, plan_of

LookUp = Callable[[int, datetime], Step]
"""Whom a step, by its index, leads to at a time."""


class Line(NamedTuple):
    """A message to a channel at `at`, to reach `user` or because the step names the channel.

    With a `reason` nothing is sent. `step` is None, and `user` the owner, if the policy has reached no one.
    """

    at: datetime
    round: int
    step: int | None
    user: User | None
    channel: AlertChannel | None
    reason: str = ""


def foresee(policy: EscalationPolicy, at: datetime, *, most: int = 1_000) -> list[Line]:
    """Return what an outage that is confirmed at `at` would send first, with a fixed number of queries."""
    directory = Directory([policy], now=at, ahead=True)

    def look_up(step: int, moment: datetime) -> Step:
        return directory.at(moment).look_up(policy, policy.steps[step]["targets"])

    return simulate(plan_of(policy), at, look_up, owner=policy.owner, most=most)


def simulate(plan: Plan, at: datetime, look_up: LookUp, *, owner: User, most: int) -> list[Line]:
    """Return the first lines of all rounds, at most `most`, in order of time."""
    progress = escalation.begin(plan, at)
    lines: list[Line] = []
    while progress.next_at is not None:
        moment = progress.next_at
        if len(lines) >= most and lines[most - 1].at <= moment:
            break
        progress, actions = escalation.due(progress, plan, moment)
        todo = list(actions)
        while todo:
            action = todo.pop(0)
            if isinstance(action, Run):
                step = look_up(action.step, moment)
                lines += _lines_of(step, action)
                if not step.is_reached:
                    progress, more = escalation.empty(progress, plan, action)
                    todo += more
            elif isinstance(action, NotifyOwner):
                lines.append(Line(moment, 0, None, owner, None))
        lines.sort(key=lambda line: line.at)
    return lines[:most]


def _lines_of(step: Step, run: Run) -> Iterator[Line]:
    for way in step.ways:
        due = run.at + way.after + timedelta(minutes=way.channel.delay_min)
        sent = after_hours(way.channel, EventType.DOWN, due)
        reason = "" if sent else REASONS["outside_hours"]
        yield Line(sent or due, run.round, run.step, way.user, way.channel, reason)
    for reason in step.missed:
        yield Line(run.at, run.round, run.step, None, None, reason)
    if not step.texts:
        yield Line(run.at, run.round, run.step, None, None, "it has no targets")

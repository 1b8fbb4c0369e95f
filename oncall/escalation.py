"""How an incident goes through the steps of an escalation policy. Pure: nothing is read or written.

Each event is a function that returns the new progress and what to do. The wait of a step counts from the planned time
of the one before, not from when that ran: steps that are late because every process was stopped run once each, the
earliest first. The caller repeats `due` until it returns no action.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum


class State(StrEnum):
    """As `incidents.models.Escalation.State`."""

    RUNNING = "running"
    ACKNOWLEDGED = "acknowledged"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Step:
    """`after`: the wait after the step before, or after the beginning."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy. After the last step it starts again `repeat` times. None: an acknowledgement stays."""

    steps: tuple[Step, ...]
    repeat: int = 0
    acknowledge_timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """As `incidents.models.Escalation`: `step` of `round` runs next, at `next_at`.

    While acknowledged, `next_at` is when it starts again, or None. `run` counts its beginnings. `reached`: whether
    anyone was notified in this run.
    """

    state: State
    run: int = 0
    round: int = 0
    step: int = 0
    next_at: datetime | None = None
    reached: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Notify the targets of a step that was planned for `at`. Call `empty` if it reaches no one."""

    run: int
    round: int
    step: int
    at: datetime
    reached_before: bool


@dataclass(frozen=True, slots=True)
class NotifyOwner:
    """Notify the owner by e-mail: the policy reached no one in this run."""

    run: int


@dataclass(frozen=True, slots=True)
class Unacknowledge:
    """The incident is no longer acknowledged: it was not resolved in time."""


Action = Run | NotifyOwner | Unacknowledge
Result = tuple[Progress, tuple[Action, ...]]


def begin(plan: Plan, at: datetime, *, run: int = 0) -> Progress:
    """Return the progress of an incident that is to be announced at `at`."""
    return Progress(State.RUNNING, run=run, next_at=at + plan.steps[0].after)


def due(progress: Progress, plan: Plan | None, now: datetime) -> Result:
    """Run the next step, or start again if an acknowledgement timed out. Nothing happens before `next_at`.

    Without a plan, because the policy was deleted, the escalation ends.
    """
    if progress.next_at is None or progress.next_at > now or progress.state is State.FINISHED:
        return progress, ()
    if progress.state is State.ACKNOWLEDGED:
        started, actions = unacknowledge(progress, plan, progress.next_at)
        return started, (Unacknowledge(), *actions)
    settled = settle(progress, plan)
    if settled.next_at is None or plan is None:
        return _finish(settled)
    # An edit of the policy may have moved it to a later round, which is not due yet.
    return (settled, ()) if settled.next_at > now else _run(settled, plan, settled.next_at)


def empty(progress: Progress, plan: Plan, ran: Run) -> Result:
    """Run the next step at once, because the one that `ran` reached no one. `progress` is what `due` returned.

    The end of a round that reached no one ends the escalation. In further rounds the waits stay: people who can be
    reached were notified, and all rounds could run at the same moment.
    """
    progress = replace(progress, reached=ran.reached_before)
    if progress.state is State.FINISHED or (progress.step == 0 and not progress.reached):
        return _finish(progress)
    return progress if ran.round else replace(progress, next_at=ran.at), ()


def acknowledge(progress: Progress, plan: Plan | None, at: datetime) -> Result:
    """Stop until the acknowledgement times out. A second acknowledgement does not prolong the first."""
    if progress.state is State.ACKNOWLEDGED:
        return progress, ()
    timeout = plan.acknowledge_timeout if plan is not None else None
    return replace(progress, state=State.ACKNOWLEDGED, next_at=at + timeout if timeout else None), ()


def unacknowledge(progress: Progress, plan: Plan | None, at: datetime) -> Result:
    """Start again with the first step and its wait, in a new run."""
    if progress.state is not State.ACKNOWLEDGED:
        return progress, ()
    if plan is None or not plan.steps:
        return _finish(Progress(State.RUNNING, run=progress.run + 1))
    return begin(plan, at, run=progress.run + 1), ()


def escalate(progress: Progress, plan: Plan | None, at: datetime) -> Result:
    """Run the next step now; later ones count from now. Without `Run` among the actions, nothing was left to run."""
    if progress.state is not State.RUNNING:
        return progress, ()
    settled = settle(progress, plan)
    if settled.next_at is None or plan is None:
        return _finish(settled)
    return _run(settled, plan, at)


def hold(progress: Progress, until: datetime) -> Result:
    """Let the next step wait, because alerts are suppressed; later ones count from then."""
    if progress.next_at is None or progress.state is not State.RUNNING:
        return progress, ()
    return replace(progress, next_at=max(progress.next_at, until)), ()


def resolve(progress: Progress) -> Result:
    """End it, in any state."""
    return replace(progress, state=State.FINISHED, next_at=None), ()


def settle(progress: Progress, plan: Plan | None) -> Progress:
    """Return the progress as the policy is now: without a step that was removed from it since.

    It goes on with the next round, or has no `next_at` if nothing is left.
    """
    if progress.state is not State.RUNNING or progress.next_at is None:
        return progress
    if plan is None or not plan.steps:
        return replace(progress, next_at=None)
    if progress.step >= len(plan.steps):
        after = progress.next_at + plan.steps[0].after
        progress = replace(progress, round=progress.round + 1, step=0, next_at=after)
    return replace(progress, next_at=None) if progress.round > plan.repeat else progress


def longest_wait(progress: Progress, plan: Plan | None) -> timedelta:
    """Return how long it waits at most until `next_at`, as the policy is now."""
    if plan is None:
        return timedelta()
    if progress.state is State.ACKNOWLEDGED:
        return plan.acknowledge_timeout or timedelta()
    return plan.steps[progress.step].after if progress.step < len(plan.steps) else timedelta()


def _run(progress: Progress, plan: Plan, at: datetime) -> Result:
    """Run the step of `progress`, which is in the plan, and plan the next one."""
    ran = Run(progress.run, progress.round, progress.step, at, progress.reached)
    is_last = progress.step + 1 >= len(plan.steps)
    step, number = (0, progress.round + 1) if is_last else (progress.step + 1, progress.round)
    if number > plan.repeat:
        return replace(progress, state=State.FINISHED, next_at=None, reached=True), (ran,)
    return replace(progress, round=number, step=step, next_at=at + plan.steps[step].after, reached=True), (ran,)


def _finish(progress: Progress) -> Result:
    actions = () if progress.reached else (NotifyOwner(progress.run),)
    return replace(progress, state=State.FINISHED, next_at=None), actions

"""How the outcome of a check changes the status of a monitor. Pure: nothing is read or written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from checks.spec import CheckOutcome, Verdict


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of a monitor that affect its status."""

    fail_threshold: int = 3
    recover_threshold: int = 1
    muted_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a monitor. `fresh`: the next outcome sets the status at once, as the first one does."""

    status: Verdict | None = None
    since: datetime | None = None
    fresh: bool = True
    failures: int = 0  # consecutive, while not down
    passes: int = 0  # consecutive, while down
    failing_since: datetime | None = None
    """The first failed check of the outage or, before an outage, of the consecutive failures. A muted failure sets it
    too, but the first counted failure replaces it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A transition and its time. A change from down to down means that a monitor is still down after a pause."""

    before: Verdict | None
    after: Verdict
    at: datetime
    failing_since: datetime | None = None


def advance(status: Status, outcome: CheckOutcome, policy: Policy) -> tuple[Status, Change | None]:
    """Return the status after `outcome`, and the transition or None.

    The time is that of the outcome: a check made during a mute is muted, however late it is recorded.
    """
    at = outcome.checked_at
    if not outcome.passed:
        if policy.muted_until is not None and at < policy.muted_until:
            # Not counted as a failure, but it interrupts consecutive passes.
            return replace(status, passes=0, failing_since=status.failing_since or at), None
        failures = 0 if status.status is Verdict.DOWN else status.failures + 1
        counted = status.failures > 0 or (status.status is Verdict.DOWN and not status.fresh)
        began = (status.failing_since if counted else None) or at
        # The clocks of workers may differ: an outage must not begin after it was confirmed.
        failed = replace(status, failures=failures, passes=0, failing_since=min(began, at))
        if status.fresh or failures >= policy.fail_threshold:
            return _enter(failed, Verdict.DOWN, at)
        return failed, None

    passes = status.passes + 1 if status.status is Verdict.DOWN else 0
    if not status.fresh and status.status is Verdict.DOWN and passes < policy.recover_threshold:
        return replace(status, passes=passes), None
    return _enter(replace(status, failing_since=None), outcome.verdict, at)


def _enter(status: Status, after: Verdict, at: datetime) -> tuple[Status, Change | None]:
    settled = replace(status, status=after, fresh=False, failures=0, passes=0)
    if status.status is after:
        # Still down after a pause, which closed the incident: alert again.
        again = status.fresh and after is Verdict.DOWN
        return settled, Change(after, after, at, status.failing_since) if again else None
    return replace(settled, since=at), Change(status.status, after, at, status.failing_since)

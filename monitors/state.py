"""How the outcome of a check changes the status of a monitor. Pure: nothing is read or written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from checks.spec import CheckOutcome, Verdict

LEAST_APART = timedelta(seconds=10)
"""Minimum time from a failure to the check that confirms it."""
MOST_EARLY = 10
"""Consecutive failures that are confirmed out of turn: no threshold makes a short interval of a long one."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of a monitor that affect its status. `confirmation` is the least age of an outage that counts."""

    fail_threshold: int = 3
    recover_threshold: int = 1
    muted_until: datetime | None = None
    confirmation: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a monitor. `fresh`: the next outcome sets the status at once, as the first one does."""

    status: Verdict | None = None
    since: datetime | None = None
    fresh: bool = True
    failures: int = 0  # consecutive, until an outage is confirmed
    passes: int = 0  # consecutive, while down
    failing_since: datetime | None = None
    """The first failed check of the outage or, before an outage, of the consecutive failures. A muted failure sets it
    too, but the first counted failure replaces it."""

    @property
    def is_confirmed(self) -> bool:
        """Return whether it is down and its outage was confirmed: a first failure sets the status before that."""
        is_down = self.status is Verdict.DOWN and not self.fresh
        return is_down and self.failures == 0 and self.failing_since is not None


@dataclass(frozen=True, slots=True)
class Change:
    """A transition and its time.

    A change from down to down means that an outage was confirmed: of a monitor that was down before a pause, or whose
    first check failed. One to down that is not `confirmed` is not announced.
    """

    before: Verdict | None
    after: Verdict
    at: datetime
    failing_since: datetime | None = None
    confirmed: bool = True


def advance(status: Status, outcome: CheckOutcome, policy: Policy) -> tuple[Status, Change | None]:
    """Return the status after `outcome`, and the transition or None.

    The time is that of the outcome: a check made during a mute is muted, however late it is recorded.
    """
    at = outcome.checked_at
    if not outcome.passed:
        if policy.muted_until is not None and at < policy.muted_until:
            # Not counted as a failure, but it interrupts consecutive passes.
            is_unconfirmed = status.status is Verdict.DOWN and not (status.fresh or status.is_confirmed)
            began = status.failing_since or (None if is_unconfirmed else at)
            return replace(status, passes=0, failing_since=began), None
        return _fail(status, at, policy)

    passes = status.passes + 1 if status.status is Verdict.DOWN else 0
    if not status.fresh and status.status is Verdict.DOWN and passes < policy.recover_threshold:
        began = status.failing_since if status.is_confirmed else None
        return replace(status, failures=0, passes=passes, failing_since=began), None
    return _enter(status if status.failing_since is None else replace(status, failing_since=None), outcome.verdict, at)


def _fail(status: Status, at: datetime, policy: Policy) -> tuple[Status, Change | None]:
    """Count a failure."""
    counted = status.failures > 0 or status.is_confirmed
    # The clocks of workers may differ: an outage must not begin after it was confirmed.
    began = min((status.failing_since if counted else None) or at, at)
    if status.is_confirmed:
        return replace(status, passes=0, failing_since=began), None
    failed = replace(status, failures=status.failures + 1, passes=0, failing_since=began)
    if policy.confirmation is None:
        is_confirmed = status.fresh or failed.failures >= policy.fail_threshold
    else:
        is_confirmed = failed.failures >= policy.fail_threshold and at - began >= policy.confirmation
    if is_confirmed:
        return _enter(failed, Verdict.DOWN, at)
    if not status.fresh:
        return failed, None
    if status.status is Verdict.DOWN:
        return replace(failed, fresh=False), None
    change = Change(status.status, Verdict.DOWN, at, began, confirmed=False)
    return replace(failed, status=Verdict.DOWN, since=at, fresh=False), change


def _enter(status: Status, after: Verdict, at: datetime) -> tuple[Status, Change | None]:
    is_same = status.status is after
    since = status.since if is_same else at
    settled = replace(status, status=after, since=since, fresh=False, failures=0, passes=0)
    if is_same and after is not Verdict.DOWN:
        return settled, None
    return settled, Change(status.status, after, at, status.failing_since)


def confirm_at(status: Status, at: datetime, policy: Policy) -> datetime | None:
    """Return when the check after a failure at `at`, which led to `status`, is due at the latest. None: in its turn.

    The checks that are missing to the threshold are spread over the time that is missing to the confirmation.
    """
    if policy.confirmation is None or status.failing_since is None or not 0 < status.failures <= MOST_EARLY:
        return None
    missing = max(policy.fail_threshold - status.failures, 1)
    return at + max((status.failing_since + policy.confirmation - at) / missing, LEAST_APART)


def next_check(slot: datetime, early: datetime, *, interval: timedelta, confirms_at: datetime | None) -> datetime:
    """Return when the next check is due, in its slot or `early`, out of turn.

    `confirms_at` is the earliest time at which a failure confirms the outage; None: it needs more than one. A check
    shortly before that would only delay the one that confirms, so its slot is left out.
    """
    if early <= slot:
        return early
    if confirms_at is None or not slot < confirms_at <= early:
        return slot
    after_slot = min(slot + interval, max(confirms_at, slot + LEAST_APART))
    return early if early < after_slot else slot

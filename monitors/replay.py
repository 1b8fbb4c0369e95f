"""What the status of a monitor would have been with other thresholds, from the results of its checks. Pure.

The transitions are those of `monitors.state.advance`, and an outage is what `incidents.consuming` makes of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from checks.results.history import DOWN, EXPLAINED, NO_REASON, micros, moment_of
from checks.results.selectors import Past
from checks.spec import CheckOutcome, Verdict
from monitors.state import Change, Policy, Status, advance


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage as an incident has it. `resolved_at` None: it is not over, `is_paused`: a pause ended it."""

    started_at: datetime
    confirmed_at: datetime
    reason_code: str | None
    resolved_at: datetime | None = None
    is_paused: bool = False

    @property
    def lasted(self) -> timedelta | None:
        return None if self.resolved_at is None else self.resolved_at - self.started_at

    @property
    def delay(self) -> timedelta:
        """How long it took to confirm it."""
        return self.confirmed_at - self.started_at


@dataclass(frozen=True, slots=True)
class Event:
    """What else changed the state: a pause (`enabled` False), its end, or a mute until `muted_until` or its end."""

    at: datetime
    enabled: bool | None = None
    muted_until: datetime | None = None


@dataclass(slots=True)
class Replay:
    """The state of a monitor that is checked with this policy, and the outages that it has had, oldest first.

    A check is slow from `slow_ms` on: the verdict of its result is for another threshold. `slowed` are the times at
    which the status became slow, and whether the monitor was down before.
    """

    policy: Policy
    slow_ms: int
    status: Status = field(default_factory=Status)
    outages: list[Outage] = field(default_factory=list)
    slowed: list[tuple[datetime, bool]] = field(default_factory=list)
    is_down: bool = False
    """Whether the last outage is not over."""
    _claim: int = 0

    def feed(self, past: Past, part: slice) -> None:
        """Apply results, as `StateBatch.settle` does: those of older claims and refuted failures change nothing."""
        up, slow, down = Verdict.UP, Verdict.SLOW, Verdict.DOWN
        slow_ms, claim, unchanged = self.slow_ms, self._claim, self._unchanged()
        for at, number, latency_ms, kind in past.rows(part):
            if number <= claim:
                continue
            claim = number
            passed = slow if latency_ms is not None and latency_ms >= slow_ms else up
            verdict = down if kind % EXPLAINED == DOWN else passed
            if verdict is unchanged:
                continue
            reason = past.reasons.get((at, number), NO_REASON)
            if reason.confirmed is False:
                continue
            self.status, change = advance(self.status, CheckOutcome(verdict, moment_of(at)), self.policy)
            unchanged = self._unchanged()
            if change is not None:
                self._follow(change, reason.reason_code)
        self._claim = claim

    def take(self, event: Event) -> None:
        if event.enabled is None:
            self.policy = replace(self.policy, muted_until=event.muted_until)
        elif event.enabled:
            self.status = Status(self.status.status, self.status.since)
        else:
            self._end(event.at, is_paused=True)

    def _unchanged(self) -> Verdict | None:
        """Return the verdict with which `advance` returns the same status, or None if it may change with any.

        A test compares both. Nearly all checks are of this kind, and cost a comparison.
        """
        status = self.status
        if status.status is None or status.fresh or status.failures or status.passes:
            return None
        has_begun = status.failing_since is not None
        return status.status if has_begun == (status.status is Verdict.DOWN) else None

    def _follow(self, change: Change, reason_code: str | None) -> None:
        if change.after is Verdict.DOWN:
            if change.confirmed and not self.is_down:
                began = min(change.failing_since or change.at, change.at)
                self.outages.append(Outage(began, change.at, reason_code))
                self.is_down = True
            return
        self._end(change.at)
        if change.after is Verdict.SLOW:
            self.slowed.append((change.at, change.before is Verdict.DOWN))

    def _end(self, at: datetime, *, is_paused: bool = False) -> None:
        if self.is_down:
            last = self.outages[-1]
            self.outages[-1] = replace(last, resolved_at=max(at, last.confirmed_at), is_paused=is_paused)
            self.is_down = False


def replay(history: Iterable[Past], events: Sequence[Event], replays: Sequence[Replay]) -> None:
    """Feed results and events, both oldest first, to all of the replays."""
    done = 0
    for past in history:
        at, begin = past.checks.at, 0
        while done < len(events) and (moment := micros(events[done].at)) <= at[-1]:
            until = bisect_left(at, moment)
            for each in replays:
                each.feed(past, slice(begin, until))
                each.take(events[done])
            begin, done = until, done + 1
        for each in replays:
            each.feed(past, slice(begin, None))
    for event in events[done:]:
        for each in replays:
            each.take(event)

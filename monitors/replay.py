"""What the status of a monitor would have been with other thresholds, from the results of its checks. Pure.

The transitions are those of `monitors.state.advance`, and an outage is what `incidents.consuming` makes of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from operator import itemgetter

from checks.results.selectors import PastCheck
from checks.spec import CheckOutcome, Verdict
from monitors.state import Change, Policy, Status, advance

CHUNK = 10_000
_at = itemgetter(0)


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

    def feed(self, checks: Iterable[PastCheck]) -> None:
        """Apply results, as `StateBatch.settle` does: those of older claims and refuted failures change nothing."""
        up, slow, down = Verdict.UP, Verdict.SLOW, Verdict.DOWN
        slow_ms, claim, unchanged = self.slow_ms, self._claim, self._unchanged()
        for at, number, stored, latency_ms, reason_code, _, confirmed in checks:
            if number <= claim:
                continue
            claim = number
            passed = slow if latency_ms is not None and latency_ms >= slow_ms else up
            verdict = down if stored == "down" else passed
            if verdict is unchanged or confirmed is False:
                continue
            self.status, change = advance(self.status, CheckOutcome(verdict, at), self.policy)
            unchanged = self._unchanged()
            if change is not None:
                self._follow(change, reason_code)
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


def replay(checks: Iterable[PastCheck], events: Sequence[Event], replays: Sequence[Replay]) -> None:
    """Feed checks and events, both oldest first, to all of the replays."""
    checks = iter(checks)
    done = 0
    while chunk := list(islice(checks, CHUNK)):
        begin = 0
        while done < len(events) and events[done].at <= chunk[-1][0]:
            until = bisect_left(chunk, events[done].at, key=_at)
            for each in replays:
                each.feed(chunk[begin:until])
                each.take(events[done])
            begin, done = until, done + 1
        for each in replays:
            each.feed(chunk[begin:])
    for event in events[done:]:
        for each in replays:
            each.take(event)

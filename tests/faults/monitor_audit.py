"""Compare what is stored with what was true, monitor by monitor. Import it after Django is set up.

The sources are the script (what was true when), the log of the target and the attempts of the jobs, and the database.
Each violation is a sentence with the events around it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil

from checks.results.history import NO_REASON, moment_of, verdict_of
from checks.results.selectors import history_of
from monitors.models import MonitorState, PingGap, SchedulerGap, StatusChange
from tests.faults.heartbeat_jobs import Attempt
from tests.faults.injector import Event
from tests.faults.script import (
    DEADLINE_SEC,
    GRACE_SEC,
    HEARTBEAT_SEC,
    INTERVAL_SEC,
    MINUTE_SEC,
    TIMEOUT_MS,
    WITHIN_SEC,
)
from tests.faults.tenant import MonitoredPart

VIOLATIONS = (
    "lost_changes",
    "double_results",
    "lost_results",
    "changed_results",
    "unpacked_results",
    "wrong_rollups",
    "false_downs",
    "double_triggers",
    "late_monitors",
    "lost_slots",
    "double_slots",
    "lost_signals",
    "wrong_durations",
    "lost_alerts",
    "double_alerts",
    "overtaken_alerts",
    "late_steps",
)
AROUND_SEC = 5.0
# Clocks are read, and the event loop of the prober runs, slightly after something happened.
BLUR_SEC = 0.3
# A ping without an answer may have been processed until then.
UNCERTAIN_SEC = 30.0
DAY_SEC = 86_400.0
# Allowed age of the last result at the end: an interval, a timeout, a tick and a busy machine.
OLDEST_SEC = INTERVAL_SEC + TIMEOUT_MS / 1000 + 3.0


@dataclass(frozen=True)
class Change:
    at: float
    before: str | None
    after: str | None
    claim: int | None
    reason: str | None


@dataclass(frozen=True, order=True)
class Result:
    claim: int
    at: float
    verdict: str
    latency_ms: int | None
    reason: str | None

    @property
    def asked_after(self) -> float:
        """Return the earliest time of the request; `at` is the latest."""
        took = TIMEOUT_MS if self.latency_ms is None else self.latency_ms
        return self.at - took / 1000 - BLUR_SEC


@dataclass
class Audit:
    """The violations found, by kind. Times are seconds since the start of the run."""

    start: float
    end: float
    recoveries: Sequence[float]
    events: Sequence[Event]
    violations: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in VIOLATIONS})

    def report(self, kind: str, about: MonitoredPart | str, at: float, text: str) -> None:
        near = [
            f"{event.at - self.start:.1f} {event.text}"
            for event in self.events
            if abs(event.at - self.start - at) < AROUND_SEC
        ]
        self.violations[kind].append(
            f"{kind}: {about} at {at:.1f} s: {text}; nearby events: {', '.join(near) or 'none'}"
        )

    def counts(self) -> dict[str, int]:
        return {kind: len(found) for kind, found in self.violations.items()}

    def take(
        self,
        fleet: Sequence[MonitoredPart],
        attempts: dict[int, list[Attempt]],
        triggers: Iterable[tuple[int, str, float]],
    ) -> None:
        """Check everything. `attempts` are by part number, `triggers` are (part number, run id, time)."""
        results, changes = self._results(fleet), self._changes()
        states = {state.monitor_id: state for state in MonitorState.objects.all()}
        stops = [(self._since(gap.started_at), self._since(gap.ended_at)) for gap in SchedulerGap.objects.all()]
        of_pings = PingGap.objects.exclude(ended_at=None).values_list("started_at", "ended_at")
        gaps = [*stops, *((self._since(start), self._since(end)) for start, end in of_pings if end is not None)]
        self._no_trigger_twice(fleet, triggers)
        for watched in fleet:
            found, moved = results[watched.monitor_id], changes[watched.monitor_id]
            self._no_result_twice(watched, found, moved)
            if watched.part.kind == "heartbeat":
                self._heartbeat(watched, moved, sorted(attempts[watched.part.number], key=lambda a: a.sent), gaps)
            else:
                self._verdicts(watched, found)
                if watched.part.cron:
                    self._slots(watched, found, stops)
                else:
                    self._none_late(watched, found)
            self._true_changes(watched, moved)
            expected = "up" if watched.part.is_up(self.end) else "down"
            if states[watched.monitor_id].status != expected:
                text = f"its final status is {states[watched.monitor_id].status}, but {expected} is true"
                self.report("lost_changes", watched, self.end, text)

    def _since(self, moment: datetime) -> float:
        return moment.timestamp() - self.start

    def _results(self, fleet: Sequence[MonitoredPart]) -> dict[int, list[Result]]:
        start, end = (datetime.fromtimestamp(at, UTC) for at in (self.start - DAY_SEC, self.start + self.end + DAY_SEC))
        return {
            watched.monitor_id: sorted(
                Result(claim, self._since(moment_of(at)), verdict_of(kind), latency_ms, reason)
                for past in history_of(watched.monitor_id, start, end)
                for at, claim, latency_ms, kind in past.rows()
                for reason in (past.reasons.get((at, claim), NO_REASON).reason_code,)
            )
            for watched in fleet
        }

    def _changes(self) -> dict[int, list[Change]]:
        found: dict[int, list[Change]] = defaultdict(list)
        # Other kinds are periods without results, which do not change the status.
        rows = (
            StatusChange.objects.filter(kind=StatusChange.Kind.STATUS)
            .order_by("pk")
            .values_list("monitor_id", "at", "before", "after", "claim", "reason_code")
        )
        for monitor_id, at, before, after, claim, reason in rows:
            found[monitor_id].append(Change(self._since(at), before, after, claim, reason))
        return found

    def _no_result_twice(self, watched: MonitoredPart, results: Sequence[Result], changes: Sequence[Change]) -> None:
        """Check that every (monitor, claim) is stored once and changes the state at most once, with its result."""
        for claim, times in Counter(result.claim for result in results).items():
            if times > 1:
                at = next(result.at for result in results if result.claim == claim)
                self.report("double_results", watched, at, f"claim {claim} is stored {times} times")
        for claim_of_change, times in Counter(change.claim for change in changes).items():
            if times > 1:
                text = f"claim {claim_of_change} changed the state {times} times"
                self.report("double_results", watched, changes[0].at, text)
        verdicts = {result.claim: result.verdict for result in results}
        before = None
        for change in changes:
            if change.before != before:
                text = f"a change from {change.before}, but the status was {before}: {change}"
                self.report("double_results", watched, change.at, text)
            if verdicts.get(change.claim or 0) != change.after:
                text = f"a change without its result: {change}"
                self.report("double_results", watched, change.at, text)
            before = change.after

    def _no_trigger_twice(self, fleet: Sequence[MonitoredPart], triggers: Iterable[tuple[int, str, float]]) -> None:
        by_number = {watched.part.number: watched for watched in fleet}
        runs: dict[tuple[int, str], list[float]] = defaultdict(list)
        for number, run_id, at in triggers:
            if by_number[number].part.kind == "scheduler":
                runs[number, run_id].append(at - self.start)
        for (number, run_id), times in runs.items():
            if len(times) > 1:
                text = f"run {run_id} reached the target at {', '.join(f'{at:.2f}' for at in times)} s"
                self.report("double_triggers", by_number[number], times[0], text)

    def _verdicts(self, watched: MonitoredPart, results: Sequence[Result]) -> None:
        """Check that every verdict was true at some moment during its check."""
        for result in results:
            if result.reason == "worker_lost":
                continue  # a trigger whose outcome is unknown
            true = watched.part.states(result.asked_after, result.at)
            if (result.verdict != "down") not in true:
                kind = "false_downs" if result.verdict == "down" else "lost_changes"
                self.report(kind, watched, result.at, f"{result}, but the target was not")

    def _none_late(self, watched: MonitoredPart, results: Sequence[Result]) -> None:
        """Check that the monitor was checked within WITHIN_SEC after each recovery, and is still checked at the end."""
        for recovered in self.recoveries:
            until = recovered + WITHIN_SEC
            if not any(recovered <= result.at <= until for result in results):
                after = min((result.at for result in results if result.at > recovered), default=None)
                text = f"unchecked for {WITHIN_SEC:g} s after the recovery at {recovered:.1f} s, until {after}"
                self.report("late_monitors", watched, recovered, text)
        last = max((result.at for result in results), default=-1.0)
        if self.end - last > OLDEST_SEC:
            self.report("late_monitors", watched, self.end, f"last checked at {last:.1f} s")

    def _slots(self, watched: MonitoredPart, results: Sequence[Result], gaps: Sequence[tuple[float, float]]) -> None:
        """Check that each minute's slot has one result. A slot in a gap is made once, after it, with all others."""
        minute = ceil(self.start / MINUTE_SEC) * MINUTE_SEC - self.start
        while minute + WITHIN_SEC < self.end:
            until = minute + MINUTE_SEC
            made = [result for result in results if minute <= result.at < until]
            touched = any(start - WITHIN_SEC <= minute <= end + WITHIN_SEC for start, end in gaps)
            if not made and not touched:
                self.report("lost_slots", watched, minute, "the slot of this minute has no result")
            if len(made) > 1 and not touched:
                text = f"the slot of this minute has {len(made)} results: {made}"
                self.report("double_slots", watched, minute, text)
            minute = until

    def _true_changes(self, watched: MonitoredPart, changes: Sequence[Change]) -> None:
        """Check that each state of the script was recorded during its time, or by the check running at its end.

        A heartbeat may be down already, if its pings did not arrive; `_heartbeat` checks that they did not.
        """
        flips = watched.part.flips
        ends = [flip.at for flip in flips[1:]] + [self.end]
        blur = BLUR_SEC + TIMEOUT_MS / 1000
        for flip, end in zip(flips, ends, strict=True):
            begin = float("-inf") if flip is flips[0] else flip.at
            entered = [c for c in changes if (c.after != "down") is flip.up and begin <= c.at <= end + blur]
            before = [c for c in changes if c.at < begin][-1:]
            if not entered and not (before and (before[0].after != "down") is flip.up):
                state = "up" if flip.up else "down"
                text = f"{state} from {flip.at:.1f} to {end:.1f} s is not recorded; changes: {list(changes)}"
                self.report("lost_changes", watched, flip.at, text)

    def _heartbeat(
        self,
        watched: MonitoredPart,
        changes: Sequence[Change],
        attempts: Sequence[Attempt],
        gaps: Sequence[tuple[float, float]],
    ) -> None:
        """Check that the heartbeat went down when a deadline was missed or a failure reported, and up with a ping."""
        by_kind: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
        for each in attempts:
            by_kind[each.kind].append((each.sent - self.start, each.done - self.start, each.ok))
        pings = by_kind["success"]
        for change in changes:
            if change.reason == "heartbeat_failed":
                if not any(_may_be(change.at, attempt) for attempt in by_kind["fail"]):
                    self.report("false_downs", watched, change.at, f"failed without a signal: {change}")
                continue
            if change.after != "down":
                if not any(_may_be(change.at, ping) for ping in pings):
                    self.report("lost_changes", watched, change.at, f"up without a ping: {change}")
                continue
            for deadline in _before_gaps(change.at, gaps):
                # The times that the last ping, or the start of the run, must be within.
                expected = deadline - GRACE_SEC
                pinged = (expected - MINUTE_SEC, expected) if watched.part.cron else (expected - HEARTBEAT_SEC,) * 2
                if any(
                    any(_may_be_within(*times, attempt) for attempt in by_kind[kind])
                    and not any(p[2] and p[0] > times[1] + BLUR_SEC and p[1] < change.at for p in pings)
                    for kind, times in (("success", pinged), ("start", (expected, expected)))
                ):
                    break
            else:
                near = [p for p in pings if change.at - 2 * DEADLINE_SEC < p[0] < change.at + 2]
                details = f"{near}; starts {by_kind['start']}; gaps {gaps}"
                self.report("false_downs", watched, change.at, f"down although it was pinged: {details}")


def _before_gaps(deadline: float, gaps: Sequence[tuple[float, float]]) -> set[float]:
    """Return the deadline, and the earlier ones from before each gap moved it."""
    found, waiting = {deadline}, [deadline]
    while waiting:
        moved = waiting.pop()
        earlier = {moved - (end - start) for start, end in gaps if start <= moved - (end - start) <= end}
        waiting += earlier - found
        found |= earlier
    return found


def _may_be(at: float, attempt: tuple[float, float, bool]) -> bool:
    """Return whether the attempt (sent, done, ok) may have counted at that time."""
    return _may_be_within(at, at, attempt)


def _may_be_within(first: float, last: float, attempt: tuple[float, float, bool]) -> bool:
    sent, done, ok = attempt
    return sent - BLUR_SEC <= last and first <= (done if ok else sent + UNCERTAIN_SEC) + BLUR_SEC

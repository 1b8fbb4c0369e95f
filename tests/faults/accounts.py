"""What is stored against what was true, monitor by monitor. Import it where Django is set up.

Three sources: the script (what was true when), the target's log and the jobs' attempts (what was asked of them),
and the database. Each fault found is a sentence, with what happened around it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from checks.models import CheckResult
from monitors.models import MonitorState, SchedulerGap, StatusChange
from tests.faults.killing import Event
from tests.faults.pinging import Attempt
from tests.faults.script import DEADLINE_SEC, INTERVAL_SEC, TIMEOUT_MS, WITHIN_SEC
from tests.faults.tenant import Watched

KINDS = (
    "lost_changes",
    "double_results",
    "false_downs",
    "double_triggers",
    "late_monitors",
    "lost_alerts",
    "double_alerts",
    "overtaken_alerts",
)
AROUND_SEC = 5.0
# Clocks are read, and the prober's loop turns, a little apart from when something came.
BLUR_SEC = 0.3
# A ping whose answer nobody saw may have been worked on until then.
UNCERTAIN_SEC = 30.0
# How old the last result of a monitor may be in the end: an interval, and a tick and a busy machine on top.
OLDEST_SEC = INTERVAL_SEC + TIMEOUT_MS / 1000 + 3.0


@dataclass(frozen=True)
class Change:
    at: float
    before: str | None
    after: str | None
    claim: int | None
    reason: str | None


@dataclass(frozen=True)
class Result:
    claim: int
    at: float
    verdict: str
    latency_ms: int | None
    reason: str | None

    @property
    def asked_after(self) -> float:
        """The target was asked between then and `at`."""
        took = TIMEOUT_MS if self.latency_ms is None else self.latency_ms
        return self.at - took / 1000 - BLUR_SEC


@dataclass
class Account:
    """All that was found wrong, by kind. Times are seconds since the run's start."""

    start: float
    end: float
    recoveries: Sequence[float]
    events: Sequence[Event]
    faults: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def fault(self, kind: str, about: Watched | str, at: float, text: str) -> None:
        near = [
            f"{event.at - self.start:.1f} {event.text}"
            for event in self.events
            if abs(event.at - self.start - at) < AROUND_SEC
        ]
        self.faults[kind].append(
            f"{kind}: {about} at {at:.1f} s: {text}; around it: {', '.join(near) or 'nothing'}"
        )

    def counts(self) -> dict[str, int]:
        return {kind: len(found) for kind, found in self.faults.items()}

    def take(
        self,
        fleet: Sequence[Watched],
        attempts: dict[int, list[Attempt]],
        triggers: Iterable[tuple[int, str, float]],
    ) -> None:
        """Look at everything; `attempts` by the script's number, `triggers` as (number, run id, when)."""
        results, changes = self._results(), self._changes()
        states = {state.monitor_id: state for state in MonitorState.objects.all()}
        gaps = [
            (self._since(gap.started_at), self._since(gap.ended_at)) for gap in SchedulerGap.objects.all()
        ]
        self._no_trigger_twice(fleet, triggers)
        for watched in fleet:
            found, moved = results[watched.monitor_id], changes[watched.monitor_id]
            self._no_result_twice(watched, found, moved)
            if watched.part.kind == "heartbeat":
                self._heartbeat(
                    watched, moved, sorted(attempts[watched.part.number], key=lambda a: a.sent), gaps
                )
            else:
                self._verdicts(watched, found)
                self._none_late(watched, found)
            self._true_changes(watched, moved)
            expected = "up" if watched.part.is_up(self.end) else "down"
            if states[watched.monitor_id].status != expected:
                text = f"its status is {states[watched.monitor_id].status} in the end, and {expected} is true"
                self.fault("lost_changes", watched, self.end, text)

    def _since(self, moment: datetime) -> float:
        return moment.timestamp() - self.start

    def _results(self) -> dict[int, list[Result]]:
        found: dict[int, list[Result]] = defaultdict(list)
        rows = CheckResult.objects.order_by("monitor_id", "claim").values_list(
            "monitor_id", "claim", "checked_at", "verdict", "latency_ms", "reason_code"
        )
        for monitor_id, claim, at, verdict, latency_ms, reason in rows:
            found[monitor_id].append(Result(claim, self._since(at), verdict, latency_ms, reason))
        return found

    def _changes(self) -> dict[int, list[Change]]:
        found: dict[int, list[Change]] = defaultdict(list)
        rows = StatusChange.objects.order_by("pk").values_list(
            "monitor_id", "at", "before", "after", "claim", "reason_code"
        )
        for monitor_id, at, before, after, claim, reason in rows:
            found[monitor_id].append(Change(self._since(at), before, after, claim, reason))
        return found

    def _no_result_twice(
        self, watched: Watched, results: Sequence[Result], changes: Sequence[Change]
    ) -> None:
        """Every (monitor, claim) is stored once, moves the state once, and each move has its result."""
        for claim, times in Counter(result.claim for result in results).items():
            if times > 1:
                at = next(result.at for result in results if result.claim == claim)
                self.fault("double_results", watched, at, f"claim {claim} is stored {times} times")
        for claim_of_change, times in Counter(change.claim for change in changes).items():
            if times > 1:
                text = f"claim {claim_of_change} moved the state {times} times"
                self.fault("double_results", watched, changes[0].at, text)
        verdicts = {result.claim: result.verdict for result in results}
        before = None
        for change in changes:
            if change.before != before:
                text = f"a change from {change.before}, where {before} was the status: {change}"
                self.fault("double_results", watched, change.at, text)
            if verdicts.get(change.claim or 0) != change.after:
                text = f"a change without the result that brought it about: {change}"
                self.fault("double_results", watched, change.at, text)
            before = change.after

    def _no_trigger_twice(self, fleet: Sequence[Watched], triggers: Iterable[tuple[int, str, float]]) -> None:
        by_number = {watched.part.number: watched for watched in fleet}
        runs: dict[tuple[int, str], list[float]] = defaultdict(list)
        for number, run_id, at in triggers:
            if by_number[number].part.kind == "scheduler":
                runs[number, run_id].append(at - self.start)
        for (number, run_id), times in runs.items():
            if len(times) > 1:
                text = f"run {run_id} came to the target at {', '.join(f'{at:.2f}' for at in times)} s"
                self.fault("double_triggers", by_number[number], times[0], text)

    def _verdicts(self, watched: Watched, results: Sequence[Result]) -> None:
        """What each check found was true at some moment while it was made."""
        for result in results:
            if result.reason == "worker_lost":
                continue  # a trigger whose fate is unknown, and says so
            true = watched.part.states(result.asked_after, result.at)
            if (result.verdict != "down") not in true:
                kind = "false_downs" if result.verdict == "down" else "lost_changes"
                self.fault(kind, watched, result.at, f"{result}, and the target was not")

    def _none_late(self, watched: Watched, results: Sequence[Result]) -> None:
        """Checked within an interval and a lease after each recovery, and still being checked in the end."""
        for recovered in self.recoveries:
            until = recovered + WITHIN_SEC
            if not any(recovered <= result.at <= until for result in results):
                after = min((result.at for result in results if result.at > recovered), default=None)
                text = (
                    f"unchecked for {WITHIN_SEC:g} s after the recovery at {recovered:.1f} s, until {after}"
                )
                self.fault("late_monitors", watched, recovered, text)
        last = max((result.at for result in results), default=-1.0)
        if self.end - last > OLDEST_SEC:
            self.fault("late_monitors", watched, self.end, f"last checked at {last:.1f} s")

    def _true_changes(self, watched: Watched, changes: Sequence[Change]) -> None:
        """Each state that the script holds was entered once, while it was held or as the check under way ended."""
        flips = watched.part.flips
        ends = [flip.at for flip in flips[1:]] + [self.end]
        blur = BLUR_SEC + TIMEOUT_MS / 1000
        for flip, end in zip(flips, ends, strict=True):
            begin = float("-inf") if flip is flips[0] else flip.at
            entered = [c for c in changes if (c.after != "down") is flip.up and begin <= c.at <= end + blur]
            if not entered:
                state = "up" if flip.up else "down"
                text = f"{state} from {flip.at:.1f} to {end:.1f} s is not recorded; changes: {list(changes)}"
                self.fault("lost_changes", watched, flip.at, text)

    def _heartbeat(
        self,
        watched: Watched,
        changes: Sequence[Change],
        attempts: Sequence[Attempt],
        gaps: Sequence[tuple[float, float]],
    ) -> None:
        """Down at the deadline of a ping that no other one followed in time, and up with a ping."""
        pings = [(each.sent - self.start, each.done - self.start, each.ok) for each in attempts]
        for change in changes:
            if change.after != "down":
                if not any(
                    sent - BLUR_SEC <= change.at <= (done if ok else sent + UNCERTAIN_SEC) + BLUR_SEC
                    for sent, done, ok in pings
                ):
                    self.fault("lost_changes", watched, change.at, f"up without a ping: {change}")
                continue
            moved = [end - start for start, end in gaps if start <= change.at - (end - start) <= end]
            for pinged in [change.at - DEADLINE_SEC - by for by in (0.0, *moved)]:
                last = [
                    p
                    for p in pings
                    if p[0] - BLUR_SEC <= pinged <= (p[1] if p[2] else p[0] + UNCERTAIN_SEC) + BLUR_SEC
                ]
                between = [p for p in pings if p[2] and p[0] > pinged + BLUR_SEC and p[1] < change.at]
                if last and not between:
                    break
            else:
                near = [p for p in pings if change.at - 2 * DEADLINE_SEC < p[0] < change.at + 2]
                self.fault(
                    "false_downs", watched, change.at, f"down though it was pinged: {near}; gaps {gaps}"
                )

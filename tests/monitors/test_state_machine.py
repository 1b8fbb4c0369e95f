"""Status, incidents and uptime in random runs, against references that recount everything from the beginning.

The references are written from the specification and share nothing with the code: they keep all events and count back
through them at each step, while the code keeps counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise, takewhile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checks.spec import Verdict
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.recording import record
from monitors.recording.batch import CheckRecord
from monitors.scheduling import claim_due
from monitors.services import update_monitor
from monitors.state import Change, Policy, Status, advance
from monitors.uptime.intervals import Span
from projects.access import Caller
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, examples, minutes, outcome
from tests.monitors.tallies import StatusInterval, Transition, tally

UP, SLOW, DOWN = Verdict.UP, Verdict.SLOW, Verdict.DOWN


@dataclass(frozen=True)
class Result:
    """A completed check, `after` minutes after the previous event."""

    verdict: Verdict
    after: int


@dataclass(frozen=True)
class Mute:
    """Mute for this number of minutes; 0 clears the mute."""

    minutes: int


@dataclass(frozen=True)
class Edit:
    fail_threshold: int
    recover_threshold: int
    confirmation: timedelta | None


@dataclass(frozen=True)
class PauseAndResume:
    """Pause, and resume after this number of minutes."""

    minutes: int


Event = Result | Mute | Edit | PauseAndResume

THRESHOLDS = st.integers(1, 4)
CONFIRMATIONS = st.one_of(st.none(), st.builds(minutes, st.integers(0, 6)))
RESULT = st.builds(Result, st.sampled_from([UP, SLOW, DOWN, DOWN]), st.integers(1, 3))
MUTE = st.builds(Mute, st.sampled_from([0, 1, 5, 9, 20]))
EVENT = st.one_of(
    # Results come most often, or no run would be long enough for a threshold.
    *[RESULT] * 6,
    MUTE,
    st.builds(Edit, THRESHOLDS, THRESHOLDS, CONFIRMATIONS),
    st.builds(PauseAndResume, st.integers(1, 9)),
)
# Without a minimum size hypothesis generates lists of five on average: too short for a recovery. Half of the runs have
# results and mutes only, so that runs of passes and failures are long, and some are muted in the middle.
EVENTS = st.one_of(
    st.lists(EVENT, max_size=6),
    st.lists(EVENT, min_size=20, max_size=50),
    *[st.lists(st.one_of(*[RESULT] * 5, MUTE), min_size=20, max_size=50)] * 2,
)


def seconds_of(length: timedelta | None) -> int | None:
    return None if length is None else int(length.total_seconds())


@dataclass
class Reference:
    """The specification as code. `seen`: every result since the beginning or the last resumption."""

    fail_threshold: int
    recover_threshold: int
    confirmation: timedelta | None = None
    muted_until: datetime | None = None
    status: Verdict | None = None
    announced: bool = False  # the outage, with an alert
    since: datetime | None = None
    unset: bool = True  # the next completed check sets the status at once
    seen: list[tuple[str, datetime]] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def resume(self) -> None:
        self.seen, self.unset, self.announced = [], True, False

    def result(self, verdict: Verdict, at: datetime) -> None:
        muted = self.muted_until is not None and at < self.muted_until
        if verdict is DOWN and muted:
            self.seen.append(("muted", at))  # does not count towards down
            return
        self.seen.append(("fail" if verdict is DOWN else "pass", at))
        if verdict is not DOWN:
            passes = self._run("pass", across=())
            if self.unset or self.status is not DOWN or len(passes) >= self.recover_threshold:
                self.announced = False
                self._set(verdict, at)
        elif not self.announced and self._is_outage(at):
            self.announced = True
            self._set(verdict, at)
        elif self.unset:  # down at once, and confirmed by the rule of later failures
            self._set(verdict, at)
        self.unset = False

    def _is_outage(self, at: datetime) -> bool:
        failures = self._run("fail", across=("muted",))
        if self.confirmation is None and self.unset:
            return True
        is_old = self.confirmation is None or at - failures[-1] >= self.confirmation
        return len(failures) >= self.fail_threshold and is_old

    @property
    def failing_since(self) -> datetime | None:
        """While not down: the first failure of the current run that counts, or else the first muted one."""
        failures = self._run("fail", across=("muted",)) or self._run("muted", across=())
        return failures[-1] if failures else None

    def _run(self, kind: str, *, across: Sequence[str]) -> list[datetime]:
        """Return the times of the last consecutive results of `kind`, latest first."""
        run = takewhile(lambda entry: entry[0] == kind or entry[0] in across, reversed(self.seen))
        return [at for entry, at in run if entry == kind]

    def _set(self, verdict: Verdict, at: datetime) -> None:
        if self.status is not verdict or self.announced:
            began = self._run("fail", across=("muted",))[-1] if verdict is DOWN else None
            confirmed = self.announced or verdict is not DOWN
            self.changes.append(Change(self.status, verdict, at, began, confirmed=confirmed))
            self.since = at if self.status is not verdict else self.since
            self.status = verdict


def check_invariants(
    before: Status, after: Status, change: Change | None, *, verdict: Verdict, at: datetime, policy: Policy
) -> None:
    """Check the invariants of a single step, independently of the reference."""
    again = before.status is DOWN and after.is_confirmed and not before.is_confirmed
    differs = before.status is not after.status
    assert (change is not None) == (differs or again), "a change if it differs, or if an outage is confirmed"
    if not differs:
        assert after.since == before.since
    else:
        assert change is not None
        assert (change.before, change.after, change.at) == (before.status, after.status, after.since)
        assert after.since == at
        assert before.since is None or after.since > before.since
    muted = policy.muted_until is not None and at < policy.muted_until
    if verdict is DOWN:
        assert after.status in (before.status, DOWN), "a failure leads to down or nowhere"
        if muted:
            assert (after.status, after.fresh) == (before.status, before.fresh)
            assert after.failures <= before.failures, "muted failures do not count"
        elif before.fresh:
            assert after.status is DOWN, "a first result sets the status at once"
    else:
        assert after.status in (before.status, verdict)
        if before.status is not DOWN or before.fresh:
            assert after.status is verdict, "a pass shows at once unless it has to recover first"
        if before.status is None:
            assert after.status is verdict
    if after.status is not DOWN and policy.confirmation is None:
        assert after.failures < policy.fail_threshold or after.failures <= before.failures


@settings(max_examples=examples(300), deadline=None)
@given(EVENTS, THRESHOLDS, THRESHOLDS, CONFIRMATIONS)
def test_advance_against_the_reference(
    events: list[Event], fail: int, recover: int, confirmation: timedelta | None
) -> None:
    reference, policy = Reference(fail, recover, confirmation), Policy(fail, recover, confirmation=confirmation)
    status, now = Status(), NOON
    changes: list[Change] = []
    for event in events:
        match event:
            case Result(verdict, after):
                now += minutes(after)
                before = status
                status, change = advance(status, outcome(verdict, at=now), policy)
                check_invariants(before, status, change, verdict=verdict, at=now, policy=policy)
                changes += [change] if change else []
                reference.result(verdict, now)
                assert (status.status, status.since) == (reference.status, reference.since)
                if status.status is not DOWN:
                    assert status.failing_since == reference.failing_since
            case Mute(length):
                policy = replace(policy, muted_until=now + minutes(length) if length else None)
                reference.muted_until = policy.muted_until
            case Edit(new_fail, new_recover, new_confirmation):
                policy = replace(
                    policy, fail_threshold=new_fail, recover_threshold=new_recover, confirmation=new_confirmation
                )
                reference.fail_threshold, reference.recover_threshold = new_fail, new_recover
                reference.confirmation = new_confirmation
            case PauseAndResume(length):
                now += minutes(length)
                status = replace(status, fresh=True, failures=0, passes=0, failing_since=None)
                reference.resume()
    assert changes == reference.changes
    assert all(one.after is two.before for one, two in pairwise(changes))


@pytest.mark.django_db
@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS, THRESHOLDS, THRESHOLDS, CONFIRMATIONS)
def test_the_whole_write_path_against_the_reference(
    events: list[Event], fail: int, recover: int, confirmation: timedelta | None
) -> None:
    """The same runs through the services of production: claims, recording, PATCH, the database."""
    user = UserFactory()
    caller = Caller(user)
    MonitorState.objects.update(next_due_at=None)  # ignore the monitors of earlier examples
    rules = {"fail_threshold": fail, "recover_threshold": recover, "confirmation_sec": seconds_of(confirmation)}
    monitor = MonitorFactory(owner=user, up=True, **rules)
    reference, now = Reference(fail, recover, confirmation), NOON
    reference.result(UP, NOON)
    for event in events:
        match event:
            case Result(verdict, after):
                now += minutes(after)
                MonitorState.objects.filter(pk=monitor.pk).update(next_due_at=now, claimed_at=None)
                (claim,) = claim_due(now, limit=10)
                version = Monitor.objects.get(pk=monitor.pk).config_version
                record([CheckRecord(monitor.pk, claim.number, version, outcome(verdict, at=now))], now=now)
                reference.result(verdict, now)
            case Mute(length):
                until = now + minutes(length) if length else None
                Monitor.objects.filter(pk=monitor.pk).update(muted_until=until)
                reference.muted_until = until
            case Edit(new_fail, new_recover, new_confirmation):
                edited: dict[str, int | None] = {"fail_threshold": new_fail, "recover_threshold": new_recover}
                edited["confirmation_sec"] = seconds_of(new_confirmation)
                update_monitor(caller, monitor.public_id, edited, now=now)
                reference.fail_threshold, reference.recover_threshold = new_fail, new_recover
                reference.confirmation = new_confirmation
            case PauseAndResume(length):
                update_monitor(caller, monitor.public_id, {"enabled": False}, now=now)
                now += minutes(length)
                update_monitor(caller, monitor.public_id, {"enabled": True}, now=now)
                reference.resume()
    state = MonitorState.objects.get(pk=monitor.pk)
    assert (state.status, state.status_since) == (reference.status, reference.since)
    stored = StatusChange.objects.filter(monitor=monitor, kind="status").order_by("pk")
    assert [(c.before, c.after, c.at, c.failing_since, c.processed_at is None) for c in stored] == [
        (c.before, c.after, c.at, c.failing_since, c.confirmed) for c in reference.changes
    ]


# --- the share of time -----------------------------------------------------------------------------------

STANDINGS = st.builds(StatusInterval, st.sampled_from([None, UP, SLOW, DOWN]), st.booleans())
LENGTH = 40  # seconds of the window


def second(number: int) -> datetime:
    return NOON + timedelta(seconds=number)


def naive_uptime(history: list[tuple[int, StatusInterval]], first: StatusInterval, gaps: set[int]) -> float | None:
    """Count each second of the window: observed or not, down or not."""
    observed = down = 0
    for at in range(LENGTH):
        standing = first
        for moment, following in history:
            if moment <= at:
                standing = following
        if standing.status is None or standing.paused or at in gaps:
            continue
        observed += 1
        down += standing.status is DOWN
    return None if observed == 0 else round(100 * (observed - down) / observed, 2)


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, LENGTH), STANDINGS), max_size=12),
    STANDINGS,
    st.lists(st.integers(-5, LENGTH + 5), max_size=6, unique=True),
)
def test_uptime_against_a_count_of_seconds(
    history: list[tuple[int, StatusInterval]], first: StatusInterval, edges: list[int]
) -> None:
    history.sort(key=lambda entry: entry[0])
    standings = [first, *(standing for _, standing in history)]
    transitions = [
        Transition(second(at), before, after)
        for (at, _), (before, after) in zip(history, pairwise(standings), strict=True)
    ]
    edges.sort()
    gaps = list(zip(edges[::2], edges[1::2], strict=False))  # disjoint, also over the window's edges
    found = tally(
        [Span(second(0), second(LENGTH))],
        transitions,
        standings[-1],
        [Span(second(start), second(end)) for start, end in gaps],
    )[0].percent
    silent = {at for start, end in gaps for at in range(start, end)}
    assert found == naive_uptime(history, first, silent)
    assert found is None or 0 <= found <= 100

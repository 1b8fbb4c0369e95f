"""Random signals, edits and mutes of a heartbeat, against a reference model without a database."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from accounts.models import User
from checks.spec import Verdict
from monitors.heartbeats import services as heartbeats
from monitors.heartbeats.services import sweep
from monitors.models import MonitorState, StatusChange
from monitors.models import Ping as Ping_
from monitors.operations import mute_for
from monitors.scheduling import claim_due
from monitors.services import update_monitor
from projects.access import Caller
from tests.factories import MonitorFactory, PlanFactory, UserFactory
from tests.helpers import NOON, examples, record_ping, signal, state_of

UP, DOWN = Verdict.UP, Verdict.DOWN


@dataclass(frozen=True)
class Ping:
    """`after`: seconds since the previous event, here and below."""

    after: int


@dataclass(frozen=True)
class Wait:
    after: int


@dataclass(frozen=True)
class Mute:
    minutes: int
    after: int


@dataclass(frozen=True)
class Edit:
    interval_sec: int
    grace_sec: int
    recover_threshold: int
    after: int


@dataclass(frozen=True)
class Switch:
    """Pause, or resume."""

    after: int


@dataclass(frozen=True)
class Sent:
    """A signal other than a plain success."""

    word: str
    rid: UUID | None
    after: int


Event = Ping | Wait | Mute | Edit | Switch | Sent

SECONDS = st.integers(1, 60)
RIDS = st.sampled_from([None, UUID(int=1), UUID(int=2)])
EVENT = st.one_of(
    *[st.builds(Ping, SECONDS)] * 5,
    *[st.builds(Wait, SECONDS)] * 2,
    st.builds(Mute, st.integers(0, 3), SECONDS),
    st.builds(Edit, st.integers(5, 60), st.integers(0, 30), st.integers(1, 3), SECONDS),
    st.builds(Switch, SECONDS),
    *[st.builds(Sent, st.sampled_from(["start", "start", "", "fail", "7", "log"]), RIDS, SECONDS)] * 4,
)
EVENTS = st.lists(EVENT, min_size=15, max_size=40)


@dataclass
class Reference:
    """A reference model of one heartbeat: deadlines, pauses, mutes and runs."""

    interval_sec: int
    grace_sec: int
    recover_threshold: int
    last_ping: datetime | None = None
    muted_until: datetime | None = None
    changed_at: datetime = NOON  # a shortened grace, a cleared mute, a resumption: not down before it
    enabled: bool = True
    unset: bool = True
    status: Verdict | None = None
    since: datetime | None = None
    pings_in_a_row: int = 0
    runs: dict[UUID | None, datetime] = field(default_factory=dict)
    given_up: set[UUID | None] = field(default_factory=set)  # a success came after their deadlines
    durations: list[timedelta | None] = field(default_factory=list)

    def deadlines(self) -> list[datetime]:
        grace = timedelta(seconds=self.grace_sec)
        ping = [] if self.last_ping is None else [self.last_ping + timedelta(seconds=self.interval_sec) + grace]
        return ping + [start + grace for rid, start in self.runs.items() if rid not in self.given_up]

    def look(self, now: datetime) -> None:
        """Run the scheduler at this time."""
        if not self.enabled or not self.deadlines():
            return
        deadline = min(self.deadlines())
        if now <= deadline:
            if self.unset and self.last_ping is not None:  # the immediate check after a resumption
                self._set(UP, now)
            return
        known_since = max(deadline, self.changed_at, self.muted_until or deadline)
        if now > known_since:
            self.pings_in_a_row = 0
            self._set(DOWN, known_since)

    def send(self, word: str, rid: UUID | None, now: datetime) -> None:
        if word == "":
            self.ping(now, rid)
        elif word == "start":
            self.runs[rid] = now
            self.given_up.discard(rid)
            if self.enabled:
                self.changed_at = min(self.changed_at, now + timedelta(seconds=self.grace_sec))
            else:
                self.given_up.add(rid)
            self.durations.append(None)
        elif word == "log":
            self.durations.append(None)
        else:
            self._end(rid, now)
            if self.enabled:
                self.pings_in_a_row = 0
                if self.muted_until is None or now >= self.muted_until:
                    self._set(DOWN, now)

    def _end(self, rid: UUID | None, now: datetime) -> None:
        start = self.runs.pop(rid, None)
        self.given_up.discard(rid)
        self.durations.append(None if start is None else now - start)

    def ping(self, now: datetime, rid: UUID | None = None) -> None:
        self._end(rid, now)
        self.last_ping = now
        grace = timedelta(seconds=self.grace_sec)
        self.given_up |= {other for other, start in self.runs.items() if start + grace < now}
        if not self.enabled:
            return
        self.changed_at = NOON
        self.pings_in_a_row += 1
        if self.unset or self.status is UP or self.pings_in_a_row >= self.recover_threshold:
            self._set(UP, now)

    def edit(self, event: Edit, now: datetime) -> None:
        is_moved = (self.interval_sec, self.grace_sec) != (event.interval_sec, event.grace_sec)
        self.interval_sec, self.grace_sec = event.interval_sec, event.grace_sec
        self.recover_threshold = event.recover_threshold
        if is_moved and self.enabled:
            self.changed_at = max(self.changed_at, now, self._counted_from(now))

    def _counted_from(self, now: datetime) -> datetime:
        """A deadline that would be in the past counts from the edit."""
        deadlines = self.deadlines()
        if all(deadline > now for deadline in deadlines):
            return now
        grace = timedelta(seconds=self.grace_sec)
        ping = [] if self.last_ping is None else [self.last_ping + timedelta(seconds=self.interval_sec) + grace]
        counted = [each if each > now else now + timedelta(seconds=self.interval_sec) + grace for each in ping]
        return min(counted + [each if each > now else now + grace for each in deadlines[len(ping) :]])

    def mute(self, length: int, now: datetime) -> None:
        if length:
            self.muted_until = now + timedelta(minutes=length)
        elif self.muted_until is not None:
            self.muted_until = min(self.muted_until, now)

    def switch(self, now: datetime) -> None:
        self.enabled = not self.enabled
        if self.enabled:
            self.unset, self.changed_at, self.pings_in_a_row = True, now, 0

    def _set(self, status: Verdict, at: datetime) -> None:
        self.unset = False
        if self.status is not status:
            self.status, self.since = status, at
            self.pings_in_a_row = 0


def look(now: datetime) -> None:
    sweep([claim.monitor_id for claim in claim_due(now, limit=100)], now=now)


@pytest.fixture
def owner(db: None) -> User:
    user = UserFactory()
    user.plan = PlanFactory(min_interval_sec=1)
    user.save(update_fields=["plan"])
    return user


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS, st.integers(5, 60), st.integers(0, 30), st.integers(1, 3))
@example([Ping(1), Switch(1), Wait(90), Switch(5), Wait(5)], 10, 5, 1)  # late at the time of its resumption
@example([Ping(1), Mute(1, 1), Wait(30), Mute(0, 1), Wait(5)], 10, 5, 1)  # late at the end of its mute
@example([Ping(1), Wait(60), Ping(1), Wait(60), Ping(1), Ping(1), Ping(1)], 10, 5, 3)  # separate pings, then a run
def test_a_heartbeat_against_the_reference(
    owner: User, events: list[Event], interval: int, grace: int, recover: int
) -> None:
    MonitorState.objects.update(next_due_at=None)  # ignore the monitors of earlier examples
    given_fields: dict[str, Any] = {"interval_sec": interval, "grace_sec": grace, "recover_threshold": recover}
    # fail_threshold does not apply to heartbeats: one missed deadline is enough.
    monitor = MonitorFactory(owner=owner, heartbeat=True, fail_threshold=5, **given_fields)
    caller, name = Caller(owner), monitor.public_id
    reference, now = Reference(interval, grace, recover), NOON
    for event in events:
        now += timedelta(seconds=event.after)
        look(now)
        reference.look(now)
        match event:
            case Ping():
                assert record_ping(name, now=now)
                reference.ping(now)
            case Mute(length):
                mute_for([monitor.pk], minutes=length, now=now)
                reference.mute(length, now)
            case Edit(new_interval, new_grace, new_recover):
                edited = {"interval_sec": new_interval, "grace_sec": new_grace, "recover_threshold": new_recover}
                update_monitor(caller, name, edited, now=now)
                reference.edit(event, now)
            case Switch():
                update_monitor(caller, name, {"enabled": not reference.enabled}, now=now)
                reference.switch(now)
            case Sent(word, rid):
                assert heartbeats.record(signal(name, word, now=now, rid=rid))
                reference.send(word, rid, now)
            case Wait():
                pass
        state = state_of(monitor)
        assert (state.status, state.status_since) == (reference.status, reference.since)
        assert state.last_ping_at == reference.last_ping
    pings = Ping_.objects.filter(monitor_id=monitor.pk).order_by("at", "id").values_list("duration_ms", flat=True)
    assert list(pings) == [each if each is None else each // timedelta(milliseconds=1) for each in reference.durations]
    changes = list(StatusChange.objects.filter(monitor=monitor, kind="status").order_by("pk"))
    assert all(one.after == two.before for one, two in pairwise(changes))
    # From down to down: it was resumed, and had missed its deadline again.
    assert all(change.before != change.after or change.after == "down" for change in changes)
    assert all(one.at <= two.at for one, two in pairwise(changes)), "status_since never goes back"


@pytest.mark.parametrize(("late_ms", "status"), [(0, "up"), (1, "down")], ids=["exactly at the deadline", "after it"])
def test_deadline_to_the_millisecond(owner: User, late_ms: int, status: str) -> None:
    monitor = MonitorFactory(owner=owner, heartbeat=True, interval_sec=60, grace_sec=10)
    record_ping(monitor.public_id, now=NOON)
    deadline = NOON + timedelta(seconds=70)
    look(deadline + timedelta(milliseconds=late_ms))
    state = state_of(monitor)
    assert (state.status, state.status_since) == (status, deadline if status == "down" else NOON)


def test_a_heartbeat_that_was_never_pinged_is_never_down(owner: User) -> None:
    monitor = MonitorFactory(owner=owner, heartbeat=True, interval_sec=60)
    look(NOON + timedelta(days=9))
    assert state_of(monitor).status is None

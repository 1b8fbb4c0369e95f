"""Checks for agents that are behind: who gets their room, and when the others are due."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from accounts.models import User
from core.clock import utc_now
from locations.models import Agent
from monitors import handing, scheduling, tasks
from monitors.agents import leases
from monitors.agents.leases import BEHIND
from monitors.handing import LEAST_WAITING, Pace, Paces
from monitors.models import Monitor, MonitorState
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import flush_broker, state_of
from tests.locations import add_agent, shared

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _own_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    flush_broker()
    monkeypatch.setattr(leases, "PACES", Paces())
    yield
    tasks.leave()
    flush_broker()


@pytest.fixture
def agent(transactional_db: None) -> Agent:
    return add_agent(shared(), seen=utc_now())


def located(owner: User, count: int, *, checked: datetime | None = None) -> list[int]:
    """Create monitors of the location that are overdue, one second after the other."""
    now = utc_now()
    created = [MonitorFactory(owner=owner, created_at=now - timedelta(hours=1), up=True) for _ in range(count)]
    for number, monitor in enumerate(created):
        Monitor.objects.filter(pk=monitor.pk).update(locations=["fra"])
        due = now - timedelta(seconds=2 * count - number)
        MonitorState.objects.filter(pk=monitor.pk).update(next_due_at=due, last_checked_at=checked or now)
    return [monitor.pk for monitor in created]


def waiting(agent: Agent) -> list[int]:
    return [item.monitor_id for item in handing.pop(agent.pk, 1_000)]


def test_the_pace_is_that_of_an_agent_which_leaves_checks() -> None:
    pace = Pace(per_sec=1_000.0)
    pace.look(pushed=0, waiting=0, now=0.0)
    pace.look(pushed=2_000, waiting=1_000, now=0.1)
    pace.look(pushed=2_000, waiting=900, now=1.1)
    for second in range(2, 12):
        pace.look(pushed=2_000 + 100 * second, waiting=900, now=0.1 + second)
    assert pace.per_sec == pytest.approx(100, rel=0.1)
    assert pace.room == 0
    pace.look(pushed=3_100, waiting=0, now=12.1)
    assert pace.per_sec > 800, "it took all that waited"
    for second in range(13, 20):
        pace.look(pushed=3_100 + second, waiting=0, now=0.1 + second)
    assert pace.per_sec > 800, "it had nothing to do"
    assert pace.room == int(2 * pace.per_sec) + LEAST_WAITING


def test_an_agent_that_loses_its_connection_keeps_its_pace() -> None:
    """Otherwise a restart of the web process of 20 s would postpone checks by up to a minute."""
    pace = Pace(per_sec=200.0)
    pace.look(pushed=0, waiting=0, now=0.0)
    for second in range(1, 21):
        pace.look(pushed=10 * second, waiting=10 * second, now=float(second))
    assert pace.per_sec == 200
    pace.look(pushed=210, waiting=0, now=21.0)
    assert pace.per_sec == 200
    for second in range(22, 60):
        pace.look(pushed=220, waiting=10, now=float(second))
    assert pace.per_sec == 100, "it is connected, and takes none"


def test_postponed_checks_of_accounts_take_turns() -> None:
    pace = Pace(per_sec=10.0)
    assert pace.delays([1] * 100, now=0.0)[-1] == pytest.approx(10)
    assert pace.delays([2, 2], now=0.0) == pytest.approx([0.2, 0.4])
    assert pace.delays([1], now=0.0) == pytest.approx([10.2])
    assert pace.delays([2], now=30.0) == pytest.approx([0.1])


def test_accounts_take_turns_for_the_room_of_an_agent(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing, "MOST_WAITING", 4)
    many, few = UserFactory(), UserFactory()
    theirs, ours = located(many, 6), located(few, 2)
    tasks.dispatch_due()
    assert sorted(waiting(agent)) == sorted([*theirs[:2], *ours])
    left = MonitorState.objects.filter(pk__in=theirs[2:]).order_by("next_due_at")
    assert [state.pk for state in left] == theirs[2:], "the others are due in their order"
    assert not left.filter(claimed_at__isnull=False).exists()
    assert not MonitorState.objects.filter(fault__isnull=False).exists(), "they are hardly late"


def test_an_agent_that_is_behind_delays_no_other_check(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing, "MOST_WAITING", 1)
    monkeypatch.setattr(tasks, "CLAIMS_AT_ONCE", 4)
    owner = UserFactory()
    located(owner, 20)
    other = MonitorFactory(owner=owner, created_at=utc_now() - timedelta(minutes=1), up=True)
    MonitorState.objects.filter(pk=other.pk).update(next_due_at=utc_now())
    tasks.dispatch_due()
    assert state_of(other).claimed_at is not None
    assert len(waiting(agent)) == 1


def test_all_are_checked_as_fast_as_the_agent_takes_them(agent: Agent) -> None:
    """Its checks wait for it in the database, and each is postponed about once."""
    pks = located(UserFactory(), 60)
    pace = Pace(per_sec=10.0)
    start, taken, postponed = utc_now(), [], 0
    for second in range(4):
        claims, excess = scheduling.claim_within(
            start + timedelta(seconds=second), limit=100, agents={"fra": [agent.pk]}, rooms={agent.pk: 15}
        )
        taken += [claim.monitor_id for claim in claims]
        postponed += len(excess)
        delays = pace.delays([each.owner_id for each in excess], now=float(second))
        after = {each.monitor_id: delay for each, delay in zip(excess, delays, strict=True)}
        scheduling.postpone_excess(after, BEHIND, now=start + timedelta(seconds=second))
    assert sorted(taken) == sorted(set(taken))
    assert taken == pks[: len(taken)]
    assert 40 <= len(taken) <= 60
    assert postponed <= 60


def test_a_check_that_is_late_for_its_location_says_so(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing, "MOST_WAITING", 1)
    _, late = located(UserFactory(), 2, checked=utc_now() - timedelta(minutes=5))
    before = state_of(Monitor(pk=late))
    tasks.dispatch_due()
    state = state_of(Monitor(pk=late))
    assert (state.fault, state.fault_since) == (BEHIND, before.next_due_at)
    assert state.claim > before.claim, "another location has the next turn"

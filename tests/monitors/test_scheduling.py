"""Claims: each due monitor is claimed once, released when its lease expires, and slots do not drift."""

from __future__ import annotations

from datetime import timedelta

import pytest

from checks.spec import Verdict
from monitors.checking.jobs import load_jobs
from monitors.models import LEASE_MARGIN, Monitor, MonitorState, SchedulerGap
from monitors.recording import record
from monitors.scheduling import Claim, claim_due, tick
from monitors.selectors import last_tick
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, check_record, minutes, run_concurrently, state_of

LEASE = timedelta(seconds=10) + LEASE_MARGIN  # of a monitor with the default timeout


@pytest.mark.parametrize(
    ("late_sec", "next_sec"), [(0, 60), (1, 60), (59, 60), (60, 120), (61, 120), (3599, 3600), (3600, 3660)]
)
def test_next_slot_keeps_its_phase_and_makes_nothing_up(late_sec: int, next_sec: int) -> None:
    now = NOON + timedelta(seconds=late_sec)
    monitor = Monitor(interval_sec=60, config={})
    assert monitor.next_slot(NOON, now=now) == NOON + timedelta(seconds=next_sec)


@pytest.mark.django_db
def test_due_monitor_is_claimed_once_and_again_after_its_lease() -> None:
    monitor = MonitorFactory(up=True)
    assert claim_due(NOON + timedelta(seconds=59), limit=10) == []
    due = NOON + timedelta(seconds=60)
    assert claim_due(due, limit=10) == [Claim(monitor.pk, 2)]
    assert claim_due(due + LEASE - timedelta(seconds=1), limit=10) == []
    assert claim_due(due + LEASE, limit=10) == [Claim(monitor.pk, 3, again=True)]
    assert state_of(monitor).slot_at == due, "the slot stays that of the first try"


@pytest.mark.django_db
def test_after_a_lost_claim_the_next_slot_is_still_in_phase() -> None:
    monitor = MonitorFactory(up=True)
    claim_due(NOON + minutes(1), limit=10)
    late = NOON + minutes(1) + LEASE
    claim_due(late, limit=10)
    record([check_record(monitor, claim=3, verdict=Verdict.UP, at=late)], now=late)
    assert late < NOON + minutes(2)
    assert state_of(monitor).next_due_at == NOON + minutes(2)


@pytest.mark.django_db
def test_accounts_take_turns() -> None:
    """An account with many overdue monitors does not delay the monitors of others."""
    many, few = UserFactory(), UserFactory()
    theirs = [MonitorFactory(owner=many, created_at=NOON + timedelta(seconds=n), up=True).pk for n in range(6)]
    ours = [MonitorFactory(owner=few, created_at=NOON + minutes(1 + n), up=True).pk for n in range(2)]
    claimed = [claim.monitor_id for claim in claim_due(NOON + minutes(9), limit=4)]
    assert claimed == [theirs[0], ours[0], theirs[1], ours[1]]
    assert [claim.monitor_id for claim in claim_due(NOON + minutes(9), limit=4)] == theirs[2:]


@pytest.mark.django_db
def test_accounts_need_no_turns_if_all_can_be_claimed() -> None:
    """With a million monitors more are due each second than one statement claims. Ordering them costs as much again."""
    many, few = UserFactory(), UserFactory()
    theirs = [MonitorFactory(owner=many, created_at=NOON + timedelta(seconds=n), up=True).pk for n in range(4)]
    ours = [MonitorFactory(owner=few, created_at=NOON + minutes(1 + n), up=True).pk for n in range(2)]
    claimed = [claim_due(NOON + minutes(9), limit=3, room=room) for room in (6, 3)]
    assert [{claim.monitor_id for claim in part} for part in claimed] == [set(theirs[:3]), {theirs[3], *ours}]


@pytest.mark.django_db
def test_longest_overdue_goes_first() -> None:
    user = UserFactory()
    later = MonitorFactory(owner=user, created_at=NOON + minutes(1), up=True)
    earlier = MonitorFactory(owner=user, created_at=NOON, up=True)
    assert [claim.monitor_id for claim in claim_due(NOON + minutes(9), limit=1)] == [earlier.pk]
    assert [claim.monitor_id for claim in claim_due(NOON + minutes(9), limit=1)] == [later.pk]


@pytest.mark.django_db
def test_assignment_of_an_old_claim_is_not_loaded() -> None:
    monitor = MonitorFactory(up=True)
    (claim,) = claim_due(NOON + minutes(1), limit=10)
    assert [a.claim for a in load_jobs([(claim.monitor_id, claim.number)])] == [2]
    claim_due(NOON + minutes(1) + LEASE, limit=10)
    assert load_jobs([(claim.monitor_id, claim.number)]) == []
    record([check_record(monitor, claim=3, verdict=Verdict.UP, at=NOON)], now=NOON + minutes(4))
    assert load_jobs([(claim.monitor_id, 3)]) == [], "its result is in: nothing is left to do"


@pytest.mark.django_db(transaction=True)
def test_many_beats_at_once_claim_each_monitor_once() -> None:
    user = UserFactory()
    monitors = [MonitorFactory(owner=user, up=True) for _ in range(60)]

    def beat() -> list[Claim]:
        return [claim for _ in range(4) for claim in claim_due(NOON + minutes(1), limit=7)]

    taken = [claim for claims in run_concurrently(*[beat] * 6) for claim in claims]  # type: ignore[attr-defined]
    assert sorted(taken, key=lambda c: c.monitor_id) == [Claim(monitor.pk, 2) for monitor in monitors]
    assert not MonitorState.objects.exclude(claim=2).exists()


@pytest.mark.django_db
def test_a_long_step_between_ticks_is_a_gap() -> None:
    assert last_tick() is None
    for second in (0, 1, 2, 20, 300, 301):
        tick(NOON + timedelta(seconds=second))
    assert last_tick() == NOON + timedelta(seconds=301)
    gap = SchedulerGap.objects.get()
    assert (gap.started_at, gap.ended_at) == (NOON + timedelta(seconds=20), NOON + timedelta(seconds=300))
    tick(NOON + timedelta(seconds=300))
    assert last_tick() == NOON + timedelta(seconds=301), "an older tick of another beat moves nothing back"

"""Computed and stored times of schedules equal those of cronsim, and missing times are computed again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, islice, product, takewhile
from random import Random
from typing import Any

import pytest
from cronsim import CronSim
from django.db import connection, transaction
from django.db.models import F

from checks.results.models import CheckResult
from monitors import cron
from monitors.cron import Schedule
from monitors.heartbeats import services as heartbeats
from monitors.models import Monitor, MonitorState, ScheduleSlots
from monitors.operations import mute_for, raise_intervals
from monitors.scheduling import claim_due, return_claims
from monitors.scheduling.time_zones import recompute
from monitors.selectors import failing, failing_since
from monitors.services import update_monitor
from monitors.slots import STORED, next_slot_sql, refill_slots
from monitors.tasks import apply_tzdata
from projects.access import Caller
from tests.expressions import random_expression
from tests.factories import MonitorFactory, PlanFactory, UserFactory
from tests.helpers import NOON, examples, record_ping, signal, state_of

ZONES = (
    *("UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/Havana"),
    *("America/Sao_Paulo", "America/Santiago", "America/Asuncion", "America/St_Johns", "Africa/Cairo"),
    *("Africa/Casablanca", "Asia/Beirut", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Gaza", "Australia/Lord_Howe"),
    *("Australia/Sydney", "Pacific/Auckland", "Pacific/Chatham"),
)
YEARS = timedelta(days=731)
START = datetime(2026, 1, 1, tzinfo=UTC)
NIGHTLY = (
    "*/15 * * * *",
    "20 * * * *",
    "30 2 * * *",
    "0,30 0-3 * * *",
    "*/30 1,2 * * *",
    "15 0,1,23 * * *",
    "5 */2 * * *",
)


CHANGES_WITHIN_HOURS = frozenset({"Australia/Lord_Howe", "Pacific/Chatham"})
"""Zones whose clocks do not change at a full hour. There cronsim steps back and may never end."""


def by_cronsim(expression: str, zone: str, start: datetime) -> Iterator[datetime]:
    """Yield the times of cronsim, in UTC; where it is wrong, each minute that matches."""
    if zone in CHANGES_WITHIN_HOURS and any(field.startswith("*") for field in expression.split()[:2]):
        return by_minutes(expression, zone, start)
    local = Schedule(expression, zone).local(start)
    return (found.astimezone(UTC) for found in CronSim(expression, local))


def by_minutes(expression: str, zone: str, start: datetime) -> Iterator[datetime]:
    local, simulation = Schedule(expression, zone).local, CronSim(expression, datetime(2026, 1, 1))  # noqa: DTZ001
    for number in count(1):
        at = local(start + timedelta(minutes=number))
        in_time = at.minute in simulation.minutes and at.hour in simulation.hours
        if in_time and at.month in simulation.months and simulation.match_day(at.date()):
            yield at.astimezone(UTC)


def stored_next(monitor: Monitor, moments: list[datetime]) -> list[datetime | None]:
    found = next_slot_sql("moment", tzdata="%s")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {found} FROM unnest(%s::timestamptz[]) WITH ORDINALITY AS asked (moment, number), "
            "monitors_monitor AS monitor WHERE monitor.id = %s ORDER BY number",
            [cron.TZDATA_VERSION, moments, monitor.pk],
        )
        return [next_at for (next_at,) in cursor.fetchall()]


def walk(monitor: Monitor, number: int) -> list[datetime]:
    """Yield due times from stored slots, which are refilled when they run out."""
    found: list[datetime] = []
    while len(found) < number:
        monitor.state.slot_at = found[-1] if found else START
        refill_slots([monitor])
        moments = [monitor.state.slot_at, *ScheduleSlots.objects.get(pk=monitor.pk).times]
        found += takewhile(lambda at: at is not None, stored_next(monitor, moments))  # type: ignore[arg-type]
    return found[:number]


@pytest.mark.django_db
def test_due_times_of_random_expressions_equal_those_of_cronsim() -> None:
    random = Random(2026)
    monitor = MonitorFactory(type="scheduler", schedule="* * * * *")
    for number in range(examples(200)):
        expression, zone = random_expression(random), ZONES[number % len(ZONES)]
        monitor.config = {**monitor.config, "schedule": expression, "timezone": zone}
        monitor.save(update_fields=["config"])
        times = takewhile(lambda at: at <= START + YEARS, by_cronsim(expression, zone, START))
        expected = list(islice(times, 2 * STORED + 1))
        assert walk(monitor, len(expected)) == expected, (expression, zone)


@pytest.mark.parametrize("zone", ZONES)
def test_every_clock_change_of_two_years(zone: str) -> None:
    for change, expression in product(clock_changes(zone), NIGHTLY):
        # From a day before: a simulation that starts in a repeated hour begins with the first occurrence.
        times = list(islice(by_cronsim(expression, zone, change - timedelta(days=1)), 250))
        assert times == sorted(set(times))
        schedule = Schedule(expression, zone)
        assert schedule.upcoming(change - timedelta(days=1), 250) == times
        for number in range(20):
            moment = change + timedelta(minutes=25 * (number - 10))
            assert schedule.next_after(moment) == times[bisect_right(times, moment)], (expression, moment)


def clock_changes(zone: str) -> list[datetime]:
    local = Schedule("* * * * *", zone).local
    hours = [START + timedelta(hours=number) for number in range(0, 731 * 24, 3)]
    return [hour for hour in hours if local(hour).utcoffset() != local(hour + timedelta(hours=3)).utcoffset()]


def test_most_of_these_zones_change_their_clocks() -> None:
    assert sum(len(clock_changes(zone)) >= 4 for zone in ZONES) >= 12


@pytest.fixture
def nightly(db: None) -> Monitor:
    monitor: Monitor = MonitorFactory(heartbeat=True, schedule="30 14 * * *", timezone="Europe/Berlin", grace_sec=600)
    return monitor


def ping(monitor: Monitor, at: datetime) -> datetime | None:
    assert record_ping(monitor.public_id, now=at)
    return state_of(monitor).next_due_at


def stored(monitor: Monitor) -> dict[str, Any]:
    return {**ScheduleSlots.objects.filter(pk=monitor.pk).values().get()}


def test_a_ping_is_due_at_the_first_slot_after_the_last_one_and_grace(nightly: Monitor) -> None:
    assert state_of(nightly).next_due_at is None, "nothing is due before the first ping"
    slot = datetime(2026, 3, 1, 13, 30, tzinfo=UTC)
    grace = timedelta(minutes=10)
    assert ping(nightly, NOON) == slot + grace
    before = stored(nightly)
    assert ping(nightly, slot) == slot + timedelta(days=1) + grace, "a ping at the slot is that of the slot"
    assert ping(nightly, datetime(2026, 3, 28, 20, tzinfo=UTC)) == datetime(2026, 3, 29, 12, 30, tzinfo=UTC) + grace
    assert stored(nightly) == before
    assert CheckResult.objects.filter(monitor_id=nightly.pk).count() == 3


def test_the_short_way_follows_the_schedule_while_slots_are_stored(nightly: Monitor) -> None:
    ping(nightly, NOON)
    assert heartbeats.keep_up([signal(nightly.public_id, now=NOON + timedelta(hours=2))]) == [True]
    assert state_of(nightly).next_due_at == datetime(2026, 3, 2, 13, 40, tzinfo=UTC)
    ScheduleSlots.objects.all().delete()
    assert heartbeats.keep_up([signal(nightly.public_id, now=NOON + timedelta(hours=3))]) == [False]


def test_a_missed_deadline_names_the_schedule(nightly: Monitor) -> None:
    ping(nightly, NOON)
    late = datetime(2026, 3, 1, 13, 41, tzinfo=UTC)
    heartbeats.sweep([claim.monitor_id for claim in claim_due(late, limit=9)], now=late)
    text = "No ping arrived within 600 s of 2026-03-01 14:30 (30 14 * * *, Europe/Berlin)."
    assert CheckResult.objects.get(verdict="down").detail == text


def test_slots_that_ran_out_are_stored_again(nightly: Monitor) -> None:
    ping(nightly, NOON)
    last = stored(nightly)["times"][-1]
    assert ping(nightly, last) == last + timedelta(days=1, minutes=10)
    assert stored(nightly)["since"] == last


@pytest.mark.parametrize("given", [{"schedule": "0 15 * * *"}, {"timezone": "Asia/Tokyo"}])
def test_an_edit_counts_at_once_and_from_the_last_ping(nightly: Monitor, given: dict[str, str]) -> None:
    ping(nightly, NOON)
    update_monitor(Caller(nightly.owner), nightly.public_id, given, now=NOON + timedelta(minutes=1))
    monitor = Monitor.objects.get(pk=nightly.pk)
    assert monitor.schedule is not None
    state = state_of(monitor)
    assert state.next_due_at == monitor.schedule.next_after(NOON) + timedelta(minutes=10)
    assert state.armed_at == NOON + timedelta(minutes=1)
    assert stored(monitor)["times"] == monitor.schedule.upcoming(NOON, STORED)


def test_a_config_that_was_changed_without_its_slots_is_never_judged_by_them(nightly: Monitor) -> None:
    ping(nightly, NOON)
    Monitor.objects.filter(pk=nightly.pk).update(config=nightly.config | {"timezone": "UTC"})
    assert ping(nightly, NOON + timedelta(hours=1)) == datetime(2026, 3, 1, 14, 40, tzinfo=UTC)
    assert stored(nightly)["timezone"] == "UTC"


def test_other_data_of_time_zones_outdates_what_is_stored(nightly: Monitor) -> None:
    ping(nightly, NOON)
    wrong = [NOON + timedelta(days=300)]
    ScheduleSlots.objects.filter(pk=nightly.pk).update(tzdata="2001.1", times=wrong)
    assert ping(nightly, NOON + timedelta(minutes=1)) == datetime(2026, 3, 1, 13, 40, tzinfo=UTC)
    assert stored(nightly)["tzdata"] == cron.TZDATA_VERSION


def test_without_its_schedule_the_interval_counts_again(nightly: Monitor) -> None:
    ping(nightly, NOON)
    update_monitor(Caller(nightly.owner), nightly.public_id, {"schedule": None}, now=NOON)
    patience = timedelta(seconds=nightly.interval_sec + 600)
    assert state_of(nightly).next_due_at == NOON + patience
    assert ping(nightly, NOON + timedelta(minutes=1)) == NOON + timedelta(minutes=1) + patience


def outdated(monitor: Monitor) -> None:
    """Store slots as computed with another tzdata, an hour late."""
    ScheduleSlots.objects.filter(pk=monitor.pk).update(tzdata="2001.1", times=[NOON + timedelta(hours=3)])
    MonitorState.objects.filter(pk=monitor.pk).update(next_due_at=F("next_due_at") + timedelta(hours=1))


def test_an_update_of_tzdata_recomputes_what_is_due(nightly: Monitor) -> None:
    trigger = MonitorFactory(type="scheduler", schedule="30 14 * * *", timezone="Europe/Berlin")
    ping(nightly, NOON)
    due = [state_of(monitor).next_due_at for monitor in (nightly, trigger)]
    for monitor in (nightly, trigger):
        outdated(monitor)
    recompute(NOON + timedelta(minutes=1))
    assert [state_of(monitor).next_due_at for monitor in (nightly, trigger)] == due
    assert {row.tzdata for row in ScheduleSlots.objects.all()} == {cron.TZDATA_VERSION}
    assert stored(trigger)["times"] == Schedule("30 14 * * *", "Europe/Berlin").upcoming(NOON, STORED)


def test_an_update_of_tzdata_keeps_slots_that_are_due_or_claimed(
    nightly: Monitor,
) -> None:
    overdue, claimed = (MonitorFactory(type="scheduler", schedule="0 * * * *") for _ in range(2))
    ping(nightly, NOON)
    for monitor in (nightly, overdue, claimed):
        outdated(monitor)
    now = NOON + timedelta(hours=2, minutes=1)
    claims = {claim.monitor_id: claim for claim in claim_due(now - timedelta(seconds=1), limit=9)}
    return_claims([claims[overdue.pk].key], now=now)
    recompute(now)
    assert state_of(overdue).next_due_at == NOON + timedelta(hours=2)
    assert state_of(claimed).claimed_at is not None
    tomorrow = datetime(2026, 3, 2, 13, 40, tzinfo=UTC)
    assert state_of(nightly).next_due_at == tomorrow, "its deadline is over by the new data"


def test_slots_without_a_schedule_are_deleted_after_an_update_of_tzdata(nightly: Monitor) -> None:
    ping(nightly, NOON)
    update_monitor(Caller(nightly.owner), nightly.public_id, {"schedule": None}, now=NOON)
    outdated(nightly)
    before = state_of(nightly).next_due_at
    recompute(NOON + timedelta(minutes=1))
    assert not ScheduleSlots.objects.exists()
    assert state_of(nightly).next_due_at == before


@pytest.mark.django_db
def test_the_task_runs() -> None:
    apply_tzdata()


def test_a_muted_heartbeat_that_is_overdue_by_its_schedule_is_failing(nightly: Monitor) -> None:
    ping(nightly, NOON)
    due_at = state_of(nightly).next_due_at
    mute_for([nightly.pk], minutes=600, now=NOON)
    monitor = Monitor.objects.select_related("state").get(pk=nightly.pk)
    assert due_at is not None
    for now, expected in ((due_at, None), (due_at + timedelta(seconds=1), due_at)):
        assert failing_since(monitor, now=now) == expected
        assert Monitor.objects.filter(failing(now)).exists() == (expected is not None)


@pytest.mark.django_db
def test_a_schedule_that_the_new_plan_does_not_allow_ends() -> None:
    owner = UserFactory()
    close, far = (MonitorFactory(owner=owner, heartbeat=True, schedule=f"*/{step} * * * *") for step in (4, 5))
    for monitor in (close, far):
        ping(monitor, NOON)
    owner.plan = PlanFactory(name="free")
    owner.save(update_fields=["plan"])
    with transaction.atomic():
        raise_intervals([owner], owner.plan, now=NOON)
    assert Monitor.objects.get(pk=close.pk).schedule is None
    assert Monitor.objects.get(pk=far.pk).schedule == far.schedule
    assert state_of(close).next_due_at == NOON + timedelta(seconds=300 + 60)
    assert state_of(far).next_due_at == NOON + timedelta(seconds=300 + 60)


@pytest.mark.django_db
def test_a_change_of_plan_puts_no_heartbeat_down() -> None:
    owner = UserFactory()
    busy = MonitorFactory(owner=owner, heartbeat=True, schedule="* 12 * * *", grace_sec=60)
    runs = MonitorFactory(owner=owner, type="scheduler", schedule="* 12 * * *")
    ping(busy, NOON + timedelta(minutes=59))
    owner.plan = PlanFactory(name="free")
    owner.save(update_fields=["plan"])
    evening = NOON + timedelta(hours=6)
    with transaction.atomic():
        raise_intervals([owner], owner.plan, now=evening)
    deadline = evening + timedelta(seconds=300 + 60)
    assert state_of(busy).next_due_at == deadline
    assert state_of(runs).armed_at is None
    sweep_at(deadline)
    assert state_of(busy).status == "up"
    sweep_at(deadline + timedelta(seconds=1))
    assert state_of(busy).status_since == deadline


NIGHT = datetime(2026, 3, 1, 3, 5, tzinfo=UTC)
"""The last ping of a job that runs at 03:00."""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"schedule": "0 4 * * *"}, datetime(2026, 3, 2, 4, tzinfo=UTC)),
        ({"timezone": "America/New_York"}, datetime(2026, 3, 2, 8, tzinfo=UTC)),
        ({"schedule": None, "interval_sec": 3600}, NOON + timedelta(hours=1)),
    ],
    ids=str,
)
def test_another_schedule_puts_no_heartbeat_down(given: dict[str, Any], expected: datetime) -> None:
    monitor = MonitorFactory(heartbeat=True, schedule="0 3 * * *", grace_sec=60)
    ping(monitor, NIGHT)
    edit = partial(update_monitor, Caller(monitor.owner), monitor.public_id)
    edit(given, now=NOON)
    edit({"grace_sec": 120}, now=NOON)
    sweep_at(NOON + timedelta(seconds=1))
    sweep_at(expected + timedelta(seconds=120))
    assert state_of(monitor).status == "up"
    sweep_at(expected + timedelta(seconds=121))
    assert state_of(monitor).status == "down"
    ping(monitor, expected + timedelta(hours=1))
    assert state_of(monitor).armed_at is None


@pytest.mark.django_db
def test_a_rule_of_a_time_zone_that_changes_puts_no_heartbeat_down() -> None:
    monitor = MonitorFactory(heartbeat=True, schedule="0 3 * * *", grace_sec=60)
    ping(monitor, NIGHT)
    # As if the job had run by another rule: by the current one a ping has been expected since.
    MonitorState.objects.filter(pk=monitor.pk).update(last_ping_at=NIGHT - timedelta(hours=1), next_due_at=NOON)
    ScheduleSlots.objects.filter(pk=monitor.pk).update(tzdata="2001.1")
    now = NOON - timedelta(hours=1)
    recompute(now)
    sweep_at(now + timedelta(seconds=1))
    assert state_of(monitor).status == "up"
    assert state_of(monitor).next_due_at == datetime(2026, 3, 2, 3, 1, tzinfo=UTC)


def sweep_at(now: datetime) -> None:
    heartbeats.sweep([claim.monitor_id for claim in claim_due(now, limit=9)], now=now)

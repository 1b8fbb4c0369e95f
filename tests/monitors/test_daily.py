"""Stored days of uptime equal those computed from transitions."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from monitors.models import DailyUptime, Monitor, SchedulerTick, StatusChange
from monitors.selectors import uptimes
from monitors.services import delete_monitor
from monitors.uptime.daily import daily_uptime, daily_uptimes, forget_old_days, leave_out, write_days
from projects.access import Caller
from tests.factories import MonitorFactory, SchedulerGapFactory, StatusChangeFactory, UserFactory
from tests.helpers import NOON, keep_checked, minutes

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
Kind = StatusChange.Kind


def history(now: datetime = NOON, days: int = 10) -> dict[str, list[float | None]]:
    monitors = list(Monitor.objects.select_related("state").order_by("pk"))
    found = daily_uptimes(monitors, days=days, now=now)
    return {monitor.name: found[monitor.pk].percents() for monitor in monitors}


def by_turns(now: datetime = NOON, days: int = 10) -> dict[str, list[float | None]]:
    monitors = Monitor.objects.select_related("state").order_by("pk")
    return {m.name: [day.uptime for day in daily_uptime(m, days=days, now=now)] for m in monitors}


def change(monitor: Monitor, days_ago: float, before: str | None, after: str | None, kind: Kind = Kind.STATUS) -> None:
    StatusChangeFactory(monitor=monitor, at=NOON - days_ago * DAY, before=before, after=after, kind=kind)


def stand(monitor: Monitor, status: str | None, *, enabled: bool = True) -> None:
    Monitor.objects.filter(pk=monitor.pk).update(enabled=enabled)
    monitor.state.status = status
    monitor.state.save(update_fields=["status"])


@pytest.fixture
def user() -> User:
    return UserFactory()


@pytest.fixture
def monitors(user: User) -> list[Monitor]:
    names = ("steady", "wavering", "paused", "young", "unchecked", "was down for days")
    made = {name: MonitorFactory(owner=user, name=name, created_at=NOON - 20 * DAY) for name in names}
    Monitor.objects.filter(name="young").update(created_at=NOON - 2.3 * DAY)
    for name in ("steady", "wavering", "paused", "was down for days"):
        change(made[name], 19, None, "up")
        stand(made[name], "up")
    change(made["wavering"], 6.2, "up", "down")
    change(made["wavering"], 6.1, "down", "slow")
    change(made["wavering"], 0.2, "slow", "down")
    stand(made["wavering"], "down")
    change(made["paused"], 4.5, "up", "up", Kind.PAUSED)
    stand(made["paused"], "up", enabled=False)
    change(made["young"], 2.3, None, "down")
    change(made["young"], 1.1, "down", "up")
    stand(made["young"], "up")
    change(made["was down for days"], 8.5, "up", "down")
    change(made["was down for days"], 3.25, "down", "up")
    SchedulerGapFactory(started_at=NOON - 7 * DAY, ended_at=NOON - 6.5 * DAY)
    keep_checked(NOON + DAY)
    return list(made.values())


def test_they_are_what_the_turns_say_before_and_after_they_are_written(monitors: list[Monitor]) -> None:
    expected = by_turns()
    assert {day for days in expected.values() for day in days} > {None, 100.0}
    assert history() == expected
    assert write_days(NOON) == 90
    assert history() == expected
    assert write_days(NOON) == 2
    assert history() == expected
    assert not DailyUptime.objects.filter(monitor__name="young", day__lt=(NOON - 3 * DAY).date()).exists()


def test_a_change_noted_late_is_counted(monitors: list[Monitor]) -> None:
    write_days(NOON)
    change(monitors[0], 1.75, "up", "down")
    change(monitors[0], 1.5, "down", "up")
    assert history() != by_turns()
    write_days(NOON + minutes(30))
    assert history() == by_turns()


def test_an_outage_that_is_confirmed_later_counts_from_its_first_failure(monitors: list[Monitor]) -> None:
    """Also on days that were stored long before it was confirmed."""
    write_days(NOON)
    monitor = monitors[0]
    began = NOON - 4.25 * DAY
    StatusChangeFactory(monitor=monitor, at=NOON - 0.25 * DAY, before="up", after="down", failing_since=began)
    stand(monitor, "down")
    expected = [100.0] * 5 + [25.0, 0.0, 0.0, 0.0, 0.0]
    assert by_turns()["steady"] == expected
    assert history()["steady"] == expected
    tomorrow = NOON + DAY
    write_days(tomorrow)
    assert history(tomorrow)["steady"] == [*expected[1:], 0.0]
    assert DailyUptime.objects.get(monitor=monitor, day=began.date()).down_ms == 18 * 3_600_000


def test_maintenance_is_left_out_as_it_was(monitors: list[Monitor]) -> None:
    """`steady` was in a window at the end of its outage; the window of `wavering` is deleted while it is on."""
    steady, wavering = monitors[0], monitors[1]
    change(steady, 1.5, "up", "down")
    change(steady, 1.1, "down", "up")
    key = steady.pk, NOON - 1.2 * DAY
    leave_out({key: NOON - DAY}, now=NOON - 1.2 * DAY)
    leave_out({key: NOON - DAY, (wavering.pk, NOON - 0.2 * DAY): NOON + DAY}, now=NOON - 1.1 * DAY)
    leave_out({(wavering.pk, NOON - 0.2 * DAY): NOON + DAY}, now=NOON - 0.9 * DAY)
    observed, down = 1 - 0.2, 0.3
    expected = [*[100.0] * 8, round(100 * (observed - down) / observed, 2), 100.0]
    for write in (None, write_days):
        if write:
            write(NOON)
        assert history()["steady"] == by_turns()["steady"] == expected
        assert history()["wavering"][-1] == by_turns()["wavering"][-1] == 100.0
    leave_out({}, now=NOON - 0.1 * DAY)  # that window is deleted
    assert history()["wavering"][-1] == by_turns()["wavering"][-1] == 75.0
    found = uptimes(list(Monitor.objects.select_related("state")), now=NOON)
    assert found[wavering.pk] == 80.0, "uptime_24h counts maintenance"


def test_days_that_are_not_stored_yet_are_computed_from_transitions(monitors: list[Monitor]) -> None:
    write_days(NOON - 5 * DAY)
    assert history() == by_turns()


def test_the_days_of_a_stop_wait_for_the_tick_that_notes_it(monitors: list[Monitor]) -> None:
    SchedulerTick.objects.create(at=NOON - 3 * DAY)
    write_days(NOON)
    latest = DailyUptime.objects.latest("day").day
    assert latest == (NOON - 4 * DAY).date()
    SchedulerGapFactory(started_at=NOON - 3 * DAY, ended_at=NOON)
    SchedulerTick.objects.update(at=NOON)
    write_days(NOON)
    assert DailyUptime.objects.latest("day").day == (NOON - DAY).date()
    assert history() == by_turns()


def test_sums(monitors: list[Monitor]) -> None:
    write_days(NOON)
    found = daily_uptimes(
        list(Monitor.objects.select_related("state").filter(name="was down for days")), days=10, now=NOON
    )
    (only,) = found.values()
    observed = 9.5 - 0.5  # days; half of the last one, and half a day not observed
    assert only.percent() == pytest.approx(100 * (1 - (5.25 - 0.5) / observed), abs=0.01)
    assert only.percent(2) == 100.0


def test_as_many_queries_however_many_monitors(monitors: list[Monitor]) -> None:
    write_days(NOON)
    loaded = list(Monitor.objects.select_related("state"))
    with CaptureQueriesContext(connection) as captured:
        daily_uptimes(loaded, days=90, now=NOON)
    assert len(captured) == 5


def test_they_go_with_their_monitor_and_with_age(user: User, monitors: list[Monitor]) -> None:
    write_days(NOON)
    delete_monitor(Caller(user), monitors[0].public_id)
    assert not DailyUptime.objects.filter(monitor=monitors[0].pk).exists()
    assert forget_old_days(NOON) == 0
    assert forget_old_days(NOON + 10_000 * DAY) > 0

"""Seeded history: its results, roll-ups and status changes agree."""

from __future__ import annotations

from datetime import timedelta

import pytest

from accounts.models import User
from benchmarks.seeding import seed_history
from checks.results.models import CheckResult, HourlyRollup
from checks.results.rollups import roll_up, rolled_until
from checks.results.series import average_latency
from core.clock import utc_now
from monitors.models import Monitor, MonitorState, StatusChange
from monitors.uptime.daily import daily_uptime
from tests.factories import UserFactory
from tests.helpers import restored_partitions, state_of


@pytest.mark.django_db(transaction=True)
def test_a_past_of_four_days() -> None:
    user = UserFactory()
    with restored_partitions():
        seed_history(user, monitors=3, days=4, interval_sec=300, now=utc_now())
        now = utc_now()
        assert User.objects.count() == 1
        assert CheckResult.objects.count() == 3 * 4 * 288
        downs = CheckResult.objects.filter(verdict="down").count()
        outages = StatusChange.objects.filter(after="down").count()
        assert outages >= 3
        assert outages * 10 - 60 <= downs <= outages * 10
        assert not StatusChange.objects.filter(processed_at=None).exists()
        rolled = HourlyRollup.objects.values_list("up", "slow", "down")
        until = rolled_until()
        assert until is not None
        assert until > now - timedelta(hours=1, minutes=5)
        assert sum(map(sum, rolled)) == CheckResult.objects.filter(checked_at__lt=until).count()
        for monitor in Monitor.objects.select_related("state"):
            days = daily_uptime(monitor, days=5, now=now)
            seconds = sum(day.down_sec for day in days)
            assert seconds == pytest.approx(300 * 10 * sum(day.incidents for day in days), abs=3000)
            assert all(day.avg_latency_ms for day in days[1:])
            assert state_of(monitor).next_due_at is None
            assert average_latency([monitor.pk], since=now - timedelta(days=1))
        assert roll_up(now) == 0


@pytest.mark.django_db(transaction=True)
def test_no_outage_reaches_the_present() -> None:
    """With an outage in 10 of 72 slots, some of 72 monitors would be down at any time."""
    with restored_partitions():
        seed_history(UserFactory(), monitors=72, days=1, interval_sec=3600, now=utc_now())
    assert CheckResult.objects.filter(verdict="down").exists()
    assert not MonitorState.objects.filter(status="down").exists()

"""Nothing is left of a deleted monitor, and other monitors keep their rows."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from django.db import connection

from checks.results import retention
from checks.results.models import CheckResult, DeletedMonitor, HourlyRollup, LateHour
from checks.results.partitions import SERIES, make
from checks.results.retention import erase_deleted
from checks.results.rollups import roll_up
from checks.results.store import NewResult, store_results
from checks.spec import Verdict
from monitors.heartbeats import log
from monitors.heartbeats.incoming import Signal, Target
from monitors.models import Monitor, Ping
from monitors.services import delete_monitor
from projects.access import Caller
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, outcome, run_concurrently

DAY = timedelta(days=1)


def left() -> tuple[set[int], set[int]]:
    """Return the monitors with results or signals, which must be the same, and those with roll-ups."""
    results = CheckResult.objects.values_list("monitor_id", flat=True)
    rolled = HourlyRollup.objects.values_list("monitor_id", flat=True)
    assert set(Ping.objects.values_list("monitor_id", flat=True)) == set(results)
    return set(results), set(rolled)


def fill(*monitors: Monitor) -> None:
    """Store three days in partitions and one in the default partition, rolled up, and a late result."""
    days = [NOON - 9 * DAY, NOON - 2 * DAY, NOON - DAY, NOON]
    for monitor in monitors:
        store_results([NewResult(monitor.pk, n, outcome(Verdict.UP, at=at)) for n, at in enumerate(days, start=2)])
        target = Target(monitor.public_id, Ping.Kind.LOG)
        log.add([log.Entry(monitor.pk, Signal(target, at), at, None) for at in days])
    while roll_up(NOON + DAY):
        pass
    LateHour.objects.bulk_create(LateHour(monitor_id=monitor.pk, hour=NOON) for monitor in monitors)


@pytest.mark.django_db
def test_all_that_is_left_of_a_monitor_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MONITORS_AT_ONCE", 2)
    for series in SERIES:
        make(series, series.wanted(now=NOON))
    user = UserFactory()
    kept, *gone = [MonitorFactory(owner=user, up=True) for _ in range(4)]
    fill(kept, *gone)
    everybody = {monitor.pk for monitor in (kept, *gone)}
    assert left() == (everybody, everybody)
    delete_monitor(Caller(user), gone[0].public_id)
    Monitor.objects.filter(pk=gone[1].pk).delete()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM monitors_monitorstate WHERE monitor_id = %s", [gone[2].pk])
        cursor.execute("DELETE FROM monitors_statuschange WHERE monitor_id = %s", [gone[2].pk])
        cursor.execute("DELETE FROM monitors_monitor WHERE id = %s", [gone[2].pk])
    assert erase_deleted() == 3
    assert left() == ({kept.pk}, {kept.pk})
    assert [late.monitor_id for late in LateHour.objects.all()] == [kept.pk]
    assert not DeletedMonitor.objects.exists()
    assert erase_deleted() == 0
    roll_up(NOON + 2 * DAY)
    assert left() == ({kept.pk}, {kept.pk})


@pytest.mark.usefixtures("restored_partitions")
@pytest.mark.django_db(transaction=True)
def test_two_at_once_beside_roll_ups() -> None:
    user = UserFactory()
    kept, gone = MonitorFactory(owner=user, up=True), MonitorFactory(owner=user, up=True)
    fill(kept, gone)
    HourlyRollup.objects.all().delete()
    LateHour.objects.bulk_create(
        LateHour(monitor_id=monitor_id, hour=NOON - day * DAY) for monitor_id in (kept.pk, gone.pk) for day in (0, 1, 2)
    )
    delete_monitor(Caller(user), gone.public_id)
    run_concurrently(erase_deleted, erase_deleted, *[partial(roll_up, NOON + DAY)] * 3)
    roll_up(NOON + DAY)
    assert left() == ({kept.pk}, {kept.pk})
    assert not LateHour.objects.exists()

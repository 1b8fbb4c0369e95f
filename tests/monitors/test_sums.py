"""Uptime computed by PostgreSQL equals one pass over the transitions."""

from __future__ import annotations

import random
import tracemalloc
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from dashboard.monitors.rows import rows_of
from monitors.models import DailyUptime, Monitor, StatusChange
from monitors.uptime.daily import daily_uptime, daily_uptimes, write_days
from monitors.uptime.intervals import Span, Tally
from monitors.uptime.sums import lengths, sums
from tests.factories import MonitorFactory
from tests.helpers import NOON, examples, keep_checked, minutes
from tests.monitors.tallies import StatusInterval, Transition, by_outage, tally, transitions_since

pytestmark = pytest.mark.django_db
HOURS = 24
STATUSES: list[Any] = ["up", "slow", "down", None]


def at(chance: random.Random) -> datetime:
    return NOON + timedelta(microseconds=chance.randrange(-3_600_000_000, 25 * 3_600_000_000, 250_000_000))


def windows_of(chance: random.Random) -> list[Span]:
    """Return one window, several that follow each other, or several with time between them; the last may be empty."""
    hours = sorted(chance.sample(range(HOURS + 1), chance.choice([2, 2, 5, 12, 24])))
    edges = [NOON + timedelta(hours=hour) for hour in hours]
    windows = [Span(start, end) for start, end in pairwise(edges) if chance.random() < 0.9]
    if chance.random() < 0.2:
        windows.append(Span(edges[-1], edges[-1]))
    return windows or [Span(edges[0], edges[-1])]


def changes_of(chance: random.Random, monitor: Monitor) -> list[StatusChange]:
    times = sorted(at(chance) for _ in range(chance.randrange(9)))
    if chance.random() < 0.3:
        chance.shuffle(times)  # clocks that differ
    return [
        StatusChange(
            monitor=monitor,
            kind=chance.choice(["status", "status", "status", "paused", "resumed", "stale", "checked"]),
            at=time,
            before=chance.choice(STATUSES),
            after=chance.choice(STATUSES),
            failing_since=time - minutes(chance.randrange(300)) if chance.random() < 0.5 else None,
        )
        for time in times
    ]


def silence(chance: random.Random) -> list[Span]:
    starts = [at(chance) for _ in range(chance.choice([0, 0, 1, 2, 5]))]
    return [Span(start, start + minutes(chance.randrange(1, 300))) for start in starts]


@pytest.mark.parametrize("outages", [False, True])
def test_sums_equal_the_tally(outages: bool) -> None:
    monitors = [MonitorFactory() for _ in range(4)]
    for seed in range(examples(60)):
        chance = random.Random(seed)
        StatusChange.objects.all().delete()
        StatusChange.objects.bulk_create(change for monitor in monitors for change in changes_of(chance, monitor))
        windows, common = windows_of(chance), silence(chance)
        silent = {monitor.pk: chance.choice([common, [*common, *silence(chance)]]) for monitor in monitors}
        stale = [(monitor.pk, at(chance), chance.choice(STATUSES)) for monitor in monitors if chance.random() < 0.3]
        found = sums(silent, windows, stale, by_outage=outages)
        transitions = transitions_since(windows[0].start, list(silent))
        began = {pk: (each[0].began if outages else None) or each[0].at for pk, each in transitions.items()}
        if outages:
            transitions = {pk: by_outage(each) for pk, each in transitions.items()}
        for pk, since, status in stale:
            end = Transition(since, StatusInterval(status), StatusInterval(status, paused=True))
            transitions[pk] = [*transitions.get(pk, []), end]
        assert found.keys() == transitions.keys(), seed
        for pk, total in found.items():
            expected = tally(windows, transitions[pk], StatusInterval("up"), silent[pk])
            assert total.tallies == expected, seed
            assert total.began == began.get(pk), seed
        unchanged = tally(windows, [], StatusInterval("up"), common)
        assert lengths(windows, common) == [each.observed for each in unchanged], seed


def flap(monitor: Monitor, count: int) -> None:
    """Let the last minutes before NOON each have a transition."""
    StatusChange.objects.bulk_create(
        StatusChange(
            monitor=monitor, at=NOON - minutes(n), before="down" if n % 2 else "up", after="up" if n % 2 else "down"
        )
        for n in range(count, 0, -1)
    )


def test_no_transition_is_read(django_assert_num_queries: Any) -> None:
    monitor = MonitorFactory()
    flap(monitor, 1_000)
    with django_assert_num_queries(1):
        found = sums({monitor.pk: []}, [Span(NOON - timedelta(hours=24), NOON)], [])
    assert found[monitor.pk].tallies == [Tally(timedelta(hours=24), minutes(500), 500)]


@pytest.mark.parametrize("what", ["days", "api", "rows"])
def test_memory_does_not_grow_with_the_transitions(what: str) -> None:

    def read() -> Any:
        monitor = Monitor.objects.select_related("state", "project").get()
        if what == "rows":
            return rows_of([monitor], now=NOON)[0].uptime
        if what == "api":
            return daily_uptime(monitor, days=90, now=NOON)[-1].uptime
        return daily_uptimes([monitor], days=90, now=NOON)[monitor.pk].percents()[-1]

    flap(MonitorFactory(created_at=NOON - timedelta(days=3)), 4_000)
    keep_checked(NOON)
    assert read() == 50.0
    tracemalloc.start()
    try:
        read()
        assert tracemalloc.get_traced_memory()[1] < 500_000  # 4,000 transitions take 2 MB
    finally:
        tracemalloc.stop()


def test_one_old_outage_does_not_extend_the_days_of_other_monitors() -> None:
    """Otherwise a muted monitor that fails for months would make each reader compute all days of an account again."""
    long_ago = NOON - timedelta(days=80)
    flapping, failing = MonitorFactory(created_at=long_ago), MonitorFactory(created_at=long_ago)
    flap(flapping, 3_000)
    keep_checked(NOON)
    write_days(NOON)
    stored = DailyUptime.objects.get(monitor=flapping, day=(NOON - timedelta(days=1)).date())
    StatusChange.objects.create(
        monitor=failing, at=NOON - minutes(5), before="up", after="down", failing_since=NOON - timedelta(days=70)
    )
    StatusChange.objects.filter(monitor=flapping, at__lt=NOON - timedelta(hours=13)).delete()
    found = daily_uptimes(list(Monitor.objects.select_related("state")), days=90, now=NOON)
    assert found[failing.pk].percents()[-70:] == [0.0] * 70
    assert found[flapping.pk].down_ms[-2] == stored.down_ms, "the stored row"

"""Uptime that PostgreSQL adds up is what the pure function says."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from monitors.models import StatusChange
from monitors.selectors import transitions_since
from monitors.uptime.intervals import Span, StatusInterval, Tally, Transition, tally
from monitors.uptime.sums import sums
from tests.factories import MonitorFactory
from tests.helpers import NOON, examples, minutes

pytestmark = pytest.mark.django_db
WINDOW = Span(NOON, NOON + timedelta(hours=24))


def at(chance: random.Random) -> datetime:
    return NOON + timedelta(microseconds=chance.randrange(-3_600_000_000, 25 * 3_600_000_000, 250_000_000))


def test_sums_equal_the_tally() -> None:
    monitor = MonitorFactory()
    for seed in range(examples(60)):
        chance = random.Random(seed)
        times = sorted(at(chance) for _ in range(chance.randrange(1, 9)))
        if chance.random() < 0.3:
            chance.shuffle(times)  # clocks that differ
        StatusChange.objects.all().delete()
        statuses: list[Any] = ["up", "slow", "down", None]
        StatusChange.objects.bulk_create(
            StatusChange(
                monitor=monitor,
                kind=chance.choice(["status", "status", "status", "paused", "resumed", "stale", "checked"]),
                at=time,
                before=chance.choice(statuses),
                after=chance.choice(statuses),
            )
            for time in times
        )
        gaps = [Span(start, start + minutes(chance.randrange(1, 300))) for start in (at(chance), at(chance))]
        gaps = chance.choice([[], gaps])
        stale = [(monitor.pk, at(chance), chance.choice(statuses))] if chance.random() < 0.3 else []
        transitions = transitions_since(WINDOW.start, [monitor.pk]).get(monitor.pk, [])
        for _, since, status in stale:
            transitions = [
                *transitions, Transition(since, StatusInterval(status), StatusInterval(status, paused=True))
            ]  # fmt: skip
        expected = tally([WINDOW], transitions, StatusInterval("up"), gaps)[0]
        found = sums([monitor.pk], WINDOW, gaps, stale)
        wanted = {monitor.pk: Tally(expected.observed, expected.down)} if transitions else {}
        assert found == wanted, seed


def test_no_transition_is_read(django_assert_num_queries: Any) -> None:
    monitor = MonitorFactory()
    StatusChange.objects.bulk_create(
        StatusChange(
            monitor=monitor, at=NOON + minutes(n), before="down" if n % 2 else "up", after="up" if n % 2 else "down"
        )
        for n in range(1_000)
    )
    with django_assert_num_queries(1):
        found = sums([monitor.pk], WINDOW, [], [])
    assert found == {monitor.pk: Tally(timedelta(hours=24), minutes(500))}

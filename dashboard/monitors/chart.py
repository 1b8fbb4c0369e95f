"""Data for a monitor's latency chart: a limited number of points, and the outages in the range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q

from checks.results.hours import HOUR
from checks.results.series import Point, exact_series, rolled_series
from core.clock import EPOCH, to_ms
from incidents.selectors import list_incidents
from monitors.models import Monitor
from projects.access import Caller

MINUTE = timedelta(minutes=1)
MAX_OUTAGES = 200


class Range(NamedTuple):
    """A time range. `exact`: computed from results, which have percentiles, instead of roll-ups."""

    title: str
    length: timedelta
    step: timedelta
    exact: bool


RANGES = {
    "1h": Range("1 hour", HOUR, MINUTE, exact=True),
    "24h": Range("24 hours", 24 * HOUR, 15 * MINUTE, exact=True),
    "7d": Range("7 days", 7 * 24 * HOUR, HOUR, exact=True),
    "30d": Range("30 days", 30 * 24 * HOUR, 2 * HOUR, exact=False),
    "90d": Range("90 days", 90 * 24 * HOUR, 6 * HOUR, exact=False),
}
USUAL = "24h"
MAX_INTERVAL = timedelta(days=1_000)
EXACT_LINES = ("mean", "p50", "p95", "p99", "ttfb", "connect")
ROLLED_LINES = ("mean", "least", "most")


def latencies(caller: Caller, monitor: Monitor, name: str, *, now: datetime) -> dict[str, Any]:
    """Return data for JSON: `x` in epoch seconds, `lines` in ms by name. Nulls interrupt a line.

    `loss` is in percent; it is there if a check of that time measured it.
    """
    span = RANGES[name]
    since = EPOCH + (now - span.length - EPOCH) // span.step * span.step
    series = (exact_series if span.exact else rolled_series)(monitor.pk, since=since, step=span.step)
    # A longer distance of two points means a missed check.
    max_distance = max(span.step, min(monitor.shortest_interval, MAX_INTERVAL)) * 2.1
    points = list(_interrupted(series.points, max_distance=max_distance))
    lines = EXACT_LINES if span.exact else ROLLED_LINES
    loss = None if series.whole.loss is None else [point.loss for point in points]
    return {
        "range": name,
        "title": span.title,
        "from": to_ms(since) // 1000,
        "until": to_ms(now) // 1000,
        "x": [to_ms(point.at) // 1000 for point in points],
        "lines": {line: [getattr(point, line) for point in points] for line in lines},
        "whole": {line: getattr(series.whole, line) for line in (*lines, "loss")},
        "loss": loss,
        "outages": _outages(caller, monitor, since=since),
    }


def _interrupted(points: Sequence[Point], *, max_distance: timedelta) -> Iterator[Point]:
    before: Point | None = None
    for point in points:
        if before is not None and point.at - before.at > max_distance:
            yield Point(before.at + (point.at - before.at) / 2, None, None, None)
        yield point
        before = point


def _outages(caller: Caller, monitor: Monitor, *, since: datetime) -> list[dict[str, Any]]:
    """Return the outages, newest first. `until` is null for an open one."""
    found = (
        list_incidents(caller, monitor_id=monitor.public_id)
        .filter(Q(resolved_at=None) | Q(resolved_at__gt=since))
        .order_by("-started_at")
        .values_list("public_id", "started_at", "resolved_at")[:MAX_OUTAGES]
    )
    return [
        {"id": public_id, "from": to_ms(start) // 1000, "until": end and to_ms(end) // 1000}
        for public_id, start, end in found
    ]

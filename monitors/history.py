"""What a monitor's past looks like: its results, and each day's share of uptime."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from checks.selectors import daily_latency
from monitors.models import Monitor
from monitors.selectors import gaps_since, left_out_since, standing_of, turns_since
from monitors.uptime import by_outage, tally, utc_days

MAX_DAYS = 90


@dataclass(frozen=True, slots=True)
class Day:
    """A day of UTC. `uptime` in percent, None with nothing observed; `down_sec` of the observed time."""

    date: date
    uptime: float | None
    down_sec: int
    incidents: int
    avg_latency_ms: float | None


def daily_uptime(monitor: Monitor, *, days: int, now: datetime) -> list[Day]:
    """Return the last `days` days of UTC, oldest first, in five queries: outages from their first failed check on,
    maintenance left out.
    """
    windows = utc_days(days, now=now)
    start = windows[0].start
    latencies = daily_latency(monitor.pk, since=start)
    turns = by_outage(turns_since(start, [monitor.pk])[monitor.pk])
    left_out = left_out_since(start, [monitor.pk])[monitor.pk]
    tallies = tally(windows, turns, standing_of(monitor), [*gaps_since(start), *left_out])
    return [
        Day(
            date=window.start.date(),
            uptime=tallied.percent,
            down_sec=round(tallied.down.total_seconds()),
            incidents=tallied.incidents,
            avg_latency_ms=latencies.get(window.start.date()),
        )
        for window, tallied in zip(windows, tallies, strict=True)
    ]

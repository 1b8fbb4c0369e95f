"""Uptime by day, stored as a row per monitor and day for pages that show many monitors over many days.

A row has both definitions of uptime. Status pages and the API's days: outages begin with their first failed check, and
maintenance is excluded. Uptime by status, as `uptime_24h`: time in status down, and maintenance counts. Rows are
written after midnight UTC. Each run rewrites the last days, since a change may be recorded with a past time. Later days
are computed when they are read, so pages are current.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import zip_longest
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from checks.results.series import daily_latency
from core.bulk import array
from core.db import try_advisory_lock
from monitors.models import DailyUptime, MaintenanceSpan, Monitor, UptimeProgress
from monitors.selectors import gaps_since, last_tick, left_out_since, uptime_sums
from monitors.stale import STALE_COLUMNS, load_schedules
from monitors.uptime.intervals import Span, Tally, percent
from monitors.uptime.sums import Sums

DAY = timedelta(days=1)
WRITTEN_ANEW = 2
"""Days. No change is recorded later than that: results of old claims are dropped, and a claim lasts minutes."""
BACKFILL = 90
MAX_DAYS = 90
MONITORS_AT_ONCE = 1_000
LOCK = "daily uptime"
LEFT_OUT_LOCK = "maintenance left out"

_MS = timedelta(milliseconds=1)

# The share lock prevents the deletion of a monitor between the read and the insert that references it.
_WRITE = """
    INSERT INTO monitors_dailyuptime AS stored
           (monitor_id, day, observed_ms, down_ms, outages, status_observed_ms, status_down_ms)
    SELECT given.*
      FROM unnest(%s::bigint[], %s::date[], %s::int[], %s::int[], %s::int[], %s::int[], %s::int[])
           AS given (monitor_id, day, observed_ms, down_ms, outages, status_observed_ms, status_down_ms)
      JOIN monitors_monitor AS monitor ON monitor.id = given.monitor_id
     ORDER BY given.day, given.monitor_id
       FOR KEY SHARE OF monitor
    ON CONFLICT (monitor_id, day) DO UPDATE
       SET (observed_ms, down_ms, outages, status_observed_ms, status_down_ms) = ROW (
               excluded.observed_ms, excluded.down_ms, excluded.outages,
               coalesce(excluded.status_observed_ms, stored.status_observed_ms),
               coalesce(excluded.status_down_ms, stored.status_down_ms))
     WHERE (stored.observed_ms, stored.down_ms, stored.outages) IS DISTINCT FROM
           (excluded.observed_ms, excluded.down_ms, excluded.outages)
        OR (stored.status_observed_ms, stored.status_down_ms) IS DISTINCT FROM
           (coalesce(excluded.status_observed_ms, stored.status_observed_ms),
            coalesce(excluded.status_down_ms, stored.status_down_ms))
"""
_READ = """
    SELECT monitor_id,
           array_agg(day - %(start)s ORDER BY day),
           array_agg(observed_ms ORDER BY day),
           array_agg(down_ms ORDER BY day),
           array_agg(coalesce(status_observed_ms, observed_ms) ORDER BY day),
           array_agg(coalesce(status_down_ms, down_ms) ORDER BY day)
      FROM monitors_dailyuptime
     WHERE monitor_id = ANY (%(ids)s) AND day >= %(start)s AND day < %(end)s
     GROUP BY monitor_id
"""


@dataclass(frozen=True, slots=True)
class Day:
    """A UTC day. `uptime` is in percent, or None if nothing was observed; `down_sec` is part of the observed time."""

    date: date
    uptime: float | None
    down_sec: int
    incidents: int
    avg_latency_ms: float | None


@dataclass(frozen=True, slots=True)
class History:
    """UTC days from `start` to today: the observed milliseconds of each day, and how many of those were down.

    Those of `by_status` are by the definition of `uptime_24h`, so that its uptime and that of 24 hours agree.
    """

    start: date
    observed_ms: Sequence[int]
    down_ms: Sequence[int]
    by_status: History | None = None

    def percents(self) -> list[float | None]:
        """Return the uptime of each day in percent with two decimals, or None if nothing was observed."""
        return list(map(percent, self.observed_ms, self.down_ms))

    def percent(self, days: int | None = None) -> float | None:
        """Return the uptime of the last `days` days together, or of all, in percent; None if nothing was observed."""
        last = slice(None if days is None else -days, None)
        return percent(sum(self.observed_ms[last]), sum(self.down_ms[last]))


def daily_uptimes(
    monitors: Sequence[Monitor],
    *,
    days: int,
    now: datetime,
    with_status: bool = False,
    gaps: Sequence[Span] | None = None,
) -> dict[int, History]:
    """Return the history of each monitor by its key, and that `by_status` on request. The states must be loaded.

    It takes five queries for any number of monitors and days, one more with those by status, and two more for each day
    before the stored ones end on which an outage began that was confirmed later. `gaps`, if the caller has them, are
    what `gaps_since` returns for the first day or an earlier time.
    """
    today = _day_of(now)
    start = today - timedelta(days=days - 1)
    until = max(min(_written_until() or start, today), start)
    gaps = gaps_since(_start(start)) if gaps is None else gaps
    latest = _tallies(monitors, until, today + DAY, earliest=start, now=now, gaps=gaps)
    latest_by_status = _tallies_by_status(monitors, until, today + DAY, now=now, gaps=gaps) if with_status else {}
    with connection.cursor() as cursor:
        cursor.execute(_READ, {"ids": [monitor.pk for monitor in monitors], "start": start, "end": until})
        known = {monitor_id: columns for monitor_id, *columns in cursor.fetchall()}
    stored = (until - start).days

    def history(
        offsets: Sequence[int], observed: Sequence[int], down: Sequence[int], tallies: Sequence[Tally], **more: Any
    ) -> History:
        first = days - len(tallies)
        return History(
            start,
            [*_spread(offsets, observed, stored)[:first], *(one.observed // _MS for one in tallies)],
            [*_spread(offsets, down, stored)[:first], *(one.down // _MS for one in tallies)],
            **more,
        )

    found: dict[int, History] = {}
    for monitor in monitors:
        offsets, observed, down, status_observed, status_down = known.get(monitor.pk, ((), (), (), (), ()))
        by_status = latest_by_status.get(monitor.pk)
        found[monitor.pk] = history(
            offsets,
            observed,
            down,
            latest[monitor.pk],
            by_status=None if by_status is None else history(offsets, status_observed, status_down, by_status),
        )
    return found


def daily_uptime(monitor: Monitor, *, days: int, now: datetime) -> list[Day]:
    """Return the last `days` UTC days, oldest first, in four queries.

    Outages begin with their first failed check, and maintenance is excluded.
    """
    today = _day_of(now)
    start = today - timedelta(days=days - 1)
    latencies = daily_latency(monitor.pk, since=_start(start))
    gaps = gaps_since(_start(start))
    tallies = _tallies([monitor], start, today + DAY, earliest=start, now=now, gaps=gaps)[monitor.pk]
    return [
        Day(
            date=day,
            uptime=tallied.percent,
            down_sec=round(tallied.down.total_seconds()),
            incidents=tallied.incidents,
            avg_latency_ms=latencies.get(day),
        )
        for day, tallied in zip((start + timedelta(days=n) for n in range(days)), tallies, strict=True)
    ]


def _tallies(
    monitors: Sequence[Monitor], start: date, end: date, *, earliest: date, now: datetime, gaps: Sequence[Span]
) -> dict[int, list[Tally]]:
    """Return the tallies of the days until before `end`, by monitor: from `start`, or from an earlier day on which the
    first outage since then began, but not before `earliest`. `gaps` are those since `earliest`.

    Outages that began earlier were also confirmed earlier, and are in the stored rows.
    """

    def read(some: Sequence[Monitor], first: date) -> dict[int, Sums]:
        windows = _spans(first, end, now)
        left_out = left_out_since(windows[0].start, [monitor.pk for monitor in some])
        return uptime_sums(some, windows, now=now, left_out=left_out, by_outage=True, gaps=gaps)

    found = read(monitors, start)
    longer: dict[date, list[Monitor]] = defaultdict(list)
    for monitor in monitors:
        began = found[monitor.pk].began
        if began is not None and _day_of(began) < start and start > earliest:
            longer[max(_day_of(began), earliest)].append(monitor)
    for first, some in longer.items():
        found |= read(some, first)
    return {pk: total.tallies for pk, total in found.items()}


def _tallies_by_status(
    monitors: Sequence[Monitor], start: date, end: date, *, now: datetime, gaps: Sequence[Span]
) -> dict[int, list[Tally]]:
    """Return the tallies of the days from `start` until before `end`, by monitor, as `uptime_24h` counts."""
    found = uptime_sums(monitors, _spans(start, end, now), now=now, gaps=gaps)
    return {pk: total.tallies for pk, total in found.items()}


def _spread(offsets: Sequence[int], values: Sequence[int], length: int) -> Sequence[int]:
    """Return `length` days with the values at their offsets, 0 elsewhere."""
    if len(values) == length:
        return values
    days = [0] * length
    for offset, value in zip(offsets, values, strict=True):
        days[offset] = value
    return days


def write_days(now: datetime) -> int:
    """Write past days, and rewrite the last of them. Return how many. Does nothing while another process does it.

    A day is over once the scheduler has run after it: the first run records the gap in which it was stopped.
    """
    ticked = last_tick()
    end = _day_of(now if ticked is None else min(now, ticked))
    written = _written_until()
    start = end - timedelta(days=BACKFILL) if written is None else written - timedelta(days=WRITTEN_ANEW)
    if start >= end:
        return 0
    last_id = 0
    while True:
        with transaction.atomic():
            if not try_advisory_lock(LOCK):
                return 0
            # Read before the transitions: a change between the two reads then appears as a transition.
            monitors = list(
                Monitor.objects.filter(pk__gt=last_id)
                .select_related("state")
                .only("created_at", *STALE_COLUMNS, "state__status")
                .order_by("pk")[:MONITORS_AT_ONCE]
            )
            load_schedules(monitors)
            _write(monitors, start, end, now=now)
        if len(monitors) < MONITORS_AT_ONCE:
            break
        last_id = monitors[-1].pk
    with transaction.atomic():
        progress, _ = UptimeProgress.objects.select_for_update().get_or_create(id=1)
        if progress.written_until is None or progress.written_until < end:
            progress.written_until = end
            progress.save(update_fields=["written_until"])
    return (end - start).days


def leave_out(spans: Mapping[tuple[int, datetime], datetime], *, now: datetime) -> None:
    """Store the active maintenance: the planned end by monitor and start. Stored periods absent from `spans` end now.

    Only changes are written.
    """
    with transaction.atomic():
        if not try_advisory_lock(LEFT_OUT_LOCK):
            return
        active = MaintenanceSpan.objects.filter(ended_at__gt=now)
        noted = {(span.monitor_id, span.started_at): span.ended_at for span in active}
        changed = {key: end for key, end in spans.items() if noted.get(key) != end}
        changed |= {key: now for key in noted if key not in spans}
        MaintenanceSpan.objects.bulk_create(
            (
                MaintenanceSpan(monitor_id=monitor_id, started_at=started_at, ended_at=ended_at)
                for (monitor_id, started_at), ended_at in changed.items()
            ),
            update_conflicts=True,
            unique_fields=["monitor", "started_at"],
            update_fields=["ended_at"],
            batch_size=1_000,
        )


def forget_old_days(now: datetime) -> int:
    """Delete days older than the retained hourly roll-ups, and their maintenance periods. Return how many rows."""
    before = _day_of(now) - timedelta(days=settings.ROLLUPS_KEPT_DAYS)
    MaintenanceSpan.objects.filter(ended_at__lt=_start(before)).delete()
    deleted, _ = DailyUptime.objects.filter(day__lt=before).delete()
    return deleted


def _write(monitors: Sequence[Monitor], start: date, end: date, *, now: datetime) -> None:
    """Write the days from `start` until before `end`, and earlier ones that an outage changed."""
    earliest = min(start, end - timedelta(days=BACKFILL))
    gaps = gaps_since(_start(earliest))
    tallies = _tallies(monitors, start, end, earliest=earliest, now=now, gaps=gaps)
    by_status = _tallies_by_status(monitors, start, end, now=now, gaps=gaps)
    rows = [
        (
            *(monitor.pk, day, one.observed // _MS, one.down // _MS, one.incidents),
            *(status and status.observed // _MS, status and status.down // _MS),
        )
        for monitor in monitors
        for back, (one, status) in enumerate(
            zip_longest(reversed(tallies[monitor.pk]), reversed(by_status[monitor.pk])), start=1
        )
        if _start((day := end - timedelta(days=back)) + DAY) > monitor.created_at
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(_WRITE, [array(values) for values in zip(*rows, strict=True)])


def _written_until() -> date | None:
    return UptimeProgress.objects.values_list("written_until", flat=True).first()


def _day_of(moment: datetime) -> date:
    return moment.astimezone(UTC).date()


def _start(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _spans(start: date, end: date, now: datetime) -> list[Span]:
    """Return the UTC days from `start` until before `end`. None ends after `now`."""
    starts = [_start(start + timedelta(days=n)) for n in range((end - start).days)]
    return [Span(at, max(at, min(at + DAY, now))) for at in starts]

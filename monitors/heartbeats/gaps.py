"""Move the deadlines of heartbeats by the time in which their pings could not reach us, by evidence of our own.

The evidence is a canary ping that fails (`monitors.heartbeats.canary`), missing reports of web processes, or a
scheduler that did not run. Silent heartbeats are not evidence: accounts could fake them. See docs/adr/0039.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max, QuerySet

from core.db import advisory_lock
from core.metrics import LEVEL_KEPT_SEC, ProcessReports
from monitors import types
from monitors.models import Canary, PingGap, SchedulerGap

logger = logging.getLogger(__name__)

DAY = timedelta(days=1)
HELD_BACK_FOR = timedelta(hours=1)
"""How long deadlines are held back in a day, in all gaps together."""
CONFIRMED_WITHIN = timedelta(seconds=15)
"""How long the judgement of a missed deadline may wait for evidence that a ping would have arrived."""
FORGOTTEN_AFTER = timedelta(minutes=2)
"""Attempts of the canary that ended earlier no longer count as evidence."""
UNKNOWN = timedelta(seconds=30)
"""In a longer time between two successes of the canary, it is unknown whether pings arrived."""
LATE_REPORT_SEC = 3.0
_PAST = (PingGap, SchedulerGap)
WEB = "No web process reports."
STOP = "The scheduler did not run."

# The deadline of a heartbeat, which slot_at keeps while it is claimed or held back.
_DUE = """
    CASE WHEN state.claimed_at IS NOT NULL OR state.armed_at = gap.held_until
         THEN state.slot_at ELSE state.next_due_at END
"""
# Deadlines that fell into the gap.
_AFFECTED = f"""
      FROM monitors_monitorstate AS state
      JOIN monitors_monitor AS monitor ON monitor.id = state.monitor_id
      LEFT JOIN monitors_pinggap AS gap ON gap.ended_at IS NULL
     CROSS JOIN LATERAL (SELECT {_DUE}) AS due (at)
     WHERE monitor.type = ANY(%(types)s::text[])
       AND monitor.enabled
       AND state.next_due_at >= %(start)s
       AND due.at BETWEEN %(start)s AND %(end)s
       AND (state.status IS DISTINCT FROM 'down' OR state.passes > 0)
"""  # noqa: S608

_AFFECTED_KEYS = f"SELECT state.monitor_id {_AFFECTED}"

# Locked in key order, as always.
_MOVE = f"""
    WITH late AS (
        SELECT state.monitor_id, monitor.muted_until, due.at + (%(end)s - %(start)s) AS due_at
        {_AFFECTED}
         ORDER BY state.monitor_id
           FOR NO KEY UPDATE OF state
    )
    UPDATE monitors_monitorstate AS state
       SET armed_at = late.due_at, next_due_at = greatest(late.due_at, late.muted_until), claimed_at = NULL
      FROM late
     WHERE state.monitor_id = late.monitor_id
"""  # noqa: S608


class Evidence:
    """Whether pings of jobs can arrive at `now`: the open gap, which postpones deadlines, and the canary's last ping.

    `is_awaited` returns whether a canary ping sent after a missed deadline may still show a gap.
    """

    def __init__(self, now: datetime) -> None:
        self._now = now
        gap = PingGap.objects.filter(ended_at=None).first()
        self.gap = gap if gap is not None and now < gap.held_until else None
        canary = _running(now).first() if gap is None else None
        self._ok_at = None if canary is None else canary.ping_ok_at

    def is_awaited(self, due_at: datetime) -> bool:
        if self._now > due_at + CONFIRMED_WITHIN:
            return False
        return _web.silent_sec > LATE_REPORT_SEC or (self._ok_at is not None and self._ok_at < due_at)


class _WebReports:
    """When the reports of web processes last changed, by this process's clock: theirs may differ."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_at = 0.0
        self._changed: float | None = None

    def note(self, reports: ProcessReports) -> None:
        with self._lock:
            if not reports.last_at:  # none since the broker was flushed
                self._changed = None
            elif reports.last_at != self._last_at or self._changed is None:
                self._last_at, self._changed = reports.last_at, time.monotonic()

    @property
    def silent_sec(self) -> float:
        """Return for how long no web process has reported, or 0 if that is unknown."""
        with self._lock:
            return 0.0 if self._changed is None else time.monotonic() - self._changed


_web = _WebReports()


def watch(now: datetime, web: ProcessReports) -> None:
    """Begin a gap if web processes have stopped reporting. End the open gap if its evidence is gone."""
    _web.note(web)
    gap = PingGap.objects.filter(ended_at=None).first()
    last_at = datetime.fromtimestamp(web.last_at, UTC)
    if gap is None:
        # A canary that runs knows more: a web process may be unable to report, and answer.
        if _web.silent_sec > LEVEL_KEPT_SEC and not _running(now).exists():
            with transaction.atomic():
                begin(min(last_at, now), WEB, now=now)
        return
    canary = Canary.objects.first()
    if now >= gap.started_at + DAY:
        # It fails for another reason than a lost way of pings. It has to succeed before it counts again.
        Canary.objects.update(ping_ok_at=None)
        end(now)
    elif gap.reason == WEB:
        if web.last_at and last_at > gap.started_at and (canary is None or canary.ping_failing_since is None):
            end(now)
    elif canary is not None and canary.answered_at is not None and canary.answered_at < now - FORGOTTEN_AFTER:
        end(max(canary.answered_at, gap.started_at))


def unreachable_until(since: datetime, *, now: datetime) -> datetime | None:
    """Return when the last gap or stop since `since` ended: `now` while one is open, None if there was none.

    A gap that no longer holds back deadlines counts as over.
    """
    if PingGap.objects.filter(ended_at=None, held_until__gt=now).exists():
        return now
    ends = [model.objects.filter(ended_at__gt=since).aggregate(at=Max("ended_at"))["at"] for model in _PAST]
    return max(filter(None, ends), default=None)


def begin(start: datetime, reason: str, *, now: datetime) -> None:
    """Begin a gap, unless one is open, in the transaction of its evidence. It begins after the last known stop."""
    advisory_lock("ping gap")
    if PingGap.objects.filter(ended_at=None).exists():
        return
    gap = PingGap.objects.create(started_at=_after_stops(start, now), held_until=_hold(now), reason=reason)
    message = "pings do not reach us: %s Missed deadlines are held back until %s"
    transaction.on_commit(lambda: logger.error(message, reason, gap.held_until))


def end(at: datetime) -> None:
    """End the open gap, if any, and move the deadlines that fell into it."""
    with transaction.atomic():
        # Another process may be at it.
        gap = PingGap.objects.select_for_update(skip_locked=True).filter(ended_at=None).first()
        if gap is None:
            return
        ended_at = max(at, gap.started_at)
        moved = move_deadlines(gap.started_at, ended_at)
        gap.ended_at = ended_at
        gap.save(update_fields=["ended_at"])
    logger.warning("pings reach us again after %s: %d deadlines were moved", ended_at - gap.started_at, moved)


def note_stop(start: datetime, end: datetime) -> None:
    """Move the deadlines that fell into a short stop of the scheduler, unless an open gap does so when it ends."""
    _note(start, end, STOP)


def note_unknown(start: datetime, end: datetime) -> None:
    """Move the deadlines that fell between two pings of our own, in a time in which none could be stored.

    What is past the last known stop or gap in that time has moved already.
    """
    start = _after_stops(start, end)
    past = PingGap.objects.filter(ended_at__gt=start).order_by("-ended_at").first()
    start = start if past is None or past.ended_at is None else past.ended_at
    if end - start > UNKNOWN:
        _note(start, end, "No ping of our own could be stored.")


def _note(start: datetime, end: datetime, reason: str) -> None:
    if PingGap.objects.filter(ended_at=None).exists() or _hold(end) < end + (end - start):
        return
    PingGap.objects.create(started_at=start, held_until=end, ended_at=end, reason=reason)
    move_deadlines(start, end)


def _after_stops(start: datetime, now: datetime) -> datetime:
    """Return the end of the last stop of the scheduler since `start`, or `start` without one."""
    stopped = SchedulerGap.objects.filter(ended_at__gt=start, ended_at__lte=now).order_by("-ended_at").first()
    return start if stopped is None else stopped.ended_at


def _running(now: datetime) -> QuerySet[Canary]:
    """Return the canary if its pings are evidence: one succeeded at this BASE_URL, and it does not rest."""
    known = Canary.objects.filter(base_url=settings.BASE_URL, ping_ok_at__isnull=False)
    return known.filter(answered_at__gt=now - FORGOTTEN_AFTER)


def _hold(now: datetime) -> datetime:
    """Return until when deadlines may be held back from `now` on."""
    past = PingGap.objects.filter(ended_at__gt=now - DAY)
    return held_until([(gap.started_at, min(gap.ended_at or now, gap.held_until)) for gap in past], now=now)


def held_until(past: Collection[tuple[datetime, datetime]], *, now: datetime) -> datetime:
    """Return until when deadlines are held back. `past`: the earlier times in which they were held back."""
    used = sum((max(timedelta(), end - max(start, now - DAY)) for start, end in past), timedelta())
    return now + max(timedelta(), HELD_BACK_FOR - used)


def affected(start: datetime, end: datetime) -> list[int]:
    """Return the heartbeats whose deadlines `move_deadlines` would move."""
    with connection.cursor() as cursor:
        cursor.execute(_AFFECTED_KEYS, _span(start, end))
        return [key for (key,) in cursor.fetchall()]


def move_deadlines(start: datetime, end: datetime) -> int:
    """Move the deadlines that fell between `start` and `end` by that time. Return their number."""
    with connection.cursor() as cursor:
        cursor.execute(_MOVE, _span(start, end))
        return int(cursor.rowcount)


def _span(start: datetime, end: datetime) -> dict[str, Any]:
    return {"types": types.waiting(), "start": start, "end": end}

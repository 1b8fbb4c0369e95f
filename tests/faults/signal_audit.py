"""Compare the stored signals with those that the jobs sent. Import it after Django is set up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from monitors.models import Ping
from tests.faults.heartbeat_jobs import MAX_BODY_BYTES, Attempt
from tests.faults.monitor_audit import Audit
from tests.faults.tenant import MonitoredPart

MILLISECOND = timedelta(milliseconds=1)


def audit_signals(audit: Audit, fleet: Sequence[MonitoredPart], attempts: Mapping[int, Sequence[Attempt]]) -> int:
    """Check that answered signals are stored once and as sent, and their durations. Return the number stored."""
    stored: dict[int, list[Ping]] = defaultdict(list)
    for ping in Ping.objects.order_by("monitor_id", "at", "id"):
        stored[ping.monitor_id].append(ping)
    for watched in fleet:
        if watched.part.kind == "heartbeat":
            found = stored[watched.monitor_id]
            _stored_once(audit, watched, found, attempts[watched.part.number])
            _durations(audit, watched, found)
    return sum(map(len, stored.values()))


def _stored_once(audit: Audit, watched: MonitoredPart, found: Sequence[Ping], attempts: Sequence[Attempt]) -> None:
    by_name: dict[str, list[Ping]] = defaultdict(list)
    for ping in found:
        by_name[ping.user_agent].append(ping)
    for attempt in attempts:
        rows = by_name.pop(attempt.name, [])
        if len(rows) > 1 or (attempt.ok and not rows):
            text = f"{attempt.name} ({attempt.kind}, answered: {attempt.ok}) is stored {len(rows)} times"
            audit.report("lost_signals", watched, attempt.sent - audit.start, text)
        for row in rows:
            sent = attempt.body.encode()[:MAX_BODY_BYTES].decode(errors="replace") or None
            body = None if row.body_dropped else sent
            rid = None if row.rid is None else str(row.rid)
            if (row.kind, rid, row.body) != (attempt.kind, attempt.rid, body):
                text = f"{attempt.name} was sent as {attempt.kind} {attempt.rid}, stored as {row.kind} {rid}"
                audit.report("lost_signals", watched, attempt.sent - audit.start, text)
    for name in by_name:
        audit.report("lost_signals", watched, audit.end, f"{name} is stored, but was not sent")


def _durations(audit: Audit, watched: MonitoredPart, found: Sequence[Ping]) -> None:
    """Check that each end has the duration since the start with its id, or since the last start without one."""
    started: dict[object, datetime] = {}
    for ping in found:
        if ping.kind == Ping.Kind.START:
            started[ping.rid] = ping.at
        elif ping.kind != Ping.Kind.LOG:
            start = started.pop(ping.rid, None)
            expected = None if start is None else (ping.at - start) // MILLISECOND
            if ping.duration_ms != expected:
                text = f"{ping.user_agent} took {ping.duration_ms} ms, but {expected} is right"
                audit.report("wrong_durations", watched, ping.at.timestamp() - audit.start, text)

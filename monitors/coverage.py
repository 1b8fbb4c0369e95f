"""Coverage: the share of monitors with a result, of those that have one due by their interval or schedule.

It is computed from stored results, at the time of the database. The state of the scheduler (claims, `next_due_at`,
faults) is not used, so coverage drops regardless of why results are missing. Only monitors whose private locations are
all offline lack none: those who run the locations are notified, and not the operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg

from checks.agent_protocol import OFFLINE_SEC
from monitors import types
from monitors.cron import TZDATA_VERSION
from monitors.slots import next_slot_sql
from monitors.stale import ALL_PRIVATE_SQL

LATE_SEC = 15
"""How much later than interval and timeout a check may end: it waits for a worker."""
HEARTBEAT_LATE_SEC = 30
"""How much later a deadline may be judged: it waits for evidence (`monitors.heartbeats.gaps.CONFIRMED_WITHIN`)."""

_ALL_OFFLINE = """
    NOT EXISTS (
        SELECT FROM jsonb_array_elements_text(monitor.locations) AS own (name)
          JOIN locations_location AS location ON location.public_id = own.name
          JOIN locations_agent AS agent ON agent.location_id = location.id
         WHERE agent.last_seen_at > %(alive_since)s AND NOT agent.network_down)
"""
# Results are counted from the last one, from the start of the plan, or, for triggers, from the last stop of the
# scheduler, because missed triggers are not repeated.
_COVERAGE = f"""
    WITH given AS (
        SELECT %(now)s::timestamptz AS now, (SELECT max(ended_at) FROM monitors_schedulergap) AS stopped_until
    ), planned AS (
        SELECT monitor.id, monitor.type, monitor.config, monitor.interval_sec, monitor.timeout_ms, monitor.muted_until,
               monitor.locations, state.status, state.passes, state.last_ping_at, state.armed_at,
               greatest(
                   state.last_checked_at,
                   CASE WHEN state.fresh THEN coalesce(
                       (SELECT max(at) FROM monitors_statuschange AS change
                         WHERE change.monitor_id = monitor.id AND change.kind = 'resumed'), monitor.created_at) END,
                   CASE WHEN monitor.type = ANY(%(firing)s::text[]) THEN given.stopped_until END
               ) AS since
          FROM monitors_monitor AS monitor
          JOIN monitors_monitorstate AS state ON state.monitor_id = monitor.id
         CROSS JOIN given
         WHERE monitor.enabled
           AND (monitor.type <> ALL(%(waiting)s::text[]) OR state.last_ping_at IS NOT NULL)
    ), due AS (
        SELECT CASE WHEN monitor.type = ANY(%(waiting)s::text[]) THEN
                         CASE WHEN monitor.status IS DISTINCT FROM 'down' OR monitor.passes > 0 THEN
                              greatest(
                                  coalesce(
                                      {next_slot_sql("monitor.last_ping_at", tzdata="%(tzdata)s")},
                                      CASE WHEN monitor.config->>'schedule' IS NULL THEN
                                           monitor.last_ping_at + monitor.interval_sec * interval '1 second' END)
                                  + (monitor.config->>'grace_sec')::bigint * interval '1 second',
                                  monitor.armed_at, monitor.muted_until)
                              + interval '{HEARTBEAT_LATE_SEC} seconds' END
                    ELSE coalesce(
                             CASE WHEN monitor.config->>'schedule' IS NULL THEN
                                  monitor.since + monitor.interval_sec * interval '1 second' END,
                             {next_slot_sql("monitor.since", tzdata="%(tzdata)s")})
                         + monitor.timeout_ms * interval '1 millisecond' + interval '{LATE_SEC} seconds'
               END AS latest,
               monitor.locations
          FROM planned AS monitor
    )
    SELECT count(*), count(*) FILTER (WHERE monitor.latest < given.now AND NOT ({ALL_PRIVATE_SQL} AND {_ALL_OFFLINE}))
      FROM due AS monitor CROSS JOIN given
"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class Coverage:
    """Enabled monitors, and how many of them lack a result. Heartbeats count from their first ping on."""

    monitors: int
    missing: int

    @property
    def share(self) -> float:
        """The share with a result, 0 to 1; 1 without monitors."""
        return 1 - self.missing / self.monitors if self.monitors else 1.0


def coverage(database: psycopg.Connection, *, now: datetime) -> Coverage:
    """Return the coverage. Reads all monitors. Raises psycopg.Error."""
    given = {
        "now": now,
        "alive_since": now - timedelta(seconds=OFFLINE_SEC),
        "waiting": types.waiting(),
        "firing": types.firing(),
        "tzdata": TZDATA_VERSION,
    }
    row = database.execute(_COVERAGE, given).fetchone()
    assert row is not None
    return Coverage(*row)

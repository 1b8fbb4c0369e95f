"""Record checks that do not change the status of their monitor, which are nearly all checks, in the database alone.

Their states are not read: there are thousands of rows per second, and turning them into Python objects would cost more
than everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import connection

from checks.results.store import NewResult, store_results
from core.bulk import array
from monitors.cron import TZDATA_VERSION
from monitors.recording.answers import note_answers
from monitors.recording.batch import CheckRecord
from monitors.slots import next_slot_sql
from monitors.stale import PATIENCE_SQL

_LOCK = """
    SELECT count(*)
      FROM (
            SELECT 1
              FROM monitors_monitorstate
             WHERE monitor_id = ANY(%(ids)s::bigint[])
             ORDER BY monitor_id
               FOR UPDATE {wait}
           ) AS held
"""
_HELD_BY_OTHERS = """
    SELECT monitor_id
      FROM monitors_monitorstate
     WHERE monitor_id = ANY(%(ids)s::bigint[])
       AND monitor_id NOT IN (
            SELECT monitor_id FROM monitors_monitorstate WHERE monitor_id = ANY(%(ids)s::bigint[])
               FOR UPDATE SKIP LOCKED)
"""
# Matches where `state.advance` would change nothing: the same verdict again, with an open claim and the current
# configuration, and no fault before. Left to the slow path are a failure about which other locations may be asked, a
# pass of a monitor that failed from a location, and a stale monitor, whose unobserved period is noted.
# `next_due_at` equals `Monitor.next_slot`, and a schedule without stored times is left to the slow path.
# A test compares both with this statement.
_NEXT_SLOT = next_slot_sql("greatest(state.slot_at, %(now)s)", tzdata="%(tzdata)s")
_CONFIRM = f"""
    UPDATE monitors_monitorstate AS state
       SET next_due_at = CASE WHEN monitor.config->>'schedule' IS NULL
               THEN state.slot_at + monitor.interval_sec * interval '1 second'
                    * greatest(1, floor(extract(epoch FROM %(now)s - state.slot_at) / monitor.interval_sec) + 1)
               ELSE {_NEXT_SLOT} END,
           claimed_at = NULL,
           applied_claim = state.claim,
           last_checked_at = new.checked_at,
           last_latency_ms = new.latency_ms,
           last_connect_ms = new.connect_ms,
           last_ttfb_ms = new.ttfb_ms,
           cert_expires_at = coalesce(new.cert_expires_at, state.cert_expires_at)
      FROM monitors_monitor AS monitor,
           unnest(%(monitor_ids)s::bigint[], %(claims)s::bigint[], %(config_versions)s::int[], %(verdicts)s::text[],
                  %(times)s::timestamptz[], %(latencies)s::int[], %(connects)s::int[], %(ttfbs)s::int[],
                  %(certificates)s::timestamptz[], %(agents)s::bigint[])
               AS new (monitor_id, claim, config_version, verdict, checked_at, latency_ms, connect_ms, ttfb_ms,
                       cert_expires_at, agent_id)
     WHERE state.monitor_id = new.monitor_id
       AND state.claim = new.claim AND state.claimed_at IS NOT NULL AND state.slot_at IS NOT NULL
       AND state.applied_claim < new.claim AND state.agent_id IS NOT DISTINCT FROM new.agent_id
       AND state.status = new.verdict
       AND state.fault_since IS NULL AND state.slot_at + {PATIENCE_SQL} >= %(now)s
       AND NOT state.fresh AND state.failures = 0 AND state.passes = 0
       AND CASE new.verdict WHEN 'down' THEN state.failing_since <= new.checked_at ELSE state.failing_since IS NULL END
       AND (monitor.locations IS NULL OR new.verdict <> 'down' AND NOT EXISTS (
            SELECT FROM monitors_locationfailure AS failure
             WHERE failure.monitor_id = state.monitor_id AND failure.failures > 0))
       AND monitor.id = new.monitor_id AND monitor.enabled AND monitor.config_version = new.config_version
       AND (monitor.config->>'schedule' IS NULL OR {_NEXT_SLOT} IS NOT NULL)
    RETURNING state.monitor_id
"""  # noqa: S608


def lock_states(monitor_ids: Sequence[int]) -> None:
    """Lock the states in id order, to prevent deadlocks between batches."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK.format(wait=""), {"ids": array(monitor_ids)})


def try_lock_states(monitor_ids: Sequence[int]) -> set[int]:
    """Lock the states that no other transaction has locked. Return the keys of the others."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK.format(wait="SKIP LOCKED"), {"ids": array(monitor_ids)})
        if cursor.fetchone() == (len(monitor_ids),):
            return set()
        # Deleted monitors have no state.
        cursor.execute(_HELD_BY_OTHERS, {"ids": array(monitor_ids)})
        return {monitor_id for (monitor_id,) in cursor.fetchall()}


def record_unchanged(records: Sequence[CheckRecord], *, now: datetime) -> list[CheckRecord]:
    """Store and apply the records that change nothing, under locked states. Return those that may change something.

    At most one record per monitor is allowed.
    """
    if not records:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            _CONFIRM,
            {
                "now": now,
                "tzdata": TZDATA_VERSION,
                "monitor_ids": array(record.monitor_id for record in records),
                "claims": array(record.claim for record in records),
                "config_versions": array(record.config_version for record in records),
                "verdicts": array(record.outcome.verdict for record in records),
                "times": array(record.outcome.checked_at for record in records),
                "latencies": array(record.outcome.latency_ms for record in records),
                "connects": array(record.outcome.connect_ms for record in records),
                "ttfbs": array(record.outcome.ttfb_ms for record in records),
                "certificates": array(record.outcome.cert_expires_at for record in records),
                "agents": array(record.agent_id for record in records),
            },
        )
        confirmed = {monitor_id for (monitor_id,) in cursor.fetchall()}
    # An open claim has no result yet, so these can be stored without reading the existing results.
    applied = [each for each in records if each.monitor_id in confirmed]
    store_results([NewResult(*each.key, each.outcome, each.location_id) for each in applied])
    note_answers(applied)
    return [record for record in records if record.monitor_id not in confirmed]

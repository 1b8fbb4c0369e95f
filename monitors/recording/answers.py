"""Note when the records that a dns monitor finds change: one statement for all answers of a batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import connection

from core.bulk import array, insert_rows
from locations.models import DEFAULT
from monitors.models import DnsChange

if TYPE_CHECKING:
    from monitors.recording.batch import CheckRecord

KEPT_OF_MONITOR = 1_000
MAX_LISTED = 16
"""How many of the added, and of the removed records a change lists."""

# Only answers that differ are written: an upsert would lock, and so rewrite, all rows. The recorder has the lock of the
# monitors' states, so no other one writes these rows. An answer of another owner or configuration starts over. Those of
# other locations than the monitor's first one are left out: name servers may answer by where the question comes from.
#
# An existing row of an alert is locked without a change (WHERE false). Otherwise the tick could find that the records
# are back, and delete the row before it can see this answer.
_REPLACE = """
    WITH changed AS (
        SELECT new.monitor_id, new.at, new.records, monitor.owner_id, monitor.config_version,
               earlier.records AS earlier_records,
               earlier.owner_id = monitor.owner_id AND earlier.config_version = monitor.config_version AS is_comparable
          FROM unnest(%s::bigint[], %s::timestamptz[], %s::jsonb[], %s::bigint[])
                   AS new (monitor_id, at, records, location_id)
          JOIN monitors_monitor AS monitor ON monitor.id = new.monitor_id
          LEFT JOIN locations_location AS location ON location.id = new.location_id
          LEFT JOIN monitors_dnsanswer AS earlier ON earlier.monitor_id = new.monitor_id
         WHERE (earlier.owner_id, earlier.config_version, earlier.records)
               IS DISTINCT FROM (monitor.owner_id, monitor.config_version, new.records)
           AND (monitor.locations IS NULL OR monitor.locations->>0 = coalesce(location.public_id, %s))
    ), written AS (
        INSERT INTO monitors_dnsanswer (monitor_id, owner_id, config_version, since, records)
        SELECT monitor_id, owner_id, config_version, at, records
          FROM changed
            ON CONFLICT (monitor_id) DO UPDATE
               SET owner_id = excluded.owner_id, config_version = excluded.config_version, since = excluded.since,
                   records = excluded.records
    ), started_over AS (
        DELETE FROM monitors_dnsalert AS alert
         USING changed
         WHERE alert.monitor_id = changed.monitor_id AND NOT changed.is_comparable
    ), pending AS (
        INSERT INTO monitors_dnsalert (monitor_id, records, due_at)
        SELECT monitor_id, earlier_records, at
          FROM changed
         WHERE is_comparable
            ON CONFLICT (monitor_id) DO UPDATE SET due_at = excluded.due_at WHERE false
    )
    SELECT monitor_id, earlier_records::text
      FROM changed
     WHERE is_comparable
"""
_FORGET_SURPLUS = """
    WITH many AS (
        SELECT monitor_id
          FROM monitors_dnschange
         GROUP BY monitor_id
        HAVING count(*) > %(kept)s
    )
    DELETE FROM monitors_dnschange AS change
     USING many
     CROSS JOIN LATERAL (
            SELECT at, id
              FROM monitors_dnschange
             WHERE monitor_id = many.monitor_id
             ORDER BY at DESC, id DESC
            OFFSET %(kept)s LIMIT 1
           ) AS surplus
     WHERE change.monitor_id = many.monitor_id AND (change.at, change.id) <= (surplus.at, surplus.id)
"""
_COLUMNS = {
    "monitor_id": "bigint",
    "at": "timestamptz",
    "added": "jsonb",
    "removed": "jsonb",
    "added_count": "int",
    "removed_count": "int",
}


def note_answers(checks: Iterable[CheckRecord]) -> None:
    """Store the answers, and a change with a pending alert for each that differs from the one before it.

    Call it for results that are applied to locked states, in the order of their claims, in their transaction.
    """
    waiting = [check for check in checks if check.outcome.answer is not None]
    while waiting:
        first: dict[int, CheckRecord] = {}
        for check in waiting:
            first.setdefault(check.monitor_id, check)
        _replace(first)
        waiting = [check for check in waiting if first[check.monitor_id] is not check]


def forget_old_changes(now: datetime) -> None:
    """Delete changes that are older than results are kept, and all but the newest of a name whose records rotate."""
    DnsChange.objects.filter(at__lt=now - timedelta(days=settings.RESULTS_KEPT_DAYS)).delete()
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_SURPLUS, {"kept": KEPT_OF_MONITOR})


def _replace(checks: Mapping[int, CheckRecord]) -> None:
    outcomes = {monitor_id: check.outcome for monitor_id, check in checks.items()}
    with connection.cursor() as cursor:
        times = array(outcome.checked_at for outcome in outcomes.values())
        records = array(json.dumps(outcome.answer) for outcome in outcomes.values())
        places = array(check.location_id for check in checks.values())
        cursor.execute(_REPLACE, [array(outcomes), times, records, places, DEFAULT])
        earlier = cursor.fetchall()
    rows = []
    for monitor_id, text in sorted(earlier):
        outcome = outcomes[monitor_id]
        before, after = set(json.loads(text)), set(outcome.answer or ())
        added, removed = sorted(after - before), sorted(before - after)
        listed = (json.dumps(added[:MAX_LISTED]), json.dumps(removed[:MAX_LISTED]))
        rows.append((monitor_id, outcome.checked_at, *listed, len(added), len(removed)))
    insert_rows("monitors_dnschange", _COLUMNS, rows)

"""Note jobs that run more often than expected. They are never down because of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction

from core.db import try_advisory_lock
from monitors import types
from monitors.models import Ping, PingExcess

# Counting stops at the limit, so a job that pings all the time costs no more than its limit.
_NOTE = """
    INSERT INTO monitors_pingexcess (monitor_id, at, allowed)
    SELECT monitor.id, %(now)s, setting.allowed
      FROM monitors_monitor AS monitor
     CROSS JOIN LATERAL (SELECT (monitor.config->>'max_pings_per_hour')::int AS allowed) AS setting
     CROSS JOIN LATERAL (
            SELECT count(*) AS pings
              FROM (SELECT
                      FROM monitors_ping AS ping
                     WHERE ping.monitor_id = monitor.id
                       AND ping.at > %(now)s - interval '1 hour'
                       AND ping.kind = ANY(%(kinds)s)
                     LIMIT setting.allowed + 1) AS ping
           ) AS found
     WHERE monitor.type = ANY(%(types)s)
       AND monitor.enabled
       AND setting.allowed IS NOT NULL
       AND found.pings > setting.allowed
       AND NOT EXISTS (
            SELECT
              FROM monitors_pingexcess AS earlier
             WHERE earlier.monitor_id = monitor.id AND earlier.at > %(now)s - interval '1 hour'
           )
"""


def note_excess(now: datetime) -> None:
    """Note each heartbeat whose job ran too often in the last hour, unless it was noted in that hour."""
    ends = [Ping.Kind.SUCCESS.value, Ping.Kind.FAIL.value]
    with transaction.atomic(), connection.cursor() as cursor:
        if try_advisory_lock("ping excess"):
            cursor.execute(_NOTE, {"now": now, "kinds": ends, "types": types.waiting()})


def forget_old_excess(now: datetime) -> None:
    PingExcess.objects.filter(at__lt=now - timedelta(days=settings.RESULTS_KEPT_DAYS)).delete()

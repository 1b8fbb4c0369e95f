"""Warnings before a certificate or a registration expires, each recorded once."""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from monitors import types

THRESHOLDS = (30, 14, 7, 3, 1)
"""Days. A threshold is crossed when at most that many days are left, and stays crossed after the expiry."""

# Insert only the tightest crossed threshold, unless a warning at least as tight exists: a certificate first seen 5 days
# before its expiry gets the 7-day warning, not those of 14 and 30 days. The interval is in hours because the length of
# a day in SQL depends on the session's time zone.
_WARN = """
    INSERT INTO monitors_expirywarning (monitor_id, subject, expires_at, threshold_days, at)
    SELECT monitor.id, expiry.subject, expiry.at, crossed.days, %(now)s
      FROM monitors_monitorstate AS state
      JOIN monitors_monitor AS monitor ON monitor.id = state.monitor_id
     CROSS JOIN LATERAL (
            VALUES ('certificate', state.cert_expires_at,
                    monitor.check_ssl OR monitor.config ->> 'tls_verify' = 'false'),
                   ('domain', state.domain_expires_at, monitor.check_domain)
           ) AS expiry (subject, at, is_watched)
     CROSS JOIN LATERAL (
            SELECT min(days) AS days
              FROM unnest(%(thresholds)s::smallint[]) AS threshold (days)
             WHERE expiry.at <= %(now)s + make_interval(hours => 24 * days)
           ) AS crossed
     WHERE crossed.days IS NOT NULL
       AND monitor.enabled
       AND expiry.is_watched
       AND monitor.type <> ALL(%(waiting)s)
       AND NOT EXISTS (
            SELECT
              FROM monitors_expirywarning AS earlier
             WHERE earlier.monitor_id = monitor.id
               AND earlier.subject = expiry.subject
               AND earlier.expires_at = expiry.at
               AND earlier.threshold_days <= crossed.days
           )
        ON CONFLICT DO NOTHING
"""


def warn_of_expiries(now: datetime) -> None:
    """Record a warning for each newly crossed threshold. Paused monitors are skipped."""
    with connection.cursor() as cursor:
        cursor.execute(_WARN, {"now": now, "thresholds": list(THRESHOLDS), "waiting": types.waiting()})

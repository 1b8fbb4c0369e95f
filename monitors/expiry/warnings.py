"""Warnings before a certificate or a registration expires, each recorded once."""

from __future__ import annotations

from datetime import datetime

from django.db import connection

from monitors import types
from monitors.models import ExpiryWarning

THRESHOLDS = (30, 14, 7, 3, 1)
"""Days. A threshold is crossed when at most that many days are left, and stays crossed after the expiry."""

# Insert only the tightest crossed threshold, unless a warning at least as tight exists: a certificate first seen 5 days
# before its expiry gets the 7-day warning, not those of 14 and 30 days. The interval is in hours because the length of
# a day in SQL depends on the session's time zone.
_WARN = """
    INSERT INTO monitors_expirywarning (monitor_id, subject, expires_at, threshold_days, at)
    SELECT monitor.id, %(subject)s, state.{column}, crossed.days, %(now)s
      FROM monitors_monitorstate AS state
      JOIN monitors_monitor AS monitor ON monitor.id = state.monitor_id
     CROSS JOIN LATERAL (
            SELECT min(days) AS days
              FROM unnest(%(thresholds)s::smallint[]) AS threshold (days)
             WHERE state.{column} <= %(now)s + make_interval(hours => 24 * days)
           ) AS crossed
     WHERE crossed.days IS NOT NULL
       AND monitor.enabled
       AND monitor.{switch}
       AND monitor.type <> ALL(%(waiting)s)
       AND NOT EXISTS (
            SELECT
              FROM monitors_expirywarning AS earlier
             WHERE earlier.monitor_id = monitor.id
               AND earlier.subject = %(subject)s
               AND earlier.expires_at = state.{column}
               AND earlier.threshold_days <= crossed.days
           )
        ON CONFLICT DO NOTHING
"""
_STATEMENTS = {
    ExpiryWarning.Subject.CERTIFICATE: _WARN.format(column="cert_expires_at", switch="check_ssl"),
    ExpiryWarning.Subject.DOMAIN: _WARN.format(column="domain_expires_at", switch="check_domain"),
}


def warn_of_expiries(now: datetime) -> None:
    """Record a warning for each newly crossed threshold. Paused monitors are skipped."""
    with connection.cursor() as cursor:
        for subject, statement in _STATEMENTS.items():
            cursor.execute(
                statement,
                {"subject": subject.value, "now": now, "thresholds": list(THRESHOLDS), "waiting": types.waiting()},
            )

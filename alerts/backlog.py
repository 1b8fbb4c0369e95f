"""How long alerts have waited, as far as they could have gone out."""

from __future__ import annotations

from datetime import datetime

import psycopg

# Both read the beginning of a partial index. A message that waits for its next try is not late.
_OLDEST = """
    SELECT least(
        (SELECT min(at) FROM monitors_statuschange WHERE processed_at IS NULL),
        (SELECT min(next_try_at)
           FROM alerts_delivery
          WHERE state IN ('gathering', 'waiting')
            AND next_try_at <= %(now)s
            AND (leased_until IS NULL OR leased_until <= %(now)s))
    )
"""


def oldest_alert(database: psycopg.Connection, *, now: datetime) -> datetime | None:
    """Since when the oldest of them waits: a status change, or a message. Raises psycopg.Error."""
    row = database.execute(_OLDEST, {"now": now}).fetchone()
    assert row is not None
    found: datetime | None = row[0]
    return found

"""The locations of a deployment for its operator: `/readyz`, `/metrics` and System health."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg
from psycopg.rows import class_row

from checks.agent_protocol import OFFLINE_SEC
from locations.models import DEFAULT

MOST = 100
"""Shared locations that are looked at. Staff create them."""

# Monitors are looked for only if a location is offline. Not with EXISTS, for which the planner scans the table.
_SHARED = """
    WITH place AS MATERIALIZED (
        SELECT location.public_id AS id, count(agent.id) AS agents,
               count(*) FILTER (WHERE agent.last_seen_at > %(alive_since)s AND NOT agent.network_down) AS online
          FROM locations_location AS location
          LEFT JOIN locations_agent AS agent ON agent.location_id = location.id
         WHERE location.owner_id IS NULL AND location.public_id <> %(default)s
         GROUP BY location.id
         ORDER BY location.id
         LIMIT %(most)s
    )
    SELECT id, online, is_missed
      FROM (SELECT id, agents, online,
                   CASE WHEN online = 0 THEN (
                        SELECT count(*) FROM monitors_monitor AS monitor
                         WHERE monitor.locations @> jsonb_build_array(place.id) AND monitor.enabled) > 0
                   ELSE false END AS is_missed
              FROM place) AS known
     WHERE agents > 0 OR is_missed
"""
_PRIVATE_OFFLINE = "SELECT count(*) FROM locations_location WHERE offline_since IS NOT NULL"


@dataclass(frozen=True, slots=True)
class SharedLocation:
    """A shared location. `is_missed`: none of its agents is online, and enabled monitors use it."""

    id: str
    online: int
    is_missed: bool


def shared_locations(database: psycopg.Connection, *, now: datetime) -> Sequence[SharedLocation]:
    """Return the shared locations with agents or monitors, of at most MOST. Raises psycopg.Error.

    The default one is left out, and so is a new one before its first agent.
    """
    given = {"alive_since": now - timedelta(seconds=OFFLINE_SEC), "most": MOST, "default": DEFAULT}
    with database.cursor(row_factory=class_row(SharedLocation)) as cursor:
        return cursor.execute(_SHARED, given).fetchall()


def count_private_offline(database: psycopg.Connection) -> int:
    """Return how many private locations with monitors are offline. Raises psycopg.Error."""
    ((count,),) = database.execute(_PRIVATE_OFFLINE)
    return int(count)

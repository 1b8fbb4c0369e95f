"""Which channels get alerts of which monitors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from django.db import connection

# Each branch starts at the monitors and uses an index. One join with OR would scan all channels.
# A personal channel covers what its owner can access: former members of a project get no more alerts of it.
_ROUTES = """
    WITH monitor AS (
        SELECT id, owner_id, project_id FROM monitors_monitor WHERE id = ANY(%(monitors)s)
    ), route AS (
        SELECT monitor.id AS monitor_id, channel.id AS channel_id
          FROM monitor JOIN alerts_alertchannel AS channel ON channel.owner_id = monitor.owner_id
         WHERE channel.scope = 'all' AND channel.project_id IS NULL
        UNION ALL
        SELECT monitor.id, channel.id
          FROM monitor JOIN alerts_alertchannel AS channel ON channel.project_id = monitor.project_id
         WHERE channel.scope = 'all'
        UNION ALL
        SELECT monitor.id, channel.id
          FROM monitor JOIN alerts_alertchannel AS channel ON channel.scope_project_id = monitor.project_id
          JOIN projects_membership AS place
            ON place.project_id = monitor.project_id AND place.user_id = channel.owner_id
         WHERE channel.scope = 'project'
        UNION ALL
        SELECT monitor.id, channel.id
          FROM monitor JOIN alerts_alertchannel_monitors AS chosen ON chosen.monitor_id = monitor.id
          JOIN alerts_alertchannel AS channel ON channel.id = chosen.alertchannel_id
         WHERE channel.scope = 'chosen'
           AND (channel.project_id = monitor.project_id
                OR channel.project_id IS NULL
                   AND (channel.owner_id = monitor.owner_id
                        OR EXISTS (
                            SELECT
                              FROM projects_membership AS place
                             WHERE place.project_id = monitor.project_id AND place.user_id = channel.owner_id
                        )))
    )
    SELECT route.monitor_id, route.channel_id, channel.topics
      FROM route
      JOIN alerts_alertchannel AS channel ON channel.id = route.channel_id
      JOIN accounts_user AS owner ON owner.id = channel.owner_id
     WHERE channel.enabled AND channel.confirmed_at IS NOT NULL AND owner.is_active
     ORDER BY route.channel_id
"""

Routes = Mapping[int, Mapping[int, frozenset[str]]]
"""Topics by monitor id and channel id."""


def routes_of(monitor_ids: Collection[int]) -> Routes:
    """Return the channels of these monitors, in one query."""
    found: dict[int, dict[int, frozenset[str]]] = defaultdict(dict)
    with connection.cursor() as cursor:
        cursor.execute(_ROUTES, {"monitors": list(monitor_ids)})
        for monitor_id, channel_id, topics in cursor.fetchall():
            found[monitor_id][channel_id] = frozenset(topics)
    return found

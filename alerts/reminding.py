"""Reminders: an outage that nobody has acknowledged is told of again, as often as each channel wants it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from django.db import connection, transaction

from alerts.batch import NotificationBatch, Silences, subscribed
from alerts.events import EventType
from alerts.models import Topic
from alerts.routing import routes_of
from core.db import advisory_lock
from incidents.consuming import LOCK
from incidents.models import Incident

# Counted from the last that a channel heard of it; one that heard nothing, since it is newer, from the announcement.
_OVERDUE = """
    SELECT wanted.incident_id, wanted.channel_id
      FROM unnest(%(incidents)s::bigint[], %(channels)s::bigint[]) AS wanted (incident_id, channel_id)
      JOIN incidents_incident AS incident ON incident.id = wanted.incident_id
      JOIN alerts_alertchannel AS channel ON channel.id = wanted.channel_id
     WHERE %(now)s >= make_interval(hours => channel.remind_every_hours) + coalesce(
               (SELECT max(item.at)
                  FROM alerts_deliveryitem AS item
                 WHERE item.incident_id = incident.id AND item.channel_id = channel.id),
               incident.announced_at)
     ORDER BY wanted.incident_id, wanted.channel_id
"""


def remind(now: datetime) -> None:
    """Remind of what is down, was said to be so, is not acknowledged, and under no silence."""
    with transaction.atomic():
        advisory_lock(
            LOCK
        )  # a tick that comes meanwhile gives way, and is back in a second; this comes once a minute
        candidates = Incident.objects.filter(
            resolved_at=None, announced_at__isnull=False, acknowledged_at=None, monitor__isnull=False
        )
        overdue = _overdue(dict(candidates.values_list("pk", "monitor_id")), now)
        # Read under lock once more: one that is acknowledged at this moment is not reminded of.
        incidents = list(
            candidates.select_for_update(of=["self"])
            .filter(pk__in=overdue)
            .select_related("monitor", "monitor__project", "project")
            .order_by("pk")
        )
        silences = Silences.of([one.monitor for one in incidents], now)
        batch = NotificationBatch(now)
        for incident in incidents:
            if silences.reason(incident.monitor) is None:
                batch.say(incident, EventType.REMINDER, channel_ids=overdue[incident.pk])
        batch.publish()


def _overdue(monitors: Mapping[int, int | None], now: datetime) -> dict[int, list[int]]:
    """The channels to remind, by incident."""
    routes = routes_of({monitor_id for monitor_id in monitors.values() if monitor_id is not None})
    wanted = [
        (incident_id, channel_id)
        for incident_id, monitor_id in monitors.items()
        if monitor_id is not None
        for channel_id in subscribed(routes, monitor_id, Topic.REMINDER)
    ]
    found: dict[int, list[int]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(
            _OVERDUE,
            {
                "now": now,
                "incidents": [one for one, _ in wanted],
                "channels": [channel for _, channel in wanted],
            },
        )
        for incident_id, channel_id in cursor.fetchall():
            found[incident_id].append(channel_id)
    return found

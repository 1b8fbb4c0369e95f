"""Queries for channels and their deliveries, and for the channels of monitors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from cryptography.fernet import InvalidToken
from django.db import connection
from django.db.models import Count, Prefetch, Q, QuerySet, Value

from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.transports import KINDS
from core.db import get_or_not_found, total_of
from monitors.models import Monitor
from projects import access
from projects.access import Caller

# Each branch starts at the monitors and uses an index. One join with OR would scan all channels. Tags are joined by
# their keys: comparing the tags of each monitor with those of each channel took a second for 2,000 and 50.
# A personal channel covers what its owner can access: former members of a project get no more alerts of it.
_ROUTES = """
    WITH monitor AS (
        SELECT id, owner_id, project_id, tag_keys FROM monitors_monitor WHERE id = ANY(%(monitors)s)
    ), tagged AS (
        SELECT id, owner_id, project_id, tag.key
          FROM monitor CROSS JOIN jsonb_array_elements_text(tag_keys) AS tag (key)
    ), selecting AS (
        SELECT id, owner_id, project_id, tag.key
          FROM alerts_alertchannel CROSS JOIN jsonb_array_elements_text(monitor_tag_keys) AS tag (key)
         WHERE scope = 'chosen'
           AND (owner_id IN (SELECT owner_id FROM monitor) OR project_id IN (SELECT project_id FROM monitor))
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
        UNION ALL
        SELECT tagged.id, selecting.id
          FROM tagged JOIN selecting ON selecting.key = tagged.key AND selecting.owner_id = tagged.owner_id
         WHERE selecting.project_id IS NULL
        UNION ALL
        SELECT tagged.id, selecting.id
          FROM tagged JOIN selecting ON selecting.key = tagged.key AND selecting.project_id = tagged.project_id
    )
    SELECT route.monitor_id, route.channel_id, channel.topics
      FROM route
      JOIN alerts_alertchannel AS channel ON channel.id = route.channel_id
      JOIN accounts_user AS owner ON owner.id = channel.owner_id
     WHERE channel.enabled AND channel.confirmed_at IS NOT NULL AND owner.is_active
     ORDER BY route.channel_id
"""

# The channels of those who run a private location: of its project, or else its owner's own. Those that cover less than
# all monitors get a message if one of their monitors is checked from there.
_ROUTES_OF_LOCATIONS = """
    WITH location AS (
        SELECT id, public_id, owner_id, project_id FROM locations_location WHERE id = ANY(%(locations)s)
    ), route AS (
        SELECT location.id AS location_id, channel.id AS channel_id
          FROM location JOIN alerts_alertchannel AS channel ON channel.owner_id = location.owner_id
         WHERE channel.scope = 'all' AND channel.project_id IS NULL
        UNION
        SELECT location.id, channel.id
          FROM location JOIN alerts_alertchannel AS channel ON channel.project_id = location.project_id
         WHERE channel.scope = 'all'
        UNION
        SELECT location.id, channel.id
          FROM location JOIN alerts_alertchannel AS channel ON channel.scope_project_id = location.project_id
          JOIN projects_membership AS place
            ON place.project_id = location.project_id AND place.user_id = channel.owner_id
         WHERE channel.scope = 'project'
        UNION
        SELECT location.id, channel.id
          FROM location JOIN alerts_alertchannel AS channel ON channel.owner_id = location.owner_id
          JOIN projects_membership AS place
            ON place.project_id = channel.scope_project_id AND place.user_id = channel.owner_id
         WHERE channel.scope = 'project' AND location.project_id IS NULL
           AND EXISTS (SELECT FROM monitors_monitor AS monitor
                        WHERE monitor.project_id = channel.scope_project_id
                          AND monitor.locations @> jsonb_build_array(location.public_id))
        UNION
        SELECT location.id, channel.id
          FROM location JOIN monitors_monitor AS monitor ON monitor.locations @> jsonb_build_array(location.public_id)
          JOIN alerts_alertchannel_monitors AS chosen ON chosen.monitor_id = monitor.id
          JOIN alerts_alertchannel AS channel ON channel.id = chosen.alertchannel_id
         WHERE channel.scope = 'chosen'
           AND (channel.project_id = location.project_id AND monitor.project_id = location.project_id
                OR channel.project_id IS NULL
                   AND (channel.owner_id = location.owner_id
                        OR EXISTS (
                            SELECT
                              FROM projects_membership AS place
                             WHERE place.project_id = location.project_id AND place.user_id = channel.owner_id
                        )))
        UNION
        SELECT location.id, channel.id
          FROM location JOIN alerts_alertchannel AS channel
            ON channel.project_id = location.project_id
               OR channel.project_id IS NULL AND channel.owner_id = location.owner_id
         WHERE channel.scope = 'chosen' AND channel.monitor_tag_keys IS NOT NULL
           AND EXISTS (SELECT FROM monitors_monitor AS monitor
                        WHERE monitor.locations @> jsonb_build_array(location.public_id)
                          AND (monitor.project_id = channel.project_id
                               OR channel.project_id IS NULL AND monitor.owner_id = channel.owner_id)
                          AND channel.monitor_tag_keys ?| ARRAY(SELECT jsonb_array_elements_text(monitor.tag_keys)))
    )
    SELECT route.location_id, route.channel_id, channel.topics
      FROM route
      JOIN alerts_alertchannel AS channel ON channel.id = route.channel_id
      JOIN accounts_user AS owner ON owner.id = channel.owner_id
     WHERE channel.enabled AND channel.confirmed_at IS NOT NULL AND owner.is_active
     ORDER BY route.channel_id
"""

Routes = Mapping[int, Mapping[int, frozenset[str]]]
"""Topics by the id of a monitor, or location, and channel id."""


CHANNEL_BYTES = total_of(AlertChannel.monitors.through.objects.all(), "alertchannel", Value(3_000))
"""Memory of the chosen monitors with their addresses while a list is created."""


def list_channels(caller: Caller) -> QuerySet[AlertChannel]:
    """Return the caller's channels, with those chosen monitors that the caller can still access."""
    columns = ("public_id", "type", "owner_id", "project_id", "name", "url")
    monitors = access.accessible(caller, Monitor.objects.only(*columns)).order_by("pk")
    channels = AlertChannel.objects.select_related("project", "scope_project", "owner")
    return access.accessible(caller, channels).prefetch_related(Prefetch("monitors", monitors))


def get_channel(caller: Caller, public_id: str) -> AlertChannel:
    return get_or_not_found(list_channels(caller), public_id=public_id)


def sends_to(channel: AlertChannel, address: str) -> bool:
    """Return whether it is an e-mail channel to this address. It is not if no key decrypts its settings."""
    kind = KINDS["email"]
    try:
        return channel.kind == kind.name and bool(channel.config[kind.consent] == address)
    except InvalidToken:
        return False


def shown_hint(channel: AlertChannel, caller: Caller | None) -> str | None:
    """Return the hint of a channel, or None for viewers of its project, who must not learn where alerts go."""
    return None if caller is not None and caller.views(channel) else channel.hint


def shown_name(channel: AlertChannel, caller: Caller | None) -> str:
    """Return the name of a channel. For viewers it is the kind if the name contains the hint, as default names do."""
    is_hidden = shown_hint(channel, caller) is None and channel.hint in channel.name
    return KINDS[channel.kind].label if is_hidden else channel.name


def count_dead(channels: Iterable[AlertChannel]) -> dict[int, int]:
    """Return the number of dead deliveries by channel id, without channels that have none."""
    dead = Delivery.objects.filter(channel__in=[channel.pk for channel in channels], state=Delivery.State.DEAD)
    return dict(dead.values_list("channel").annotate(Count("pk")).order_by())


def deliveries_of(
    channel: AlertChannel, *, limit: int, state: str | None, before: tuple[datetime, int] | None
) -> list[Delivery]:
    """Return deliveries, newest first; `before` is (created_at, id) of the last one of the previous page."""
    deliveries = _with_items(channel).order_by("-created_at", "-pk")
    if state is not None:
        deliveries = deliveries.filter(state=state)
    if before is not None:
        at, pk = before
        deliveries = deliveries.filter(Q(created_at__lt=at) | Q(created_at=at, pk__lt=pk))
    return list(deliveries[:limit])


def chars_of(delivery: Delivery) -> int:
    """Return approximately how much text of a delivery a list reads."""
    return len(delivery.last_error or "") + 500 * len(delivery.items.all())


def get_delivery(channel: AlertChannel, public_id: str) -> Delivery:
    return get_or_not_found(_with_items(channel), public_id=public_id)


def _with_items(channel: AlertChannel) -> QuerySet[Delivery]:
    items = DeliveryItem.objects.only("delivery_id", "payload").order_by("pk")
    return Delivery.objects.filter(channel=channel).prefetch_related(Prefetch("items", items))


def routes_of(monitor_ids: Collection[int]) -> Routes:
    """Return the channels of these monitors, in one query."""
    return _routes(_ROUTES, monitors=list(monitor_ids))


def routes_of_locations(location_ids: Collection[int]) -> Routes:
    """Return the channels of these private locations, in one query."""
    return _routes(_ROUTES_OF_LOCATIONS, locations=list(location_ids))


def _routes(statement: str, **parameters: list[int]) -> Routes:
    found: dict[int, dict[int, frozenset[str]]] = defaultdict(dict)
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        for key, channel_id, topics in cursor.fetchall():
            found[key][channel_id] = frozenset(topics)
    return found

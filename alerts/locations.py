"""Notify of monitors that fail from some of their locations, and of private locations that are offline or back.

Only those who run a location are notified that it is offline: a monitor without a location that is online keeps its
status. It is reported once no agent was online for WAIT, and Pulsekeeper could be reached in that time: after an outage
of its own, agents need up to 40 s to come back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import redis
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Greatest

from accounts.models import User
from alerts.batch import MonitorEvent, put_events, silences_of, subscribed
from alerts.events import EventType, Payload
from alerts.models import DeliveryItem
from alerts.outbox import OutboxItem, put
from alerts.selectors import routes_of_locations
from checks.agent_protocol import OFFLINE_SEC
from core.bulk import array
from core.clock import to_ms
from core.db import lock_in_turn
from core.metrics import ProcessReports, read_levels, read_processes
from core.text import quote, shorten
from incidents.models import Incident
from locations.agents import is_accepted
from locations.models import Location
from monitors import partial
from monitors.checking import own_network
from monitors.heartbeats import gaps
from monitors.locking import write_columns
from monitors.models import LocationFailure
from projects.models import Project

WAIT = timedelta(minutes=1)
"""How long a location must be offline, and how long an outage of our own must be over."""
BATCH = 200
_FAILURES, _LISTED = 2_000, 3
_SLACK = timedelta(seconds=10)
"""During an outage of our own, what is due is put off this seldom."""

# Those to look at now, with and without an agent online. One that was never online is not missed, and neither is one
# without monitors; the agents of a locked account are refused.
_IS_NAMED = """
    (SELECT count(*) FROM monitors_monitor AS monitor
      WHERE monitor.locations @> jsonb_build_array(location.public_id) AND monitor.enabled) > 0
"""  # not EXISTS, for which the planner scans the table, as it expects to find one early
_TO_DECIDE = f"""
    SELECT location.id, coalesce(agents.is_online, false), agents.protocols IS NOT NULL AND {_IS_NAMED},
           coalesce(agents.network_down, false), coalesce(agents.protocols, '{{}}')
      FROM locations_location AS location
      JOIN accounts_user AS owner ON owner.id = location.owner_id AND owner.is_active
     CROSS JOIN LATERAL (
            SELECT bool_or(last_seen_at > %(alive_since)s AND NOT network_down) AS is_online,
                   bool_or(last_seen_at > %(alive_since)s) AS network_down,
                   array_agg(DISTINCT protocol) FILTER (WHERE last_seen_at IS NOT NULL) AS protocols
              FROM locations_agent AS agent
             WHERE agent.location_id = location.id
           ) AS agents
     WHERE (%(keys)s::bigint[] IS NULL OR location.id = ANY(%(keys)s::bigint[]))
       AND CASE WHEN agents.is_online THEN location.offline_since IS NOT NULL
                WHEN location.offline_since IS NOT NULL THEN location.alert_due_at <= %(due)s
                ELSE agents.protocols IS NOT NULL AND {_IS_NAMED} END
     ORDER BY location.id
"""  # noqa: S608 - only constants
_COLUMNS = ("offline_since", "alert_due_at", "alerted_at")


class _Seen(NamedTuple):
    """What is known of a location that may have to be notified of.

    `is_missed`: an agent of it was online before, and enabled monitors name it. `network_down`: an agent says so.
    `protocols`: those of its agents.
    """

    key: int
    is_online: bool
    is_missed: bool
    network_down: bool
    protocols: Collection[int]

    @property
    def reason(self) -> str:
        if not any(map(is_accepted, self.protocols)):
            return "Its agents are too old for this server: update them."
        if self.network_down:
            return "Its agents are connected, and find that their own network is down."
        return "None of its agents is connected."


def notify_partial_outages(now: datetime) -> None:
    """Notify of monitors that fail from some of their locations, at most once per monitor in FLAPPING_MINUTES.

    Not during silences: what still fails afterwards is sent then, as is what begins to fail sooner after an alert.
    """
    not_before = now - timedelta(minutes=settings.FLAPPING_MINUTES)
    partial.forget_ended(not_before)
    recent = LocationFailure.objects.filter(notified_at__gt=not_before, monitor=OuterRef("monitor"))
    audible = Q(monitor__muted_until=None) | Q(monitor__muted_until__lte=now)
    unknown = Q(notified_at=None) | Q(notified_at__lt=F("since"))
    waiting = partial.failing().filter(audible, unknown, ~Exists(recent))
    with transaction.atomic():
        locked, _ = lock_in_turn(waiting, account="monitor__owner", most=_FAILURES)
        found = waiting.filter(pk__in=locked).select_related("monitor__project").order_by("since", "pk")
        failures = partial.with_titles(found)
        silences = silences_of((failure.monitor for failure in failures), now)
        by_monitor = defaultdict[int, list[LocationFailure]](list)
        for failure in failures:
            if silences.get(failure.monitor_id) in (None, Incident.Quiet.FLAPPING):
                by_monitor[failure.monitor_id].append(failure)
        events: list[MonitorEvent] = []
        for first, *more in by_monitor.values():
            source = f"partial:{first.pk}:{to_ms(first.since)}"
            detail = {"detail": _explain_failures([first, *more])}
            events.append((source, first.monitor, EventType.PARTIAL_OUTAGE, now, detail))
        put_events(events, now=now)
        notified = [failure.pk for of_monitor in by_monitor.values() for failure in of_monitor]
        # One may have begun after `now`, and is not to be notified again for that.
        LocationFailure.objects.filter(pk__in=notified).update(notified_at=Greatest(now, F("since")))


def _explain_failures(failures: Sequence[LocationFailure]) -> str:
    parts = [
        f"from {quote(one.title, limit=50)}: {shorten(one.detail or one.reason_code or '', limit=100)}"
        for one in failures[:_LISTED]
    ]
    more = len(failures) - _LISTED
    return "; ".join([*parts, f"and from {more} more"] if more > 0 else parts)


def notify_locations(now: datetime) -> bool:
    """Notify of private locations that went offline or online, once each. Return whether messages were written."""
    if not _to_decide(now, due=now + WAIT):
        return False
    free_at = _own_outage_until(now) + WAIT
    due = max(now, free_at - _SLACK)
    keys = [seen.key for seen in _to_decide(now, due=due)]
    parts = [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]
    written = [_decide_some(part, now=now, due=due, free_at=free_at) for part in parts]
    return any(written)


def _own_outage_until(now: datetime) -> datetime:
    """Return when agents could last not reach us, or an hour ago. It is `now` if they cannot, or if that is unknown."""
    since = now - timedelta(hours=1)
    try:
        web, workers = (read_processes().get(kind, ProcessReports()).alive for kind in ("web", "worker"))
        without_network = read_levels().get(own_network.DOWN.name, 0.0)
    except redis.RedisError:
        return now
    if not web or without_network >= max(1, workers):  # a single worker may be on a machine of its own
        return now
    return gaps.unreachable_until(since, now=now) or since


@transaction.atomic
def _decide_some(keys: Sequence[int], *, now: datetime, due: datetime, free_at: datetime) -> bool:
    """Store what changed for those of the locations that no other process has locked, and write the messages.

    Accounts and projects are locked against deletion first: it locks channels before locations.
    """
    rows = Location.objects.filter(pk__in=keys)
    locked, _ = lock_in_turn(rows, account="owner", most=BATCH, parents={"owner": User, "project": Project})
    # Again under the lock: another process may have decided.
    found = _to_decide(now, due=due, keys=locked)
    locations = rows.select_related("project").in_bulk([seen.key for seen in found])
    events = []
    for seen in found:
        location, since = locations[seen.key], locations[seen.key].offline_since
        if (event_type := _decide(location, seen, now=now, free_at=free_at)) is not None:
            events.append((location, event_type, location.offline_since or since or now, seen.reason))
    write_columns(list(locations.values()), _COLUMNS)
    _put(events, now=now)
    return bool(events)


def _decide(location: Location, seen: _Seen, *, now: datetime, free_at: datetime) -> EventType | None:
    """Change the columns of a location. Return the event to notify of, or None."""
    if location.offline_since is None:
        location.offline_since, location.alert_due_at = now, now + WAIT
        if location.alerted_at is not None:  # it flaps
            next_at = location.alerted_at + timedelta(minutes=settings.FLAPPING_MINUTES)
            location.alert_due_at = max(location.alert_due_at, next_at)
    elif seen.is_online:
        was_notified = location.alert_due_at is None
        location.offline_since = location.alert_due_at = None
        return EventType.LOCATION_ONLINE if was_notified else None
    elif not seen.is_missed:
        location.offline_since = location.alert_due_at = None
    elif free_at > now:
        location.alert_due_at = max(location.alert_due_at or free_at, free_at)
    else:
        location.alert_due_at, location.alerted_at = None, now
        return EventType.LOCATION_OFFLINE
    return None


def _put(events: Sequence[tuple[Location, EventType, datetime, str]], *, now: datetime) -> None:
    """Write the messages of these events, with the time since when each location is or was offline.

    That it is online again is sent to the channels that got a message that it was offline.
    """
    routes = routes_of_locations({location.pk for location, *_ in events}) if events else {}
    sources = {location.pk: f"offline:{location.pk}:{to_ms(since)}" for location, _, since, _ in events}
    got = DeliveryItem.objects.filter(
        source__in=sources.values(), channel__in={channel for each in routes.values() for channel in each}
    )
    notified = set(got.values_list("source", "channel")) if events else set()
    items = []
    for location, event_type, since, reason in events:
        is_over = event_type is EventType.LOCATION_ONLINE
        payload = Payload(
            event_type=event_type,
            at=to_ms(now),
            project=location.project.name if location.project else None,
            started_at=to_ms(since),
            resolved_at=to_ms(now) if is_over else None,
            detail=None if is_over else reason,
            location_id=location.public_id,
            location=location.title,
        )
        source, channels = sources[location.pk], subscribed(routes, location.pk, event_type)
        if is_over:
            channels = [channel for channel in channels if (source, channel) in notified]
            items.append(OutboxItem(source.replace("offline", "online"), payload, channels, after=source))
        else:
            items.append(OutboxItem(source, payload, channels))
    put(items, now=now)


def _to_decide(now: datetime, *, due: datetime, keys: Collection[int] | None = None) -> list[_Seen]:
    """Return the locations, all or of these keys, that went offline or online, or whose alert is due at `due`."""
    given = {
        "alive_since": now - timedelta(seconds=OFFLINE_SEC),
        "due": due,
        "keys": None if keys is None else array(keys),
    }
    with connection.cursor() as cursor:
        cursor.execute(_TO_DECIDE, given)
        return [_Seen(*row) for row in cursor.fetchall()]

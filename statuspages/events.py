"""Events of status pages, and a mail for each of them to each subscriber.

Outages become events when alerts are sent: mutes, maintenance windows and flapping delay both. An outage that was over
before that causes no mail; the page shows it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Count, Exists, F, OuterRef, Q, Subquery, Window
from django.db.models.functions import Coalesce, RowNumber

from core.db import any_once_compiled
from incidents.models import Incident
from monitors.filters import shares_tag
from monitors.models import Monitor
from notifications.outbox import RETRY_FOR
from statuspages.models import NoteUpdate, PageEvent, PageGroup, PageMail, PageNote, StatusPage, Subscriber
from statuspages.selectors import showable

FRESH = timedelta(hours=1)
"""Outages older than this cause no mails, for example when a new page shows them for the first time."""
EVENTS_AT_ONCE = 200
ADDRESSED_AT_ONCE = 20
MAX_WAITING = 20_000
"""Waiting mails of an account, above which its next event waits."""
KEPT = timedelta(days=30)

Kind = PageEvent.Kind

# The share lock prevents the deletion of a subscriber between the read and the insert.
_CREATE_MAILS = """
    INSERT INTO statuspages_pagemail (event_id, subscriber_id, state, next_try_at, give_up_at, attempts)
    SELECT %(event)s, subscriber.id, 'waiting', %(now)s, %(give_up_at)s, 0
      FROM statuspages_subscriber AS subscriber
     WHERE subscriber.page_id = %(page)s AND subscriber.confirmed_at IS NOT NULL
     ORDER BY subscriber.id
       FOR KEY SHARE OF subscriber
    ON CONFLICT DO NOTHING
"""


# The keys of all groups of a page are collected once, for up to a hundred groups and all outages of an account.
_BEGUN_OF_TAGGED = """
    WITH opened AS MATERIALIZED (
        SELECT incident.id AS incident_id, incident.started_at, monitor.id AS monitor_id, monitor.name,
               monitor.owner_id, monitor.project_id, ARRAY(SELECT jsonb_array_elements_text(tag_keys)) AS keys
          FROM incidents_incident AS incident
          JOIN monitors_monitor AS monitor ON monitor.id = incident.monitor_id AND monitor.tag_keys IS NOT NULL
         WHERE incident.resolved_at IS NULL AND incident.announced_at > %(since)s
    ), tagging AS MATERIALIZED (
        SELECT page.id, page.owner_id, page.project_id, jsonb_object_agg(tag.key, true) AS keys
          FROM statuspages_statuspage AS page
          JOIN statuspages_pagegroup AS tagged ON tagged.page_id = page.id
         CROSS JOIN jsonb_array_elements_text(tagged.monitor_tag_keys) AS tag (key)
         WHERE page.published
           AND (page.owner_id IN (SELECT owner_id FROM opened) OR page.project_id IN (SELECT project_id FROM opened))
           AND EXISTS (SELECT FROM statuspages_subscriber AS subscriber
                        WHERE subscriber.page_id = page.id AND subscriber.confirmed_at IS NOT NULL)
         GROUP BY page.id
    ), shown AS (
        SELECT opened.*, tagging.id AS page_id
          FROM opened JOIN tagging ON tagging.project_id = opened.project_id
         WHERE tagging.keys ?| opened.keys
        UNION ALL
        SELECT opened.*, tagging.id
          FROM opened JOIN tagging ON tagging.owner_id = opened.owner_id
         WHERE tagging.project_id IS NULL AND tagging.keys ?| opened.keys
    )
    SELECT page_id, name, incident_id, started_at
      FROM shown
     WHERE NOT EXISTS (SELECT FROM statuspages_pagemonitor AS named
                        WHERE named.page_id = shown.page_id AND named.monitor_id = shown.monitor_id)
       AND NOT EXISTS (SELECT FROM statuspages_pageevent AS notified
                        WHERE notified.page_id = shown.page_id AND notified.incident_id = shown.incident_id
                          AND notified.kind = 'down')
     LIMIT %(limit)s
"""


def add_update_event(page: StatusPage, note: PageNote, update: NoteUpdate) -> None:
    """Add the event of an update, unless the page is unpublished. Call it in the transaction of the update."""
    if page.published:
        status = NoteUpdate.Status(update.status).label
        PageEvent.objects.create(
            page=page,
            kind=Kind.NOTE,
            source=f"update:{update.pk}",
            title=f"{status}: {note.title}",
            text=update.text,
            at=update.at,
        )


is_any_waiting = any_once_compiled(
    lambda _: [
        Incident.objects.filter(resolved_at=None, announced_at__isnull=False),
        PageEvent.objects.filter(kind=Kind.DOWN, ended=False),
        PageEvent.objects.filter(addressed_at=None),
    ]
)
"""Return whether `add_outage_events` or `create_mails` may have something to do at this time."""


def add_outage_events(now: datetime) -> None:
    """Add events for outages with alerts, and for their ends, to the pages that show the monitors."""
    notified = PageEvent.objects.filter(page=OuterRef("page"), kind=Kind.DOWN, incident=OuterRef("monitor__incidents"))
    begun = (
        showable()
        .filter(
            Exists(Subscriber.objects.filter(page=OuterRef("page"), confirmed_at__isnull=False)),
            ~Exists(notified),
            page__published=True,
            monitor__incidents__resolved_at=None,
            monitor__incidents__announced_at__gt=now - FRESH,
        )
        .values_list("page_id", "name", "monitor__incidents", "monitor__incidents__started_at")
    )
    found = [*begun[:EVENTS_AT_ONCE], *_begun_of_tagged(now)]
    # Another worker may do the same. The unique source prevents duplicates.
    PageEvent.objects.bulk_create(
        (
            PageEvent(
                page_id=page_id,
                kind=Kind.DOWN,
                source=f"incident:{incident_id}:down",
                incident_id=incident_id,
                title=f"{name} is down",
                text="Checks are failing. You will get another mail when it recovers.",
                at=started_at,
            )
            for page_id, name, incident_id, started_at in found
        ),
        ignore_conflicts=True,
    )
    _add_end_events(now)


def _begun_of_tagged(now: datetime) -> list[tuple[int, str, int, datetime]]:
    """Return page, name, incident and its start of outages of monitors that tags select."""
    with connection.cursor() as cursor:
        cursor.execute(_BEGUN_OF_TAGGED, {"since": now - FRESH, "limit": EVENTS_AT_ONCE})
        found: list[tuple[int, str, int, datetime]] = cursor.fetchall()
    return found


def _add_end_events(now: datetime) -> None:
    shown = showable().filter(page=OuterRef("page"), monitor=OuterRef("incident__monitor"), page__published=True)
    tagging = PageGroup.objects.filter(
        shares_tag(F("monitor_tag_keys"), OuterRef("tag_keys")),
        Q(page__project=OuterRef("project")) | Q(page__project=None, page__owner=OuterRef("owner")),
        page=OuterRef(OuterRef("page")),
        page__published=True,
    )
    tagged = Monitor.objects.filter(Exists(tagging), pk=OuterRef("incident__monitor"))
    with transaction.atomic():
        over = list(
            PageEvent.objects.select_for_update(of=["self"], skip_locked=True)
            .filter(kind=Kind.DOWN, ended=False, incident__closing_announced_at__isnull=False)
            # Null if the page shows the monitor no longer.
            .annotate(name=Coalesce(Subquery(shown.values("name")), Subquery(tagged.values("name"))))
            .select_related("incident")
            .order_by("pk")[:EVENTS_AT_ONCE]
        )
        ends = []
        for event in over:
            name, incident = event.name, event.incident
            if name is None or incident is None:
                continue
            recovered = incident.resolution == Incident.Resolution.RECOVERED
            ends.append(
                PageEvent(
                    page_id=event.page_id,
                    kind=Kind.RECOVERED,
                    source=f"incident:{incident.pk}:over",
                    incident=incident,
                    title=f"{name} has recovered" if recovered else f"{name} is no longer checked",
                    text="Checks pass again." if recovered else "Its checks were paused, so its state is unknown.",
                    at=incident.resolved_at or now,
                )
            )
        PageEvent.objects.bulk_create(ends, ignore_conflicts=True)
        PageEvent.objects.filter(pk__in=[event.pk for event in over]).update(ended=True)
    # The incident was deleted with its monitor.
    PageEvent.objects.filter(kind=Kind.DOWN, ended=False, incident=None).update(ended=True)


def create_mails(now: datetime) -> int:
    """Write a mail to each subscriber of new events, in turns of the accounts. Return the number of events.

    Each event has a separate transaction. While MAX_WAITING mails of an account wait, its next event waits too.
    """
    new = PageEvent.objects.filter(addressed_at=None)
    open_mails = PageMail.objects.filter(state=PageMail.State.WAITING).values("subscriber__page__owner")
    full = open_mails.annotate(mails=Count("pk")).filter(mails__gte=MAX_WAITING).values("subscriber__page__owner")
    turn = Window(RowNumber(), partition_by="page__owner", order_by="pk")
    waiting = new.exclude(page__owner__in=full).annotate(turn=turn).order_by("turn", "pk")
    done = 0
    for event_id in list(waiting.values_list("pk", flat=True)[:ADDRESSED_AT_ONCE]):
        with transaction.atomic():
            event = new.select_for_update(skip_locked=True).filter(pk=event_id).first()
            if event is None:
                continue
            with connection.cursor() as cursor:
                cursor.execute(
                    _CREATE_MAILS, {"event": event.pk, "page": event.page_id, "now": now, "give_up_at": now + RETRY_FOR}
                )
            event.addressed_at = now
            event.save(update_fields=["addressed_at"])
        done += 1
    return done


def delete_old(now: datetime) -> None:
    """Delete old events with their mails. Open outages are kept until they end."""
    old = PageEvent.objects.filter(at__lt=now - KEPT, addressed_at__isnull=False)
    old.exclude(kind=Kind.DOWN, ended=False).delete()

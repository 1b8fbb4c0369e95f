from __future__ import annotations

from datetime import datetime

import statuspages.selectors
from accounts.export import Sections, columns_of, serialized
from accounts.models import User
from projects.access import Caller, owned
from statuspages.models import Badge, PageEvent, PageNote, Subscriber
from statuspages.serializers import BadgeSerializer, NoteSerializer, StatusPageSerializer, SubscriberSerializer


def sections(user: User, *, now: datetime) -> Sections:
    caller = Caller(user)
    badges = Badge.objects.select_related("monitor")
    notes = PageNote.objects.select_related("incident", "page").prefetch_related("updates")
    subscribers = Subscriber.objects.select_related("page")
    return {
        "badges": serialized(owned(badges, user), BadgeSerializer, monitor_id="monitor.public_id"),
        "status_pages": serialized(
            owned(statuspages.selectors.list_pages(caller), user), StatusPageSerializer, context={"caller": caller}
        ),
        "status_page_notes": serialized(owned(notes, user), NoteSerializer, status_page_id="page.public_id"),
        "status_page_subscribers": serialized(
            owned(subscribers, user), SubscriberSerializer, status_page_id="page.public_id"
        ),
        "status_page_events": columns_of(
            owned(PageEvent.objects.all(), user),
            status_page_id="page__public_id",
            kind="kind",
            title="title",
            text="text",
            at="at",
        ),
    }

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from rest_framework.serializers import BaseSerializer

import statuspages.selectors
from accounts.export import Rows, Sections, rows_of, serialized
from accounts.models import User
from projects.access import Caller
from statuspages.models import Badge, PageNote, Subscriber
from statuspages.serializers import BadgeSerializer, NoteSerializer, StatusPageSerializer, SubscriberSerializer


def sections(user: User, *, now: datetime) -> Sections:
    pages = statuspages.selectors.list_pages(Caller(user)).filter(owner=user)
    badges = Badge.objects.filter(monitor__owner=user).select_related("monitor")
    notes = PageNote.objects.filter(page__owner=user).select_related("incident")
    return {
        "badges": lambda: rows_of(
            badges, lambda badge: {"monitor_id": badge.monitor.public_id, **BadgeSerializer(badge).data}
        ),
        "status_pages": lambda: serialized(pages, StatusPageSerializer),
        "status_page_notes": lambda: _of_pages(notes.prefetch_related("updates"), NoteSerializer),
        "status_page_subscribers": lambda: _of_pages(Subscriber.objects.filter(page__owner=user), SubscriberSerializer),
    }


def _of_pages(queryset: QuerySet[Any], serializer: type[BaseSerializer[Any]]) -> Rows:
    return rows_of(
        queryset.select_related("page"), lambda row: {"status_page_id": row.page.public_id, **serializer(row).data}
    )

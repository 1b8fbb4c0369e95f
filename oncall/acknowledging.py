"""Links in messages to a person, with which they acknowledge an incident without signing in.

A link acts for its person, and as long as they may read the incident. Mail scanners open links, so that GET changes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils.crypto import salted_hmac

from alerts.models import DeliveryItem
from core.clock import utc_now
from core.db import get_or_not_found
from core.errors import LinkExpired
from core.ids import random_text
from incidents.selectors import list_incidents
from oncall.models import AcknowledgeLink
from projects.access import Caller

LIFETIME = timedelta(days=7)
KEPT = timedelta(days=30)
"""How long after its end a link is answered with 410."""


def make_links(items: Sequence[DeliveryItem]) -> Mapping[int, str]:
    """Return the URL of a new link for the person and incident of each item, by key of the item."""
    expires_at = utc_now() + LIFETIME
    tokens: dict[tuple[int, int], str] = {}
    urls: dict[int, str] = {}
    for item in items:
        if item.incident_id is not None and item.user_id is not None:
            token = tokens.setdefault((item.incident_id, item.user_id), random_text(32))
            urls[item.pk] = f"{settings.BASE_URL}/a/{token}"
    links = [
        AcknowledgeLink(digest=_digest(token), incident_id=incident_id, user_id=user_id, expires_at=expires_at)
        for (incident_id, user_id), token in tokens.items()
    ]
    try:
        with transaction.atomic():
            AcknowledgeLink.objects.bulk_create(links)
    except IntegrityError:  # an incident or the person was deleted
        return {}
    return urls


def find(token: str, *, now: datetime) -> AcknowledgeLink:
    """Return a link with its person, and its incident as the person may read it.

    Raises NotFound if it does not exist, and LinkExpired if it is over, or its person can no longer read the incident.
    """
    link = get_or_not_found(AcknowledgeLink.objects.select_related("user"), digest=_digest(token))
    incident = list_incidents(Caller(link.user)).filter(pk=link.incident_id).first() if link.user.is_active else None
    if link.expires_at <= now or incident is None:
        raise LinkExpired
    link.incident = incident
    return link


def others_notified(link: AcknowledgeLink) -> list[str]:
    """Return the addresses of other people who were notified of the incident."""
    items = DeliveryItem.objects.filter(incident=link.incident, user__isnull=False, delivery__isnull=False)
    others = items.exclude(user=link.user).order_by("user__email")
    return list(others.values_list("user__email", flat=True).distinct())


def delete_old(now: datetime) -> None:
    """Delete links that ended long ago."""
    AcknowledgeLink.objects.filter(expires_at__lt=now - KEPT).delete()


def _digest(token: str) -> bytes:
    return salted_hmac("pulsekeeper.acknowledge-links", token, algorithm="sha256").digest()

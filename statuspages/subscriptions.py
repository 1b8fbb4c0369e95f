"""Subscriptions to status pages by e-mail. One link confirms an address, another one unsubscribes it.

Links are signed, not stored: data from the database does not suffice to subscribe or unsubscribe others.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from django.conf import settings
from django.core.signing import BadSignature, Signer
from django.db import transaction
from django.utils.crypto import salted_hmac

from accounts.services import email_address
from alerts.transports.base import mask_address
from core.db import get_or_not_found
from core.errors import NotFound, ValidationFailed
from core.metrics import Counter
from notifications.outbox import OUTCOMES, RETRY_FOR
from projects.access import Caller
from statuspages.models import PageMail, StatusPage, Subscriber
from statuspages.services import lock_page

MAILS = Counter(
    "pulsekeeper_status_page_mails_total",
    "Attempts to send a mail to a subscriber of a status page, with the same outcomes.",
    ("outcome",),
    [(outcome,) for outcome in OUTCOMES],
)

CONFIRM, UNSUBSCRIBE = "confirm", "unsubscribe"
LIFETIME = timedelta(hours=24)
"""How long a link to confirm is valid. Unconfirmed rows are deleted after it."""
REPEAT_AFTER = timedelta(minutes=10)
MAX_SUBSCRIBERS = 10_000


def subscribe(page_id: int, text: str, *, now: datetime) -> None:
    """Send a request to confirm, unless the address is subscribed. The visitor cannot see the difference.

    Raises ValidationFailed for an invalid address, and NotFound if the page was just deleted.
    """
    address = email_address(text)
    digest = _digest(page_id, address)
    with transaction.atomic():
        # The lock on the page serializes concurrent requests, for the quota and for an address.
        if not StatusPage.objects.select_for_update(no_key=True).filter(pk=page_id).exists():
            raise NotFound
        found = Subscriber.objects.filter(page=page_id, address_digest=digest).first()
        if found is None:
            if Subscriber.objects.filter(page=page_id).count() >= MAX_SUBSCRIBERS:
                raise ValidationFailed("this page has reached its limit of subscribers.", field="email")
            found = Subscriber.objects.create(
                page_id=page_id, created_at=now, address=address, address_digest=digest, hint=mask_address(address)
            )
        elif found.confirmed_at is None and found.created_at <= now - REPEAT_AFTER:
            # The first mail may be lost. The link stays the same, and its validity is extended by a day.
            Subscriber.objects.filter(pk=found.pk).update(created_at=now)
        else:
            return
        PageMail.objects.update_or_create(
            subscriber=found,
            event=None,
            defaults={
                "state": PageMail.State.WAITING,
                "next_try_at": now,
                "give_up_at": now + RETRY_FOR,
                "attempts": 0,
                "done_at": None,
            },
        )


def link(subscriber: Subscriber, action: str) -> str:
    """Return the URL that confirms or unsubscribes, without a sign-in."""
    return f"{settings.BASE_URL}/status-subscriptions/{action}/{_signer(action).sign(subscriber.public_id)}"


def find(token: str, action: str) -> Subscriber:
    """Return the subscriber of a link. Raises NotFound, also for the token of another action."""
    try:
        public_id = _signer(action).unsign(token)
    except BadSignature:
        raise NotFound from None
    return get_or_not_found(Subscriber.objects.select_related("page"), public_id=public_id)


def confirm(subscriber: Subscriber, *, now: datetime) -> None:
    """Confirm a subscription. Repeated calls have no effect. Raises NotFound if the link has expired."""
    if subscriber.confirmed_at is None:
        fresh = Subscriber.objects.filter(pk=subscriber.pk, created_at__gt=now - LIFETIME)
        if not fresh.update(confirmed_at=now):
            raise NotFound


def unsubscribe(token: str) -> None:
    """Delete the subscriber, if it still exists. An invalid link deletes nothing, and the response does not differ."""
    with suppress(NotFound):
        find(token, UNSUBSCRIBE).delete()


def remove_subscriber(caller: Caller, page_id: str, subscriber_id: str) -> None:
    with transaction.atomic():
        page = lock_page(caller, page_id)
        deleted, _ = Subscriber.objects.filter(page=page, public_id=subscriber_id).delete()
        if not deleted:
            raise NotFound


def delete_unconfirmed(now: datetime) -> None:
    Subscriber.objects.filter(confirmed_at=None, created_at__lte=now - LIFETIME).delete()


def _signer(action: str) -> Signer:
    return Signer(sep=".", salt=f"pulsekeeper.status-pages.{action}")


def _digest(page_id: int, address: str) -> bytes:
    text = f"{page_id} {address}"
    return salted_hmac("pulsekeeper.status-pages.subscribers", text, algorithm="sha256").digest()

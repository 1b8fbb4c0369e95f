"""Signed links in mails to subscribers. They cannot be forged, and are not stored."""

from __future__ import annotations

from django.conf import settings
from django.utils.crypto import constant_time_compare, salted_hmac

from core.errors import NotFound
from statuspages.models import Subscriber

CONFIRM, UNSUBSCRIBE = "confirm", "unsubscribe"


def confirm_url(subscriber: Subscriber) -> str:
    return _url(subscriber, CONFIRM)


def unsubscribe_url(subscriber: Subscriber) -> str:
    return _url(subscriber, UNSUBSCRIBE)


def read(token: str, *, to: str) -> str:
    """Return the subscriber's public id. Raises NotFound for a wrong signature, or one for another purpose."""
    public_id, _, mac = token.rpartition("-")
    if not constant_time_compare(mac, _mac(public_id, to)):
        raise NotFound
    return public_id


def _url(subscriber: Subscriber, to: str) -> str:
    token = f"{subscriber.public_id}-{_mac(subscriber.public_id, to)}"
    return f"{settings.BASE_URL}/status-subscriptions/{to}/{token}"


def _mac(public_id: str, to: str) -> str:
    return salted_hmac(f"pulsekeeper.status-pages.{to}", public_id, algorithm="sha256").hexdigest()[:32]

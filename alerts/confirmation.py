"""E-mail addresses get alerts after their owner agreed, and while that consent lasts.

The owner agrees through a link in a mail; nothing else is sent before. An account or a membership with that address is
not consent. The exception is a signed-in person who enters their own sign-in address: a mail has confirmed it already.

Consent ends when the owner leaves the project, and when the account is closed or deleted. If an account changes its
address, its channels and those of its projects change with it.

The link leads to a page with a button, because mail scanners open links.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q
from django.utils.crypto import salted_hmac

import audit.services
from accounts.models import User
from accounts.services import AddressChange, is_verified
from alerts.models import AlertChannel
from alerts.transports import KINDS
from audit.actions import Action
from core.clock import utc_now
from core.db import get_or_not_found
from core.errors import NotFound
from core.ids import random_text
from core.mail import send_on_commit
from core.text import one_line
from projects.access import Caller

LIFETIME = timedelta(days=14)
_REQUEST = """\
{by} wants to send Pulsekeeper alerts to this address, through the channel "{name}".

{base_url}/alert-channels/confirm/{token}

To agree, open this link within 14 days and confirm. If you do not want alerts, ignore this mail: nothing more is sent.
"""
_COLUMNS = ["confirmed_at", "confirmation_digest", "confirmation_until"]


def own_address(caller: Caller) -> str | None:
    """Return the verified address that the caller signs in with; None for a project token, which may be shared.

    The row is locked, before any project or channel: code that ends or changes the account locks it FOR UPDATE first,
    waits, and then finds the channel that this transaction saves. KEY SHARE does not conflict with
    `placement.enforce_quota`.
    """
    if caller.project is not None:
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT email FROM accounts_user WHERE id = %s AND is_active FOR KEY SHARE", [caller.user.pk])
        row = cursor.fetchone()
    return row[0] if row is not None and is_verified(caller.user) else None


def settle(channel: AlertChannel, *, address: str, own: str | None, by: str, now: datetime) -> None:
    """Confirm the channel's new address if it is the caller's own, else ask for consent. Saves nothing.

    `by` is the account that the request to consent names.
    """
    channel.confirmed_at = channel.confirmation_digest = channel.confirmation_until = None
    if address == own:
        channel.confirmed_at = now
        return
    token = random_text(32)
    channel.confirmation_digest, channel.confirmation_until = _digest(token), now + LIFETIME
    text = _REQUEST.format(by=by, name=one_line(channel.name), base_url=settings.BASE_URL, token=token)
    send_on_commit("Send Pulsekeeper alerts to this address?", text, to=address, account=f"mail of {by}")


def end_with_account(user: User, **channels: Any) -> None:
    """Withdraw a person's consent in these channels: in every one if their account is closed or deleted.

    A former member's consent ends in the channels of the project.
    """
    ended = [channel.pk for channel in _channels_to(user.email, Q(**channels))]
    AlertChannel.objects.filter(pk__in=ended).update(**dict.fromkeys(_COLUMNS))


def follow_address(change: AddressChange) -> None:
    """Move the account's channels to its new address. An address that staff entered has to confirm first."""
    user, now = change.user, utc_now()
    agreed = Q(owner=user, project=None) | Q(project__memberships__user=user)
    for channel in _channels_to(change.before, agreed & Q(confirmed_at__isnull=False)):
        kind = KINDS[channel.kind]
        channel.config = channel.config | {kind.consent: user.email}
        channel.hint = kind.hint(channel.config)
        settle(channel, address=user.email, own=user.email if change.clicked else None, by=user.email, now=now)
        channel.save(update_fields=["config", "hint", *_COLUMNS])


def _channels_to(address: str, among: Q) -> list[AlertChannel]:
    """Return the locked channels that send to the address. Addresses are encrypted, so filter by hint first."""
    of_kind = [Q(kind=kind.name, hint=kind.hint({kind.consent: address})) for kind in KINDS.values() if kind.consent]
    found = AlertChannel.objects.filter(among, reduce(or_, of_kind))
    locked = found.select_for_update(of=["self"], no_key=True).order_by("pk")
    return [channel for channel in locked if channel.config[KINDS[channel.kind].consent] == address]


def _digest(token: str) -> bytes:
    return salted_hmac("pulsekeeper.alert-channels", token, algorithm="sha256").digest()


def find_unconfirmed(token: str, *, now: datetime) -> AlertChannel:
    """Return the channel that a link is for. Raise NotFound."""
    open_ones = AlertChannel.objects.filter(confirmation_until__gt=now).select_related("owner", "project")
    return get_or_not_found(open_ones, confirmation_digest=_digest(token))


def confirm(token: str, *, now: datetime) -> AlertChannel:
    """Return the confirmed channel. Raise NotFound if the link was used, has expired, or is for an earlier address."""
    with transaction.atomic():
        channel = find_unconfirmed(token, now=now)
        unused = AlertChannel.objects.filter(pk=channel.pk, confirmation_digest=_digest(token))
        if not unused.update(confirmed_at=now, confirmation_digest=None, confirmation_until=None):
            raise NotFound
        audit.services.record(
            Action.CHANNEL_CONFIRMED,
            actor=None,  # the owner of the address may have no account
            subject=channel.owner,
            project=channel.project,
            target_id=channel.public_id,
            target_name=channel.name,
            details={"kind": channel.kind},
        )
    return channel

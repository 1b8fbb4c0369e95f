"""Somebody else's e-mail address gets alerts once its owner has agreed; the request for it is all that is sent before.

A link leads to a page with a button: programs that look at links in mails follow a GET, and agree to nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.utils.crypto import salted_hmac

import audit.services
from alerts import mail
from alerts.models import AlertChannel
from audit.actions import Action
from core.errors import NotFound
from core.ids import random_text
from projects.access import Caller
from projects.models import Membership

LIFETIME = timedelta(days=14)


def settle(channel: AlertChannel, *, address: str, by: Caller, now: datetime) -> None:
    """Confirm the channel's new address where it is known, or ask for it. Sets columns; the caller saves them."""
    channel.confirmed_at = channel.confirmation_digest = channel.confirmation_until = None
    if _is_known(channel, address):
        channel.confirmed_at = now
        return
    token = random_text(32)
    channel.confirmation_digest = _digest(token)
    channel.confirmation_until = now + LIFETIME
    name = channel.name
    # After the commit: a mail cannot be taken back, and no row stays locked while a mail server is slow.
    transaction.on_commit(
        lambda: mail.send_confirmation(to=address, by=by.user.email, name=name, token=token)
    )


def _is_known(channel: AlertChannel, address: str) -> bool:
    """Of the account itself; of a member, for a project's channel."""
    if channel.project_id is None:
        return channel.owner.email == address
    return Membership.objects.filter(project=channel.project_id, user__email=address).exists()


def _digest(token: str) -> bytes:
    return salted_hmac("pulsekeeper.alert-channels", token, algorithm="sha256").digest()


def find_unconfirmed(token: str, *, now: datetime) -> AlertChannel:
    """The channel that an e-mail's link is for."""
    found = (
        AlertChannel.objects.filter(confirmation_digest=_digest(token), confirmation_until__gt=now)
        .select_related("owner", "project")
        .first()
    )
    if found is None:
        raise NotFound
    return found


def confirm(token: str, *, now: datetime) -> None:
    """Raises NotFound where there is nothing to confirm: the link was used, ran out, or is of an address before."""
    with transaction.atomic():
        channel = find_unconfirmed(token, now=now)
        confirmed = AlertChannel.objects.filter(pk=channel.pk, confirmation_digest=_digest(token)).update(
            confirmed_at=now, confirmation_digest=None, confirmation_until=None
        )
        if not confirmed:
            raise NotFound
        audit.services.record(
            Action.CHANNEL_CONFIRMED,
            actor=None,  # whoever reads the mail of that address
            subject=channel.owner,
            project=channel.project,
            target_id=channel.public_id,
            target_name=channel.name,
            details={"kind": channel.kind},
        )

"""What a new account starts with."""

from __future__ import annotations

from accounts.models import User
from alerts import hints
from alerts.models import AlertChannel, Topic

TOPICS = (Topic.DOWN, Topic.RECOVERED, Topic.EXPIRY, Topic.REMINDER)


def add_own_address(user: User) -> None:
    """The e-mail address of a new account is a channel, for whoever sets up nothing more. Deleted, it stays so."""
    channel = AlertChannel(
        owner=user,
        created_at=user.created_at,
        confirmed_at=user.created_at,
        name="E-mail",
        kind=AlertChannel.Kind.EMAIL,
        hint=hints.of_address(user.email),
        topics=list(TOPICS),
    )
    channel.config = {"address": user.email}
    channel.save(force_insert=True)

"""The ways to send a message: one module for each kind of channel, imported by those who send and nobody else."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from alerts.transports.base import NativeService, Outcome

if TYPE_CHECKING:
    from alerts.messages import Message

__all__ = ["Outcome", "send"]


def send(kind: str, config: Mapping[str, str], message: Message, *, key: str, now: datetime) -> Outcome:
    """One bounded try. `config` is the channel's, `key` the delivery's: the same at every try.

    Never raises for what a receiver does. Raises KeyError for a config that lacks something, and ValueError for a
    kind that there is not.
    """
    if kind == "email":
        from alerts.transports import email

        return email.send(config["address"], message, key=key, now=now)
    if kind == "webhook":
        from alerts.transports import webhook

        return webhook.send(config["url"], message, secret=config["secret"], key=key, now=now)
    from alerts.transports import apprise_plugins
    from alerts.transports.kinds import APPRISE, KINDS

    if kind == APPRISE.name:
        return apprise_plugins.send(config["url"], message)
    service = KINDS.get(kind)
    if isinstance(service, NativeService):
        return apprise_plugins.send(service.address(config), message, service=service)
    raise ValueError(f"{kind!r} is no kind of channel")

"""What a provider is to the rest: its OAuth, and its projects. Plain requests, through the egress guard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ProviderProject:
    """`url` is "" where the project has no address."""

    external_ref: str
    name: str
    url: str


@dataclass(frozen=True, slots=True)
class Account:
    """What linking brings: the tokens, to be encrypted, and the account's name."""

    tokens: Mapping[str, Any] = field(repr=False)
    name: str | None


class ProviderFailed(Exception):
    """It is down, slow, limits us, or answers what makes no sense. The text is a sentence without secrets."""


class NotPermitted(ProviderFailed):
    """The tokens are good, but not for this. The text names what to grant."""


class OAuthRefused(Exception):
    """Nothing gets linked, for a reason that lies with whoever came back. The text is a sentence for a page."""


class GrantRevoked(Exception):
    """It does not take the tokens any more, and cannot give new ones."""


class Provider(Protocol):
    """Made for one action: all that it asks, from its making on, takes a bounded time together.

    `tokens` are those of Account. The network is awaited, so nothing of this inside a transaction.
    """

    name: str
    title: str
    """As people call it."""

    def is_configured(self) -> bool: ...

    def projects(self, tokens: Mapping[str, Any]) -> dict[str, ProviderProject]:
        """By reference; what makes no sense is left out. Raises ProviderFailed, GrantRevoked."""
        ...

    def has_run_out(self, tokens: Mapping[str, Any], *, now: datetime) -> bool:
        """By the time that came with them, or nearly."""
        ...

    def renewed(self, tokens: Mapping[str, Any], *, now: datetime) -> Mapping[str, Any]:
        """New ones. Those that were given may be spent by it. Raises ProviderFailed, GrantRevoked."""
        ...

    def seconds_left(self) -> float: ...

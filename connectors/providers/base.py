"""What a provider is to the rest: its OAuth, and its projects. Plain requests, through the egress guard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    """What linking brings: the tokens, to be sealed, and the account's name."""

    tokens: Mapping[str, Any]
    name: str | None


class ProviderFailed(Exception):
    """It is down, slow, limits us, or answers what makes no sense. The text is a sentence without secrets."""


class OAuthRefused(Exception):
    """Nothing gets linked, for a reason that lies with whoever came back. The text is a sentence for a page."""


class GrantRevoked(Exception):
    """It does not take the tokens any more, and cannot give new ones."""


class Provider(Protocol):
    """`tokens` are those of Account; a provider that had to refresh them returns the new ones."""

    name: str
    title: str
    """As people call it."""

    def is_configured(self) -> bool: ...

    def projects(self, tokens: Mapping[str, Any]) -> Iterator[ProviderProject]:
        """All of them, page by page, a bounded number. Raises ProviderFailed, GrantRevoked.

        The network is awaited between them: not to be read inside a transaction.
        """
        ...

    def refreshed(self, tokens: Mapping[str, Any], *, now: datetime) -> Mapping[str, Any]:
        """The same, or new ones where these have run out. Raises ProviderFailed, GrantRevoked."""
        ...

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProviderProject:
    """`url` is "" if the project has no address."""

    external_ref: str
    name: str
    url: str


class ProviderFailed(Exception):
    """The provider is down, slow, limits us, or its response is malformed. The text is a sentence without secrets."""


class NotPermitted(ProviderFailed):
    """The tokens are valid, but lack a permission. The text names what to grant."""


class OAuthRefused(Exception):
    """Nothing was linked, for a reason on the person's side. The text is a sentence for a page."""


class GrantRevoked(Exception):
    """The provider no longer accepts the tokens and cannot renew them."""

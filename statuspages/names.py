"""Slugs and host names of status pages. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

import idna

_RESERVED = re.compile(
    "admin|api|assets|badges?|confirm|edit|feed|history|index|logo|new|pages?|static|status|subscribe|subscriptions"
    "|theme|unsubscribe"
)
_SLUG = re.compile("[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_LABEL = re.compile("[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def check_slug(text: str) -> str:
    """Return the slug. Raises ValueError with the reason."""
    if not _SLUG.fullmatch(text):
        raise ValueError("must be 1 to 64 of a-z, 0-9 and -, with no - at either end.")
    if _RESERVED.fullmatch(text):
        raise ValueError("is reserved; choose another.")
    return text


def check_domain(text: str, *, own: Iterable[str]) -> str:
    """Return the host name in ASCII and lower case. Raises ValueError if it is malformed or one of `own`."""
    name = text.strip().rstrip(".").lower()
    try:
        name = idna.encode(name, uts46=True).decode("ascii")
    except idna.IDNAError:
        raise ValueError("must be a host name, like status.example.com.") from None
    labels = name.split(".")
    if len(name) > 253 or len(labels) < 2 or not all(map(_LABEL.fullmatch, labels)) or labels[-1].isdigit():
        raise ValueError("must be a host name, like status.example.com.")
    if name in own:
        raise ValueError("is an address of Pulsekeeper itself.")
    return name

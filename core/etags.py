"""Entity tags of settings, for conditional requests (RFC 9110, 13.1.1). They do not depend on state."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, Protocol

from django.utils.crypto import salted_hmac

from core.errors import ChangedMeanwhile, ValidationFailed

IF_MATCH = "If-Match"
IfMatch = Collection[str] | None
"""The tags that a change accepts. None: any."""
_TOKEN = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")|,|[ \t]+')


class Tagged(Protocol):
    """A row with settings that clients change."""

    @property
    def tagged_settings(self) -> Any:
        """All settings, secrets included, as a value for JSON. Lists without an order are sorted."""


def digest(value: Any) -> str:
    """Return a digest of a value for JSON. It is keyed, because the value may contain secrets."""
    return salted_hmac("pulsekeeper.etag", json.dumps(value, sort_keys=True), algorithm="sha256").hexdigest()[:32]


def etag(row: Tagged) -> str:
    """Return the strong entity tag of a row."""
    return f'"{digest(row.tagged_settings)}"'


def require_match(row: Tagged, if_match: IfMatch) -> None:
    """Raise ChangedMeanwhile if the row has none of the tags. Call it with the row locked."""
    if if_match is not None and etag(row) not in if_match:
        raise ChangedMeanwhile


def parse_if_match(header: str | None) -> IfMatch:
    """Return the strong tags of the header: weak ones never match. Raises ValidationFailed if it is malformed."""
    if header is None or header.strip(" \t") == "*":
        return None
    found, end, is_separated = [], 0, True
    for token in _TOKEN.finditer(header):
        if token.start() != end or (token[2] and not is_separated):
            break
        end = token.end()
        if token[2]:
            found.append(token)
        is_separated = token[0] == "," or (is_separated and not token[2])
    if end < len(header) or not found:
        raise ValidationFailed("must be * or a list of ETags, each in double quotes.", field=IF_MATCH)
    return {token[2] for token in found if not token[1]}

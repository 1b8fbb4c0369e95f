"""Tags of monitors: short texts, compared without case. A tag exists while a monitor has it. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from core.errors import ValidationFailed
from core.text import quote

MAX_TAGS, MAX_TAG = 20, 40
_MOST_DECOMPOSED = 4
"""Characters that NFC may combine into one. Normalizing longer texts would be slow, and of no use."""


def settle_tags(given: Sequence[str], *, field: str = "tags") -> tuple[str, ...]:
    """Return the tags trimmed, in NFC, and in the given order. Raises ValidationFailed for `field`."""
    if len(given) > MAX_TAGS:
        raise ValidationFailed(f"at most {MAX_TAGS} tags.", field=field)
    tags: dict[str, str] = {}
    for index, text in enumerate(given):
        tag, problem = normalized(text)
        if problem:
            raise ValidationFailed(problem, field=f"{field}[{index}]")
        if tag_key(tag) in tags:
            raise ValidationFailed(f"names {quote(tag)} more than once; case does not matter.", field=field)
        tags[tag_key(tag)] = tag
    return tuple(tags.values())


def normalized(text: str) -> tuple[str, str]:
    """Return a tag trimmed and in NFC, and why it is invalid, or an empty text."""
    tag = text.strip()
    if not tag:
        return tag, "cannot be blank."
    if len(tag) <= MAX_TAG * _MOST_DECOMPOSED:
        tag = unicodedata.normalize("NFC", tag)
    if len(tag) > MAX_TAG:
        return tag, f"cannot have more than {MAX_TAG} characters."
    # No database stores lone surrogates.
    if "," in tag or any(unicodedata.category(character) in ("Cc", "Cs") for character in tag):
        return tag, "cannot contain commas or control characters."
    return tag, ""


def tag_key(text: str) -> str:
    """Return what two spellings of a tag have in common: its text in NFC and without case."""
    text = text.strip()[: MAX_TAG * _MOST_DECOMPOSED]
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())

"""Text of a target in our own sentences: short, on one line, and storable whatever the target sent."""

from __future__ import annotations

import re

DETAIL_CHARS = 300

# Controls beyond the first 32, line and paragraph separators, bidirectional overrides, and lone surrogates, which
# no database takes.
_ODD = "\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_UNPRINTABLE = re.compile(f"[\x00-\x1f{_ODD}]+")
_UNPRINTABLE_BUT_LINES = re.compile(f"[\x00-\x08\x0b-\x1f{_ODD}]+")


def printable(text: str, *, keep_lines: bool = False) -> str:
    """`text` with a blank for each run of unprintable characters; `keep_lines` spares tab and newline."""
    if keep_lines:
        return _UNPRINTABLE_BUT_LINES.sub(" ", text.replace("\r\n", "\n"))
    return _UNPRINTABLE.sub(" ", text)


def shorten(text: str, *, limit: int) -> str:
    """`text` without unprintable characters, at most `limit` characters, the last an ellipsis where cut."""
    # Cut before the substitution as well: a target may send a mebibyte to be quoted.
    clean = printable(text[: limit * 4]).strip()
    return clean if len(clean) <= limit and len(text) <= limit * 4 else clean[: limit - 1] + "…"


def quote(text: str, *, limit: int = 80) -> str:
    return f'"{shorten(text, limit=limit)}"'


def sentence(text: str) -> str:
    """What may become a `detail`."""
    return shorten(text, limit=DETAIL_CHARS)

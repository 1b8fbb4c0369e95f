"""Quote text of a target in our own sentences: short, printable, on one line."""

from __future__ import annotations

import re
import unicodedata

DETAIL_CHARS = 300
NAME_CHARS = 80
_COPY = " (copy)"

# Control characters from 127 on, line and paragraph separators, bidirectional overrides, and lone surrogates, which no
# database stores.
_ODD = "\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_UNPRINTABLE = re.compile(f"[\x00-\x1f{_ODD}]+")
_UNPRINTABLE_BUT_LINES = re.compile(f"[\x00-\x08\x0b-\x1f{_ODD}]+")


def printable(text: str, *, keep_lines: bool = False) -> str:
    """Replace each run of unprintable characters by a blank; `keep_lines` keeps tabs and newlines."""
    if keep_lines:
        return _UNPRINTABLE_BUT_LINES.sub(" ", text.replace("\r\n", "\n"))
    return _UNPRINTABLE.sub(" ", text)


def shorten(text: str, *, limit: int) -> str:
    """Return printable text of at most `limit` characters, the last an ellipsis if it was cut."""
    # Cut before the substitution as well: a target may send a mebibyte.
    clean = printable(text[: limit * 4]).strip()
    return clean if len(clean) <= limit and len(text) <= limit * 4 else clean[: limit - 1] + "…"


def one_line(text: str, *, limit: int = NAME_CHARS) -> str:
    """Return one line of at most `limit` characters, without control and invisible characters.

    For names in mails and alerts, whose authors must not control the text around them.
    """
    visible = "".join(c for c in printable(text[: limit * 4]) if unicodedata.category(c) not in ("Cf", "Co"))
    clean = " ".join(visible.split())
    return clean if len(clean) <= limit and len(text) <= limit * 4 else f"{clean[: limit - 1].rstrip()}…"


def counted(number: int, noun: str) -> str:
    """Return for example `1 monitor` or `2,000 monitors`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def quote(text: str, *, limit: int = 80) -> str:
    return f'"{shorten(text, limit=limit)}"'


def copy_name(name: str, *, limit: int) -> str:
    """Return the name of a copy, such as `Shop (copy)`, of at most `limit` characters: a long name is cut."""
    return f"{name[: limit - len(_COPY)].rstrip()}{_COPY}"


def sentence(text: str) -> str:
    """Return text that may be stored as `detail`."""
    return shorten(text, limit=DETAIL_CHARS)

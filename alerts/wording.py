"""Text helpers for messages. Names and details come from users and targets, and may be hostile. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from core.text import counted, one_line, printable

DETAIL_CHARS = 400
BODY_CHARS = 600

_BREAK = "\u200b"  # zero-width space: invisible, and ends what a mail or chat program detects as a link
_LINKS = re.compile(r"(?<=:)(?=//)|(?<=\w[.])(?=[^\W\d_])|(?<=\w@)(?=\w)")
_CALLS = re.compile(r"(?<=[@<])(?=\S)")


def several_lines(text: str, *, limit: int) -> str:
    """Clean like `one_line`, but keep the lines."""
    lines = (one_line(line, limit=limit) for line in printable(text[: limit * 4], keep_lines=True).split("\n"))
    clean = "\n".join(line for line in lines if line)
    return clean if len(clean) <= limit and len(text) <= limit * 4 else f"{clean[: limit - 1].rstrip()}…"


def unlinked(text: str) -> str:
    """Return text that looks the same, but in which programs detect no links."""
    return _LINKS.sub(_BREAK, text)


def uncalling(text: str) -> str:
    """Remove links like `unlinked`, and mentions that chat services notify (`@everyone`, `<!channel>`)."""
    return _CALLS.sub(_BREAK, unlinked(text))


def duration(span: timedelta) -> str:
    """Return a span in its two largest units: `42 seconds`, `4 min 12 s`, `2 h 5 min`."""
    seconds = max(round(span.total_seconds()), 0)
    if seconds < 60:
        return counted(seconds, "second")
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else counted(minutes, "minute")
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else counted(hours, "hour")
    days, hours = divmod(hours, 24)
    return f"{counted(days, 'day')} {hours} h" if hours else counted(days, "day")


def written(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"

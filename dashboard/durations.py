"""Durations in the notation of forms: `60`, `5m`, `1h 30m`, `0.5s`, `800 ms`. Pure."""

from __future__ import annotations

import re
from decimal import Decimal

MS_OF = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WORDS = {
    "ms": ("ms", "msec", "millisecond", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("w", "week", "weeks"),
}
_UNITS = {word: unit for unit, words in _WORDS.items() for word in words}
_PART = re.compile(r"([0-9]+(?:[.,][0-9]+)?|[.,][0-9]+)\s*([a-z]*)\s*(?:,|and\b)?\s*")
MAX_TEXT = 40


def parse_duration(text: str) -> Decimal:
    """Return milliseconds; a number without unit is in seconds. Raises ValueError."""
    text = text.strip().lower()
    if not text or len(text) > MAX_TEXT:
        raise ValueError("no duration")
    total, position = Decimal(0), 0
    while position < len(text):
        part = _PART.match(text, position)
        is_single = position == 0 and part is not None and part.end() == len(text)
        unit = None if part is None else "s" if is_single and not part[2] else _UNITS.get(part[2])
        if part is None or unit is None:
            raise ValueError("no duration")
        total += Decimal(part[1].replace(",", ".")) * MS_OF[unit]
        position = part.end()
    return total


def format_duration(ms: int) -> str:
    """Return the shortest text that `parse_duration` reads as this duration: `5m`, `1h 30m`, `1.5s`, `0s`."""
    parts, rest = [], ms
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, MS_OF[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest or not parts:
        parts.append(f"{Decimal(rest) / 1000:f}s")
    return " ".join(parts)

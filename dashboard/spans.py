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


class NoSpanError(ValueError):
    """The text is not a duration."""


def parse_span(text: str) -> Decimal:
    """Return milliseconds; a number without unit is in seconds. Raises NoSpanError."""
    text = text.strip().lower()
    if not text or len(text) > MAX_TEXT:
        raise NoSpanError
    total, at = Decimal(0), 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise NoSpanError
        number, word = part.groups()
        alone = at == 0 and part.end() == len(text)
        unit = "s" if not word and alone else _UNITS.get(word)
        if unit is None:
            raise NoSpanError
        total += Decimal(number.replace(",", ".")) * MS_OF[unit]
        at = part.end()
    return total


def say_span(ms: int) -> str:
    """Return the shortest text that `parse_span` reads as this duration: `5m`, `1h 30m`, `1.5s`, `0s`."""
    parts = []
    seconds = ms % MS_OF["m"]
    left = ms - seconds
    for unit in ("d", "h", "m"):
        count, left = divmod(left, MS_OF[unit])
        if count:
            parts.append(f"{count}{unit}")
    if seconds or not parts:
        parts.append(f"{Decimal(seconds) / 1000:f}s")
    return " ".join(parts)

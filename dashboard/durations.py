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
_MS_OF_WORD = {word: MS_OF[unit] for unit, words in _WORDS.items() for word in words}
_PART = re.compile(r"([0-9]+(?:[.,][0-9]+)?|[.,][0-9]+)\s*([a-z]*)\s*(?:,|and\b)?\s*")
MAX_TEXT = 40


def parse_duration(text: str) -> Decimal:
    """Return milliseconds; a number without unit is in seconds. Raises ValueError."""
    text = text.strip().lower()
    parts = list(_PART.finditer(text)) if len(text) <= MAX_TEXT else []
    factors = [_MS_OF_WORD.get(part[2] or ("s" if len(parts) == 1 else ""), 0) for part in parts]
    if not parts or not all(factors) or "".join(part[0] for part in parts) != text:
        raise ValueError("no duration")
    return sum((Decimal(part[1].replace(",", ".")) * ms for part, ms in zip(parts, factors, strict=True)), Decimal())


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

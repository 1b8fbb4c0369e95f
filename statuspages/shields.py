"""Badges as small SVGs. Pure."""

from __future__ import annotations

_COLOURS = {"up": "#0d7350", "slow": "#8a5300", "down": "#bb2025", "idle": "#575f6d"}
_LABEL = "#343a46"
_PADDING = 6
# Of Verdana at 11 px, which readers' systems come near to; `textLength` makes it exact whatever font they have.
_WIDE, _NARROW = frozenset("mwMW%@"), frozenset("iljtfrI.,:;|!'()[] 1")

STATUS_KINDS = {"up": "up", "slow": "slow", "down": "down", "paused": "idle", "unknown": "idle"}


def shield(label: str, value: str, kind: str) -> str:
    """`label` and `value` are our own words and numbers; `kind` is up, slow, down or idle."""
    left, right = _width(label), _width(value)
    total = left + right
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="20" role="img" aria-label="{label}: {value}">'
        f"<title>{label}: {value}</title>"
        f'<clipPath id="r"><rect width="{total}" height="20" rx="4"/></clipPath>'
        f'<g clip-path="url(#r)"><path fill="{_LABEL}" d="M0 0h{left}v20H0z"/>'
        f'<path fill="{_COLOURS[kind]}" d="M{left} 0h{right}v20H{left}z"/></g>'
        '<g fill="#fff" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2:g}" y="14" textLength="{left - 2 * _PADDING}">{label}</text>'
        f'<text x="{left + right / 2:g}" y="14" textLength="{right - 2 * _PADDING}">{value}</text></g></svg>'
    )


def uptime_kind(percent: float | None) -> str:
    if percent is None:
        return "idle"
    return "up" if percent >= 99.5 else "slow" if percent >= 95 else "down"


def _width(text: str) -> int:
    width = sum(10.0 if c in _WIDE else 4.2 if c in _NARROW else 7.0 for c in text)
    return round(width) + 2 * _PADDING

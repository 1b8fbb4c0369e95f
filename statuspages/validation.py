"""Slugs, host names and accent colours of status pages. Pure. Contrast is that of WCAG 2.2."""

from __future__ import annotations

import re
from collections.abc import Iterable

import idna

MAX_DOMAIN = 253 - len("_pulsekeeper-challenge.")

_RESERVED = re.compile(
    "admin|api|assets|badges?|confirm|edit|feed|history|index|logo|new|pages?|static|status|subscribe|subscriptions"
    "|theme|unsubscribe"
)
_SLUG = re.compile("[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_LABEL = re.compile("[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")

# The backgrounds and surfaces of tokens.css, light and dark.
BACKGROUNDS = ("#f6f7f9", "#ffffff", "#0e1116", "#161a21")
ENOUGH = 3.0
"""WCAG AA for non-text, 1.4.11. No colour reaches 4.5 on both themes, so accents are not used for text."""


def check_slug(text: str) -> str:
    """Return the slug. Raises ValueError with the reason."""
    if not _SLUG.fullmatch(text):
        raise ValueError("must be 1 to 64 characters of a-z, 0-9 and -, without - at the start or end.")
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
    if len(name) > MAX_DOMAIN or len(labels) < 2 or not all(map(_LABEL.fullmatch, labels)) or labels[-1].isdigit():
        raise ValueError("must be a host name, like status.example.com.")
    if name in own:
        raise ValueError("is an address of Pulsekeeper itself.")
    return name


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours #rrggbb: 1 to 21."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def check_accent(text: str) -> str:
    """Return the colour in lower case. Raises ValueError, with the reason, if it is malformed or too faint."""
    colour = text.lower()
    if not re.fullmatch("#[0-9a-f]{6}", colour):
        raise ValueError("must be a colour like #2f6fed.")
    for background in BACKGROUNDS:
        if contrast(colour, background) < ENOUGH:
            theme = "light" if background in BACKGROUNDS[:2] else "dark"
            change = "darker" if theme == "light" else "lighter"
            raise ValueError(f"has too little contrast on the {theme} theme; choose a {change} one (at least 3 to 1).")
    return colour


def text_on(colour: str) -> str:
    """Return white or black, the one with more contrast: at least 4.5 to 1 on every colour."""
    return max("#ffffff", "#000000", key=lambda text: contrast(text, colour))


def _luminance(colour: str) -> float:
    parts = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

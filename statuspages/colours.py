"""Contrast after WCAG 2.2. Pure."""

from __future__ import annotations

import re

# The backgrounds and surfaces of tokens.css, light and dark.
BACKGROUNDS = ("#f6f7f9", "#ffffff", "#0e1116", "#161a21")
ENOUGH = 3.0
"""WCAG AA for non-text, 1.4.11. No colour reaches 4.5 on both themes, so accents are not used for text."""

_LIGHT, _DARK = "#ffffff", "#000000"


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
            raise ValueError(f"is hard to see on the {theme} theme; choose a {change} one (a contrast of 3 to 1).")
    return colour


def text_on(colour: str) -> str:
    """Return white or black, the one with more contrast: at least 4.5 to 1 on every colour."""
    return max(_LIGHT, _DARK, key=lambda text: contrast(text, colour))


def _luminance(colour: str) -> float:
    parts = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

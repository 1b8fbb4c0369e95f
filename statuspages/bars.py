"""Uptime bars as SVG: one path per kind of day, one box per run of equal days. Pure.

A rectangle per day would make a page of a thousand monitors ten megabytes large. The stylesheet masks the gaps between
days.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

HEIGHT = 20
FOOT = 7
BAD = 95.0
"""Uptime in percent. A day below it is all red; another day with an outage is red at the bottom."""

# One letter per kind of day: not observed, up, partly down, mostly down. Regular expressions find the runs, because a
# page can have ninety thousand days.
_NONE, _UP, _PART, _BAD = "nupb"
_PATHS = (
    ("fill-none", (("n", re.compile("n+"), 0, HEIGHT),)),
    ("fill-up", (("", re.compile("[up]+"), 0, HEIGHT),)),
    ("fill-down", (("p", re.compile("p+"), HEIGHT - FOOT, FOOT), ("b", re.compile("b+"), 0, HEIGHT))),
)


def svg(percents: Sequence[float | None]) -> str:
    """Return the bars, without text: the page shows the same facts beside them."""
    kinds = "".join(
        [
            _NONE if percent is None else _UP if percent >= 100 else _PART if percent >= BAD else _BAD
            for percent in percents
        ]
    )
    drawn = ""
    for name, layers in _PATHS:
        path = "".join(
            [
                f"M{run.start()} {top}h{run.end() - run.start()}v{height}H{run.start()}z"
                for letter, runs, top, height in layers
                if letter in kinds
                for run in runs.finditer(kinds)
            ]
        )
        if path:
            drawn += f'<path class="{name}" d="{path}"/>'
    return f'<svg viewBox="0 0 {len(kinds)} {HEIGHT}" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'


def bad_days(percents: Iterable[float | None]) -> str:
    """Return the days below 100 % for status.js: `12:99.65 14:0`, `20:-` if not observed, `0-11:-` for a range."""
    found = []
    start = 0
    for percent, run in groupby(percents):
        length = len(list(run))
        if percent != 100.0:
            days = str(start) if length == 1 else f"{start}-{start + length - 1}"
            found.append(f"{days}:{'-' if percent is None else format(percent, 'g')}")
        start += length
    return " ".join(found)

"""Ninety days as a drawing of a few hundred bytes: one path for each kind of day, runs of equal days as one box. Pure.

A thousand monitors with a rectangle for each day would be a page of ten megabytes. The gaps between days are a mask of
the stylesheet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

HEIGHT = 20
FOOT = 7
BAD = 95.0
"""Percent of uptime below which a day is red from top to bottom; above, red at its foot."""

# A letter for each kind of day: not observed, up, down for a while, down for long. Runs are found by expressions, for
# a page has ninety thousand days.
_NONE, _UP, _PART, _BAD = "nupb"
_PATHS = (
    ("fill-none", (("n", re.compile("n+"), 0, HEIGHT),)),
    ("fill-up", (("", re.compile("[up]+"), 0, HEIGHT),)),
    ("fill-down", (("p", re.compile("p+"), HEIGHT - FOOT, FOOT), ("b", re.compile("b+"), 0, HEIGHT))),
)


def svg(percents: Sequence[float | None]) -> str:
    """A drawing without words: what it says stands beside it."""
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
    """For the script that tells of days: `12:99.65 14:0`, each day that was not wholly up; `20:-` for one unobserved.

    Days that follow one another and are alike are one: `0-11:-`.
    """
    found = []
    start = 0
    for percent, run in groupby(percents):
        length = len(list(run))
        if percent != 100.0:
            place = str(start) if length == 1 else f"{start}-{start + length - 1}"
            found.append(f"{place}:{'-' if percent is None else format(percent, 'g')}")
        start += length
    return " ".join(found)

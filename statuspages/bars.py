"""Ninety days as a drawing of a few hundred bytes: one path for each kind of day, runs of equal days as one box. Pure.

A thousand monitors with a rectangle for each day would be a page of ten megabytes. The gaps between days are a mask of
the stylesheet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

HEIGHT = 20
FOOT = 7
BAD = 95.0
"""Percent of uptime below which a day is red from top to bottom; above, red at its foot."""


def svg(percents: Sequence[float | None]) -> str:
    """A drawing without words: what it says stands beside it."""
    kinds = [_kind(percent) for percent in percents]
    paths = [
        ("fill-none", _boxes(kinds, "none", 0, HEIGHT)),
        ("fill-up", _boxes(["up" if kind == "part" else kind for kind in kinds], "up", 0, HEIGHT)),
        (
            "fill-down",
            _boxes(kinds, "part", HEIGHT - FOOT, FOOT) + _boxes(kinds, "bad", 0, HEIGHT),
        ),
    ]
    drawn = "".join(f'<path class="{name}" d="{path}"/>' for name, path in paths if path)
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


def _kind(percent: float | None) -> str:
    if percent is None:
        return "none"
    return "up" if percent >= 100 else "part" if percent >= BAD else "bad"


def _boxes(kinds: Sequence[str], wanted: str, top: int, height: int) -> str:
    path = []
    start = 0
    for kind, run in groupby(kinds):
        length = len(list(run))
        if kind == wanted:
            path.append(f"M{start} {top}h{length}v{height}h-{length}z")
        start += length
    return "".join(path)

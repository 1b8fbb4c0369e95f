"""Bars and sparklines as SVG. All cells of a colour are one path, since a list shows thousands of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

CELL, GAP, HEIGHT = 3, 1, 20
SPARK_WIDTH, SPARK_HEIGHT = 96, 24
_MARGIN = 2


class Cell(StrEnum):
    """The worst status of an hour or a day. The value is part of its CSS class, like `fill-up`."""

    DOWN = "down"
    SLOW = "slow"
    UP = "up"
    NONE = "none"


_WORDS = {Cell.DOWN: "with an outage", Cell.SLOW: "with slow checks", Cell.UP: "up", Cell.NONE: "without observation"}


class Bar(NamedTuple):
    """A bar. `paths` are pairs (class, d). `width` is that of the view box; the height is HEIGHT."""

    paths: Sequence[tuple[str, str]]
    width: int
    sentence: str


def bar(cells: Sequence[Cell]) -> Bar:
    """Return the cells, one for an hour. Screen readers read the sentence: `Last 24 hours: 1 with an outage, 23 up.`"""
    paths = {
        kind: "".join(
            f"M{index * (CELL + GAP)} 0h{CELL}v{HEIGHT}h-{CELL}z" for index, cell in enumerate(cells) if cell is kind
        )
        for kind in Cell
    }
    counts = ", ".join(f"{cells.count(kind)} {words}" for kind, words in _WORDS.items() if paths[kind])
    return Bar(
        [(f"fill-{kind}", d) for kind, d in paths.items() if d],
        len(cells) * (CELL + GAP) - GAP,
        f"Last {len(cells)} hours: {counts}.",
    )


def spark(values: Sequence[float | None]) -> str:
    """Return a line through the values, interrupted at None. Empty for fewer than two values."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    # The scale covers at least a quarter of the highest value, so that small variations look small.
    spread = max(high - low, high / 4, 1)
    middle = (low + high) / 2
    step = SPARK_WIDTH / (len(values) - 1)
    inner = SPARK_HEIGHT - 2 * _MARGIN
    path, drawing = [], False
    for index, value in enumerate(values):
        if value is None:
            drawing = False
            continue
        y = SPARK_HEIGHT / 2 - (value - middle) / spread * inner
        path.append(f"{'L' if drawing else 'M'}{index * step:.0f} {y:.1f}")
        drawing = True
    return "".join(path)

"""Bars and sparklines as paths of SVG: one path for all cells of a colour, since a list shows thousands. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

CELL, GAP, HEIGHT = 3, 1, 20
SPARK_WIDTH, SPARK_HEIGHT = 96, 24
_MARGIN = 2


class Cell(StrEnum):
    """How an hour or a day was at its worst; the value is the class of its colour, as in `fill-up`."""

    DOWN = "down"
    SLOW = "slow"
    UP = "up"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Bar:
    """`paths` are (class, d). `width` is that of the view box; the height is HEIGHT."""

    paths: Sequence[tuple[str, str]]
    width: int
    sentence: str


def bar(cells: Sequence[Cell], *, unit: str) -> Bar:
    """Cells side by side. `unit` names one in the sentence: hour."""
    paths = {
        kind: "".join(
            f"M{index * (CELL + GAP)} 0h{CELL}v{HEIGHT}h-{CELL}z"
            for index, cell in enumerate(cells)
            if cell is kind
        )
        for kind in Cell
    }
    return Bar(
        [(f"fill-{kind}", d) for kind, d in paths.items() if d],
        len(cells) * (CELL + GAP) - GAP,
        sentence(cells, unit=unit),
    )


def sentence(cells: Sequence[Cell], *, unit: str) -> str:
    """What a bar says to somebody who does not see it: `Last 24 hours: 1 with an outage, 23 up.`"""
    counts = Counter(cells)
    told = {
        Cell.DOWN: "with an outage",
        Cell.SLOW: "with slow checks",
        Cell.UP: "up",
        Cell.NONE: "without observation",
    }
    parts = [f"{counts[kind]} {words}" for kind, words in told.items() if counts[kind]]
    return f"Last {len(cells)} {unit}s: {', '.join(parts)}."


def spark(values: Sequence[float | None]) -> str:
    """A line through the values, interrupted where there is none; empty with fewer than two of them."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    # A line that wavers by a few percent looks calm: the scale is never finer than a quarter of the highest.
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

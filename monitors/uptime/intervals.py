"""Uptime: the share of observed time in which a monitor was not down. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    start: datetime
    end: datetime


@dataclass(slots=True)
class Tally:
    """The totals of a window: observed time, observed downtime, and the number of outages that began."""

    observed: timedelta = timedelta()
    down: timedelta = timedelta()
    incidents: int = 0

    @property
    def percent(self) -> float | None:
        return percent(self.observed, self.down)


def percent(observed: Any, down: Any) -> float | None:
    """Return the uptime in percent with two decimals, or None if nothing was observed. Takes timedeltas or numbers."""
    return round(100 * (observed - down) / observed, 2) if observed else None


def apart(spans: Iterable[Span]) -> list[Span]:
    """Merge overlapping spans, so that no time is subtracted twice."""
    apart: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if apart and span.start <= apart[-1].end:
            apart[-1] = Span(apart[-1].start, max(apart[-1].end, span.end))
        else:
            apart.append(span)
    return apart

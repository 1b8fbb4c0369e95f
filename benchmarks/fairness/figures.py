"""The figures of a row, and their limits. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

COMPOSE = Path(__file__).resolve().parents[2] / "docker-compose.yml"
LIMITS = {"check": 5.0, "ping": 1.0, "page": 1.0, "alert": 10.0}
"""How late each may be, in seconds."""
NAMES = {"check": ("check_late_s", 1), "ping": ("ping_ms", 1000), "page": ("page_ms", 1000), "alert": ("alert_s", 1)}
"""The names of figures, and their units in a second."""
WORST = (*(f"worst_{name}" for name, _ in NAMES.values()), "false_changes", "missed_changes", "web_peak_mib")
COUNTED = ("silent", "restarts")

Figures = dict[str, Any]


class Sample(NamedTuple):
    """`at` is when something was due, and `taken` how late it was, both in seconds. `what` is the request."""

    at: float
    taken: float
    what: str = ""


@dataclass
class Observed:
    """The effect of a row on the quiet tenant. `false`, `missed`: descriptions of such changes of status."""

    samples: Mapping[str, Sequence[Sample]]
    false: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def figures(self) -> Figures:
        found: Figures = {}
        for kind, (name, units) in NAMES.items():
            for word, percent in (("p99", 99), ("worst", 100)):
                found[f"{word}_{name}"] = round(percentile(self.samples[kind], percent) * units, 2 if units == 1 else 0)
            found[f"{kind}s"] = len(self.samples[kind])
        for kind in ("check", "page"):
            found[f"slowest_{kind}"] = max(self.samples[kind], key=lambda one: one.taken, default=Sample(0, 0)).what
        return found | {"false_changes": len(self.false), "missed_changes": len(self.missed)}

    def broken(self) -> Iterator[float]:
        """Yield when each limit of time was broken first."""
        for kind, limit in LIMITS.items():
            if late := self._late(kind):
                yield min(sample.at for sample in late) + limit

    def describe_late(self) -> Iterator[str]:
        for kind in LIMITS:
            yield from (f"{kind} {one.what} late by {one.taken:.2f} s at {one.at:.2f}" for one in self._late(kind))

    def _late(self, kind: str) -> list[Sample]:
        return [sample for sample in self.samples[kind] if sample.taken > LIMITS[kind]]


def percentile(samples: Sequence[Sample], percent: int) -> float:
    taken = sorted(sample.taken for sample in samples)
    return taken[math.ceil(len(taken) * percent / 100) - 1] if taken else 0.0


def worst(figures: Sequence[Figures]) -> Figures:
    return {name: max((each[name] for each in figures), default=0) for name in WORST} | {
        name: sum(each[name] for each in figures) for name in COUNTED
    }


def web_limit_mib() -> float:
    """Return the memory limit of web in docker-compose.yml."""
    web = yaml.safe_load(COMPOSE.read_text())["services"]["web"]
    return float(web["deploy"]["resources"]["limits"]["memory"].removesuffix("m"))


def is_within_limits(figures: Figures) -> bool:
    in_time = all(figures[f"worst_{NAMES[kind][0]}"] <= limit * NAMES[kind][1] for kind, limit in LIMITS.items())
    right = not figures["false_changes"] and not figures["missed_changes"]
    return in_time and right and figures["web_peak_mib"] <= web_limit_mib()

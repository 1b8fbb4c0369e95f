"""Compare what was stored and sent with the outages of the targets. Pure. Times are seconds of one clock."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

BLUR_SEC = 1.0


@dataclass(frozen=True)
class Limits:
    """What holds for all monitors. A check ends `slack_sec` after it reached its target, at the latest."""

    interval_sec: float
    confirmation_sec: float
    slack_sec: float
    offline_sec: float = 30.0
    detection_margin_sec: float = 10.0
    takeover_sec: float = 15.0

    @property
    def detection_sec(self) -> float:
        return self.interval_sec + self.confirmation_sec + self.detection_margin_sec


@dataclass(frozen=True)
class Outage:
    """A target failed from `began` to `ended`, which is infinite until it works again."""

    began: float
    ended: float = math.inf


@dataclass(frozen=True)
class Change:
    """A change of the status. `at` is the end of its check, `seen_at` when it could be read."""

    at: float
    seen_at: float
    down: bool


@dataclass
class Found:
    """The figures, and what is wrong in words."""

    false_downs: int = 0
    false_ups: int = 0
    lost_changes: int = 0
    alerts_for_short_outages: int = 0
    false_alerts: int = 0
    lost_alerts: int = 0
    detection_sec: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def report(self, kind: str, monitor: int, text: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        self.errors.append(f"{kind}: monitor {monitor}: {text}")


def audit(
    monitors: Collection[int],
    outages: Mapping[int, Sequence[Outage]],
    changes: Mapping[int, Sequence[Change]],
    alerts: Mapping[int, Sequence[str]],
    *,
    limits: Limits,
    end: float,
) -> Found:
    """Return the figures of a run that ended at `end`. `alerts` are the events of each monitor.

    An outage shorter than `confirmation_sec` must leave no trace. Every other one that was recorded must end with a
    change to up, and one of at least `limits.detection_sec` must be recorded.
    """
    found = Found()
    for monitor in monitors:
        real = [each for each in outages.get(monitor, ()) if _length(each, end) >= limits.confirmation_sec]
        recorded = _compare_changes(found, monitor, real, sorted(changes.get(monitor, ()), key=_at), limits, end)
        counts: dict[str, int] = defaultdict(int)
        for event in alerts.get(monitor, ()):
            counts[event] += 1
        if counts["down"] and not real:
            kind = "alerts_for_short_outages" if outages.get(monitor) else "false_alerts"
            for _ in range(counts["down"]):
                found.report(kind, monitor, f"alerts {dict(counts)}, outages {outages.get(monitor, ())}")
        elif counts["down"] != recorded or counts["recovered"] != recorded:
            kind = "false_alerts" if counts["down"] > recorded else "lost_alerts"
            found.report(kind, monitor, f"alerts {dict(counts)} for {recorded} outages")
    return found


def _compare_changes(
    found: Found, monitor: int, real: Sequence[Outage], changes: Sequence[Change], limits: Limits, end: float
) -> int:
    """Report what does not fit. Return how many outages were recorded."""
    recorded = 0
    downs = [each for each in changes if each.down]
    for change in downs:
        if not any(each.began - BLUR_SEC <= change.at <= each.ended + limits.slack_sec for each in real):
            found.report("false_downs", monitor, f"{change}; outages that may be recorded: {[*real]}")
    for change in changes:
        if not change.down and any(each.began + limits.slack_sec < change.at < each.ended - BLUR_SEC for each in real):
            found.report("false_ups", monitor, f"{change}; outages: {[*real]}")
    for number, outage in enumerate(real):
        until = real[number + 1].began if number + 1 < len(real) else end
        within = [each for each in downs if outage.began - BLUR_SEC <= each.at <= outage.ended + limits.slack_sec]
        if not within:
            if _length(outage, end) >= limits.detection_sec:
                found.report("lost_changes", monitor, f"{outage} is not recorded; changes: {[*changes]}")
            continue
        recorded += 1
        found.detection_sec.append(within[0].seen_at - outage.began)
        if not any(not each.down and outage.ended - BLUR_SEC <= each.at <= until for each in changes):
            found.report("lost_changes", monitor, f"the end of {outage} is not recorded; changes: {[*changes]}")
    return recorded


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that this share of the values does not exceed, or None without values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


def _length(outage: Outage, end: float) -> float:
    return min(outage.ended, end) - outage.began


def _at(change: Change) -> float:
    return change.at

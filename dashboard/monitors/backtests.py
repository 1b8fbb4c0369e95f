"""How a page shows a backtest: what other thresholds would have made of the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from core.text import counted
from incidents.backtest import Backtest
from incidents.counting import Difference

SHOWN = 5
"""How many differences a page shows."""
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Tried:
    """A backtest, and its result in a sentence."""

    found: Backtest

    @property
    def is_changed(self) -> bool:
        return self.found.stored.settings != self.found.tried.settings

    @property
    def sentence(self) -> str:
        stored, tried, span = self.found.stored, self.found.tried, self._span
        if not self.is_changed:
            return f"With the saved settings: {counted(stored.alerts, 'alert')} in {span}."
        text = f"With these settings: {counted(tried.alerts, 'alert')} instead of {stored.alerts:,} in {span}"
        if tried.slow_alerts != stored.slow_alerts:
            text += f", and {tried.slow_alerts:,} instead of {stored.slow_alerts:,} about slowness"
        return f"{text}."

    @property
    def _span(self) -> str:
        """Return how long the history is: `90 days`."""
        length = self.found.end - (self.found.history_from or self.found.end)
        if length > _DAY:
            return counted(round(length / _DAY), "day")
        return counted(max(1, round(length / _HOUR)), "hour")

    @property
    def differences(self) -> Sequence[Difference]:
        return self.found.differences[:SHOWN]

    @property
    def more(self) -> int:
        """Return how many differences are not shown."""
        return self.found.differences_total - len(self.differences)

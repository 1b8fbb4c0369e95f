"""Counters of the outbox. docs/operate/metrics.md documents them; a test compares the two."""

from __future__ import annotations

from core.metrics import Counter

DELIVERIES = Counter(
    "pulsekeeper_deliveries_total",
    "Tries to send an alert: `sent`, `waiting` for another try, `dead` (given up), `overtaken` by a later try.",
    ("outcome",),
)

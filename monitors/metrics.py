"""Metrics of checks and pings. docs/operate/metrics.md lists them; a test compares the two."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Collection, Sequence

from checks.spec import CheckOutcome, ReasonCode, Verdict
from core.metrics import Counter, Histogram, Level, Recent
from monitors import types

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

CHECKS = Counter(
    "pulsekeeper_checks_total",
    "Checks that were made and recorded, by verdict and reason; `none` without a reason.",
    ("verdict", "reason"),
    [(Verdict.UP, "none"), (Verdict.SLOW, "none"), *((Verdict.DOWN, reason) for reason in ReasonCode)],
)
CHECKS_DROPPED = Counter(
    "pulsekeeper_checks_dropped_total",
    "Checks that a worker took and did not record: `not_made` (its own fault), `postponed` (its account "
    "waits for its turn: for a second of an address, or for a place in a full worker), `not_stored`, "
    "`returned` when it ended.",
    ("why",),
    [("not_made",), ("postponed",), ("not_stored",), ("returned",)],
)
PROBE_SECONDS = Histogram("pulsekeeper_probe_seconds", "From the start of a check in a worker to its outcome.", SECONDS)
SLOW_JUDGEMENTS = Counter(
    "pulsekeeper_slow_judgements_total",
    "Responses that took a worker over 50 ms of CPU to judge, while all its other checks waited.",
)
RECORD_SECONDS = Histogram("pulsekeeper_record_seconds", "One transaction that records a group of results.", SECONDS)
RECORD_RESULTS = Histogram(
    "pulsekeeper_record_results", "Results that one transaction records.", (1, 2, 5, 10, 20, 50, 100, 200, 500)
)
RECORD_RETRIES = Counter("pulsekeeper_record_retries_total", "Times that results waited because the database was away.")
IN_FLIGHT = Level("pulsekeeper_in_flight", "Checks that workers have taken and not recorded yet.")
WITHOUT_PINGS = Level(
    "pulsekeeper_workers_without_pings", "Workers that may not send pings, and leave ping monitors unchecked."
)

CLAIMS = Counter(
    "pulsekeeper_claims_total",
    "Monitors that the scheduler handed out, by type.",
    ("type",),
    [(name,) for name in types.names()],
)
CLAIMS_LOST = Counter(
    "pulsekeeper_claims_lost_total",
    "Claims whose result did not come within their lease: `again` handed out once more, `trigger` recorded as lost.",
    ("fate",),
    [("again",), ("trigger",)],
)
CLOCK_STEPS = Recent(
    "pulsekeeper_clock_steps",
    "Times in the last minute that PostgreSQL's clock was set by over 2 s, `forward` or `back`.",
    ("direction",),
    [("forward",), ("back",)],
)
DISPATCH_SECONDS = Histogram("pulsekeeper_dispatch_seconds", "One tick of the scheduler.", SECONDS)
DISPATCH_HELD_BACK = Counter(
    "pulsekeeper_dispatch_held_back_total", "Ticks that left due monitors unclaimed because workers were behind."
)

PINGS = Counter(
    "pulsekeeper_pings_total",
    "Signals of jobs: `unchanged` (a success without a body of a heartbeat that stays up, the short way), `full` (all "
    "others), `unknown` (404), `throttled` (429).",
    ("outcome",),
    [("unchanged",), ("full",), ("unknown",), ("throttled",)],
)
HEARTBEATS_MISSED = Counter("pulsekeeper_heartbeats_missed_total", "Deadlines of heartbeats that passed.")


def count_group(outcomes: Sequence[CheckOutcome], *, seconds: float) -> None:
    """Count results that were recorded in one transaction."""
    RECORD_SECONDS.observe((seconds,))
    RECORD_RESULTS.observe((len(outcomes),))
    for (verdict, reason), count in Count((found.verdict, found.reason_code) for found in outcomes).items():
        CHECKS.add(count, verdict.value, "none" if reason is None else reason.value)


def count_claims(kinds: Collection[str], *, again: int, triggers: int) -> None:
    """Count claims by type; `again` and `triggers` of them had lost an earlier claim."""
    for kind, count in Count(kinds).items():
        CLAIMS.add(count, kind)
    CLAIMS_LOST.add(again, "again")
    CLAIMS_LOST.add(triggers, "trigger")

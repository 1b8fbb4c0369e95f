"""A fifth of the monitors goes down at once: from their results to the last alert."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from benchmarks.growing.cost import longest_transaction, memory_mib, timed
from benchmarks.growing.seeds import DOWN_SHARE, World
from benchmarks.growing.steps import batches

PATIENCE_SEC = 900
ROOT = Path(__file__).resolve().parents[2]
# Ticks every second until its standard input ends, as this process does.
TICKER = """
import django; django.setup()
import select, sys
from alerts import outbox
from alerts.tasks import tick
while not select.select([sys.stdin], [], [], 1)[0]:
    tick()
outbox.OUTBOX.stop(grace_sec=60)
"""


def measure_storm(world: World, *, receiver: str, processes: int) -> dict[str, float]:
    """Record the failures, turn them into incidents and messages, and send these. Each message is a list.

    Costs are for each monitor. `storm_s` is the time from the first failure that was recorded until the last alert was
    delivered, by `processes` that tick every second, as `interactive` does. `storm_mib` is of this one.
    """
    from django.db.models import Count, F, Max

    from alerts import outbox
    from alerts.models import AlertChannel, Delivery, DeliveryItem
    from alerts.tasks import remind, tick
    from checks.spec import CheckOutcome, ReasonCode, Verdict
    from core.clock import utc_now
    from incidents.models import Incident
    from monitors.checking.runner import MOST_AT_ONCE
    from monitors.models import MonitorState, StatusChange
    from monitors.recording import record
    from monitors.recording.batch import CheckRecord

    AlertChannel.objects.update(config={"url": receiver, "secret": "a long enough secret"})
    earlier = Delivery.objects.aggregate(last=Max("pk"))["last"] or 0
    share = MonitorState.objects.annotate(place=F("monitor_id") % DOWN_SHARE).filter(place=0)
    share.update(claimed_at=utc_now(), slot_at=utc_now(), claim=F("claim") + 1)
    claims = list(share.order_by("pk").values_list("pk", "claim", "monitor__config_version"))
    began = utc_now()

    def fail() -> None:
        failed = CheckOutcome(
            Verdict.DOWN, utc_now(), http_status=500, reason_code=ReasonCode.HTTP_FAILURE, detail="Answered 500."
        )
        for part in batches(claims, MOST_AT_ONCE):
            record(
                [CheckRecord(pk, claim, version, failed) for pk, claim, version in part],
                now=utc_now(),
                skip_locked=True,
            )

    def alert() -> None:
        deadline = time.monotonic() + PATIENCE_SEC
        while time.monotonic() < deadline:
            start = time.monotonic()
            tick()
            # Other processes may be about to commit.
            waiting = (
                StatusChange.objects.filter(processed_at=None),
                Incident.objects.filter(resolved_at=None, announced_at=None),
                Delivery.objects.filter(pk__gt=earlier, state__in=["gathering", "waiting"]),
            )
            if not any(rows.exists() for rows in waiting):
                return
            time.sleep(max(0.0, 1 - (time.monotonic() - start)))

    before = memory_mib()
    found: dict[str, float] = {}
    with longest_transaction() as longest:
        cost, _ = timed(fail, len(claims))
        found["storm_record_us"] = round(cost, 1)
        assert Incident.objects.filter(resolved_at=None).count() == 0
        with _tickers(processes - 1) as used_sec:
            cost, _ = timed(alert, len(claims))  # with the backends of all processes
        found["storm_alert_us"] = round(cost + used_sec[0] / len(claims) * 1e6, 1)
        new = Delivery.objects.filter(pk__gt=earlier)
        last = new.aggregate(last=Max("done_at"))["last"]
        cost, _ = timed(remind, len(claims))
        found["storm_remind_us"] = round(cost, 1)
    outbox.OUTBOX.stop()
    states: dict[str, int] = dict(new.values_list("state").annotate(Count("pk")))
    items = DeliveryItem.objects.filter(delivery__pk__gt=earlier)
    assert set(states) == {"sent"}, states
    assert items.values("incident").distinct().count() == len(claims)
    return found | {
        "storm_s": round((last - began) / timedelta(seconds=1), 1),
        "storm_down": len(claims),
        "storm_messages": sum(states.values()),
        "storm_longest_s": round(longest[0], 2),
        "storm_mib": round(memory_mib() - before),
    }


@contextmanager
def _tickers(count: int) -> Iterator[list[float]]:
    """Yield a list whose only number is, when the block ends, the seconds of CPU of these processes."""
    used, before = [0.0], os.times()
    command = [sys.executable, "-c", TICKER]
    running = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield used
    finally:
        for process in running:
            process.communicate()
    after = os.times()
    used[0] = after.children_user + after.children_system - before.children_user - before.children_system
    assert all(process.returncode == 0 for process in running)

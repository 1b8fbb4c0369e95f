"""What each second, hour and page does."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from benchmarks.growing.cost import temporary_bytes, timed
from benchmarks.growing.seeds import RESULTS_AN_HOUR, World

INTERVAL_SEC = 60
LISTED = 100
ROUNDS = 5


def batches(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def each(action: Callable[[Any], Any], parts: Sequence[Any]) -> Callable[[], list[Any]]:
    return lambda: [action(part) for part in parts]


def measure_checks(world: World) -> dict[str, float]:
    """Claim, load and record the monitors of one second, in the batches of dispatcher and workers."""
    from django.db.models import F

    from checks.spec import CheckOutcome, Verdict
    from core.clock import utc_now
    from monitors.checking.jobs import load_jobs
    from monitors.checking.runner import MOST_AT_ONCE
    from monitors.models import MonitorState
    from monitors.recording import record
    from monitors.recording.batch import CheckRecord
    from monitors.scheduling import claim_due
    from monitors.tasks import BATCH, CLAIMS_AT_ONCE, LEAST_WORKERS, QUEUED_PER_WORKER

    room = max(world.monitors // INTERVAL_SEC * 3, LEAST_WORKERS * QUEUED_PER_WORKER * BATCH)  # of enough workers

    def claim_all() -> list[Any]:
        found: list[Any] = []
        while len(part := claim_due(utc_now(), limit=CLAIMS_AT_ONCE, room=room - len(found))) == CLAIMS_AT_ONCE:
            found += part
        return found + part

    found: dict[str, list[float]] = {"claim_us": [], "load_us": [], "record_us": []}
    for number in range(ROUNDS):
        share = MonitorState.objects.annotate(second=F("monitor_id") % INTERVAL_SEC).filter(second=number)
        due = share.update(next_due_at=utc_now() - timedelta(seconds=1))
        cost, claims = timed(claim_all, due)
        found["claim_us"].append(cost)
        pairs = [(claim.monitor_id, claim.number) for claim in claims]
        cost, loaded = timed(each(load_jobs, batches(pairs, BATCH)), due)
        found["load_us"].append(cost)
        outcome = CheckOutcome(Verdict.UP, utc_now(), latency_ms=20, connect_ms=5, ttfb_ms=19, http_status=200)
        jobs = [job for part in loaded for job in part]
        records = [CheckRecord(job.monitor_id, job.claim, job.config_version, outcome) for job in jobs]
        parts = batches(records, MOST_AT_ONCE)
        cost, _ = timed(each(lambda part: record(part, now=utc_now(), skip_locked=True), parts), len(records))
        found["record_us"].append(cost)
    return {name: round(statistics.median(costs), 1) for name, costs in found.items()}


def measure_pages(world: World) -> dict[str, float]:
    """List monitors of one account as the API does, draw its overview, and run the tick of alerts without work."""
    from django.conf import settings
    from django.core.cache import cache
    from django.test import Client

    import config.rsgi  # noqa: F401 - what the web server loads and runs first
    from accounts.models import User
    from alerts.tasks import remind, tick
    from monitors import selectors
    from monitors.serializers import serialize_monitors
    from projects.access import Caller

    settings.ALLOWED_HOSTS = ["testserver"]
    user = User.objects.get(pk=world.listed)
    caller, client = Caller(user), Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")

    def list_some() -> None:
        assert len(serialize_monitors(list(selectors.list_monitors(caller)[:LISTED]), caller=caller)) == LISTED

    def draw() -> None:
        cache.clear()
        assert client.get("/monitors").status_code == 200

    actions: dict[str, Callable[[], object]] = {
        "list_ms": list_some,
        "overview_ms": draw,
        "alerts_tick_ms": tick,
        "remind_ms": remind,
    }
    found: dict[str, float] = {}
    for name, action in actions.items():
        action()
        found[name] = round(statistics.median(timed(action, 1_000)[0] for _ in range(3 * ROUNDS)), 1)
    return found


def measure_roll_up(world: World) -> dict[str, float]:
    from checks.results.hours import HOUR
    from checks.results.models import HourlyRollup
    from checks.results.rollups import roll_up_past

    before = temporary_bytes()
    cost, _ = timed(lambda: roll_up_past(world.hour, world.hour + HOUR), world.monitors)
    assert HourlyRollup.objects.filter(hour=world.hour, up=RESULTS_AN_HOUR).count() == world.monitors
    return {"roll_up_us": round(cost, 1), "temporary_bytes": temporary_bytes() - before}


def measure_packing(world: World) -> dict[str, float]:
    """Pack the results of that hour, publish them, and drop the plain ones."""
    from django.db.models import Sum

    from checks.results.hours import HOUR
    from checks.results.models import PackedResults
    from checks.results.packing import pack
    from checks.results.partitions import PUBLISHED, RESULTS, detached, parts
    from core.clock import utc_now

    now = utc_now()

    def pack_all() -> None:
        # A vacuum that has just begun holds its table for longer than packing waits: the task would try again later.
        while pack(now) or any(end <= world.hour + HOUR for _, end in parts(RESULTS)):
            time.sleep(0.1)

    cost, _ = timed(pack_all, world.monitors)
    assert not detached(PUBLISHED)
    packed = PackedResults.objects.filter(start=world.hour).aggregate(total=Sum("count"))["total"]
    assert packed == world.monitors * RESULTS_AN_HOUR
    return {"pack_us": round(cost, 1)}

"""Helpers for tests of several folders: times, check results, clean-up, threads. tests/factories.py creates rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from django.conf import settings
from django.db import connection, connections

from checks.results.partitions import PUBLISHED, SERIES, detached, make, parts
from checks.spec import CheckOutcome, ReasonCode, Verdict
from core import metrics
from core.errors import ApiError
from monitors.heartbeats import gaps
from monitors.heartbeats import services as heartbeats
from monitors.heartbeats.incoming import Signal, target_of
from monitors.models import Monitor, MonitorState
from monitors.recording.batch import CheckRecord

PASSWORD = "a fine long password"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EXAMPLES = int(os.environ.get("EXAMPLES") or 1)
"""Factor for the number of generated examples: `make test-long` sets it."""


def examples(count: int) -> int:
    return count * EXAMPLES


def outcome(verdict: Verdict, *, at: datetime = NOON, latency_ms: int = 20) -> CheckOutcome:
    if verdict is Verdict.DOWN:
        return CheckOutcome(verdict=verdict, checked_at=at, reason_code=ReasonCode.HTTP_FAILURE, detail="Answered 500.")
    return CheckOutcome(verdict=verdict, checked_at=at, latency_ms=latency_ms, http_status=200)


def check_record(
    monitor: Monitor, *, claim: int, verdict: Verdict, at: datetime, config_version: int = 1
) -> CheckRecord:
    return CheckRecord(monitor.pk, claim, config_version, outcome(verdict, at=at))


def record_ping(public_id: str, *, now: datetime) -> bool:
    """Record a ping as the endpoint does, and return whether the heartbeat exists."""
    ping = signal(public_id, now=now)
    return heartbeats.keep_up([ping])[0] or heartbeats.record(ping)


def signal(public_id: str, word: str = "", *, now: datetime, **given: Any) -> Signal:
    """Return a signal of the job: a success, or the kind in the last part of the path."""
    target = target_of("POST", f"/v1/heartbeats/{public_id}/ping" + (word and f"/{word}"))
    assert target is not None
    return Signal(target, now, **given)


def state_of(monitor: Monitor) -> MonitorState:
    return MonitorState.objects.get(pk=monitor.pk)


def keep_checked(until: datetime) -> None:
    """Let no check of any monitor be due until then, as if all had been made."""
    checked = MonitorState.objects.exclude(next_due_at=None).exclude(monitor__type="heartbeat")
    checked.update(next_due_at=until, claimed_at=None)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


@contextmanager
def restored_partitions() -> Iterator[None]:
    """Restore the partitions that the migrations created when the block ends. Not inside a transaction."""
    before = {series: parts(series) for series in SERIES}
    try:
        yield
    finally:
        for series, there in before.items():
            for bounds in {*parts(series), *detached(series)} - set(there):
                with series.cursor() as cursor:
                    cursor.execute(f"DROP TABLE {series.name(*bounds)}")
            make(series, there)
        for bounds in detached(PUBLISHED):
            with connection.cursor() as cursor:
                cursor.execute(f"DROP TABLE {PUBLISHED.name(*bounds)}")


def flush_broker() -> None:
    """Reset the broker and the metrics of this process: no messages, no counts of throttles, and nothing failing.

    A web process that a tick of the dispatcher has seen is forgotten: missed deadlines would wait while it is silent.
    """
    metrics.reset()
    gaps._web.note(metrics.ProcessReports())
    assert settings.REDIS_URL is not None
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        broker.flushdb()


def is_awaited() -> bool:
    """Return whether a transaction waits for another one."""
    return count_awaiting() > 0


def count_awaiting() -> int:
    """Return how many transactions wait for another one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # of an earlier look in this transaction
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])


def run_concurrently(*actions: Callable[[], object]) -> list[object]:
    """Run all in threads that start together. Return the result or exception of each, in order.

    AssertionErrors and database errors are raised here; errors of the API are results.
    """
    barrier = threading.Barrier(len(actions))
    outcomes: list[object] = [None] * len(actions)

    def run(index: int, action: Callable[[], object]) -> None:
        try:
            barrier.wait(timeout=10)
            outcomes[index] = action()
        except BaseException as error:  # noqa: BLE001  (a thread's error has to reach the test)
            outcomes[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive(), "a race did not end: a deadlock?"
    for result in outcomes:
        if isinstance(result, BaseException) and not isinstance(result, ApiError):
            raise result
    return outcomes

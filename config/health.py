"""The readiness of a running deployment, `/readyz`. `config.gateway` answers `/healthz`.

`config.system_status` shows the same checks to staff, and `manage.py check --deploy` uses them before a start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Generic, TypeVar

import psycopg
import redis
from django.conf import settings
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, JsonResponse

from alerts.outbox import MAX_LAG, MAX_QUEUED, oldest_alert
from core.clock import utc_now
from core.db import separate_connection
from core.metrics import LATE, Labels, read_levels
from monitors.heartbeats.canary import canary_status
from monitors.scheduling import STOPPED_AFTER
from monitors.stale import StaleGroup, count_stale

PATIENCE_SEC = 2  # timeout of connecting and of each answer
FRESH_SEC = 1.0
MOST_STALE = 10_000  # counting stops here

OK = "ok"
DEGRADING = {"monitors", "lateness", "canary"}
SILENT = "does not answer"

T = TypeVar("T")


class Cached(Generic[T]):
    """The value of `compute`, recomputed at most once in `seconds()` by all threads together."""

    def __init__(self, compute: Callable[[], T], seconds: Callable[[], float]) -> None:
        self._compute, self._seconds = compute, seconds
        self._lock = threading.Lock()
        self._value: tuple[float, T] | None = None

    def __call__(self) -> T:
        with self._lock:
            if self._value is None or time.monotonic() - self._value[0] > self._seconds():
                value = self._compute()
                self._value = time.monotonic(), value
            return self._value[1]


def readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 if requests are served, the scheduler runs and alerts are sent, else 503 with the reasons.

    Stale monitors, requests to BASE_URL that fail, and what was late or refused in the last minute, make it `degraded`,
    with 200: otherwise a load balancer would take out the web processes that pings and readers of status pages have to
    reach.
    """
    checks = _cached_checks()
    failed = {name for name, result in checks.items() if result != OK}
    ready = failed <= DEGRADING
    return JsonResponse(
        {"status": ("degraded" if failed else "ready") if ready else "not_ready", "checks": checks},
        status=200 if ready else 503,
        headers={"Cache-Control": "no-store"},
    )


def run_checks() -> dict[str, str]:
    """Return `ok` or the error of each check, without addresses and credentials."""
    checks = _check_database()
    try:
        with broker_client() as broker:
            queued = int(broker.llen("alerts"))
        lateness = _check_lateness(LATE.read(read_levels()))
    except redis.RedisError:
        return checks | {"broker": SILENT, "lateness": "not looked at"}
    if checks["alerts"] == OK and queued > MAX_QUEUED:
        checks["alerts"] = f"{queued} messages wait in queue alerts: does interactive run?"
    return checks | {"broker": OK, "lateness": lateness}


_cached_checks = Cached(run_checks, lambda: FRESH_SEC)  # /readyz is public


def _check_database() -> dict[str, str]:
    new = {"database": OK, "migrations": "none is applied"}
    new |= dict.fromkeys(("scheduler", "monitors", "alerts", "canary"), "not looked at")
    try:
        # Not from the pool, which would wait longer than the caller.
        with separate_connection(patience_sec=PATIENCE_SEC) as database:
            applied = set(database.execute("SELECT app, name FROM django_migrations").fetchall())
            if missing := len(known_migrations() - applied):
                return new | {"migrations": f"{missing} migrations are not applied"}
            tick = database.execute("SELECT at FROM monitors_schedulertick").fetchone()
            now = utc_now()
            alert = oldest_alert(database, now=now)
            stale = count_stale(database, now=now, most=MOST_STALE)
            canary = canary_status(database)
    except psycopg.errors.UndefinedTable:
        return new
    except psycopg.Error:
        return dict.fromkeys(new, "the database does not answer")
    return {
        "database": OK,
        "migrations": OK,
        "scheduler": _check_tick(tick[0] if tick else None, now),
        "monitors": _check_stale(stale),
        "alerts": _check_alert(alert, now),
        "canary": "; ".join([] if canary is None else canary.problems(now)) or OK,
    }


def _check_tick(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "has never run"
    return OK if now - at < STOPPED_AFTER else f"last ran {(now - at).total_seconds():.0f} s ago"


def _check_stale(groups: Sequence[StaleGroup]) -> str:
    if not groups:
        return OK
    return f"{sum(group.monitors for group in groups)} not checked: {groups[0].reason.rstrip('.')}"


def _check_alert(since: datetime | None, now: datetime) -> str:
    if since is None or now - since < MAX_LAG:
        return OK
    return f"the oldest that could be sent has waited for {(now - since).total_seconds():.0f} s"


def _check_lateness(late: Mapping[Labels, float]) -> str:
    found = [f"{count:.0f} {what}" for (what,), count in late.items() if count]
    return f"late or refused in the last minute: {', '.join(found)}" if found else OK


@cache
def known_migrations() -> frozenset[tuple[str, str]]:
    """Return the migrations of the installed code."""
    return frozenset(MigrationLoader(None).disk_migrations)


def check_broker() -> str:
    """Return `ok` or the error."""
    try:
        with broker_client() as broker:
            broker.ping()
    except redis.RedisError:
        return SILENT
    return OK


def broker_client() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL or "", socket_connect_timeout=PATIENCE_SEC, socket_timeout=PATIENCE_SEC
    )

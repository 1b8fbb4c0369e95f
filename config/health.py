"""`/healthz` and `/readyz`, for whoever starts processes and sends them requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache

import psycopg
import redis
from django.conf import settings
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, HttpResponse, JsonResponse

from alerts.backlog import MOST_LAG, MOST_QUEUED, oldest_alert
from core.clock import utc_now
from core.db import hasty_connection
from monitors.scheduling import STOPPED_AFTER

PATIENCE_SEC = 2  # for connecting, and for each answer
FRESH_SEC = 1.0

OK = "ok"
SILENT = "does not answer"


def healthz(request: HttpRequest) -> HttpResponse:
    """The web process answers. It asks neither database nor broker: their failure is not this process's."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 if requests are served, monitors checked and alerts sent, else 503 and what is wrong."""
    checks = _checks()
    ready = all(found == OK for found in checks.values())
    return JsonResponse(
        {"status": "ready" if ready else "not_ready", "checks": checks},
        status=200 if ready else 503,
        headers={"Cache-Control": "no-store"},
    )


class _Latest:
    """What was found last. Public, so it is asked anew once in FRESH_SEC, however many ask."""

    def __init__(self, ask: Callable[[], dict[str, str]]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._found: dict[str, str] = {}
        self._found_at = float("-inf")

    def __call__(self) -> dict[str, str]:
        with self._lock:
            if time.monotonic() - self._found_at > FRESH_SEC:
                self._found = self._ask()
                self._found_at = time.monotonic()
            return self._found


def look() -> dict[str, str]:
    """Return `ok` or what is wrong, by name, without addresses and credentials."""
    found = _database()
    try:
        with _broker() as broker:
            waiting = int(broker.llen("alerts"))
    except redis.RedisError:
        return found | {"broker": SILENT}
    if found["alerts"] == OK and waiting > MOST_QUEUED:
        found["alerts"] = f"{waiting} messages wait in queue alerts: does interactive run?"
    return found | {"broker": OK}


_checks = _Latest(look)


def _database() -> dict[str, str]:
    """Ask over a connection of its own: the pool would wait longer than the caller does."""
    unknown = {"scheduler": "not looked at", "alerts": "not looked at"}
    try:
        with hasty_connection(patience_sec=PATIENCE_SEC) as database:
            applied = set(database.execute("SELECT app, name FROM django_migrations").fetchall())
            missing = len(known_migrations() - applied)
            if missing:
                return {"database": OK, "migrations": f"{missing} migrations are not applied", **unknown}
            tick = database.execute("SELECT at FROM monitors_schedulertick").fetchone()
            now = utc_now()
            alert = oldest_alert(database, now=now)
    except psycopg.errors.UndefinedTable:
        return {"database": OK, "migrations": "none is applied", **unknown}
    except psycopg.Error:
        names = ("database", "migrations", "scheduler", "alerts")
        return dict.fromkeys(names, "the database does not answer")
    return {
        "database": OK,
        "migrations": OK,
        "scheduler": _tick(None if tick is None else tick[0]),
        "alerts": OK if alert is None or now - alert < MOST_LAG else _late(now - alert),
    }


def _late(lag: timedelta) -> str:
    return f"the oldest that could be sent has waited for {lag.total_seconds():.0f} s"


def _tick(at: datetime | None) -> str:
    if at is None:
        return "has never run"
    age = utc_now() - at
    return OK if age < STOPPED_AFTER else f"last ran {age.total_seconds():.0f} s ago"


@cache
def known_migrations() -> frozenset[tuple[str, str]]:
    """Those that this version of the code brings along."""
    loader = MigrationLoader(None)
    return frozenset(loader.disk_migrations)


def broker_answers() -> str:
    """`ok`, or what is wrong."""
    try:
        with _broker() as broker:
            broker.ping()
    except redis.RedisError:
        return SILENT
    return OK


def _broker() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL or "", socket_connect_timeout=PATIENCE_SEC, socket_timeout=PATIENCE_SEC
    )

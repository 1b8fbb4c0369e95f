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
from checks.results.database import is_separate
from checks.results.moving import left_behind
from config.history import PATIENCE_SEC, applied_migrations, our_migrations, refusal_of
from config.locations import SharedLocation, shared_locations
from core.clock import BROKER, DATABASE, utc_now
from core.db import WRITE_PAGE, separate_connection
from core.metrics import LATE, Labels, ProcessReports, read_levels, read_processes
from core.postgresql import HISTORY
from core.text import counted
from monitors.checking import own_network
from monitors.coverage import Coverage, coverage
from monitors.heartbeats.canary import canary_status
from monitors.metrics import CLOCK_STEPS
from monitors.scheduling import STOPPED_AFTER
from monitors.scheduling.clock_steps import TOLERANCE
from monitors.stale import StaleGroup, count_stale
from notifications.outbox import MAIL_FAILING
from oncall import notices

FRESH_SEC = 1.0
SLOW_FRESH = 10  # times FRESH_SEC, for checks that cost more
MOST_STALE = 10_000  # counting stops here
LEAST_COVERAGE = 0.99

OK = "ok"
DEGRADING = {
    *("version", "monitors", "coverage", "clocks", "lateness", "canary", "mail", "network", "locations"),
    *("on_call", "history"),
}
SILENT = "does not answer"
READ_ONLY = "the database is read-only"
UNMOVED = "the main database has a part of it, which nothing reads: stop all processes, then run manage.py move_history"
NO_NETWORK = "a process that checks reaches none of CONNECTIVITY_TARGETS: failures by the network do not count"

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

    It is `degraded`, with 200, if monitors lack results, clocks differ, requests to BASE_URL fail, the mail server
    rejects mail, our own network or a shared location is down, the history database does not answer, requests of the
    last minute were late or refused, or the database is newer than the code, as during an upgrade. With 503 a load
    balancer would remove the web processes that pings and readers of status pages have to reach.
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
    checks = _check_database() | ({"history": cached_history()} if is_separate() else {})
    try:
        with broker_client() as broker:
            queued = int(broker.llen("alerts"))
        levels = read_levels()
        lateness = _check_lateness(LATE.read(levels))
        mail = OK if not levels.get(MAIL_FAILING.name) else "the mail server does not accept messages: check EMAIL_URL"
        network = OK if not levels.get(own_network.DOWN.name) else NO_NETWORK
        clocks = check_clocks(read_processes(), CLOCK_STEPS.read(levels))
    except redis.RedisError:
        return checks | {"broker": SILENT} | dict.fromkeys(("mail", "network", "lateness", "clocks"), "not checked")
    if checks["alerts"] == OK and queued > MAX_QUEUED:
        checks["alerts"] = f"{queued} messages wait in queue alerts: does interactive run?"
    return checks | {"mail": mail, "network": network, "broker": OK, "lateness": lateness, "clocks": clocks}


_cached_checks = Cached(run_checks, lambda: FRESH_SEC)  # /readyz is public


def _check_database() -> dict[str, str]:
    new = {"database": OK, "migrations": "applied, but a table or a column is missing"}
    rest = ("version", "writes", "scheduler", "monitors", "coverage", "locations", "alerts", "on_call", "canary")
    new |= dict.fromkeys(rest, "not checked")
    try:
        # Not from the pool, which would wait longer than the caller.
        with separate_connection(patience_sec=PATIENCE_SEC) as database:
            applied = applied_migrations(database)
            refusal = refusal_of(applied, our_migrations())
            if refusal and not refusal.is_newer:
                return new | {"migrations": refusal.message}
            if missing := len(known_migrations() - applied):
                return new | {"migrations": f"{counted(missing, 'migration')} not applied"}
            tick = database.execute("SELECT at FROM monitors_schedulertick").fetchone()
            now = utc_now()
            alert = oldest_alert(database, now=now)
            looked_at = notices.last_look(database)
            stale = count_stale(database, now=now, most=MOST_STALE)
            canary = canary_status(database)
            places = shared_locations(database, now=now)
        slow = {"writes": cached_writes(), "coverage": _check_coverage(cached_coverage())}
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return new
    except psycopg.Error:
        return dict.fromkeys(new, "the database does not answer")
    return {
        "database": OK,
        "migrations": OK,
        "version": refusal.message if refusal else OK,
        **slow,
        "scheduler": _check_tick(tick[0] if tick else None, now),
        "monitors": _check_stale(stale),
        "locations": _check_locations(places),
        "alerts": _check_alert(alert, now),
        "on_call": _check_on_call(looked_at, now),
        "canary": "; ".join([] if canary is None else canary.problems(now)) or OK,
    }


def _measure_coverage() -> Coverage | None:
    try:
        with separate_connection(patience_sec=PATIENCE_SEC) as database:
            return coverage(database, now=utc_now())
    except (psycopg.errors.QueryCanceled, psycopg.errors.DiskFull):
        return None


cached_coverage = Cached(_measure_coverage, lambda: SLOW_FRESH * FRESH_SEC)
"""The coverage, or None if its query takes too long or finds no space. Raises psycopg.Error."""


def _check_coverage(found: Coverage | None) -> str:
    if found is None:
        return "its query takes too long, or finds no space"
    if found.share >= LEAST_COVERAGE:
        return OK
    return f"{found.missing} of {found.monitors} monitors have no result since it was due"


def _check_writes() -> str:
    """Return whether a page of a new table, which needs space on the disk, can be written. Raises psycopg.Error."""
    try:
        with separate_connection(patience_sec=PATIENCE_SEC) as database:
            if database.execute("SHOW transaction_read_only").fetchall() == [("on",)]:
                return READ_ONLY
            database.execute(WRITE_PAGE)
    except psycopg.errors.DiskFull:
        return "the disk of the database is full"
    except psycopg.errors.ReadOnlySqlTransaction:
        return READ_ONLY
    except psycopg.errors.InsufficientPrivilege:
        return "unknown: the role may not create temporary tables"
    return OK


cached_writes = Cached(_check_writes, lambda: SLOW_FRESH * FRESH_SEC)
"""`ok`, or why writes fail. Raises psycopg.Error."""


def _check_history() -> str:
    """Return whether the history database answers and is migrated, and the main one has nothing that belongs there."""
    try:
        with separate_connection(patience_sec=PATIENCE_SEC, using=HISTORY) as database:
            applied = applied_migrations(database)
    except psycopg.Error:
        return f"its database {SILENT}: checks and alerts go on, and results wait in the main one"
    if refusal := refusal_of(applied, our_migrations()):
        return refusal.message
    if missing := len(known_migrations() - applied):
        return f"{counted(missing, 'migration')} of its database not applied"
    try:
        with separate_connection(patience_sec=PATIENCE_SEC) as main:
            return UNMOVED if left_behind(main) else OK
    except psycopg.Error:
        return OK  # that the main database does not answer is reported beside it


cached_history = Cached(_check_history, lambda: SLOW_FRESH * FRESH_SEC)
"""`ok`, or what is wrong with the history database. A frozen one takes as long as PATIENCE_SEC to ask."""


def check_clocks(processes: Mapping[str, ProcessReports], changes: Mapping[Labels, float]) -> str:
    """Return `ok`, or which clocks differ from PostgreSQL's, and how often that was set in the last minute."""
    ahead = {f"the clock of a {kind} process": reports.ahead for kind, reports in processes.items()}
    if DATABASE.machine_ahead() is not None:
        ahead["the broker's clock"] = BROKER.time() - DATABASE.time()
    found = [
        f"{whose} is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} PostgreSQL's"
        for whose, seconds in ahead.items()
        if abs(seconds) > TOLERANCE.total_seconds()
    ]
    found += [f"PostgreSQL's was set {direction}" for (direction,), count in changes.items() if count]
    return "; ".join(found) or OK


def _check_tick(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "has never run"
    if at > now + TOLERANCE:
        return f"last ran {(at - now).total_seconds():.0f} s in the future: PostgreSQL's clock was set back"
    return OK if now - at < STOPPED_AFTER else f"last ran {(now - at).total_seconds():.0f} s ago"


def _check_stale(groups: Sequence[StaleGroup]) -> str:
    if not groups:
        return OK
    return f"{sum(group.monitors for group in groups)} not checked: {groups[0].reason.rstrip('.')}"


def _check_locations(places: Sequence[SharedLocation]) -> str:
    # Private ones are their owners' affair, who could make any number of them.
    missed = sum(place.is_missed for place in places)
    return f"{counted(missed, 'shared location')} used by monitors: no agent is online" if missed else OK


def _check_alert(since: datetime | None, now: datetime) -> str:
    if since is None or now - since < MAX_LAG:
        return OK
    return f"the oldest that could be sent has waited for {(now - since).total_seconds():.0f} s"


def _check_on_call(looked_at: datetime | None, now: datetime) -> str:
    if looked_at is None or now - looked_at < notices.LOOKED_WITHIN:
        return OK
    seconds = (now - looked_at).total_seconds()
    return f"gaps and hand-overs of a schedule were last looked for {seconds:.0f} s ago"


def _check_lateness(late: Mapping[Labels, float]) -> str:
    found = [counted(round(count), what.removesuffix("s")) for (what,), count in late.items() if count]
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

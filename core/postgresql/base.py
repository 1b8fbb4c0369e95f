"""The database backend; Django requires this module name."""

from __future__ import annotations

import select
import time
from typing import Any, NamedTuple

import psycopg
from django.db import DEFAULT_DB_ALIAS
from django.db.backends.postgresql import base
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

from core.clock import DATABASE
from core.postgresql import HISTORY
from core.postgresql.availability import AVAILABILITY, HISTORY_AVAILABILITY, Connection, HistoryConnection

CHECK_SEC = 1.0
POOL_SEC = 10.0
"""Timeout of waiting for a free connection while PostgreSQL answers."""
HISTORY_POOL_SEC = 2.0
"""The same for the history database, which pages and lists can do without."""
AWAY_POOL_SEC = 0.05

_ASK_TIME = b"SELECT extract(epoch FROM clock_timestamp())"

_POOL = {
    # The pool doubles the delay between its attempts until this time has passed. `reconnect_failed` starts again with
    # the shortest delay, 1 s, for as long as PostgreSQL is away.
    "reconnect_timeout": 2,
    "reconnect_failed": lambda pool: pool.check(),
}
_PARAMETERS = {
    "connect_timeout": 3,
    # End connections whose packets are dropped. TCP alone would retry for 15 minutes, less and less often.
    "tcp_user_timeout": 5_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
}


class DatabaseWrapper(base.DatabaseWrapper):
    """Checks a pooled connection before use, and drops all connections if it is dead.

    If one is dead because its server was restarted, all are. The pool's own check (CONN_HEALTH_CHECKS) tries one after
    the other and waits 1, 2, 4, … seconds in between.
    """

    def __init__(self, settings_dict: dict[str, Any], alias: str = DEFAULT_DB_ALIAS) -> None:
        self._class = HistoryConnection if alias == HISTORY else Connection
        options = settings_dict["OPTIONS"]
        if options.get("pool"):
            pool = options["pool"] | _POOL | {"connection_class": self._class}
            settings_dict = settings_dict | {"OPTIONS": options | {"pool": pool}}
        super().__init__(settings_dict, alias)

    def get_connection_params(self) -> dict[str, Any]:
        return _PARAMETERS | super().get_connection_params()

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        pool = self.pool
        if pool is None:
            return super().get_new_connection(conn_params)
        # While PostgreSQL is away, callers do not wait for the pool: it serves those that come after its return.
        patience = HISTORY_POOL_SEC if self.alias == HISTORY else POOL_SEC
        pool.timeout = AWAY_POOL_SEC if self._class.availability.is_away else patience
        connection = super().get_new_connection(conn_params)
        try:
            check(connection)
        except psycopg.OperationalError:
            pool.putconn(connection)
            pool.drain()
            connection = super().get_new_connection(conn_params)
        return connection


class PoolStats(NamedTuple):
    """The number of connections of a pool, of unused ones, and of threads that wait for one."""

    size: int = 0
    idle: int = 0
    waiting: int = 0


def pool_stats() -> PoolStats:
    """Return the numbers of this process's pool. They are 0 before its first connection."""
    pool = DatabaseWrapper._connection_pools.get(DEFAULT_DB_ALIAS)  # type: ignore[attr-defined]  # not in its stubs
    found = {} if pool is None else pool.get_stats()
    return PoolStats(*(found.get(name, 0) for name in ("pool_size", "pool_available", "requests_waiting")))


def check(connection: psycopg.Connection[Any], *, seconds: float = CHECK_SEC) -> None:
    """Close the connection and raise psycopg.OperationalError unless the server answers within `seconds`.

    The answer of the main database corrects the clock (`core.clock.DATABASE`) if that is outdated. ConnectionTimeout
    says that the server was silent. `ConnectionPool.check_connection` would wait for the answer forever.
    """
    is_history = isinstance(connection, HistoryConnection)
    query = _ASK_TIME if DATABASE.is_outdated and not is_history else b""
    try:
        _exchange(connection.pgconn, query, deadline=time.monotonic() + seconds)
    except psycopg.OperationalError:
        connection.close()
        raise
    (HISTORY_AVAILABILITY if is_history else AVAILABILITY).answered()


def _exchange(pgconn: PGconn, query: bytes, *, deadline: float) -> None:
    """Send a query and read its result. Raises psycopg.OperationalError, or ConnectionTimeout if none comes."""
    answer = select.poll()
    answer.register(pgconn.socket, select.POLLIN)
    asked_at = time.monotonic()
    pgconn.send_query(query)
    while pgconn.is_busy():
        if not answer.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise psycopg.errors.ConnectionTimeout("the server does not answer")
        pgconn.consume_input()
    while (result := pgconn.get_result()) is not None:
        if result.status == ExecStatus.TUPLES_OK:
            DATABASE.learn(float(result.get_value(0, 0) or b""), asked_at=asked_at)
        elif result.status != ExecStatus.EMPTY_QUERY:
            raise psycopg.OperationalError(result.get_error_message())

"""The database backend; Django requires this module name."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool


class DatabaseWrapper(base.DatabaseWrapper):
    """Checks a pooled connection before use, and drops all connections if it is dead.

    If one is dead because its server was restarted, all are. The pool's own check (CONN_HEALTH_CHECKS) tries one after
    the other and waits 1, 2, 4, … seconds in between.
    """

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        pool = self.pool
        if pool is None:
            return connection
        try:
            ConnectionPool.check_connection(connection)
        except psycopg.OperationalError:
            pool.putconn(connection)
            pool.drain()
            connection = super().get_new_connection(conn_params)
        return connection

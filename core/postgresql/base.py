"""The backend itself, found by Django under this name."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool


class DatabaseWrapper(base.DatabaseWrapper):
    """Looks at a pooled connection before it is handed out, and lets go of all of them where it is dead.

    One dies with its server, and so do the others. The pool's own check (CONN_HEALTH_CHECKS) looks at one after the
    other and waits longer after each: whoever comes first after a restart would wait for 1, 2, 4, … seconds.
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

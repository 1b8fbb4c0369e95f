"""The use of the pool of database connections in each process, for /metrics."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from config.routing import PROCESSES
from core.metrics import Level
from core.postgresql.base import pool_stats

_KINDS = [kind for kind in PROCESSES if kind != "beat"]  # which uses no database
_STATES = ("used", "idle")

CONNECTIONS = Level(
    "pulsekeeper_database_connections",
    "Connections to PostgreSQL in the pools of processes, `used` by a thread or `idle`, together at most 16 a process.",
    ("process", "state"),
    [(kind, state) for kind in _KINDS for state in _STATES],
)
WAITING = Level(
    "pulsekeeper_database_waiting",
    "Threads that wait for a connection because their process uses all of its own.",
    ("process",),
    [(kind,) for kind in _KINDS],
)


def follow_pool(kinds: Iterable[str]) -> None:
    """Report the pool of this process, which works as these kinds, from now on."""
    for kind in kinds:
        for state in _STATES:
            CONNECTIONS.follow(partial(_connections, state), kind, state)
        WAITING.follow(lambda: pool_stats().waiting, kind)


def _connections(state: str) -> int:
    found = pool_stats()
    return found.idle if state == "idle" else found.size - found.idle

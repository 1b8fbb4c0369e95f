"""The database of packed results and roll-ups: the main one, or another one (HISTORY_DATABASE_URL, ADR 63).

Results of the last hours are in the main database, as is everything that recording and alerts read. With two databases
nothing commits at once, so the history is written first and the progress in the main database after it. Each step can
be repeated, and reads what it writes under locks of the history database: a process that has lost its connection to the
main one may still be writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import django.db
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Model

from core.db import advisory_lock, fetch_binary
from core.errors import HistoryUnavailable
from core.postgresql import HISTORY
from core.postgresql.availability import is_outage

_TABLES = {"checks_packedresults", "checks_packedreasons", "checks_hourlyrollup"}


def is_separate() -> bool:
    return HISTORY in settings.DATABASES


def alias() -> str:
    """Return the alias of the database that has the history."""
    return HISTORY if is_separate() else DEFAULT_DB_ALIAS


class Router:
    """Sends the models of the history to its database. The app's other tables are there too, and stay empty."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return HISTORY if model._meta.db_table in _TABLES else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return app_label == "checks" if db == HISTORY else None


@contextmanager
def reading() -> Iterator[CursorWrapper]:
    """Return a cursor for the history. Raises HistoryUnavailable."""
    with _answering(), connections[alias()].cursor() as cursor:
        yield cursor


def fetch_history(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """Return the many rows of a statement. Raises HistoryUnavailable."""
    with _answering():
        return fetch_binary(statement, values, using=alias())


@contextmanager
def _answering() -> Iterator[None]:
    if not is_separate() or connections[HISTORY].in_atomic_block:
        yield
        return
    try:
        yield
    except django.db.Error as error:
        if is_outage(error):
            raise HistoryUnavailable from error
        raise
    finally:
        connections[HISTORY].close()  # back to the pool: a caller may wait for its client now


@contextmanager
def writing(*locks: str) -> Iterator[CursorWrapper]:
    """Write to the history in a transaction that commits before that of the caller; with one database it is the same.

    What is written must be read inside: others may have written until the locks were free.
    """
    with transaction.atomic(using=alias()), connections[alias()].cursor() as cursor:
        for lock in locks:
            advisory_lock(lock, using=alias())
        yield cursor

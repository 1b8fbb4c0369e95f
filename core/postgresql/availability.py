"""Whether PostgreSQL answers this process, by the last results of its connections, for each database."""

from __future__ import annotations

import logging
import time
from typing import Any, ClassVar, Self

import django.db
import psycopg

from core.errors import HistoryUnavailable

logger = logging.getLogger(__name__)

_TOO_MANY_CONNECTIONS = "53300"
_NO_WRITES = frozenset({"53100", "25006"})
"""Its disk is full, or it is read-only, as the former primary after a failover."""


def is_outage(error: BaseException | None) -> bool:
    """Return whether PostgreSQL is unreachable or read-only, so that the same request may succeed later."""
    if isinstance(error, HistoryUnavailable):
        return True
    cause = error.__cause__ if isinstance(error, django.db.Error) else error
    if isinstance(cause, psycopg.Error) and cause.sqlstate in _NO_WRITES:
        return True
    if not isinstance(cause, psycopg.OperationalError):
        return False
    # None: not PostgreSQL's own error. 08: connection errors, 57P: shutdown, start and recovery of the server.
    return cause.sqlstate is None or cause.sqlstate.startswith(("08", "57P", _TOO_MANY_CONNECTIONS))


class Availability:
    """Logs when an outage begins and ends.

    Set from many threads. A lost race costs one more wait, because every connection sets it again.
    """

    def __init__(self, name: str = "PostgreSQL") -> None:
        self._name = name
        self.is_away = False
        self.answered_at = time.monotonic()

    def answered(self) -> None:
        self.answered_at = time.monotonic()
        if self.is_away:
            self.is_away = False
            logger.info("%s answers again", self._name)

    def failed(self, error: psycopg.OperationalError, *, since: float) -> None:
        """Note an attempt that began at `since`. Ignore it if another connection has got an answer since."""
        if self.answered_at < since:
            was_away, self.is_away = self.is_away, is_outage(error) and error.sqlstate != _TOO_MANY_CONNECTIONS
            if self.is_away and not was_away:
                logger.warning("%s does not answer: %s", self._name, error)


AVAILABILITY = Availability()
HISTORY_AVAILABILITY = Availability("The history database")


class Connection(psycopg.Connection[Any]):
    """A connection to the main database that notes whether connecting succeeded."""

    availability: ClassVar = AVAILABILITY

    @classmethod
    def connect(cls, *args: Any, **kwargs: Any) -> Self:
        start = time.monotonic()
        try:
            connection = super().connect(*args, **kwargs)
        except psycopg.OperationalError as error:
            cls.availability.failed(error, since=start)
            raise
        cls.availability.answered()
        return connection


class HistoryConnection(Connection):
    """The same for the history database, if there is one."""

    availability: ClassVar = HISTORY_AVAILABILITY

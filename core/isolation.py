"""Keep an error to what causes it: neither one bad row nor one step of a task stops the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import ParamSpec, TypeVar

from django.db import InterfaceError, OperationalError, connection
from django.db.models import Model, QuerySet

from core.metrics import LATE

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=Model)

TRY_AGAIN = timedelta(seconds=30)
"""When rows that were left out may be processed again."""


class Steps:
    """Runs the steps of a task one after the other, also after one that raised. `finish` raises the first error."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    def run(self, step: Callable[P, T], *given: P.args, **named: P.kwargs) -> T | None:
        """Return what the step returns, or None if it raises. Errors of a database that is away are raised at once."""
        try:
            return step(*given, **named)
        except Exception as error:
            _raise_if_away(error)
            LATE.add(1, "alerts")
            if self._error is not None:
                logger.exception("a further step failed")
            self._error = self._error or error
            return None

    def finish(self) -> None:
        if self._error is not None:
            raise self._error


def run_isolated(
    run: Callable[[Collection[int] | None], bool],
    rows: QuerySet[M],
    *,
    most: int,
    put_off: Callable[[QuerySet[M]], object],
) -> bool:
    """Call `run` with None: it processes about `most` of `rows` in a transaction, and returns whether more may wait.

    If it raises, call it with the keys of `most` rows, then with half as many, and so on. A row that fails alone is
    logged, and `put_off` gets it, to leave it out for a while.
    """
    try:
        return run(None)
    except Exception as error:  # noqa: BLE001 - it is logged below, for the rows that cause it
        _raise_if_away(error)
        logger.warning("rows of %s are processed apart, after %s", rows.model.__name__, type(error).__name__)
    keys = list(rows.order_by("pk").values_list("pk", flat=True)[:most])
    failed: list[int] = []
    parts = [keys] if keys else []
    while parts:
        part = parts.pop()
        try:
            run(part)
        except Exception as error:
            _raise_if_away(error)
            if len(part) == 1:
                logger.exception("%s %d cannot be processed, and is left out for now", rows.model.__name__, part[0])
                failed += part
            else:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
    if failed:
        LATE.add(len(failed), "alerts")
        put_off(rows.filter(pk__in=failed))
    return len(keys) == most


def _raise_if_away(error: Exception) -> None:
    """Raise an error of the database unless its connection still works: then the statement is to blame."""
    if isinstance(error, OperationalError | InterfaceError) and not connection.is_usable():
        raise error

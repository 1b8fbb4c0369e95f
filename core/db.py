"""Helpers for the database: get a row, release the connection, limit and take locks, iterate, prepare."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from random import getrandbits
from typing import Any, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, OperationalError, ProgrammingError, connection, connections, transaction
from django.db.models import (
    BigIntegerField,
    BinaryField,
    BooleanField,
    Count,
    F,
    Func,
    Min,
    Model,
    OuterRef,
    QuerySet,
    Subquery,
    Sum,
    Value,
    Window,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, RowNumber

from core.bulk import array
from core.errors import NotFound
from core.postgresql.availability import HistoryConnection
from core.postgresql.base import check

M = TypeVar("M", bound=Model)


def get_or_not_found(rows: QuerySet[M], **conditions: Any) -> M:
    """Return the only row that matches. Raise NotFound, which the API answers with 404."""
    # No row has a text with a NUL, which PostgreSQL refuses.
    if any(isinstance(value, str) and "\0" in value for value in conditions.values()):
        raise NotFound
    # Not first(), which orders by the primary key: most requests run this query, and the order takes time to compile.
    found = next(iter(rows.filter(**conditions).order_by()[:1]), None)
    if found is None:
        raise NotFound
    return found


class Derived(Func):
    """What `core.ids.derive` returns for an id in a column. An index on it finds the row of a derived id."""

    template = "substr(sha256(%(expressions)s::bytea), 1, 16)"
    output_field = BinaryField()


class IsAmong(Func):
    """Whether a column is among the values of a subquery that does not depend on the row: IsAmong(F(…), Subquery(…)).

    As an array the values are found once, so that with OR the indexes of both sides are used. With IN the whole table
    would be read, however few rows match.
    """

    template = "%(expressions)s)"
    arg_joiner = " = ANY(ARRAY"
    arity = 2
    output_field = BooleanField()


def total_of(rows: QuerySet[Any], parent: str, each: Any) -> Combinable:
    """Return an expression for the sum of `each` over the rows whose `parent` is the row of the outer query."""
    related = rows.filter(**{parent: OuterRef("pk")}).order_by().values(parent)
    return Coalesce(Subquery(related.annotate(total=Sum(each)).values("total")), 0, output_field=BigIntegerField())


def release_connection() -> None:
    """Return the connection to the pool before waiting for the network. Raises RuntimeError in a transaction."""
    if connection.in_atomic_block:
        raise RuntimeError("the network must not be awaited inside a transaction")
    connection.close()


def learn_time() -> None:
    """Ask PostgreSQL what time it is, for `core.clock.DATABASE`. Raises OperationalError."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        check(connection.connection)


_ALL = 2**31
_NOW, _KEYS, _USER = datetime.max.replace(tzinfo=UTC), "{the keys}", -1


def compiled_once(
    build: Callable[[Func, datetime], QuerySet[Any]],
) -> Callable[[Collection[int], datetime], list[tuple[Any, ...]]]:
    """Return a function of primary keys and a time that returns the rows of the query that `build` makes of both.

    Django compiles the query once in a process, and not for each page: long conditions take long to compile. `build`
    passes the keys to `pk__in`, and gets nothing of the caller, so the SQL is the same for all.
    """
    keys: Func[Any] = Func(
        Value(_KEYS), template="(SELECT unnest(%(expressions)s::bigint[]))", output_field=BigIntegerField()
    )
    fetch = _compiled(lambda: build(keys, _NOW).query.sql_with_params())
    return lambda keys, now: fetch({_NOW: now, _KEYS: array(keys)})


def compiled_for_users(build: Callable[[int], QuerySet[Any]]) -> Callable[[int], list[tuple[Any, ...]]]:
    """Return a function of a user's primary key that returns the rows of the query that `build` makes of it.

    Django compiles the query once in a process. `build` uses the key in conditions only.
    """
    fetch = _compiled(lambda: build(_USER).query.sql_with_params())
    return lambda user: fetch({_USER: user})


def any_once_compiled(build: Callable[[datetime], Sequence[QuerySet[Any]]]) -> Callable[[datetime], bool]:
    """Return a function of a time that returns whether one of the queries that `build` makes of it has a row.

    Django compiles them once in a process, as for `compiled_once`, into one statement. It counts the rows: for EXISTS,
    the planner reads the whole table if it expects many rows, and the statistics of related columns mislead it. The
    limit keeps it from starting parallel workers.
    """

    def joined() -> tuple[str, list[Any]]:
        compiled = [rows.order_by().values("pk").query.sql_with_params() for rows in build(_NOW)]
        counts = [f"(SELECT count(*) FROM ({statement} LIMIT {_ALL}) AS found) > 0" for statement, _ in compiled]  # noqa: S608
        return f"SELECT {' OR '.join(counts)}", [value for _, values in compiled for value in values]

    fetch = _compiled(joined)
    return lambda now: fetch({_NOW: now}) == [(True,)]


def _compiled(build: Callable[[], tuple[str, Sequence[Any]]]) -> Callable[[Mapping[Any, Any]], list[tuple[Any, ...]]]:
    """Return a function that runs the statement with other values in place of some."""

    compiled = cache(build)

    def fetch(given: Mapping[Any, Any]) -> list[tuple[Any, ...]]:
        statement, values = compiled()
        with connection.cursor() as cursor:
            cursor.execute(statement, [given.get(value, value) for value in values])
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    return fetch


WRITE_PAGE = "CREATE TEMPORARY TABLE readiness AS SELECT repeat('x', 1000) AS filler; DROP TABLE readiness"


def write_page() -> None:
    """Write a page of a new table: on a full disk, updates in pages that have space still succeed.

    Raises OperationalError. Without the right to create temporary tables nothing is known.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(WRITE_PAGE)
    except ProgrammingError as error:
        if not isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            raise


@contextmanager
def separate_connection(*, patience_sec: int, using: str = DEFAULT_DB_ALIAS) -> Iterator[psycopg.Connection]:
    """Begin a transaction on a separate connection, for callers that cannot wait for the pool. Raises psycopg.Error.

    `patience_sec` limits connecting, for which libpq's minimum is 2, and each statement.
    """
    parameters = connections[using].get_connection_params() | {
        "connect_timeout": patience_sec,
        "cursor_factory": psycopg.Cursor,
    }
    connect = psycopg.connect if using == DEFAULT_DB_ALIAS else HistoryConnection.connect
    with connect(**parameters) as database:
        check(database, seconds=patience_sec)
        # Not as `options` of the connection, which PgBouncer refuses, and not for the session, which others would get.
        database.execute("SELECT set_config('statement_timeout', %s, true)", [f"{patience_sec}s"])
        yield database


class LockTimeoutError(Exception):
    """Another transaction kept a lock for too long."""


@contextmanager
def lock_timeout(seconds: float) -> Iterator[None]:
    """Raise LockTimeoutError if a statement waits longer for a lock. Inside a transaction, which has failed then."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{seconds * 1_000:.0f}ms"])
        try:
            yield
        except OperationalError as error:
            if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise LockTimeoutError from None
            raise
        cursor.execute("SET LOCAL lock_timeout TO DEFAULT")


def advisory_lock(name: str, *, using: str = DEFAULT_DB_ALIAS) -> None:
    """Wait for the lock of that name, and keep it until the end of the transaction."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])


def try_advisory_lock(name: str) -> bool:
    """Take the lock without waiting. Return whether it was free."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        return bool(cursor.fetchone()[0])


class Turns:
    """Turns of `lock_in_turn` in which up to `together` rows of an account come one after the other.

    If very many rows wait, it takes seconds to order them. This process keeps that order for its next calls, KEPT times
    as long as it took: rows that are added later wait for that time at most.
    """

    KEPT = 5.0
    CALLS = 50

    def __init__(self, *, together: int) -> None:
        self.together = together
        self._changing = threading.Lock()
        self._keys: list[int] = []
        self._until = 0.0

    def take(self, most: int) -> list[int]:
        """Return the keys of the next rows, if they are known. They may be locked or processed by now."""
        with self._changing:
            if time.monotonic() > self._until:
                self._keys = []
            taken, self._keys = self._keys[:most], self._keys[most:]
            return taken

    def keep(self, keys: list[int], *, took_sec: float) -> None:
        with self._changing:
            self._keys, self._until = keys, time.monotonic() + self.KEPT * took_sec


def lock_in_turn(
    rows: QuerySet[M],
    *,
    account: str,
    most: int,
    ordered_by: str | None = None,
    series: QuerySet[M] | None = None,
    first: str = "pk",
    parents: Mapping[str, type[Model]] | None = None,
    turns: Turns | None = None,
) -> tuple[list[int], bool]:
    """Lock at most `most` rows that no other transaction has locked. Return their keys, and whether more may wait.

    Accounts take turns: the oldest row of each is first, then the second of each, or those first by the column `first`.
    `account` is the path to the account. With `turns`, many rows of an account are one turn, and accounts with few rows
    are likely to be earlier.
    If there are more accounts than `most`, chance decides, so that none is passed over for long.

    With `ordered_by`, a column, the earlier rows of the same value among `series`, by default `rows`, are locked too,
    beyond `most`, and a row is left out if another transaction has locked one of them. Read the rows by these keys
    with their conditions again: another transaction may have changed them before the lock.

    The rows at the paths `parents` are locked against deletion, and rows whose parents are being deleted are left out.
    """
    lock_first = partial(
        _lock_first, account=account, most=most, ordered_by=ordered_by, first=first, parents=parents or {}
    )
    locked: dict[int, Any] = {}
    is_known = False
    while not locked and turns is not None and (known := turns.take(most)):
        locked, _ = lock_first(rows.filter(pk__in=known), together=turns.together)
        is_known = bool(locked)
    if not is_known:
        start = time.monotonic()
        locked, behind = lock_first(rows, together=turns.together if turns else 1, known=turns is not None)
        if turns is not None:
            turns.keep(behind, took_sec=time.monotonic() - start)
    is_full = is_known or len(locked) == most
    keys = list(locked)
    if ordered_by and locked:
        others = (rows if series is None else series).order_by()
        keys = _without_gaps(locked, others.filter(**{f"{ordered_by}__in": set(locked.values())}), ordered_by)
    return keys, is_full and bool(keys)


def _lock_first(
    rows: QuerySet[M],
    *,
    account: str,
    most: int,
    ordered_by: str | None,
    first: str,
    parents: Mapping[str, type[Model]],
    together: int,
    known: bool = False,
) -> tuple[dict[int, Any], list[int]]:
    """Lock rows as `lock_in_turn`. Return their keys with their series, and if `known` the keys of the next ones."""
    place = Window(RowNumber(), partition_by=account, order_by=[first, "pk"])
    kept = [(f"parent_{number}", path, model) for number, (path, model) in enumerate(parents.items())]
    columns: dict[str, Any] = {name: F(path) for name, path, _ in kept}
    columns |= {"tenant": F(account), "in_all": Window(Count("pk"), partition_by=account)} if together > 1 else {}
    waiting = rows.order_by().values(key=F("pk"), series=F(ordered_by or "pk"), place=place, **columns)
    order = "place, random()"
    if together > 1:
        turn = f"(place - 1) / {together:d}"
        chance = f"(hashint8extended(tenant, {getrandbits(31)}) & 65535)"
        order = f"{turn}, least(in_all - {turn} * {together:d}, {together:d}) * {chance}, tenant, place"
    select, parameters = waiting.query.sql_with_params()
    options = rows.model._meta
    conditions = "".join(
        f"""
           AND (waiting.{name} IS NULL OR EXISTS (
                SELECT FROM {model._meta.db_table} WHERE id = waiting.{name} FOR KEY SHARE SKIP LOCKED))"""
        for name, _, model in kept
    )
    # Not a join: for tables whose statistics are older than a storm, the planner may run `waiting` once for each row.
    statement = f"""
        WITH found AS ({select}), waiting AS MATERIALIZED (
            SELECT * FROM found ORDER BY {order} LIMIT %s
        ), locked AS MATERIALIZED (
            SELECT waiting.key, waiting.series
              FROM waiting
             CROSS JOIN LATERAL (
                    SELECT FROM {options.db_table} WHERE {options.pk.column} = waiting.key FOR NO KEY UPDATE SKIP LOCKED
                   ) AS locked
             WHERE true{conditions}
             LIMIT %s
        )
        SELECT true, key, series FROM locked
         UNION ALL
        SELECT false, key, series FROM waiting WHERE %s
    """  # noqa: S608 - only names, and SQL by Django
    with connection.cursor() as cursor:
        cursor.execute(statement, [*parameters, Turns.CALLS * most if known else None, most, known])
        found = cursor.fetchall()
    locked = {key: value for is_locked, key, value in found if is_locked}
    return locked, [key for is_locked, key, _ in found if not is_locked and key not in locked]


def _without_gaps(locked: dict[int, Any], series: QuerySet[M], ordered_by: str) -> list[int]:
    """Lock the earlier rows of each series. Return the locked rows that have no other row before them."""

    def first_others() -> dict[Any, int]:
        return dict(series.exclude(pk__in=locked).values_list(ordered_by).annotate(Min("pk")))

    first = first_others()
    behind = {value for key, value in locked.items() if first.get(value, key) < key}
    if behind:
        earlier = series.exclude(pk__in=locked).filter(**{f"{ordered_by}__in": behind}, pk__lt=max(locked))
        free = earlier.select_for_update(no_key=True, skip_locked=True)
        locked = locked | dict(free.values_list("pk", ordered_by))
        first = first_others()
    return [key for key, value in locked.items() if key < first.get(value, key + 1)]


def lock_against_deletion(model: type[Model], keys: Collection[int], *, wait: bool = False) -> set[int]:
    """Lock rows that new rows refer to. Return their keys, without those that another transaction may be deleting.

    The check of a foreign key at the end of the transaction would wait for a deletion, which may wait for locks of this
    transaction. With `wait`, which is for callers without such locks, wait for the deletion.
    """
    if not keys:
        return set()
    table, skip = model._meta.db_table, "" if wait else "SKIP LOCKED"
    statement = f"SELECT id FROM {table} WHERE id = ANY(%s::bigint[]) ORDER BY id FOR KEY SHARE {skip}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(keys)])
        return {key for (key,) in cursor.fetchall()}


CHUNK_ROWS = 50
"""Few, because a reader of a download keeps them while its client is slow, and a monitor may have 64 KiB."""


def chunks(queryset: QuerySet[M], *, size: int = CHUNK_ROWS) -> Iterator[list[M]]:
    """Iterate a large queryset in primary-key chunks, releasing the connection in between. New rows may be missing."""
    last: int = 0
    while rows := list(queryset.filter(pk__gt=last).order_by("pk")[:size]):
        last = rows[-1].pk
        release_outside_transaction()
        yield rows
        if len(rows) < size:
            return


def release_outside_transaction() -> None:
    """Give the connection back to the pool: the reader of a download may be slow. Do nothing in a transaction."""
    if not connection.in_atomic_block:
        connection.close()


def fetch_prepared(statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
    """Return the rows of a statement that each connection plans once, in autocommit or the open transaction.

    For short statements that run thousands of times a second, whose planning costs more than they do. A pooler
    between us and PostgreSQL must support prepared statements (PgBouncer does, from 1.21 on).
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        # Not Django's cursor, which writes the values into the statement.
        cursor.execute(statement, values, prepare=True)
        return cursor.fetchall()


def fetch_binary(statement: str, values: Sequence[object], *, using: str = DEFAULT_DB_ALIAS) -> list[tuple[Any, ...]]:
    """Return the many rows of a statement. Reading times takes a tenth of the CPU of Django's cursor."""
    database = connections[using]
    database.ensure_connection()
    with database.wrap_database_errors, psycopg.Cursor(database.connection) as cursor:
        return cursor.execute(statement, values, binary=True).fetchall()

"""Refuse a database whose migration history is not that of this code.

Django ignores unknown migrations: `migrate` would succeed, and models fail later. Processes look at the history only
when they start: during an upgrade the old version runs on after the new one has migrated.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psycopg
from django.apps import apps
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, router
from django.db.migrations.loader import MigrationLoader

from core.db import separate_connection

logger = logging.getLogger(__name__)

PATIENCE_SEC = 2  # timeout of connecting and of each answer
SHOWN = 3
NEWER = "A newer version of Pulsekeeper wrote this database. Run that version, or go back (docs/operate/upgrade.md)."
FOREIGN = (
    "The database has another migration history. Run the version that wrote it, or restore a backup "
    "(docs/operate/upgrade.md)."
)


class Refusal(NamedTuple):
    """Why a database is refused. `is_newer`: a newer version migrated it."""

    message: str
    is_newer: bool


def applied_migrations(database: psycopg.Connection) -> set[tuple[str, str]]:
    """Return app and name of each applied migration. Raises psycopg.Error."""
    if database.execute("SELECT to_regclass('django_migrations')").fetchone() == (None,):
        return set()
    return set(database.execute("SELECT app, name FROM django_migrations").fetchall())


@cache
def our_migrations() -> Mapping[str, frozenset[str]]:
    """Return the names of our migrations by app, from their files: a worker does without the modules."""
    return {
        app.label: frozenset(path.stem for path in Path(app.path, "migrations").glob("[0-9]*.py"))
        for app in apps.get_app_configs()
        if app.name in settings.OUR_APPS
    }


def refusal_of(applied: Collection[tuple[str, str]], known: Mapping[str, Collection[str]]) -> Refusal | None:
    """Return why a database with these applied migrations is refused, or None.

    It is newer if the unknown migrations of each app have higher numbers than all known ones, which are applied.
    """
    unknown = sorted((app, name) for app, name in applied if app in known and name not in known[app])
    if not unknown:
        return None
    is_newer = all(
        name[:4] > max(known[app], default="")[:4] and {(app, each) for each in known[app]} <= set(applied)
        for app, name in unknown
    )
    return Refusal(f"{NEWER if is_newer else FOREIGN} Unknown migrations: {_shortened(unknown)}.", is_newer)


def missing_columns(
    database: psycopg.Connection, applied: Collection[tuple[str, str]], *, using: str = DEFAULT_DB_ALIAS
) -> list[tuple[str, str]]:
    """Return table and name of columns that applied migrations make and the database lacks. Raises psycopg.Error.

    Development versions before 1.0.0 have migrations of the same names with other contents.
    """
    loader = MigrationLoader(None)
    state = loader.project_state([node for node in applied if node in loader.graph.nodes])
    expected = {
        (model._meta.db_table, field.column)
        for model in state.apps.get_models(include_auto_created=True)
        for field in model._meta.local_concrete_fields
        if model._meta.app_label in our_migrations() and field.column
        if router.allow_migrate(using, model._meta.app_label)
    }
    columns = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
    return sorted(expected - set(database.execute(columns).fetchall()))


def _shortened(names: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(map(".".join, names[:SHOWN]))
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown


def find_refusal(*, columns: bool = True, using: str = DEFAULT_DB_ALIAS) -> Refusal | None:
    """Return why a database of this process is refused, or None. Raises psycopg.Error.

    `columns`: compare them too, which loads all migrations.
    """
    with separate_connection(patience_sec=PATIENCE_SEC, using=using) as database:
        applied = applied_migrations(database)
        refusal = refusal_of(applied, our_migrations())
        if not refusal and columns and (missing := missing_columns(database, applied, using=using)):
            return Refusal(f"{FOREIGN} Missing columns: {_shortened(missing)}.", is_newer=False)
        return refusal


def require_known_history() -> None:
    """Log why the database is refused, and exit. Return if it does not answer: processes start during an outage."""
    if settings.SERVERLESS:
        return
    try:
        refusal = find_refusal(columns=False)
    except psycopg.OperationalError as error:
        logger.warning("starting without a look at the migrations: %s", error)
        return
    if refusal:
        logger.critical("%s", refusal.message)
        raise SystemExit(1)

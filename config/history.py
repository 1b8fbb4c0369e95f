"""Refuse a database whose migration history this code does not know.

Django ignores unknown migrations: `migrate` would succeed, and models fail later. Processes look at the history only
when they start: during an upgrade the old version runs on after the new one has migrated.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psycopg
from django.apps import apps
from django.conf import settings

from core.db import separate_connection

logger = logging.getLogger(__name__)

PATIENCE_SEC = 2  # timeout of connecting and of each answer
SHOWN = 3


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
    names = ", ".join(f"{app}.{name}" for app, name in unknown[:SHOWN])
    if len(unknown) > SHOWN:
        names += f" and {len(unknown) - SHOWN} more"
    if is_newer:
        message = "The database was written by a newer version of Pulsekeeper. Run that version, or go back"
    else:
        message = "The database has another migration history. Run the version that wrote it, or restore a backup"
    return Refusal(f"{message} (docs/operate/upgrade.md). Unknown migrations: {names}.", is_newer)


def find_refusal() -> Refusal | None:
    """Return why the database of this process is refused, or None. Raises psycopg.Error."""
    with separate_connection(patience_sec=PATIENCE_SEC) as database:
        return refusal_of(applied_migrations(database), our_migrations())


def require_known_history() -> None:
    """Log why the database is refused, and exit. Return if it does not answer: processes start during an outage."""
    if settings.SERVERLESS:
        return
    try:
        refusal = find_refusal()
    except psycopg.OperationalError as error:
        logger.warning("starting without a look at the migrations: %s", error)
        return
    if refusal:
        logger.critical("%s", refusal.message)
        raise SystemExit(1)

"""Migrations are append-only and can be undone."""

from __future__ import annotations

import hashlib

import pytest
from django.core.management import call_command
from django.db import connection

from config.history import our_migrations
from config.settings import BASE_DIR
from tests.api.conftest import _unthrottled
from tests.factories import UserFactory
from tests.privacy.living import EMAIL, live
from tests.schema import rows_of, schema_of

__all__ = ["_unthrottled"]

LOCK = "tests/migrations.sha256"


def test_migrations_are_append_only() -> None:
    lines = [line.split() for line in (BASE_DIR / LOCK).read_text().splitlines()]
    locked = {path: digest for digest, path in lines}
    files = BASE_DIR.glob("[a-z]*/**/migrations/0*.py")  # not in `.venv`
    found = {str(path.relative_to(BASE_DIR)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    changed = [path for path in locked if found.get(path) != locked[path]]
    assert not changed, "Databases have applied these migrations. Restore the files, and add a migration instead."
    assert sorted(found) == list(locked), f"Append new migrations to {LOCK} with sha256sum, and sort it by path."


NAMES = {app: sorted(names) for app, names in our_migrations().items() if names}


@pytest.mark.django_db(transaction=True)
def test_migrations_can_be_undone_and_applied_again() -> None:
    tables = set(connection.introspection.table_names())
    try:
        for app in NAMES:
            call_command("migrate", app, "zero", verbosity=0)
        left = connection.introspection.table_names()
        assert not [table for table in left if table.split("_")[0] in NAMES]
    finally:
        call_command("migrate", verbosity=0)
    assert set(connection.introspection.table_names()) == tables


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_unthrottled")
@pytest.mark.parametrize("app", [app for app, names in NAMES.items() if len(names) > 1])
def test_one_step_down_and_up_keeps_the_rows(app: str) -> None:
    live(UserFactory(email=EMAIL), UserFactory())
    schema, rows = _schema(), _rows()
    try:
        call_command("migrate", app, NAMES[app][-2], verbosity=0)
        down = _rows()
        assert _schema() != schema
    finally:
        call_command("migrate", verbosity=0)
    assert _schema() == schema
    assert down == {table: rows[table] for table in down}
    assert {table: count for table, count in _rows().items() if table in down} == down


def _schema() -> set[tuple[str, str, str]]:
    with connection.cursor() as cursor:
        return schema_of(cursor)


def _rows() -> dict[str, int]:
    with connection.cursor() as cursor:
        return rows_of(cursor, NAMES)

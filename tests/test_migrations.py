"""Migrations are append-only and can be undone."""

from __future__ import annotations

import hashlib

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection

from config.settings import BASE_DIR

LOCK = "tests/migrations.sha256"


def test_migrations_are_append_only() -> None:
    lines = [line.split() for line in (BASE_DIR / LOCK).read_text().splitlines()]
    locked = {path: digest for digest, path in lines}
    files = BASE_DIR.glob("[a-z]*/**/migrations/0*.py")  # not in `.venv`
    found = {str(path.relative_to(BASE_DIR)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    changed = [path for path in locked if found.get(path) != locked[path]]
    assert not changed, "Databases have applied these migrations. Restore the files, and add a migration instead."
    assert sorted(found) == list(locked), f"Append new migrations to {LOCK} with sha256sum, and sort it by path."


@pytest.mark.django_db(transaction=True)
def test_migrations_can_be_undone_and_applied_again() -> None:
    ours = [label for label in apps.app_configs if (BASE_DIR / label / "migrations").is_dir()]
    tables = set(connection.introspection.table_names())
    try:
        for label in ours:
            call_command("migrate", label, "zero", verbosity=0)
        left = connection.introspection.table_names()
        assert not [table for table in left if table.split("_")[0] in ours]
    finally:
        call_command("migrate", verbosity=0)
    assert set(connection.introspection.table_names()) == tables

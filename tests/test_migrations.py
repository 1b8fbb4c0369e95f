"""Migrations can be undone."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection

from config.settings import BASE_DIR


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

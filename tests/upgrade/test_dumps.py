"""Each frozen database can be upgraded to this commit, keeps its rows, and is served."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from config.history import our_migrations
from config.settings import BASE_DIR
from tests.privacy.living import EMAIL
from tests.schema import rows_of, schema_of
from tests.upgrade.dumps import ENCRYPTION_KEY, dumps, restore

# The pages as a user sees them afterwards. In a separate process, as this one uses another database.
LOOK = f"""
import django
django.setup()
from django.test import Client
from accounts.models import User
from monitors.models import Monitor

ada = User.objects.get(email={EMAIL!r})
client = Client(SERVER_NAME="127.0.0.1")
client.force_login(ada)
paths = ["/", "/monitors", "/incidents", "/alert-channels", "/status-pages", "/maintenance", "/projects"]
paths += [f"/monitors/{{monitor.public_id}}" for monitor in Monitor.objects.filter(owner=ada)]
assert len(paths) > 7
print({{path: client.get(path, follow=True).status_code for path in paths}})
"""


@pytest.fixture
def empty_database() -> Iterator[str]:
    """Yield the address of a new database."""
    name, server = f"upgrade_{os.getpid()}", urlsplit(os.environ["DATABASE_URL"])
    with psycopg.connect(server._replace(path="/postgres").geturl(), autocommit=True) as database:
        database.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield server._replace(path=f"/{name}").geturl()
        finally:
            database.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.mark.django_db
@pytest.mark.parametrize("dump", dumps(), ids=lambda path: path.name)
def test_it_becomes_a_database_of_this_commit(dump: Path, empty_database: str) -> None:
    restore(dump, empty_database)
    with psycopg.connect(empty_database) as database:
        before = rows_of(database.cursor(), our_migrations())
    run(empty_database, "manage.py", "migrate", "--verbosity", "0")
    run(empty_database, "manage.py", "check", "--database", "default")
    with psycopg.connect(empty_database) as database, connection.cursor() as ours:
        assert without_casts(schema_of(database.cursor())) == without_casts(schema_of(ours))
        after = rows_of(database.cursor(), our_migrations())
    assert len([count for count in before.values() if count]) > 20
    assert {table: after.get(table) for table in before} == before
    statuses = ast.literal_eval(run(empty_database, "-c", LOOK))
    assert set(statuses.values()) == {200}, statuses


def without_casts(schema: Iterable[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """Return the same for equal expressions: PostgreSQL writes casts differently after a dump."""
    return {(table, name, re.sub(r"::(character varying|text)(\[\])?|[()]", "", text)) for table, name, text in schema}


def run(url: str, *words: str) -> str:
    environment = {**os.environ, "DATABASE_URL": url, "ENCRYPTION_KEYS": ENCRYPTION_KEY}
    environment["DJANGO_SETTINGS_MODULE"] = "config.settings"
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout

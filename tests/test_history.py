"""A database with migrations unknown to this code is refused; one that does not answer is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import requests
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from config import health
from config.history import our_migrations, refusal_of
from core.clock import utc_now
from monitors.scheduling import tick
from tests.helpers import flush_broker
from tests.processes.up import free_port
from tests.processes.waiting import until

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
NEWER = "A newer version of Pulsekeeper wrote this database."
FOREIGN = "The database has another migration history."
WEB = [str(BIN / "granian"), "--interface", "rsgi", "--http", "1", "--no-ws", "config.rsgi:application"]
WORKER = [str(BIN / "celery"), "-A", "config", "worker", "--pool", "threads", "--queues", "dispatch"]
CHECK = [sys.executable, "manage.py", "check", "--deploy", "--database", "default"]
MIGRATE = [sys.executable, "manage.py", "migrate"]
UP = [sys.executable, "manage.py", "up"]

KNOWN = {"shop": {"0001_initial", "0002_prices"}, "stock": {"0001_initial"}, "plain": set[str]()}
ALL = {(app, name) for app, names in KNOWN.items() for name in names}


@pytest.mark.parametrize("applied", [set(), {("shop", "0001_initial")}, ALL, {*ALL, ("elsewhere", "0007_x")}])
def test_known_histories(applied: set[tuple[str, str]]) -> None:
    assert refusal_of(applied, KNOWN) is None


@pytest.mark.parametrize(
    ("applied", "message"),
    [
        ({*ALL, ("shop", "0003_taxes")}, NEWER),
        ({*ALL, ("plain", "0001_initial"), ("shop", "0003_taxes"), ("shop", "0004_tips")}, NEWER),
        ({("shop", "0001_initial"), ("shop", "0002_prices"), ("shop", "0003_taxes")}, NEWER),
        ({*ALL, ("shop", "0002_sizes")}, FOREIGN),
        ({("shop", "0001_initial"), ("shop", "0002_sizes")}, FOREIGN),
        ({("shop", "0001_initial"), ("shop", "0003_taxes")}, FOREIGN),
        ({*ALL, ("shop", "0003_taxes"), ("stock", "0001_start")}, FOREIGN),
    ],
)
def test_unknown_histories(applied: set[tuple[str, str]], message: str) -> None:
    refusal = refusal_of(applied, KNOWN)
    assert refusal is not None
    assert refusal.message.startswith(message)
    assert refusal.is_newer == (message == NEWER)


def test_the_message_names_few_migrations() -> None:
    refusal = refusal_of({*ALL, *(("shop", f"{number:04}_x") for number in range(3, 9))}, KNOWN)
    assert refusal is not None
    assert refusal.message.endswith("Unknown migrations: shop.0003_x, shop.0004_x, shop.0005_x and 3 more.")


def test_our_migrations_are_those_that_django_finds() -> None:
    ours = {(app, name) for app, names in our_migrations().items() for name in names}
    assert ours == {(app, name) for app, name in health.known_migrations() if app in our_migrations()}
    assert ("checks", "0001_initial") in ours


Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    started: list[subprocess.Popen[str]] = []

    def start(command: list[str], **variables: str) -> subprocess.Popen[str]:
        port = str(free_port())
        given = {"CELERY_SKIP_CHECKS": "1", "DATA_DIR": str(tmp_path), "PORT": port, "GRANIAN_PORT": port, **variables}
        environment = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"} | given
        started.append(
            subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        with process:
            process.kill()


@pytest.fixture
def database() -> Iterator[Callable[[set[tuple[str, str]]], str]]:
    """Create a database with these applied migrations, and no tables. Return its address."""
    url = os.environ["DATABASE_URL"]
    name = f"history_{os.getpid()}"

    def create(applied: set[tuple[str, str]]) -> str:
        server.execute(f"CREATE DATABASE {name}")
        own = urlsplit(url)._replace(path=f"/{name}").geturl()
        with psycopg.connect(own) as new:
            new.execute("CREATE TABLE django_migrations (app text, name text, applied timestamptz)")
            new.cursor().executemany("INSERT INTO django_migrations VALUES (%s, %s, now())", applied)
        return own

    with psycopg.connect(url, autocommit=True) as server:
        yield create
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.mark.parametrize(
    ("command", "unknown", "message"),
    [
        (WEB, "0001_other", FOREIGN),
        (WORKER, "0001_other", FOREIGN),
        (UP, "0001_other", FOREIGN),
        (MIGRATE, "0001_other", FOREIGN),
        (CHECK, "0001_other", FOREIGN),
        (WORKER, "9999_future", NEWER),
        (MIGRATE, "9999_future", NEWER),
    ],
)
def test_it_is_refused(
    database: Callable[[set[tuple[str, str]]], str], run: Run, command: list[str], unknown: str, message: str
) -> None:
    applied = {*health.known_migrations(), ("monitors", unknown)}
    process = run(command, DATABASE_URL=database(applied))
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert message in output
    assert f"monitors.{unknown}" in output
    assert "Traceback" not in output


def test_migrations_that_had_other_contents(database: Callable[[set[tuple[str, str]]], str], run: Run) -> None:
    process = run(MIGRATE, DATABASE_URL=database(set(health.known_migrations())))
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert FOREIGN in output
    assert "Missing columns: accounts_" in output


def test_processes_start_while_the_database_is_away(run: Run, tmp_path: Path) -> None:
    away, port, ready = f"postgresql://me:secret@127.0.0.1:{free_port()}/none", free_port(), tmp_path / "ready"
    worker = run([*WORKER, "--include", "tests.loaded_modules"], DATABASE_URL=away, LOADED_MODULES=str(ready))
    run(WEB, DATABASE_URL=away, GRANIAN_PORT=str(port))
    until(lambda: answers(f"http://127.0.0.1:{port}/healthz"), 60, "web starts")
    output, _ = worker.communicate(timeout=120)
    assert ready.exists(), output
    assert "starting without a look at the migrations" in output
    assert "secret" not in output


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.ConnectionError:
        return False


@pytest.fixture
def applied(transactional_db: None, fresh_health: None) -> Iterator[Callable[[str], None]]:
    """Record a migration of monitors as applied in the database of the tests."""
    flush_broker()
    tick(utc_now())
    names = []

    def record(name: str) -> None:
        MigrationRecorder(connection).record_applied("monitors", name)
        names.append(name)

    yield record
    for name in names:
        MigrationRecorder(connection).record_unapplied("monitors", name)


def test_a_web_process_stays_ready_when_a_newer_version_migrates(applied: Callable[[str], None]) -> None:
    applied("9999_future")
    response = Client().get("/readyz")
    assert (response.status_code, response.json()["status"]) == (200, "degraded")
    failed = {name: text for name, text in response.json()["checks"].items() if text != "ok"}
    assert failed.keys() == {"version"}
    assert failed["version"].startswith(NEWER)


def test_a_web_process_is_not_ready_with_another_history(applied: Callable[[str], None]) -> None:
    applied("0001_other")
    response = Client().get("/readyz")
    assert (response.status_code, response.json()["status"]) == (503, "not_ready")
    assert response.json()["checks"]["migrations"].startswith(FOREIGN)

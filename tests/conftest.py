"""One private PostgreSQL and Valkey for the whole test session; other hosts are never contacted.

DJANGO_SETTINGS_MODULE is set here and not in pyproject.toml: pytest-django would load the settings, which read
DATABASE_URL, before this file can start the servers.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import django
import hypothesis
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections, router, transaction
from django.template.base import Template
from django.test import utils as test_utils
from django.utils.module_loading import import_string
from pytest_django import DjangoDbBlocker
from pytest_socket import socket_allow_hosts
from xdist.remote import Producer

from core.postgresql import HISTORY
from devserver.data_folder import DataFolder, load_or_create_secrets
from devserver.session import embedded_servers
from tests.databases import disconnect, refused_history
from tests.flushing import flush_by_deleting
from tests.scheduling import ByGroup, sort_slowest_first
from tests.site import Site

ROOT = Path(__file__).resolve().parents[1]

_session = ExitStack()

# The data need not survive a power failure. Autovacuum would record between two tests that tables are empty, and the
# resulting plans would slow the second test down many times.
POSTGRES_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
VALKEY_DATABASES = 64


def _configure() -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        _start_servers()
    else:  # a process of xdist: the servers are its parent's, and pytest-django names its own database
        number = int(re.sub(r"\D", "", worker)) + 1
        os.environ["REDIS_URL"] = re.sub(r"/\d+$", f"/{number}", os.environ["REDIS_URL"])
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    django.setup()
    flush_by_deleting()
    # Production hashes would cost 0.2 s for each account of a test. Processes that tests start use them.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # Otherwise every client scans all static files when it is created.
    settings.WHITENOISE_AUTOREFRESH = True
    # Not for our children: pytest-django would load the settings of an xdist process before this file runs there.
    del os.environ["DJANGO_SETTINGS_MODULE"]


def _start_servers() -> None:
    folder = Path(_session.enter_context(tempfile.TemporaryDirectory(prefix="pulsekeeper-test-")))
    servers = _session.enter_context(
        embedded_servers(
            folder, postgres_settings=POSTGRES_SETTINGS, valkey_settings={"databases": str(VALKEY_DATABASES)}
        )
    )
    os.environ.update(
        load_or_create_secrets(folder),
        DATA_DIR=str(folder),
        DATABASE_URL=servers.database_url,
        REDIS_URL=servers.redis_url,
        ALLOWED_PRIVATE_NETWORKS="127.0.0.0/8,::1/128",
        CONNECTIVITY_TARGETS="",
    )


# A busy machine is slow to draw examples, which says nothing about the code.
hypothesis.settings.register_profile("default", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
# New random examples are for developers: failures need an investigation. The verdict on a commit must be reproducible.
hypothesis.settings.register_profile("ci", hypothesis.settings.get_profile("default"), derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")

# At import time, not in a hook: conftest files of subfolders import models, and pytest loads them right after this
# file, before their hooks run.
_configure()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByGroup:
    return ByGroup(config, log)


@pytest.hookimpl(trylast=True)  # after pytest-randomly's
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sort_slowest_first(items)


def pytest_collection_finish() -> None:
    """Collect garbage less often, and exclude imported modules: this saves a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_unconfigure() -> None:
    # The servers stop before this process; its warning about the lost broker would be noise.
    logging.getLogger("core.metrics").disabled = True
    _session.close()


def pytest_runtest_setup() -> None:
    # pytest-socket lifts this after each test.
    socket_allow_hosts(["127.0.0.0/8", "::1", "::ffff:127.0.0.0/104"], allow_unix_socket=True)


@pytest.fixture(scope="session")
def migrated_database(django_test_environment: None, django_db_blocker: DjangoDbBlocker) -> str:
    """Migrate one database for all processes of xdist, and return its name.

    That takes seconds, and a copy a tenth of one.
    """
    creation: Any = connection.creation
    name: str = creation._get_test_db_name()
    with django_db_blocker.unblock(), (Path(os.environ["DATA_DIR"]) / "migrated").open("a+") as migrated:
        fcntl.flock(migrated, fcntl.LOCK_EX)
        migrated.seek(0)
        if not migrated.read():
            creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
            disconnect()  # only a database without connections can be copied
            migrated.write("yes")
    return name


@pytest.fixture(scope="session")
def django_db_setup(migrated_database: str, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Copy the migrated database for this process."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "only")
    creation: Any = connection.creation
    with django_db_blocker.unblock():
        connection.settings_dict["NAME"] = migrated_database
        creation.clone_test_db(worker, verbosity=0, autoclobber=True)
        settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = f"{migrated_database}_{worker}"
    yield
    with django_db_blocker.unblock():
        disconnect()


@pytest.fixture(scope="session")
def _history_settings(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> dict[str, Any]:
    """Create another database beside that of this process, and return its settings."""
    given = connection.settings_dict | {"NAME": f"{connection.settings_dict['NAME']}_history"}
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {given['NAME']}")
        cursor.execute(f"CREATE DATABASE {given['NAME']}")
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch:
        _add_history(patch, given)
        call_command("migrate", database=HISTORY, verbosity=0)
        disconnect(HISTORY)
    return given


def _add_history(patch: pytest.MonkeyPatch, given: dict[str, Any]) -> None:
    patch.setitem(settings.DATABASES, HISTORY, given)
    patch.setitem(connections.settings, HISTORY, given)
    patch.setattr(router, "routers", [import_string("checks.results.database.Router")()])


@pytest.fixture(scope="class")  # begins before that of the database, and ends before other tests of the module
def second_database(_history_settings: dict[str, Any], django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Let the history be in a database of its own. Tests name both: `django_db(databases="__all__")`."""
    with pytest.MonkeyPatch.context() as patch:
        _add_history(patch, _history_settings)
        yield
        with django_db_blocker.unblock():
            disconnect(HISTORY)


@pytest.fixture
def no_history(second_database: None, transactional_db: None) -> Iterator[None]:
    """Let new connections to the history database be refused."""
    with refused_history():
        yield


@pytest.fixture(scope="module")
def module_db(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Begin a transaction for rows that a module's fixtures create once. Each test is rolled back to them."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="session", autouse=True)
def _plain_templates(django_test_environment: None) -> None:
    """Render without Django's copy of the context, which only tests with `template_contexts` read."""
    Template._render = test_utils._TestState.saved_data.template_render  # type: ignore[attr-defined]


@pytest.fixture
def template_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that read `response.context`."""
    monkeypatch.setattr(Template, "_render", test_utils.instrumented_test_render)  # type: ignore[attr-defined]


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests find at once that no worker answers: they would wait for the timeout of a check and 5 s."""
    monkeypatch.setattr("core.replies.wait", lambda *_, **__: None)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse requests soon that have to wait for others of their account."""
    monkeypatch.setattr("core.waiting.PATIENCE_SEC", 0.01)


@pytest.fixture
def fresh_health(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each request to /readyz, /metrics or /system compute its answer again."""
    monkeypatch.setattr("config.health.FRESH_SEC", -1)
    monkeypatch.setattr("config.metrics.FRESH_SEC", -1)


@pytest.fixture
def no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let new connections to the database be refused."""
    elsewhere = connection.settings_dict | {"HOST": "127.0.0.1", "PORT": "1", "PASSWORD": "secret"}
    monkeypatch.setattr(connections["default"], "settings_dict", elsewhere)


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """An environment without servers, as on a fresh machine."""
    ours = ("DATABASE_URL", "HISTORY_DATABASE_URL", "REDIS_URL", "SECRET_KEY", "ENCRYPTION_KEYS", "DATA_DIR", "PORT")
    dropped = ("ADMIN_", "ALLOWED_", "DJANGO_", "PYTEST_", "COV_")  # DJANGO_: config.celery sets it when it is imported
    return {name: value for name, value in os.environ.items() if name not in ours and not name.startswith(dropped)}


@pytest.fixture(scope="session")
def migrated_cluster(clean_environment: dict[str, str]) -> Path:
    """Migrate the PostgreSQL of one data folder for all processes of xdist, and return its folder.

    A separate instance that starts on a copy saves seconds of CPU.
    """
    folder = Path(os.environ["DATA_DIR"]) / "instance"
    with folder.with_suffix(".migrated").open("a+") as migrated:
        fcntl.flock(migrated, fcntl.LOCK_EX)
        migrated.seek(0)
        if not migrated.read():
            command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
            subprocess.run(command, cwd=ROOT, env=clean_environment | {"DATA_DIR": str(folder)}, check=True)
            migrated.write("yes")
    return DataFolder(folder).postgres


@pytest.fixture
def site() -> Iterator[Site]:
    """A web server to monitor, switched on."""
    with Site() as site:
        yield site

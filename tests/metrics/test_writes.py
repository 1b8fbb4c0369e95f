"""PostgreSQL rejects writes: pings and pages get 503 with Retry-After, `/readyz` reports it, and nothing is lost."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import time_machine
from django.conf import settings
from django.db import OperationalError, connection, connections
from django.test import Client

from config import health
from core.clock import utc_now
from core.postgresql.base import DatabaseWrapper
from devserver.data_folder import SUPERUSER
from monitors import tasks
from monitors.models import Monitor, MonitorState, Ping
from monitors.scheduling import tick
from tests.factories import MonitorFactory
from tests.helpers import flush_broker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh(fresh_health: None) -> None:
    flush_broker()
    tick(utc_now())


def close_all() -> None:
    connection.close()
    wrapper = connections["default"]
    assert isinstance(wrapper, DatabaseWrapper)
    wrapper.close_pool()


@contextmanager
def read_only() -> Iterator[None]:
    """Make the database read-only for new connections, as a former primary is."""
    name = connection.ops.quote_name(connection.settings_dict["NAME"])

    def run(*statements: str) -> None:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        close_all()

    run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        yield
    finally:
        run("SET default_transaction_read_only = off", f"ALTER DATABASE {name} RESET default_transaction_read_only")


@contextmanager
def full_disk() -> Iterator[None]:
    """Store pings, and the test writes of /readyz, on a full disk of 1 MiB."""
    host = connection.settings_dict["HOST"]
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    folder = Path(settings.DATA_DIR) / "small-disk"
    with ExitStack() as stack:
        folder.mkdir()
        stack.callback(folder.rmdir)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
        if mounted.returncode:
            pytest.skip(f"cannot mount: {mounted.stderr.decode()}")
        stack.callback(subprocess.check_call, ["umount", str(folder)])
        owner = Path(host).stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        admin = stack.enter_context(
            psycopg.connect(host=host, user=SUPERUSER, dbname=connection.settings_dict["NAME"], autocommit=True)
        )

        def run(statement: str) -> None:
            close_all()
            admin.execute(statement)

        run(f"CREATE TABLESPACE small LOCATION '{folder}'")
        stack.callback(run, "DROP TABLESPACE small")
        children = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'monitors_ping'::regclass"
        for (part,) in admin.execute(children).fetchall():
            run(f"ALTER TABLE {part} SET TABLESPACE small")
            stack.callback(run, f"ALTER TABLE {part} SET TABLESPACE pg_default")
        run(f"ALTER DATABASE {name} SET temp_tablespaces = small")
        stack.callback(run, f"ALTER DATABASE {name} RESET temp_tablespaces")
        run("GRANT CREATE ON TABLESPACE small TO PUBLIC")
        fill(folder)
        stack.callback((folder / "filler").unlink)
        yield


def fill(folder: Path) -> None:
    with suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


@pytest.mark.parametrize(
    ("away", "reason"),
    [(read_only, health.READ_ONLY), (full_disk, "the disk of the database is full")],
    ids=["read-only", "full"],
)
def test_pings_get_503_and_readyz_says_so(away: Callable[[], Iterator[None]], reason: str) -> None:
    monitor: Monitor = MonitorFactory(heartbeat=True)
    path = f"/v1/heartbeats/{monitor.public_id}/ping"
    client = Client(raise_request_exception=False)
    assert client.get("/readyz").json()["checks"]["writes"] == "ok"
    assert client.post(path).status_code == 200
    with away():  # type: ignore[attr-defined]
        answer = client.post(f"{path}/fail", random.randbytes(4_000).hex(), "text/plain")
        assert answer.status_code == 503, answer.content
        assert int(answer["Retry-After"]) > 0
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]["writes"]) == (503, reason)
    assert Ping.objects.count() == 1
    assert client.post(path).status_code == 200
    assert client.get("/readyz").json()["checks"]["writes"] == "ok"


def test_no_heartbeat_is_missed_because_the_disk_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates in pages with free space, like those of a tick and of a missed deadline, succeed on a full disk."""
    monkeypatch.setattr(tasks, "TEST_WRITES_EVERY_SEC", 0)
    monitor: Monitor = MonitorFactory(heartbeat=True)
    path = f"/v1/heartbeats/{monitor.public_id}/ping"

    def tick_as_in_a_new_process() -> None:
        """Otherwise the clock would seem to have been set."""
        monkeypatch.setattr(tasks, "_tick_began", None)
        tasks.dispatch_due()

    with time_machine.travel(utc_now(), tick=False) as clock:
        assert Client().post(path).status_code == 200
        tasks.dispatch_due()
        with full_disk():
            for _ in range(60):
                clock.shift(4)
                with suppress(OperationalError):
                    tick_as_in_a_new_process()
        clock.shift(1)
        tick_as_in_a_new_process()
        state = MonitorState.objects.get(pk=monitor.pk)
        assert state.status == "up"
        assert state.next_due_at is not None
        assert state.next_due_at > utc_now()

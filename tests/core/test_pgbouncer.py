"""The database through PgBouncer in transaction mode, as docs/operate/scaling.md describes it."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from tests.factories import UserFactory
from tests.processes.up import ROOT, free_port
from tests.processes.waiting import until
from tests.relay import relay

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SEC = 60
NOBODY = 65534

# Two server connections for eight threads, so that each statement may use another one.
SCRIPT = """
import django; django.setup()
import threading
from concurrent.futures import ThreadPoolExecutor
from django.db import connection, transaction
from accounts.models import User
from core.db import advisory_lock, fetch_prepared, release_connection, separate_connection, try_advisory_lock

barrier = threading.Barrier(8)

def work(number):
    barrier.wait(30)
    for turn in range(20):
        assert fetch_prepared("SELECT %(value)s::int + 1", {"value": turn}) == [(turn + 1,)]
        assert len(list(User.objects.order_by("pk").iterator(chunk_size=1))) == 5
        with transaction.atomic():
            advisory_lock("same")
            with transaction.atomic():
                try_advisory_lock("other")
        with connection.cursor() as cursor:
            cursor.execute("SHOW timezone")
            assert cursor.fetchone() == ("UTC",)
            cursor.execute("SHOW statement_timeout")
            assert cursor.fetchone() == ("0",), "it leaked from another client"
        if turn % 5 == 0:
            with separate_connection(patience_sec=20) as database:
                assert database.execute("SHOW statement_timeout").fetchone() == ("20s",)
        release_connection()

with ThreadPoolExecutor(8) as threads:
    list(threads.map(work, range(8)))
print("ok")
"""


@pytest.fixture
def pgbouncer() -> Iterator[str]:
    """Return the URL of the test's database through PgBouncer."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    version = re.search(r"PgBouncer (\d+)\.(\d+)", subprocess.check_output([program, "--version"], text=True))
    assert version is not None
    if tuple(map(int, version.groups())) < (1, 21):
        pytest.skip(f"{version[0]} has no prepared statements in transaction mode: 1.21 is needed")
    port, name = free_port(), connection.settings_dict["NAME"]
    with relay() as postgres, tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "pgbouncer.ini")
        settings.write_text(
            f"[databases]\n{name} = host=127.0.0.1 port={postgres.port} user={connection.settings_dict['USER']}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            "pool_mode = transaction\nmax_prepared_statements = 100\ndefault_pool_size = 2\nmax_client_conn = 100\n"
        )
        for path in (Path(folder), settings):
            path.chmod(0o755)
        with subprocess.Popen([program, "-q", str(settings)], user=NOBODY if os.geteuid() == 0 else None) as process:
            try:
                until(lambda: _listens(port), PATIENCE_SEC, "PgBouncer listens")
                yield f"postgresql://anyone@127.0.0.1:{port}/{name}"
            finally:
                process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_transaction_mode(pgbouncer: str) -> None:
    UserFactory.create_batch(5)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": pgbouncer, "DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr

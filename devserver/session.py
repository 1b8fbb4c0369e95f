"""Joining and leaving the servers of a data folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from devserver.data_folder import ROLE, SUPERUSER, DataFolder
from devserver.locks import POLL_SECONDS, EmbeddedError, FileLock

BASE_DIR = Path(__file__).resolve().parents[1]
# Longer than the servers' own limits, which then say more exactly what was slow.
JOIN_SECONDS, STOP_SECONDS = 90, 15

# Keepers we started: as their parent we have to reap them.
_keepers: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Servers:
    database_url: str
    redis_url: str


@contextmanager
def embedded_servers(
    data_dir: Path,
    *,
    database: str = "pulsekeeper",
    postgres_settings: Mapping[str, str] | None = None,
    valkey_settings: Mapping[str, str] | None = None,
) -> Iterator[Servers]:
    """Hold the servers of `data_dir`: started by the first holder, stopped when the last one leaves.

    The settings count for the holder that starts them.
    """
    folder = DataFolder.prepare(data_dir)
    with ExitStack() as stack:
        with FileLock(folder.gate) as gate:
            if not gate.exclude(wait=JOIN_SECONDS):
                raise EmbeddedError(f"another process has kept {folder.root} locked for {JOIN_SECONDS} s")
            if folder.keeper_pid() is None:
                _start_keeper(folder, postgres_settings or {}, valkey_settings or {})
            holder = stack.enter_context(FileLock(folder.holders))
            holder.share()
            stack.callback(_leave, folder, holder)
            servers = _ensure_database(folder, database)
        yield servers


def server_pids(data_dir: Path) -> dict[str, object] | None:
    """Pids by name, to notice a restart; None when nobody looks after the servers any more."""
    folder = DataFolder(data_dir)
    if folder.keeper_pid() is None:
        return None
    return {name: entry["pid"] for name, entry in folder.read_state().items() if isinstance(entry, dict)}


def _start_keeper(
    folder: DataFolder, postgres_settings: Mapping[str, str], valkey_settings: Mapping[str, str]
) -> None:
    request = {
        "data_dir": str(folder.root),
        "postgres_settings": dict(postgres_settings),
        "valkey_settings": dict(valkey_settings),
    }
    with folder.keeper_log.open("ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "devserver.server_supervisor"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
            cwd=BASE_DIR,
            start_new_session=True,
        )
    # A keeper that ends early closes its pipe, so this cannot wait for nothing; its own limits end the rest.
    try:
        answer = _talk(keeper, json.dumps(request).encode())
    except BaseException:
        # A signal to us, most likely. The keeper would see for itself that nobody came; end with it gone.
        keeper.terminate()
        with suppress(subprocess.TimeoutExpired):
            keeper.wait(STOP_SECONDS)
        raise
    try:
        error = json.loads(answer)["error"]
    except ValueError:
        error = f"the keeper of the private servers ended: see {folder.keeper_log}"
    if error:
        keeper.wait()
        raise EmbeddedError(error)


def _talk(keeper: subprocess.Popen[bytes], request: bytes) -> bytes:
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    _keepers.append(keeper)
    with keeper.stdin as stdin, keeper.stdout as stdout:
        with suppress(BrokenPipeError):  # it ended already; its silence says so
            stdin.write(request)
        stdin.close()
        answer: bytes = stdout.readline()
    return answer


def _leave(folder: DataFolder, holder: FileLock) -> None:
    # Without the gate in time the keeper still sees for itself that nobody holds the folder.
    with FileLock(folder.gate) as gate:
        if not (gate.exclude(wait=STOP_SECONDS) and holder.exclude()):
            return
        deadline = time.monotonic() + STOP_SECONDS
        while (pid := folder.keeper_pid()) is not None:
            if time.monotonic() > deadline:
                raise EmbeddedError(
                    f"the private servers of {folder.root} do not stop: see {folder.keeper_log}"
                )
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            time.sleep(POLL_SECONDS)
        _keepers[:] = [keeper for keeper in _keepers if keeper.poll() is None]
        _stop_orphans(folder)


def _stop_orphans(folder: DataFolder) -> None:
    """Nothing to do, unless the keeper itself was killed."""
    from devserver.server_process import POSTGRES_STOP, VALKEY_STOP, stop_orphan

    stops = {"postgres": (folder.postgres, POSTGRES_STOP), "valkey": (folder.valkey, VALKEY_STOP)}
    for name, entry in folder.read_state().items():
        if isinstance(entry, dict) and isinstance(entry.get("pid"), int):
            stop_orphan(entry["pid"], *stops[name])


def _ensure_database(folder: DataFolder, database: str) -> Servers:
    import psycopg
    from psycopg import sql

    state: dict[str, Any] = folder.read_state()
    host = state["postgres"]["socket_dir"]
    valkey = state["valkey"]
    try:
        with psycopg.connect(host=host, user=SUPERUSER, dbname="postgres", autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone():
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEDB").format(sql.Identifier(ROLE)))
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database]).fetchone():
                names = sql.Identifier(database), sql.Identifier(ROLE)
                connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(*names))
    except psycopg.Error as error:
        raise EmbeddedError(f"cannot use the private PostgreSQL of {folder.root}: {error}".strip()) from error
    return Servers(
        database_url=f"postgresql://{ROLE}@{quote(host, safe='')}/{database}",
        redis_url=f"redis://:{valkey['password']}@127.0.0.1:{valkey['port']}/0",
    )

"""Use the private servers of a data folder: the first user starts them, the last one stops them."""

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
# Longer than the servers' own timeouts, which have better error messages.
JOIN_SECONDS, STOP_SECONDS = 90, 15

# Child processes of this process, which must reap them.
_supervisors: list[subprocess.Popen[bytes]] = []


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
    """Keep the servers of `data_dir` running inside the block. The settings apply if this process starts them."""
    folder = DataFolder.prepare(data_dir)
    with ExitStack() as stack:
        with FileLock(folder.gate) as gate:
            if not gate.exclude(wait=JOIN_SECONDS):
                raise EmbeddedError(f"another process has kept {folder.root} locked for {JOIN_SECONDS} s")
            if folder.supervisor_pid() is None:
                _start_supervisor(folder, postgres_settings or {}, valkey_settings or {})
            holder = stack.enter_context(FileLock(folder.holders))
            holder.share()
            stack.callback(_leave, folder, holder)
            servers = ensure_database(folder, database)
        yield servers


def server_pids(data_dir: Path) -> dict[str, object] | None:
    """Return the pids by name, to notice restarts, or None if the supervisor does not run."""
    folder = DataFolder(data_dir)
    if folder.supervisor_pid() is None:
        return None
    return {name: entry["pid"] for name, entry in folder.read_state().items() if isinstance(entry, dict)}


def _start_supervisor(
    folder: DataFolder, postgres_settings: Mapping[str, str], valkey_settings: Mapping[str, str]
) -> None:
    request = json.dumps([str(folder.root), dict(postgres_settings), dict(valkey_settings)])
    with folder.supervisor_log.open("ab") as log:
        supervisor = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "devserver.server_supervisor", request],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=BASE_DIR,
            start_new_session=True,
        )
    _supervisors.append(supervisor)
    assert supervisor.stdout is not None
    try:
        # This cannot block forever: a supervisor that ends closes its pipe, and its own timeouts end the rest.
        with supervisor.stdout as answer:
            error = json.loads(answer.readline() or "null")
    except BaseException:
        # Most likely a signal arrived. The supervisor ends by itself; wait for it.
        supervisor.terminate()
        with suppress(subprocess.TimeoutExpired):
            supervisor.wait(STOP_SECONDS)
        raise
    if error != "":
        supervisor.wait()
        raise EmbeddedError(error or f"the supervisor of the private servers ended: see {folder.supervisor_log}")


def _leave(folder: DataFolder, holder: FileLock) -> None:
    # If the gate lock times out, the supervisor notices anyway that the folder is unused.
    with FileLock(folder.gate) as gate:
        if not (gate.exclude(wait=STOP_SECONDS) and holder.exclude()):
            return
        deadline = time.monotonic() + STOP_SECONDS
        while (pid := folder.supervisor_pid()) is not None:
            if time.monotonic() > deadline:
                raise EmbeddedError(f"the private servers of {folder.root} do not stop: see {folder.supervisor_log}")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            time.sleep(POLL_SECONDS)
        _supervisors[:] = [supervisor for supervisor in _supervisors if supervisor.poll() is None]
        _stop_orphans(folder)


def _stop_orphans(folder: DataFolder) -> None:
    """Stop servers that a killed supervisor left behind."""
    from devserver.server_process import stop_orphan

    for name, entry in folder.read_state().items():
        if isinstance(entry, dict) and isinstance(entry.get("pid"), int):
            stop_orphan(entry["pid"], folder.root / name)


def ensure_database(folder: DataFolder, database: str) -> Servers:
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

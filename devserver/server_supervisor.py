"""The server supervisor: one process per data folder that starts, watches and stops both servers.

It outlives the command that started it and ends when no process uses the folder. As the kernel releases the locks of
killed processes, the servers shut down cleanly even after `kill -9` of all users.

Run by devserver.session as `python -m devserver.server_supervisor REQUEST`, where REQUEST is the JSON array of the
arguments of ServerSupervisor. It prints a JSON string: the error, empty once the servers are ready.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from devserver.data_folder import DataFolder
from devserver.locks import EmbeddedError, FileLock
from devserver.postgres import PROGRAMS, Postgres, socket_folder
from devserver.server_process import Server
from devserver.server_user import server_user
from devserver.valkey import PROGRAM, Valkey

LOOK_SECONDS = 0.25
# A server that ends this many times in this period is not restarted again.
DEATHS_ALLOWED, DEATHS_WINDOW_SECONDS = 5, 60


class ServerSupervisor:
    def __init__(self, folder: DataFolder, postgres_settings: dict[str, str], valkey_settings: dict[str, str]) -> None:
        self.folder = folder
        self.stop_requested = threading.Event()
        self._deaths: list[float] = []
        socket_dir = socket_folder(folder)
        folders = [folder.postgres, folder.valkey, socket_dir]
        for path in folders:
            path.mkdir(mode=0o700, exist_ok=True)
        user = server_user(folder, [*PROGRAMS, PROGRAM], folders)
        self.servers: list[Server] = [
            Postgres(folder, user, postgres_settings, socket_dir),
            Valkey(folder, user, valkey_settings, folder.read_state().get("valkey")),
        ]

    def start(self) -> None:
        for server in self.servers:
            server.start()
            self._write_state()

    def stop(self) -> None:
        for server in reversed(self.servers):
            server.stop()

    def watch(self) -> None:
        """Restart servers that end. Return when the servers must be stopped."""
        while not self.stop_requested.wait(LOOK_SECONDS):
            for server in self.servers:
                if not server.is_running():
                    self._restart(server)
            # No process can join while this process has the gate lock, which it keeps until it ends.
            gate = FileLock(self.folder.gate)
            if gate.exclude() and FileLock(self.folder.holders).exclude():
                self._kept_gate = gate
                return
            gate.close()

    def _restart(self, server: Server) -> None:
        now = time.monotonic()
        self._deaths = [death for death in self._deaths if now - death < DEATHS_WINDOW_SECONDS] + [now]
        if len(self._deaths) > DEATHS_ALLOWED:
            raise EmbeddedError(f"{server.name} keeps exiting: see {self.folder.log(server.name)}")
        log(f"{server.name} ended: restarting it")
        server.start()
        self._write_state()

    def _write_state(self) -> None:
        self.folder.write_state({server.name: server.state() for server in self.servers})


def log(text: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), text, file=sys.stderr, flush=True)  # noqa: T201 - its log


def report(error: str) -> None:
    """Report to the process that started this one, if it still runs, and close the pipe."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, (json.dumps(error) + "\n").encode())
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)


def main() -> int:
    data_dir, *server_settings = json.loads(sys.argv[1])
    folder = DataFolder(Path(data_dir))
    life = FileLock(folder.supervisor)
    if not life.exclude(wait=5):
        report("another supervisor already runs for this folder")
        return 1
    life.write(str(os.getpid()))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor = None
    try:
        supervisor = ServerSupervisor(folder, *server_settings)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: supervisor.stop_requested.set())
        supervisor.start()
        report("")
        supervisor.watch()
    except (EmbeddedError, OSError) as error:
        log(str(error))
        report(str(error))
        return 1
    finally:
        if supervisor is not None:
            supervisor.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

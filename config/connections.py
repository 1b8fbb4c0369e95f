"""The TCP connections of the web server: a fair share for each client, and what a client has received.

Granian accepts connections without a limit per client, and ends those that send no complete request head in time. The
guard looks at this process's own sockets. If there are too many, it ends idle and silent ones, those of the client with
the most connections first. It also ends connections of clients that do not read their answers. See docs/adr/0036.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from core.addresses import client_of, is_from_trusted_proxy
from core.metrics import Counter

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 2_048
"""More open connections than this make the guard end some. Each costs up to 20 KiB before its request is complete."""
KEPT_SHARE = 0.75
"""How many of MAX_CONNECTIONS the guard leaves."""
EVERY_SEC = 0.1
READING_SEC = 15.0
"""A client that receives less than READING_BYTES of a complete answer in this time is disconnected."""
READING_BYTES = 16 * 1024
_SPARE = 256
"""File descriptors that connections may not use."""
_INFO = struct.Struct("=B 23x I 24x I 64x Q 16x I")
"""Of tcp_info in linux/tcp.h: tcpi_state, tcpi_unacked, tcpi_last_data_recv, tcpi_bytes_acked, tcpi_notsent_bytes."""
_TCP_CLOSE = 7
_ABORT = struct.pack("ii", 1, 0)  # linger: drop unsent data

CLOSED = Counter(
    "pulsekeeper_connections_closed_total",
    "Connections that the web server closed: `crowded` (too many, an idle one of the client with the most), `unread` "
    "(the client did not read its answer).",
    ("why",),
    [("crowded",), ("unread",)],
)


class Info(NamedTuple):
    """The state of a connection: received and sent data, without what granian still buffers."""

    is_unread: bool
    idle_ms: int
    acknowledged: int


class Connection(NamedTuple):
    """A connection of a client. `name` is granian's text for the client: `192.0.2.1:1234` or `[2001:db8::1]:1234`."""

    descriptor: int
    name: str
    address: str
    info: Info


def raise_descriptor_limit() -> int:
    """Allow as many file descriptors as the system lets this process have. Return their number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def info_of(connection: socket.socket) -> Info:
    """Return the state of the connection. Raises OSError if the client has gone."""
    raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    state, unacknowledged, idle_ms, acknowledged, unsent = _INFO.unpack(raw)
    if state == _TCP_CLOSE:
        raise ConnectionResetError
    return Info(bool(unacknowledged or unsent), idle_ms, acknowledged)


def abort(connection: socket.socket) -> None:
    """Disconnect the client, and drop data that it has not received."""
    with suppress(OSError):  # the client has gone
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        connection.shutdown(socket.SHUT_RDWR)


class Connections:
    """The connections of this process's listening sockets. Used only from the event loop.

    `active` are the clients whose request the gateway works on; their connections are left alone.
    """

    def __init__(self) -> None:
        self.active: set[str] = set()
        self._most = min(MAX_CONNECTIONS, max(_SPARE, (raise_descriptor_limit() - _SPARE) // 2))
        # A descriptor of our own, to which a socket of granian is duplicated while it is looked at: granian may close
        # its own at any moment, and the number may then be that of another file.
        self._view, self._nothing = socket.socket(), socket.socket()
        self._unread: dict[str, int] = {}
        self._swept_at = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if sys.platform != "linux":
            return
        self._timer = loop.call_later(EVERY_SEC, self.begin, loop)
        if len(_descriptors()) > self._most:
            self._make_room()
        if time.monotonic() - self._swept_at > READING_SEC:
            self._swept_at = time.monotonic()
            self._end_unread()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._view.close()
        self._nothing.close()

    def open(self, name: str) -> socket.socket:
        """Return a duplicate of the client's socket. Raises ConnectionError if the client has gone."""
        for found in self._all():
            if found.name == name and self._look_at(found.descriptor) == found.name:
                try:
                    return self._view.dup()
                finally:
                    self._look_away()
        raise ConnectionResetError

    def _make_room(self) -> None:
        """End idle connections of the clients with the most, so that each client has about the same number."""
        found = list(self._all())
        excess = len(found) - int(self._most * KEPT_SHARE)
        clients: dict[str, list[Connection]] = defaultdict(list)
        for connection in found:
            clients[client_of({"REMOTE_ADDR": connection.address}).network].append(connection)
        ranked: list[tuple[bool, int, int, Connection]] = []
        for connections in clients.values():
            is_proxy = is_from_trusted_proxy({"REMOTE_ADDR": connections[0].address})
            # The first places are for active connections, then for those that were used last.
            connections.sort(key=lambda one: (one.name not in self.active, one.info.idle_ms))
            ranked += [
                (not is_proxy, 0 if is_proxy else place, one.info.idle_ms, one)
                for place, one in enumerate(connections)
                if one.name not in self.active and not (is_proxy and one.info.is_unread)
            ]
        ranked.sort(reverse=True)
        self._end((one for *_, one in ranked[: max(0, excess)]), "crowded")

    def _end_unread(self) -> None:
        """End connections whose clients have not read enough of their answer since the last call."""
        unread = {one.name: one for one in self._all() if one.info.is_unread and one.name not in self.active}
        before, self._unread = self._unread, {name: one.info.acknowledged for name, one in unread.items()}
        stalled = (
            one
            for name, one in unread.items()
            if name in before and one.info.acknowledged - before[name] < READING_BYTES
        )
        self._end(stalled, "unread")

    def _end(self, connections: Iterable[Connection], why: str) -> None:
        ended = 0
        for connection in connections:
            if self._look_at(connection.descriptor) == connection.name:
                abort(self._view)
                ended += 1
        self._look_away()
        CLOSED.add(ended, why)

    def _all(self) -> Iterator[Connection]:
        """Yield the connections to the listening sockets of this process."""
        ports: set[int] = set()
        found: list[tuple[int, Connection]] = []
        for descriptor in _descriptors():
            name = self._look_at(descriptor)
            try:
                if name is not None:
                    info = info_of(self._view)
                    found.append((self._view.getsockname()[1], Connection(descriptor, name, _address(name), info)))
                elif self._view.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    ports.add(self._view.getsockname()[1])
            except (OSError, IndexError, TypeError):  # another kind of file, or of socket
                continue
        self._look_away()
        return (connection for port, connection in found if port in ports)

    def _look_at(self, descriptor: int) -> str | None:
        """Duplicate the descriptor to the view. Return the name of its client, or None if it is no connection."""
        if descriptor == self._view.fileno():
            return None
        try:
            os.dup2(descriptor, self._view.fileno(), inheritable=False)
            peer = self._view.getpeername()
        except OSError:
            return None
        if not isinstance(peer, tuple):
            return None
        if len(peer) == 2:
            return f"{peer[0]}:{peer[1]}"
        address, scope = peer[0].partition("%")[0], peer[3]
        return f"[{address}%{scope}]:{peer[1]}" if scope else f"[{address}]:{peer[1]}"

    def _look_away(self) -> None:
        """Release the socket that was looked at: a duplicate would keep it open."""
        os.dup2(self._nothing.fileno(), self._view.fileno(), inheritable=False)


def _address(name: str) -> str:
    return name.rpartition(":")[0].strip("[]")


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
    return list(range(raise_descriptor_limit()))  # the listing needs one too

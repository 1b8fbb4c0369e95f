"""The TCP connections of the web server: a fair share for each client, and what a client has received.

Granian accepts connections without a limit per client, and ends those that send no complete request head in time. The
guard looks at this process's own sockets. If there are too many, it ends idle and silent ones, those of the client with
the most connections first. It also ends connections of clients that do not read their answers. See docs/adr/0036.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import resource
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from core.addresses import client_of, is_from_trusted_proxy
from core.metrics import Counter

MAX_CONNECTIONS = 2_048
"""More open connections than this make the guard end some. Each costs up to 20 KiB before its request is complete."""
KEPT_SHARE = 0.75
"""How many of MAX_CONNECTIONS the guard leaves."""
EVERY_SEC = 0.2
READING_SEC = 15.0
"""A client that receives less than READING_BYTES of a complete answer in this time is disconnected."""
READING_BYTES = 16 * 1024
_SPARE = 256
"""File descriptors that connections may not use."""
_INFO = struct.Struct("=B 23x I 24x I 64x Q 16x I")
"""Of tcp_info (linux/tcp.h): tcpi_state, tcpi_unacked, tcpi_last_data_recv, tcpi_bytes_acked, tcpi_notsent_bytes."""
_TCP_CLOSE = 7
_FINISHED = (8, 9, 11)
"""TCP_CLOSE_WAIT, TCP_LAST_ACK and TCP_CLOSING: the client sends no more."""
_NO_ADDRESS = struct.pack("=H 14x", socket.AF_UNSPEC)  # sockaddr
_libc = ctypes.CDLL(None)

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
    has_finished: bool
    """The client has closed the connection, or its half. Granian then sends no more of an answer."""


Peer = tuple[Any, ...]
"""The address of a client as `getpeername` returns it."""


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
    return Info(bool(unacknowledged or unsent), idle_ms, acknowledged, state in _FINISHED)


def abort(connection: socket.socket) -> None:
    """Reset the connection at once, on Linux, and drop data that the client has not received.

    `shutdown` and `close` would send what is left and then a regular end, as granian has the same socket open. Python's
    own `connect` takes no address of this kind.
    """
    _libc.connect(connection.fileno(), _NO_ADDRESS, len(_NO_ADDRESS))  # fails if the client has gone


class Connections:
    """The connections of this process's listening sockets. A thread looks at them, the event loop calls the methods.

    `active` are the clients whose request the gateway works on; their connections are left alone. More connections
    than `most` make the guard end some.
    """

    def __init__(self) -> None:
        self.active: set[str] = set()
        self.most = min(MAX_CONNECTIONS, max(_SPARE, (raise_descriptor_limit() - _SPARE) // 2))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="connections")
        self._guarding: Future[None] | None = None
        self._sought: dict[str, asyncio.Future[socket.socket]] = {}
        self._searching = False
        self._timer: asyncio.TimerHandle | None = None
        # Used only in the thread. A socket of granian is duplicated to the view while it is looked at: granian may
        # close its own at any moment, and the number may then be that of another file.
        self._view, self._nothing = socket.socket(), socket.socket()
        self._unread: dict[Peer, int] = {}
        self._swept_at = time.monotonic()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if sys.platform != "linux":
            return
        self._timer = loop.call_later(EVERY_SEC, self.begin, loop)
        is_crowded = _count_descriptors() > self.most
        is_sweep = time.monotonic() - self._swept_at > READING_SEC
        if (is_crowded or is_sweep) and (self._guarding is None or self._guarding.done()):
            self._guarding = self._thread.submit(self._guard, frozenset(self.active))
            self._guarding.add_done_callback(Future.result)  # the log has its exception

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._thread.shutdown()
        self._view.close()
        self._nothing.close()

    async def open(self, name: str) -> socket.socket:
        """Return a duplicate of the socket of a client, by granian's name. Raises ConnectionError if it has gone."""
        found: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._sought[name] = found
        self._search()
        return await found

    def _search(self) -> None:
        """Search all that are sought at once: to look at thousands of connections for each would take seconds."""
        if self._sought and not self._searching:
            self._searching, sought, self._sought = True, self._sought, {}
            search = asyncio.get_running_loop().run_in_executor(self._thread, self._find, frozenset(sought))
            search.add_done_callback(partial(self._hand_over, sought))

    def _hand_over(
        self, sought: dict[str, asyncio.Future[socket.socket]], search: asyncio.Future[dict[str, socket.socket]]
    ) -> None:
        error = search.exception()
        found = {} if error else search.result()
        for name, wanted in sought.items():
            connection = found.get(name)
            if wanted.done():  # cancelled
                if connection is not None:
                    connection.close()
            elif connection is None:
                wanted.set_exception(error or ConnectionResetError())
            else:
                wanted.set_result(connection)
        self._searching = False
        self._search()

    def _find(self, names: frozenset[str]) -> dict[str, socket.socket]:
        try:
            return {
                name: self._view.dup()
                for peer, descriptor in self._inbound()
                if (name := _name(peer)) in names and self._look_at(descriptor) == peer
            }
        finally:
            self._look_away()

    def _guard(self, active: frozenset[str]) -> None:
        try:
            self._make_room(active)
            if time.monotonic() - self._swept_at > READING_SEC:
                self._swept_at = time.monotonic()
                self._end_unread(active)
        finally:
            self._look_away()

    def _make_room(self, active: frozenset[str]) -> None:
        """End idle connections of the clients with the most, so that each client has about the same number."""
        found = self._inbound()
        excess = len(found) - int(self.most * KEPT_SHARE)
        if len(found) <= self.most:
            return
        clients: dict[str, list[tuple[Peer, int]]] = defaultdict(list)
        for peer, descriptor in found:
            clients[_network(peer[0])].append((peer, descriptor))
        ranked: list[tuple[bool, int, int, Peer, int]] = []
        for connections in clients.values():
            is_proxy = is_from_trusted_proxy({"REMOTE_ADDR": connections[0][0][0]})
            seen = [
                (_name(peer) not in active, info.idle_ms, info.is_unread, peer, descriptor)
                for peer, descriptor in connections
                if (info := self._info(descriptor)) is not None
            ]
            # The first places are for active connections, then for those that were used last.
            seen.sort()
            ranked += [
                (not is_proxy, 0 if is_proxy else place, idle_ms, peer, descriptor)
                for place, (is_idle, idle_ms, is_unread, peer, descriptor) in enumerate(seen)
                if is_idle and not (is_proxy and is_unread)
            ]
        ranked.sort(key=lambda one: one[:3], reverse=True)
        self._end([(peer, descriptor) for *_, peer, descriptor in ranked[:excess]], "crowded")

    def _end_unread(self, active: frozenset[str]) -> None:
        """End connections whose clients have not read enough of their answer since the last call."""
        before, self._unread = self._unread, {}
        stalled = []
        for peer, descriptor in self._inbound():
            info = self._info(descriptor)
            if info is None or not info.is_unread or _name(peer) in active:
                continue
            self._unread[peer] = info.acknowledged
            if peer in before and info.acknowledged - before[peer] < READING_BYTES:
                stalled.append((peer, descriptor))
        self._end(stalled, "unread")

    def _end(self, connections: Iterable[tuple[Peer, int]], why: str) -> None:
        ended = 0
        for peer, descriptor in connections:
            if self._look_at(descriptor) == peer:
                abort(self._view)
                ended += 1
        CLOSED.add(ended, why)

    def _inbound(self) -> list[tuple[Peer, int]]:
        """Return the peers of connections to the ports at which this process listens, and their descriptors."""
        ports: set[int] = set()
        found: list[tuple[int, Peer, int]] = []
        for descriptor in _descriptors():
            if descriptor == self._view.fileno():
                continue
            peer = self._look_at(descriptor)
            with suppress(OSError, IndexError, TypeError):  # another kind of file, or of socket
                if peer is not None:
                    found.append((self._view.getsockname()[1], peer, descriptor))
                elif self._view.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    ports.add(self._view.getsockname()[1])
        return [(peer, descriptor) for port, peer, descriptor in found if port in ports]

    def _info(self, descriptor: int) -> Info | None:
        try:
            os.dup2(descriptor, self._view.fileno(), inheritable=False)
            return info_of(self._view)
        except OSError:
            return None

    def _look_at(self, descriptor: int) -> Peer | None:
        """Duplicate the descriptor to the view. Return its peer, or None if it is not a TCP connection."""
        try:
            os.dup2(descriptor, self._view.fileno(), inheritable=False)
            peer = self._view.getpeername()
        except OSError:
            return None
        return peer if isinstance(peer, tuple) else None

    def _look_away(self) -> None:
        """Release the socket that was looked at: a duplicate would keep it open."""
        os.dup2(self._nothing.fileno(), self._view.fileno(), inheritable=False)


def _name(peer: Peer) -> str:
    """Return granian's text for a client: `192.0.2.1:1234` or `[2001:db8::1]:1234`."""
    if len(peer) == 2:
        return f"{peer[0]}:{peer[1]}"
    address, scope = peer[0].partition("%")[0], peer[3]
    return f"[{address}%{scope}]:{peer[1]}" if scope else f"[{address}]:{peer[1]}"


def _network(address: str) -> str:
    return client_of({"REMOTE_ADDR": address}).network


def _count_descriptors() -> int:
    """Return how many files are open. Linux before 6.2 has to list them."""
    return Path("/proc/self/fd").stat().st_size or len(_descriptors())


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - a tenth of the time
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
    return list(range(raise_descriptor_limit()))  # the listing needs one too

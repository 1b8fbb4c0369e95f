"""A network namespace for some threads of this process. Its interfaces are removed with it. Needs root."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TypeVar

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CAP_NET_RAW = 13
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


def why_no_namespace() -> str | None:
    """Return what this machine lacks for a namespace, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need ip (Debian: iproute2)"
    tried = subprocess.run(
        ["unshare", "--net", "ip", "tuntap", "add", "tried", "mode", "tun"], capture_output=True, text=True, check=False
    )
    return f"this machine allows no network namespaces: {tried.stderr.strip()}" if tried.returncode else None


class Namespace:
    """A context manager. Threads started by `run`, and processes started by them, are in the namespace."""

    def __enter__(self) -> Namespace:
        self._thread = ThreadPoolExecutor(1, "namespace", initializer=_unshare)
        self.command("ip", "link", "set", "lo", "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()

    def run(self, function: Callable[[], T]) -> T:
        """Call a function in the thread inside the namespace."""
        return self._thread.submit(function).result()

    def command(self, *command: str) -> None:
        self.run(lambda: subprocess.run(command, check=True, capture_output=True))

    def open_tunnel(self, name: str) -> int:
        """Return the descriptor of a TUN device: routed packets can be read from it, and written packets arrive."""

        def open_tunnel() -> int:
            tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(tunnel, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
            return tunnel

        return self.run(open_tunnel)

    @contextmanager
    def forwarding(self, port: int) -> Iterator[None]:
        """Forward connections to a port of 127.0.0.1 inside to the same port outside."""
        listening = self.run(lambda: socket.create_server(("127.0.0.1", port), backlog=64))
        ends: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    inside, _ = listening.accept()
                except OSError:  # shut down
                    return
                outside = socket.create_connection(("127.0.0.1", port))
                ends.extend((inside, outside))
                for source, sink in ((inside, outside), (outside, inside)):
                    threads.append(threading.Thread(target=_pump, args=(source, sink)))
                    threads[-1].start()

        threads = [threading.Thread(target=accept)]
        threads[0].start()
        yield
        for end in (listening, *ends):
            with suppress(OSError):  # its peer has ended it
                end.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
        for end in (listening, *ends):
            end.close()

    def permit_datagram_pings(self, permitted: bool) -> None:
        """Set net.ipv4.ping_group_range to all groups, or to none."""
        self.command("sysctl", "-qw", f"net.ipv4.ping_group_range={'0 2147483647' if permitted else '1 0'}")

    def without_raw_sockets(self, function: Callable[[], T]) -> T:
        """Call a function in a thread without CAP_NET_RAW."""

        def call() -> T:
            with ThreadPoolExecutor(1, initializer=_drop_net_raw) as thread:
                return thread.submit(function).result()

        return self.run(call)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65_536):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _unshare() -> None:
    _check(_libc.unshare(_CLONE_NEWNET))


def _drop_net_raw() -> None:
    """Drop CAP_NET_RAW in this thread only: capabilities belong to threads."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)  # effective, permitted and inheritable, twice 32 bits of each
    _check(_libc.capget(header, data))
    sets = list(struct.unpack("=6I", data.raw))
    sets[0] &= ~(1 << _CAP_NET_RAW)
    sets[1] &= ~(1 << _CAP_NET_RAW)
    _check(_libc.capset(header, struct.pack("=6I", *sets)))

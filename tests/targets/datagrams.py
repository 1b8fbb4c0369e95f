"""A datagram server that plays scripts: its replies, their destinations and times are data."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address

_IP_PKTINFO = 8
_PACKET_INFO = struct.Struct("@I4s4s")
OTHER_HOST = "127.66.6.6"


@dataclass(frozen=True)
class Reply:
    """A datagram, or an echo, sent `seconds` later; optionally from another port, or to another destination."""

    data: bytes | None = None
    seconds: float = 0.0
    from_port: bool = False
    from_host: bool = False


@dataclass(frozen=True)
class Datagrams:
    """The replies to each sender's first datagram, second, and so on; the last item is for all further ones.

    With `expects`, other datagrams get no reply.
    """

    replies: Sequence[Sequence[Reply | bytes]]
    expects: bytes | None = None


@dataclass
class Service:
    """One listening address and its datagrams: the sender, the destination address, and the data.

    The script may depend on that address.
    """

    host: str
    port: int
    script: Datagrams | Callable[[str], Datagrams]
    seen: list[tuple[tuple[str, int], str, bytes]] = field(default_factory=list)

    @property
    def senders(self) -> list[tuple[str, int]]:
        """Return one for each check, in the order of their first datagrams."""
        return list(dict.fromkeys(sender for sender, _, _ in self.seen))


class DatagramServer:
    """Sockets of one service, on a running event loop. It replies from the destination address of the request.

    On 0.0.0.0 it listens at every loopback address.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        script: Datagrams | Callable[[str], Datagrams],
        host: str,
        port: int,
    ) -> None:
        self._loop = loop
        self._family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._main = self._bound(host, port)
        if self._family == socket.AF_INET:
            self._main.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        self._counts: dict[tuple[str, int], int] = {}
        self.service = Service(host, self._main.getsockname()[1], script)

    def start(self) -> None:
        self._loop.add_reader(self._main, self._take)

    def close(self) -> None:
        self._loop.remove_reader(self._main)
        self._main.close()

    def _bound(self, host: str, port: int = 0) -> socket.socket:
        opened = socket.socket(self._family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            opened.bind((host, port))
        except OSError:
            opened.close()
            raise
        return opened

    def _take(self) -> None:
        try:
            data, extra, _, sender = self._main.recvmsg(65_536, 64)
        except OSError:  # an ICMP message about a closed sender
            return
        asked_at = self.service.host
        for level, kind, content in extra:
            if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
                asked_at = str(IPv4Address(_PACKET_INFO.unpack(content)[2]))
        sender = (sender[0], sender[1])
        self.service.seen.append((sender, asked_at, data))
        script = self.service.script
        if not isinstance(script, Datagrams):
            script = script(asked_at)
        if script.expects is not None and data != script.expects:
            return
        number = self._counts.get(sender, 0)
        self._counts[sender] = number + 1
        for reply in script.replies[min(number, len(script.replies) - 1)]:
            self._send(Reply(reply) if isinstance(reply, bytes) else reply, data, sender, asked_at)

    def _send(self, reply: Reply, data: bytes, sender: tuple[str, int], asked_at: str) -> None:
        content = data if reply.data is None else reply.data
        if reply.seconds:
            self._loop.call_later(reply.seconds, self._transmit, reply, content, sender, asked_at)
        else:
            self._transmit(reply, content, sender, asked_at)

    def _transmit(self, reply: Reply, content: bytes, sender: tuple[str, int], asked_at: str) -> None:
        if self._main.fileno() < 0:  # the test is over
            return
        if reply.from_port or reply.from_host:
            host, port = (OTHER_HOST, self.service.port) if reply.from_host else (asked_at, 0)
            with self._bound(host, port) as other:
                other.sendto(content, sender)
            return
        extra = []
        if self._family == socket.AF_INET:
            asked = IPv4Address(asked_at).packed
            extra = [(socket.IPPROTO_IP, _IP_PKTINFO, _PACKET_INFO.pack(0, asked, bytes(4)))]
        with contextlib.suppress(ConnectionRefusedError):  # the sender of the previous datagram has closed
            self._main.sendmsg([content], extra, 0, sender)

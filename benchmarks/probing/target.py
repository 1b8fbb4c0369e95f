"""A target in its own process, as cheap as Python allows. It prints its port, then serves until it is killed.

    python -m benchmarks.probing.target http | https FOLDER | hanging | tcp | dns | udp

`tcp` accepts and closes connections. `dns` answers every query with one A record. `udp` sends back what comes, at every
loopback address. `https` writes the certificate authority to trust to FOLDER/ca.pem.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from pathlib import Path

from tests.targets.certificates import Certificates

ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: target\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 12\r\nConnection: close\r\n\r\nhello world\n"
)
BACKLOG = 4096
IP_PKTINFO = 8  # of Linux; Python 3.11 has no name for it


class Answering(asyncio.Protocol):
    """A server that closes connections first, so that those in TIME_WAIT are on its side."""

    def __init__(self) -> None:
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if b"\r\n\r\n" in self._seen:
            self._transport.write(ANSWER)
            self._transport.close()


class Hanging(asyncio.Protocol):
    """A server that accepts the request and never responds."""


async def serve(kind: str, context: ssl.SSLContext | None) -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    print(listening.getsockname()[1], flush=True)
    server = await asyncio.get_running_loop().create_server(
        Hanging if kind == "hanging" else Answering, sock=listening, ssl=context, backlog=BACKLOG
    )
    await server.serve_forever()


def accept_connections() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            listening.accept()[0].close()


def answer_names() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        while True:
            data, sender = listening.recvfrom(1024)
            end = data.index(b"\0", 12) + 5  # of the question
            # Id; response, recursion available; one question, one answer; pointer to the name, A, IN, TTL, address.
            head = data[:2] + b"\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00"
            answer = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc6\x33\x64\x01"
            listening.sendto(head + data[12:end] + answer, sender)


def echo_datagrams() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as listening:
        listening.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        listening.bind(("0.0.0.0", 0))
        print(listening.getsockname()[1], flush=True)
        while True:
            data, ((level, kind, info),), _, sender = listening.recvmsg(1024, 64)
            # The reply leaves from the address that was asked: interface, source, and what only a receiver is given.
            listening.sendmsg([data], [(level, kind, info[:4] + info[8:12] + bytes(4))], 0, sender)


if __name__ == "__main__":
    if sys.argv[1] == "dns":
        answer_names()
    elif sys.argv[1] == "tcp":
        accept_connections()
    elif sys.argv[1] == "udp":
        echo_datagrams()
    else:
        asyncio.run(serve(sys.argv[1], Certificates(Path(sys.argv[2])).good() if sys.argv[1] == "https" else None))

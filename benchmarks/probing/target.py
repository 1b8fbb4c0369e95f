"""A target in its own process, as cheap as Python allows. It prints its port, then serves until it is killed.

    python -m benchmarks.probing.target http | https FOLDER | hanging

`https` writes the certificate authority to trust to FOLDER/ca.pem.
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


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Certificates(Path(sys.argv[2])).good() if sys.argv[1] == "https" else None))

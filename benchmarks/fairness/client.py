"""An HTTP client that opens a connection for each request, from any loopback address, directly or through a proxy."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from dataclasses import dataclass
from typing import Any

SERVER = "127.0.0.1"
PATIENCE_SEC = 10.0
"""How long a client waits for an answer. A request that fails counts as one that took this long."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Front:
    """The address of web. `name` is set if a proxy terminates TLS for it."""

    port: int
    name: str = ""

    @property
    def host(self) -> str:
        return self.name or f"{SERVER}:{self.port}"

    async def connect(
        self, source: str, *, plain: bool = False, alpn: str = "http/1.1", buffer: int | None = None
    ) -> Streams:
        """Open a connection from `source`. `plain` skips TLS, `buffer` is the size of the receive buffer."""
        with_tls: dict[str, Any] = {}
        if self.name and not plain:
            context = ssl._create_unverified_context()
            context.set_alpn_protocols([alpn])
            with_tls = {"ssl": context, "server_hostname": self.name}
        client = socket.socket()
        try:
            client.setblocking(False)  # noqa: FBT003
            if buffer is not None:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            client.bind((source, 0))
            await asyncio.get_running_loop().sock_connect(client, (SERVER, self.port))
            return await asyncio.open_connection(sock=client, limit=buffer or 2**16, **with_tls)
        except BaseException:
            client.close()
            raise

    def head(self, method: str, path: str, *, length: int, headers: dict[str, str] | None = None) -> bytes:
        lines = {"Host": self.host, "Connection": "close", **(headers or {})}
        if length or method != "GET":
            lines["Content-Length"] = str(length)
        return "".join(
            [f"{method} {path} HTTP/1.1\r\n", *(f"{key}: {value}\r\n" for key, value in lines.items()), "\r\n"]
        ).encode()

    async def ask(
        self,
        source: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        patience: float = PATIENCE_SEC,
    ) -> tuple[int, bytes]:
        """Return status and body; the status is 0 without an answer in time. Objects are sent as JSON."""
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        kind = {} if body is None or isinstance(body, bytes) else {"Content-Type": "application/json"}
        writer = None
        try:
            async with asyncio.timeout(patience):
                reader, writer = await self.connect(source)
                writer.write(self.head(method, path, length=len(sent), headers=kind | (headers or {})) + sent)
                head, _, rest = (await reader.read(-1)).partition(b"\r\n\r\n")
            return int(head.split(b" ", 2)[1]), rest
        except (OSError, TimeoutError, ValueError, IndexError):
            return 0, b""
        finally:
            if writer is not None:
                writer.close()

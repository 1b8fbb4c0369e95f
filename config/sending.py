"""Send large answers no faster than their clients receive them.

Granian accepts all data and keeps it in memory until the client reads it. So the gateway limits it to a window,
and asks the kernel how much of that the client has acknowledged (`config.connections`).
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from config.connections import abort, info_of

if TYPE_CHECKING:
    from granian._granian import RSGIHTTPStreamTransport

PIECE_BYTES = 64 * 1024
"""Responses up to this size are passed to granian whole."""
WINDOW_BYTES = 4 * PIECE_BYTES
"""Limit on what granian and the kernel keep of one answer."""
PART_SEC = 30.0
"""Timeout of receiving a piece. A slower client is disconnected."""
_FIRST_LOOK_SEC, _LAST_LOOK_SEC = 0.001, 0.1


class Receiver:
    """The client of one answer. Used only from the event loop."""

    def __init__(self, transport: RSGIHTTPStreamTransport, connection: socket.socket | None) -> None:
        """`connection`: the client's socket, or None if the system does not report what the client has received."""
        self._transport = transport
        self._connection = connection
        self._sent = 0
        self._before = 0
        self._before = self._received()

    def abort(self) -> None:
        """Disconnect the client, which otherwise takes the answer for complete."""
        if self._connection is not None:
            abort(self._connection)

    async def send(self, part: bytes) -> None:
        """Send a part, and wait until there is room for the next. Raises ConnectionError."""
        for start in range(0, len(part), PIECE_BYTES):
            piece = part[start : start + PIECE_BYTES]
            try:
                await self._transport.send_bytes(piece)
            except RuntimeError:  # granian's, without a specific base class
                raise ConnectionResetError from None
            self._sent += len(piece)
            try:
                async with asyncio.timeout(PART_SEC):
                    await self._room()
            except TimeoutError:
                raise ConnectionAbortedError from None

    async def _room(self) -> None:
        delay = _FIRST_LOOK_SEC
        while self._sent - self._received() > WINDOW_BYTES - PIECE_BYTES:
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LAST_LOOK_SEC)

    def _received(self) -> int:
        """Return how many bytes the client has acknowledged, or without Linux's tcp_info those that were sent."""
        if self._connection is None:
            return self._sent
        try:
            info = info_of(self._connection)
        except OSError:
            raise ConnectionResetError from None
        if info.has_finished:
            # Data that granian dropped is never acknowledged, and nothing else ends this duplicate of its socket.
            raise ConnectionResetError
        return info.acknowledged - self._before

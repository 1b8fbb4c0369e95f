"""A link with a delay. Linux has netem for this, which not every kernel contains."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

_ALL_PROTOCOLS = 3
_SOL_PACKET, _VNET_HEADER, _IGNORE_OUTGOING = 263, 15, 23
"""With this header a frame keeps the checksum and the segments that its sender left to the network card."""
_LONGEST_FRAME = 70_000
_BUFFER = 4 * 1024 * 1024


class SlowLink:
    """Forwards frames between two interfaces: those from `source` late, those to it at once."""

    def __init__(self, source: str, sink: str, *, delay_sec: float) -> None:
        self._source, self._sink = _open(source), _open(sink)
        self._delay_sec = delay_sec
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._forward, name=f"slow {source}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        for each in (self._source, self._sink):
            each.close()

    def _forward(self) -> None:
        waiting: deque[tuple[float, bytes]] = deque()
        while not self._ended.is_set():
            wait_sec = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.2
            readable, _, _ = select.select([self._source, self._sink], [], [], min(wait_sec, 0.2))
            if self._source in readable:
                waiting.append((time.monotonic() + self._delay_sec, self._source.recv(_LONGEST_FRAME)))
            if self._sink in readable:
                _send(self._source, self._sink.recv(_LONGEST_FRAME))
            while waiting and waiting[0][0] <= time.monotonic():
                _send(self._sink, waiting.popleft()[1])


def _open(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
    made.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    made.bind((interface, _ALL_PROTOCOLS))
    return made


def _send(where: socket.socket, frame: bytes) -> None:
    with suppress(OSError):  # a network loses frames
        where.send(frame)

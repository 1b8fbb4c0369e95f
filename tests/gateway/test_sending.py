"""Answers to clients that read slowly or not at all: how much the process buffers, and for how long."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest
import requests

from config import connections, sending
from config.gateway import Gateway
from config.sending import Receiver
from tests.gateway.test_requests import PATIENCE_SEC, Parts, answer_on
from tests.processes.waiting import until
from tests.serving import serving

if TYPE_CHECKING:
    from granian._granian import RSGIHTTPStreamTransport

MIB = 1024 * 1024
SIZE = 12 * MIB


class Producer:
    """A WSGI application that streams SIZE bytes in parts of 64 KiB, or sends them in one piece."""

    def __init__(self, *, streaming: bool) -> None:
        self.produced = 0
        self.closed: list[threading.Event] = []
        self._streaming = streaming
        self._whole = b"" if streaming else b"x" * SIZE

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Parts:
        small = environ["PATH_INFO"] == "/small"
        start_response("200 OK", [("Content-Type", "text/plain")])
        answer = Parts([b"ok"]) if small else Parts(self._parts(), streaming=self._streaming)
        if not small:
            self.closed.append(answer.closed)
        return answer

    def _parts(self) -> Iterable[bytes]:
        if not self._streaming:
            yield self._whole
            return
        for _ in range(SIZE // 65_536):
            self.produced += 1
            yield b"x" * 65_536


@contextmanager
def asked(port: int, *, address: str = "127.0.0.1", room: int = 4_096) -> Iterator[socket.socket]:
    """Return a client that has sent a request, reads nothing, and has a small receive buffer."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        client.bind((address, 0))
        client.settimeout(PATIENCE_SEC)
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        yield client


def is_small_answered(port: int) -> bool:
    return requests.get(f"http://127.0.0.1:{port}/small", timeout=PATIENCE_SEC).content == b"ok"


def test_a_stream_waits_for_its_client() -> None:
    producer = Producer(streaming=True)
    with serving(Gateway(producer)) as port, asked(port, room=65_536) as client:
        until(lambda: producer.produced > 1, PATIENCE_SEC, "it begins")
        stuck = producer.produced
        until(lambda: is_small_answered(port), PATIENCE_SEC, "others are answered")
        assert stuck <= producer.produced <= 4 * sending.WINDOW_BYTES // 65_536, "parts are produced on demand"
        status, body = answer_on(client)
        assert (status, producer.produced) == (200, SIZE // 65_536)
        assert body.count(b"x") == SIZE
        assert producer.closed[0].wait(PATIENCE_SEC)


@pytest.mark.parametrize("streaming", [True, False])
def test_answers_that_are_not_read_use_little_memory_and_no_thread(streaming: bool) -> None:
    producer = Producer(streaming=streaming)
    with serving(Gateway(producer)) as port, ExitStack() as stack:
        assert is_small_answered(port)
        process = psutil.Process(os.getpid())
        before = process.memory_info().rss
        for number in range(40):
            stack.enter_context(asked(port, address=f"127.0.0.{2 + number}"))
        until(lambda: len(producer.closed) == 40, PATIENCE_SEC, "all are asked for")
        assert is_small_answered(port)
        grown = process.memory_info().rss - before
        # One whole response may be joined at a time; others have a window.
        assert grown < (64 * MIB if streaming else 100 * MIB)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch, streaming: bool) -> None:
    monkeypatch.setattr(sending, "PART_SEC", 0.2)
    producer = Producer(streaming=streaming)
    guard = connections.Connections()
    with serving(Gateway(producer, connections=guard)) as port, asked(port) as client:
        until(lambda: bool(producer.closed), PATIENCE_SEC, "it is asked for")
        until(lambda: not guard.active, PATIENCE_SEC, "the request is given up")
        assert producer.closed[0].wait(PATIENCE_SEC), "the response is closed"
        # Only a reset shows the client that the response is incomplete.
        with pytest.raises(ConnectionError):
            answer_on(client)
        assert is_small_answered(port)


def test_a_client_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(streaming=True)
    with serving(Gateway(producer)) as port:
        with asked(port):
            until(lambda: producer.produced > 1, PATIENCE_SEC, "it begins")
        assert producer.closed[0].wait(PATIENCE_SEC)
        assert producer.produced < SIZE // 65_536


class DroppingTransport:
    """Accepts data and drops it, as granian does once it sees that the client has left."""

    async def send_bytes(self, data: bytes) -> None:
        pass


def test_a_client_that_leaves_before_it_has_received_anything() -> None:
    """Then nothing resets the connection: only the duplicate of the socket is left."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
        with connection:
            receiver = Receiver(cast("RSGIHTTPStreamTransport", DroppingTransport()), connection)
            client.close()
            with pytest.raises(ConnectionResetError):
                asyncio.run(receiver.send(b"x" * 2 * sending.WINDOW_BYTES))


def test_head_sends_no_body() -> None:
    for streaming in (True, False):
        producer = Producer(streaming=streaming)
        with serving(Gateway(producer)) as port:
            found = requests.head(f"http://127.0.0.1:{port}/", timeout=PATIENCE_SEC)
            assert (found.status_code, found.content) == (200, b"")
            assert producer.closed[0].wait(PATIENCE_SEC)


def test_small_answers_that_are_not_read_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are passed to granian whole, which would wait for the client forever."""
    monkeypatch.setattr(connections, "READING_SEC", 0.2)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Parts:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return Parts([b"x" * sending.PIECE_BYTES])

    with serving(Gateway(answer)) as port, asked(port) as client:
        # The kernel accepts the data and the end of the connection together, so send until nothing more is accepted.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        with pytest.raises(ConnectionError):
            until(lambda: client.send(b" ") == 0, PATIENCE_SEC, "it is disconnected")

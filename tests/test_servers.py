"""Servers started by tests close all connections when they stop, regardless of what their clients do."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import cast

import pytest

from tests.alerts.inbox import Inbox
from tests.targets.certificates import Certificates
from tests.targets.loop import PATIENCE_SEC, ServerLoop
from tests.targets.resolvers import saying
from tests.targets.server import Hang, TargetServer

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
MORE_THAN_BUFFERS_TAKE = b"x" * (32 << 20)
CLIENTS = 100


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    """Connections that outlive the server. What it left open is an unraisable ResourceWarning, which fails the test."""
    with ExitStack() as clients:
        yield clients
        gc.collect()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def connect(clients: ExitStack, port: int) -> socket.socket:
    return clients.enter_context(socket.create_connection(("127.0.0.1", port)))


def test_connections_made_just_now(clients: ExitStack) -> None:
    with TargetServer() as server:
        ports = [server.serve([Hang()]).port, server.serve_resolver(saying()).port]
        for number in range(CLIENTS):
            connect(clients, ports[number % 2])


def test_connections_made_just_now_with_tls(clients: ExitStack, certificates: Certificates) -> None:
    with TargetServer() as server:
        port = server.serve([Hang()], tls=certificates.good()).port
        for _ in range(CLIENTS):
            connect(clients, port)


def test_an_answer_that_the_client_does_not_read(clients: ExitStack) -> None:
    with TargetServer() as server:
        client = connect(clients, server.serve([MORE_THAN_BUFFERS_TAKE]).port)
        client.sendall(REQUEST)
        assert client.recv(1)


def test_a_connection_that_closed_when_everything_was_read(clients: ExitStack) -> None:
    """asyncio still lists it while its transport is referenced, and cannot abort it."""
    transports: list[asyncio.BaseTransport] = []
    lost = threading.Event()

    class Sender(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transports.append(transport)
            cast("asyncio.Transport", transport).write(MORE_THAN_BUFFERS_TAKE)
            transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            lost.set()

    async def serve() -> int:
        server = await asyncio.get_running_loop().create_server(Sender, "127.0.0.1", 0)
        loop.servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    with ServerLoop("sender") as loop:
        client = connect(clients, loop.run(serve()))
        while client.recv(1 << 20):
            pass
        assert lost.wait(PATIENCE_SEC)


def test_a_client_that_does_not_end_tls(clients: ExitStack, certificates: Certificates) -> None:
    trusting = ssl.create_default_context(cafile=certificates.ca_file)
    with TargetServer() as server:
        client = connect(clients, server.serve([b"x"], tls=certificates.good()).port)
        encrypted = clients.enter_context(trusting.wrap_socket(client, server_hostname="localhost"))
        encrypted.sendall(REQUEST)
        assert encrypted.recv(1)


def test_a_mail_client_that_does_not_quit(clients: ExitStack) -> None:
    with Inbox() as inbox:
        assert connect(clients, inbox.port).recv(1)


def test_mail_clients_that_connected_just_now(clients: ExitStack) -> None:
    with Inbox() as inbox:
        for _ in range(CLIENTS):
            connect(clients, inbox.port)

"""Connections that occupy places: silent, half-sent, idle. Each client gets its share, and a new one is answered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from ipaddress import ip_network

import pytest
from pytest_django.fixtures import Settings

from config import connections
from config.connections import Connections
from config.gateway import Gateway
from tests.gateway.test_requests import PATIENCE_SEC, Echo
from tests.processes.waiting import until
from tests.serving import serving

MOST = 60
KEPT = int(MOST * connections.KEPT_SHARE)
IDLE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BEGUN = {"silent": b"", "half": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", "idle": IDLE}


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def guard() -> Connections:
    return Connections()


@pytest.fixture
def port(echo: Echo, guard: Connections) -> Iterator[int]:
    with serving(Gateway(echo, connections=guard)) as port:
        yield port


def limit(guard: Connections) -> None:
    """Run the guard now. Earlier it would act on the first of many clients that connect slowly."""
    guard.most = MOST


class Crowd:
    """Open connections from one address."""

    def __init__(self, port: int, address: str, count: int, *, begun: bytes = IDLE) -> None:
        self.clients = [connect(port, address) for _ in range(count)]
        for client in self.clients:
            with suppress(ConnectionError):  # it is closed already
                client.sendall(begun)
                if begun == IDLE:
                    client.recv(65_536)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.close()

    @property
    def open(self) -> int:
        """Return the number of connections that the server has not closed."""
        count = 0
        for client in self.clients:
            client.setblocking(False)
            try:
                count += bool(client.recv(1, socket.MSG_PEEK))
            except BlockingIOError:
                count += 1
            except ConnectionError:
                pass
        return count


def connect(port: int, address: str) -> socket.socket:
    client = socket.socket()
    client.bind((address, 0))
    client.settimeout(PATIENCE_SEC)
    client.connect(("127.0.0.1", port))
    return client


def ask(client: socket.socket) -> bytes:
    client.settimeout(PATIENCE_SEC)
    client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return client.recv(65_536)


@pytest.mark.parametrize("kind", BEGUN)
def test_the_client_with_the_most_connections_loses_some(guard: Connections, port: int, kind: str) -> None:
    with Crowd(port, "127.0.0.3", 5) as quiet, Crowd(port, "127.0.0.2", 2 * MOST, begun=BEGUN[kind]) as crowd:
        limit(guard)
        until(lambda: crowd.open <= KEPT, PATIENCE_SEC, "the crowd has lost some")
        assert quiet.open == 5
        with connect(port, "127.0.0.4") as new:
            assert b"200 OK" in ask(new)


def test_many_clients_get_equal_shares(guard: Connections, port: int) -> None:
    with ExitStack() as stack:
        crowds = [stack.enter_context(Crowd(port, f"127.0.0.{number}", 20)) for number in range(2, 12)]
        few = stack.enter_context(Crowd(port, "127.0.0.99", 2))
        limit(guard)
        until(lambda: sum(crowd.open for crowd in crowds) <= KEPT, PATIENCE_SEC, "they have lost some")
        counts = [crowd.open for crowd in crowds]
        assert few.open == 2
        assert max(counts) - min(counts) <= 4, counts


def test_a_request_that_is_worked_on_is_not_interrupted(guard: Connections, echo: Echo, port: int) -> None:
    echo.go.clear()
    echo.pauses = True
    with ExitStack() as stack:
        stack.callback(echo.go.set)
        busy = [stack.enter_context(connect(port, "127.0.0.2")) for _ in range(10)]
        for client in busy:
            client.sendall(b"GET /busy HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        until(lambda: len(echo.environs) == 10, PATIENCE_SEC, "they are worked on")
        crowd = stack.enter_context(Crowd(port, "127.0.0.2", 2 * MOST))
        limit(guard)
        until(lambda: crowd.open <= KEPT, PATIENCE_SEC, "the crowd has lost some")
        echo.go.set()
        assert all(b"200 OK" in client.recv(65_536) for client in busy)


def test_a_proxy_loses_connections_only_as_a_last_resort(guard: Connections, port: int, settings: Settings) -> None:
    settings.TRUSTED_PROXIES = [ip_network("127.0.0.2/32")]
    with Crowd(port, "127.0.0.2", MOST // 2) as proxy, Crowd(port, "127.0.0.3", MOST) as crowd:
        limit(guard)
        until(lambda: crowd.open <= KEPT - MOST // 2, PATIENCE_SEC, "the crowd has lost some")
        assert proxy.open == MOST // 2


def test_sockets_of_many_clients_are_found_at_once() -> None:
    """Clients without a socket, and disconnected ones, cause an error instead of returning a socket."""

    async def find() -> tuple[list[int], list[object], int]:
        found = Connections()
        server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        clients = [connect(port, "127.0.0.2") for _ in range(100)]
        writers: list[asyncio.StreamWriter] = []
        while len(writers) < len(clients):
            await asyncio.sleep(0.01)
        searches = 0
        search = found._find

        def count(names: frozenset[str]) -> dict[str, socket.socket]:
            nonlocal searches
            searches += 1
            return search(names)

        found._find = count  # type: ignore[method-assign]
        names = [f"127.0.0.2:{client.getsockname()[1]}" for client in clients]
        tasks = [asyncio.ensure_future(found.open(name)) for name in (*names, "127.0.0.2:1")]
        await asyncio.sleep(0)
        tasks[0].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        opened = [each for each in answers if isinstance(each, socket.socket)]
        ports = [each.getpeername()[1] for each in opened]
        for each in (*opened, *clients):
            each.close()
        for writer in writers:
            writer.close()
        server.close()
        found.close()
        assert ports == [int(name.rpartition(":")[2]) for name in names[1:]]
        return ports, [type(each) for each in answers if not isinstance(each, socket.socket)], searches

    ports, refused, searches = asyncio.run(find())
    assert (len(ports), searches) == (99, 2)  # the first one does not wait for others
    assert refused == [asyncio.CancelledError, ConnectionResetError]


def test_a_guard_that_fails_says_so(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    guard = Connections()
    guard._view.close()
    guard.most = 0
    guard.begin(loop)
    guard.close()
    loop.close()
    assert "Bad file descriptor" in caplog.text


def test_the_limit_on_files_is_raised_as_far_as_the_system_allows() -> None:
    soft = connections.raise_descriptor_limit()
    assert soft >= 1_024


def test_abort_is_a_reset_even_if_everything_was_received() -> None:
    """A clean end of the connection would make a partial response look complete."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.settimeout(PATIENCE_SEC)
        accepted, _ = server.accept()
        with accepted, accepted.dup() as ours:
            accepted.sendall(b"part")
            assert client.recv(16) == b"part"
            connections.abort(ours)
            with pytest.raises(ConnectionResetError):
                client.recv(16)
            with pytest.raises(ConnectionError):
                accepted.sendall(b"the other holder can add nothing")

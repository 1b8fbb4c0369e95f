"""Strangers who keep connections, bodies and responses open, and their effect on everyone else."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
import requests

from config.connections import MAX_CONNECTIONS
from tests.attacks.conftest import Stage
from tests.gateway.test_requests import From
from tests.processes.waiting import until

PATIENCE_SEC = 60
CONNECTIONS = 4_300
WEB_LIMIT = 512 * 1024 * 1024
"""The limit of compose, the chart and the systemd unit."""
BEGUN = {
    "silent": b"",
    "half": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 15_000,
    "idle": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "unread": b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}
FORGED = f"Bearer ses_{'a' * 68}".encode()


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000) if hard > 0 else 20_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def heartbeat(stage: Stage) -> str:
    made = stage.neighbour.post("/monitors", {"type": "heartbeat", "name": "Backup"})
    return f"{stage.address}/v1/heartbeats/{made['id']}/ping"


def hold(stage: Stage, address: str, begun: bytes, *, room: int | None = None) -> socket.socket:
    """Open a connection from the address, send this much, and read nothing."""
    client = socket.socket()
    if room is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    client.bind((address, 0))
    client.settimeout(PATIENCE_SEC)
    with suppress(ConnectionError):
        client.connect(("127.0.0.1", stage.up.port))
        client.setblocking(False)
        with suppress(BlockingIOError):
            client.send(begun)
    return client


def others_are_served(stage: Stage, heartbeat: str) -> None:
    with requests.Session() as other:
        other.mount("http://", From("127.0.0.99"))
        for _ in range(3):
            assert other.post(heartbeat, timeout=PATIENCE_SEC).json() == {"ok": True}
            for path, status in {"/healthz": 200, "/readyz": 200, "/status/none": 404, "/account/login/": 200}.items():
                assert other.get(stage.address + path, timeout=PATIENCE_SEC).status_code == status, path
    assert stage.web.memory_info().rss < WEB_LIMIT


def are_few(stage: Stage) -> bool:
    """Return whether the process is within its limit of connections."""
    return stage.web.num_fds() <= MAX_CONNECTIONS + 100


@pytest.mark.parametrize("kind", ["silent", "half", "idle"])
def test_connections_of_one_address(stage: Stage, heartbeat: str, kind: str) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(hold(stage, "127.0.0.2", BEGUN[kind]))
        others_are_served(stage, heartbeat)
        until(lambda: are_few(stage), PATIENCE_SEC, "those that are too many are closed")


@pytest.mark.parametrize("kind", ["silent", "half", "idle"])
def test_connections_of_ten_addresses(stage: Stage, heartbeat: str, kind: str) -> None:
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            stack.enter_context(hold(stage, f"127.0.0.{2 + number % 10}", BEGUN[kind]))
        others_are_served(stage, heartbeat)
        until(lambda: are_few(stage), PATIENCE_SEC, "those that are too many are closed")


def test_answers_that_are_not_read(stage: Stage, heartbeat: str) -> None:
    with ExitStack() as stack:
        for number in range(100):
            stack.enter_context(hold(stage, f"127.0.0.{2 + number % 10}", BEGUN["unread"], room=4_096))
        others_are_served(stage, heartbeat)


@pytest.mark.parametrize("credential", [b"", b"Authorization: " + FORGED + b"\r\n"], ids=["anonymous", "forged"])
def test_bodies_that_are_nearly_complete(stage: Stage, heartbeat: str, credential: bytes) -> None:
    """Before the limit, 192 bodies of 1.5 MB raised the process from 160 to 587 MiB, more than it may use."""
    before = stage.web.memory_info().rss
    head = b"POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\n%bContent-Length: %d\r\n\r\n"
    with ExitStack() as stack:
        for number in range(192):
            client = stack.enter_context(hold(stage, f"127.0.0.{2 + number % 6}", head % (credential, 1_500_000)))
            client.settimeout(PATIENCE_SEC)
            with suppress(ConnectionError):
                client.sendall(b"x" * 1_499_999)
        others_are_served(stage, heartbeat)
        assert stage.web.memory_info().rss - before < 100_000_000

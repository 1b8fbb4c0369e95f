"""Requests that wait for a worker, and bodies that never end: their effect on other tenants."""

from __future__ import annotations

import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import requests

from core import waiting
from tests.attacks.conftest import Stage
from tests.processes.client import Client
from tests.processes.waiting import until

PATIENCE_SEC = 60
ATTEMPTS = 33
MANY = 9


def post(client: Any, path: str, body: dict[str, Any] | None = None) -> requests.Response:
    answer: requests.Response = client._session.post(client._base + path, json=body, timeout=PATIENCE_SEC + 60)
    return answer


@pytest.fixture
def heartbeat(stage: Stage) -> str:
    made = stage.neighbour.post("/monitors", {"type": "heartbeat", "name": "Backup"})
    return f"{stage.address}/v1/heartbeats/{made['id']}/ping"


def neighbour_is_served(stage: Stage, heartbeat: str) -> None:
    """Pings, health, the list of monitors, a draft test and a created monitor."""
    assert requests.post(heartbeat, timeout=PATIENCE_SEC).json() == {"ok": True}
    for path in ("/healthz", "/readyz", "/status/none"):
        expected = 404 if path.startswith("/status") else 200
        assert requests.get(stage.address + path, timeout=PATIENCE_SEC).status_code == expected, path
    assert isinstance(stage.neighbour.get("/monitors"), list)
    draft = {"url": stage.quiet.url(), "timeout_ms": 20_000}
    assert stage.neighbour.post("/monitors/test", draft)["status"] in ("up", "slow")
    assert stage.neighbour.post("/monitors", draft)["status"] in ("up", "slow")


def test_hanging_draft_tests(stage: Stage, heartbeat: str) -> None:
    draft = {"url": stage.hanging.url(), "timeout_ms": 15_000}
    with ThreadPoolExecutor(ATTEMPTS) as pool:
        running = [pool.submit(post, stage.attacker, "/monitors/test", draft) for _ in range(ATTEMPTS)]
        until(lambda: stage.hanging.connections >= waiting.MAX_ACTIVE, PATIENCE_SEC, "the places are taken")
        neighbour_is_served(stage, heartbeat)
        answers = [one.result() for one in running]
    found = Counter(answer.status_code for answer in answers)
    assert set(found) == {200, 429}
    assert found[429] >= ATTEMPTS - waiting.MAX_PRESENT
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"] == "rate_limited"
    assert int(refused.headers["Retry-After"]) > 0


def test_hanging_draft_tests_of_many_accounts(stage: Stage, heartbeat: str) -> None:
    """As many accounts as fill all places within their own limits, and one more."""
    draft = {"url": stage.hanging.url(), "timeout_ms": 20_000}
    with ExitStack() as stack:
        hostile = [stack.enter_context(Client(stage.up, f"many{number}@example.com")) for number in range(MANY)]
        pool = stack.enter_context(ThreadPoolExecutor(MANY * waiting.MAX_ACTIVE))
        before = stage.hanging.connections
        running = [
            pool.submit(post, one, "/monitors/test", draft) for _ in range(waiting.MAX_ACTIVE) for one in hostile
        ]
        places = waiting.MAX_IN_PROCESS - waiting.RESERVED
        until(lambda: stage.hanging.connections - before >= places, PATIENCE_SEC, "the places are taken")
        neighbour_is_served(stage, heartbeat)
        answers = Counter(one.result().status_code for one in running)
    assert set(answers) == {200, 429}


def test_created_and_checked_monitors_of_hanging_targets(stage: Stage, heartbeat: str) -> None:
    made = stage.attacker.post("/monitors", {"url": stage.quiet.url(), "name": "Checked now"})
    before = len(stage.attacker.get("/monitors"))
    stage.attacker._ask("PATCH", f"/monitors/{made['id']}", {"url": stage.hanging.url(), "timeout_ms": 10_000})
    body = {"url": stage.hanging.url(), "timeout_ms": 10_000}
    with ThreadPoolExecutor(ATTEMPTS) as pool:
        running = [pool.submit(post, stage.attacker, "/monitors", body) for _ in range(ATTEMPTS - 8)]
        running += [pool.submit(post, stage.attacker, f"/monitors/{made['id']}/checks") for _ in range(8)]
        until(lambda: any(one.done() for one in running), PATIENCE_SEC, "one is refused")
        neighbour_is_served(stage, heartbeat)
        answers = [one.result() for one in running]
    found = Counter(answer.status_code for answer in answers)
    assert found[429]
    created = sum(answer.status_code == 201 for answer in answers[: ATTEMPTS - 8])
    # What was refused was not stored.
    assert len(stage.attacker.get("/monitors")) == before + created


def test_half_sent_bodies(stage: Stage, heartbeat: str) -> None:
    head = (
        b"POST /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b'Content-Length: 100\r\n\r\n{"email": '
    )
    with ExitStack() as stack:
        for number in range(120):
            client = stack.enter_context(socket.socket())
            client.bind((f"127.0.0.{2 + number % 4}", 0))
            client.connect(("127.0.0.1", stage.up.port))
            client.sendall(head)
        neighbour_is_served(stage, heartbeat)


def test_idle_connections(stage: Stage, heartbeat: str) -> None:
    with ExitStack() as stack:
        for _ in range(1_200):
            stack.enter_context(socket.create_connection(("127.0.0.1", stage.up.port)))
        neighbour_is_served(stage, heartbeat)


def test_a_large_upload_of_a_stranger(stage: Stage, heartbeat: str) -> None:
    """100 MB to the sign-in page is refused by its head, and not stored in memory or in a file."""
    before = stage.web.memory_info().rss
    with socket.create_connection(("127.0.0.1", stage.up.port), timeout=PATIENCE_SEC) as client:
        client.sendall(
            b"POST /accounts/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000000\r\n\r\n"
        )
        assert client.recv(100).split()[1] == b"413"
    assert stage.web.memory_info().rss - before < 10_000_000
    neighbour_is_served(stage, heartbeat)

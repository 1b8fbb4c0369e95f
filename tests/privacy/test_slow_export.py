"""Exports of accounts to clients that do not read: what the web process keeps, and that there is one at a time."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

import psutil
import pytest
import requests
from django.core.handlers.wsgi import WSGIHandler

from accounts.models import User
from config import sending
from config.gateway import Gateway
from core.clock import utc_now
from monitors.models import Ping
from tests.api.client import Api
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import PASSWORD, flush_broker
from tests.processes.waiting import until
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SEC = 60
SIGNALS, BODY_BYTES = 1_200, 10_000
MIB = 1024 * 1024
URL = "http://127.0.0.1:{}/v1/account/export"


@pytest.fixture
def user() -> User:
    """The owner of 12 MB of signals with bodies."""
    flush_broker()
    user = UserFactory()
    heartbeat = MonitorFactory(owner=user, type="heartbeat")
    now = utc_now()
    Ping.objects.bulk_create(
        Ping(
            id=number, monitor_id=heartbeat.pk, at=now - timedelta(seconds=number), kind=Ping.Kind.FAIL, method="POST",
            user_agent="", body="x" * BODY_BYTES,
        )
        for number in range(1, SIGNALS)
    )  # fmt: skip
    return user


@pytest.fixture
def headers(user: User) -> dict[str, str]:
    token = Api().post("/v1/sessions", {"email": user.email, "password": PASSWORD}).json["token"]
    return {"Authorization": f"Bearer {token}"}


def ask(port: int, headers: dict[str, str]) -> socket.socket:
    """Ask for the export and read only the beginning of the answer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.settimeout(PATIENCE_SEC)
    client.connect(("127.0.0.1", port))
    lines = ["GET /v1/account/export HTTP/1.1", "Host: 127.0.0.1", *(f"{key}: {text}" for key, text in headers.items())]
    client.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    assert client.recv(12) == b"HTTP/1.1 200"
    return client


def test_an_export_that_is_not_read(headers: dict[str, str]) -> None:
    with serving(Gateway(WSGIHandler())) as port:
        url = URL.format(port)
        with requests.get(url, headers=headers, timeout=PATIENCE_SEC) as whole:
            assert (whole.json()["complete"], len(whole.content) > SIGNALS * BODY_BYTES // 2) == (True, True)
        process = psutil.Process(os.getpid())
        before = process.memory_info().rss
        with ask(port, headers):
            second = requests.get(url, headers=headers, timeout=PATIENCE_SEC)
            assert (second.status_code, second.json()["error"]) == (429, "rate_limited")
            assert second.headers["Retry-After"]
            assert process.memory_info().rss - before < 8 * MIB
        until(
            lambda: requests.get(url, headers=headers, timeout=PATIENCE_SEC).status_code == 200,
            PATIENCE_SEC,
            "the next is allowed once the first client has left",
        )


def test_a_client_that_does_not_read_its_export_is_disconnected(
    headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "PART_SEC", 0.2)
    with serving(Gateway(WSGIHandler())) as port, ask(port, headers):

        def is_allowed() -> bool:
            # Not read to its end, because this machine may be as slow as the client.
            with requests.get(URL.format(port), headers=headers, timeout=PATIENCE_SEC, stream=True) as found:
                return found.status_code == 200

        until(is_allowed, PATIENCE_SEC, "the next is allowed")

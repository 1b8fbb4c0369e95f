"""PostgreSQL hangs under the real process tree, and continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import requests

from devserver.session import server_pids
from tests.processes.client import Client
from tests.processes.up import Up
from tests.processes.waiting import until

PATIENCE_SEC = 60


@contextmanager
def stopped_postgresql(up: Up) -> Iterator[None]:
    """Suspend the server and its backends by SIGSTOP, and let them continue afterwards."""
    pids = server_pids(up.data_dir)
    assert pids is not None
    server = psutil.Process(int(str(pids["postgres"])))
    processes = [server, *server.children()]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def test_requests_are_answered_while_postgresql_is_stopped(up: Up) -> None:
    with Client(up) as client:
        heartbeat = client.post("/monitors", {"type": "heartbeat", "name": "job", "interval_sec": 3600})["id"]
        requested = [("GET", "/monitors"), ("POST", f"/heartbeats/{heartbeat}/ping")]
        begin = len(up.output)
        with stopped_postgresql(up):
            refused = [client.send(method, path) for method, path in requested]
            healthy = requests.get(f"http://127.0.0.1:{up.port}/healthz", timeout=PATIENCE_SEC)
        assert [(answer.status_code, answer.headers["Retry-After"]) for answer in refused] == [(503, "5")] * 2
        assert healthy.content == b"ok\n"
        until(lambda: all(client.send(*each).ok for each in requested), PATIENCE_SEC, "all work again")
    assert "Traceback" not in up.output[begin:]

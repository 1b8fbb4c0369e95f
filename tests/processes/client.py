"""Use a running instance over HTTP, and with `manage.py shell`."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Any, Protocol, Self

import requests

from monitors.models import LEASE_MARGIN
from tests.processes.up import ROOT, Up
from tests.processes.waiting import until

PASSWORD = "correct horse battery"
LEASE_SECONDS = LEASE_MARGIN.total_seconds() + 1  # with a timeout of one second


class Served(Protocol):
    port: int


class Client:
    """A client of the API."""

    def __init__(self, instance: Served, email: str = "admin@example.com", *, host: str = "127.0.0.1") -> None:
        self._base = f"http://{host}:{instance.port}/v1"
        self._session = requests.Session()
        answer = self.post("/sessions", {"email": email, "password": PASSWORD})
        self._session.headers["Authorization"] = f"Bearer {answer['token']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, path: str) -> Any:
        return self._ask("GET", path)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        response = self.send(method, path, body)
        assert response.ok, response.text
        return response.json()

    def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> requests.Response:
        """Return the response with any status."""
        return self._session.request(method, self._base + path, json=body, timeout=30)

    def monitor(self, monitor_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/monitors/{monitor_id}")
        return found

    def wait_for(self, monitor_id: str, status: str) -> dict[str, Any]:
        until(lambda: self.monitor(monitor_id)["status"] == status, 60, f"the monitor is {status}")
        return self.monitor(monitor_id)

    def wait_for_another_check(self, monitor_id: str) -> None:
        last = self.monitor(monitor_id)["last_checked_at"]
        until(
            lambda: self.monitor(monitor_id)["last_checked_at"] > last,
            LEASE_SECONDS + 10,
            "it is checked again within a lease and the time of a restart",
        )

    def close(self) -> None:
        self._session.close()


def manage(up: Up, code: str, environment: dict[str, str]) -> str:
    """Run Python code with `manage.py shell` on the database of the instance."""
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", code],
        cwd=ROOT,
        env={**environment, "DATA_DIR": str(up.data_dir)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout

"""schemathesis drives a running server by openapi.json: no response is a 500, and each matches the document.

No worker runs and no request waits for one, so generated addresses are never probed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.servers.basehttp import WSGIRequestHandler
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from monitors.checking import interactive
from monitors.models import Monitor
from tests.api.client import SCHEMA, Api
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import EXAMPLES, examples, flush_broker

CONFIG = Path(__file__).with_name("schemathesis.toml")


@pytest.fixture(autouse=True)
def _nobody_probes(no_worker: None, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[None]:
    def no_wait(monitor: Monitor, *, claim: int) -> None:
        """As if the wait of a repeated key had timed out at once."""

    monkeypatch.setattr(interactive, "await_first_check", no_wait)
    settings.ALLOWED_PRIVATE_NETWORKS = ()
    # Django's server writes head and body apart, and Nagle would have each answer wait for an ACK: 40 ms of 55.
    monkeypatch.setattr(WSGIRequestHandler, "disable_nagle_algorithm", True)
    yield
    flush_broker()  # of requests to the missing worker


@pytest.mark.parametrize("kind", ["session", "project token"])
def test_schemathesis(kind: str, live_server: LiveServer, tmp_path: Path) -> None:
    user = UserFactory()
    project = ProjectFactory(owner=user)
    api = Api.signed_in(user) if kind == "session" else Api.with_token(user, project)
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(CONFIG)),
        *("run", f"{live_server.url}/openapi.json", "--url", live_server.url, "--checks", "all"),
        *("--max-examples", str(examples(4))),
        *("--header", f"Authorization: Bearer {api.token}"),
    ]
    if kind != "session" and EXAMPLES == 1:
        # The coverage phase sends the same requests for each credential, and takes four fifths of the time.
        command += ["--phases", "examples,fuzzing,stateful"]
    ending = ("delete_current_session", "delete_session") if kind == "session" else ()
    if ending:  # otherwise later requests would have no session
        command += [word for name in ending for word in ("--exclude-operation-id", name)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1000 * EXAMPLES, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    operations = sum(map(len, json.loads(SCHEMA.read_text())["paths"].values()))
    assert f"Tested: {operations - len(ending)}" in done.stdout

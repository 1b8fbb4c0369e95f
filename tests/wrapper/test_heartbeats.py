"""The wrapper against Pulsekeeper itself: what the log and the state of a heartbeat say after a run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from accounts.models import User
from core.clock import utc_now
from monitors.models import Monitor, Ping
from tests.api.conftest import _unthrottled, user
from tests.factories import MonitorFactory
from tests.helpers import state_of
from tests.wrapper.conftest import ROOT, WAIT_SEC, Wrapper, require

__all__ = ["_unthrottled", "user"]  # fixtures, which pytest finds by their names

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def heartbeat(user: User) -> Monitor:
    return MonitorFactory(owner=user, heartbeat=True, interval_sec=300, grace_sec=60, created_at=utc_now())


def run(wrapper: Wrapper, server: LiveServer, monitor: Monitor, script: str) -> tuple[int, bytes, list[Ping]]:
    """Return the exit status, what came on stderr, and the signals in the order of their arrival."""
    url = f"{server.url}/v1/heartbeats/{monitor.public_id}/ping"
    ended: subprocess.Popen[bytes] = wrapper.start(url, ["sh", "-c", script])
    _, err = ended.communicate(timeout=WAIT_SEC)
    return ended.returncode, err, list(Ping.objects.filter(monitor_id=monitor.pk).order_by("at"))


def test_a_run_that_succeeds(wrapper: Wrapper, live_server: LiveServer, heartbeat: Monitor) -> None:
    status, err, (start, end) = run(wrapper, live_server, heartbeat, "printf 'copied \\377\\000'")
    assert (status, err) == (0, b"")
    assert (start.kind, end.kind, end.exit_status) == ("start", "success", 0)
    assert start.rid == end.rid is not None
    assert end.duration_ms is not None
    assert end.body == "copied \ufffd\ufffd"
    assert start.body is None
    state = state_of(heartbeat)
    assert (state.status, state.last_duration_ms) == ("up", end.duration_ms)


def test_a_run_that_fails(wrapper: Wrapper, live_server: LiveServer, heartbeat: Monitor) -> None:
    status, err, (_, end) = run(wrapper, live_server, heartbeat, "echo disk full >&2; kill -KILL $$")
    assert (status, err) == (137, b"disk full\n")
    assert (end.kind, end.exit_status) == ("fail", 137)
    assert end.body == "disk full\n"
    assert state_of(heartbeat).status == "down"


def test_the_examples_of_the_documentation(live_server: LiveServer, heartbeat: Monitor, tmp_path: Path) -> None:
    """Those of docs/use/jobs.md that send signals."""
    require("curl")
    page = (ROOT / "docs/use/jobs.md").read_text()
    script = "".join(re.findall(r"^```sh\n((?:URL|RID)=.*?)^```$", page, re.DOTALL | re.MULTILINE))
    script = script.replace("https://pulsekeeper.example.com", live_server.url).replace("mon_…", heartbeat.public_id)
    script = script.replace("/usr/local/bin/backup", "echo copied").replace("/tmp/", f"{tmp_path}/")
    assert "example.com" not in script
    done = subprocess.run(["sh", "-eu"], input=script, env=os.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = list(Ping.objects.filter(monitor_id=heartbeat.pk, kind="success").order_by("at"))
    assert (first.body, first.exit_status, first.rid) == ("copied\n", 0, None)
    assert second.rid is not None
    assert None not in (first.duration_ms, second.duration_ms)

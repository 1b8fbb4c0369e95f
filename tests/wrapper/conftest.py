"""`manage.py run` and docs/samples/pulsekeeper-run, which do the same, and a server that they report to."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.targets.server import Routes, Seen, Site, TargetServer, answer

ROOT = Path(__file__).parents[2]
WAIT_SEC = 60
_PATH = re.compile(r"/v1/heartbeats/SECRET/ping/(\w+)\?rid=([0-9a-f-]{36})")


@dataclass(frozen=True)
class Wrapper:
    """One of the two, with the interpreter of the script."""

    words: tuple[str, ...]
    environment: dict[str, str]
    is_script: bool

    def start(self, ping_url: str, command: Sequence[str], stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start the command under the wrapper, in a session of its own."""
        return subprocess.Popen(
            [*self.words, *command],
            env=self.environment | {"PULSEKEEPER_PING_URL": ping_url},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let processes that start now get signals that a shell or nohup, and with them these tests, may ignore."""
    before = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    }
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(params=["manage.py", "dash", "bash"])
def wrapper(request: pytest.FixtureRequest, tmp_path: Path, interruptible: None) -> Wrapper:
    environment = {"PATH": os.environ["PATH"], "DATA_DIR": str(tmp_path / "data"), "TMPDIR": str(tmp_path)}
    if request.param == "manage.py":
        words: tuple[str, ...] = (sys.executable, str(ROOT / "manage.py"), "run", "--")
        return Wrapper(words, environment | {"PYTHONPATH": os.pathsep.join(sys.path)}, is_script=False)
    for program in (request.param, "curl"):
        require(program)
    return Wrapper((request.param, str(ROOT / "docs/samples/pulsekeeper-run")), environment, is_script=True)


def require(program: str) -> None:
    """Skip a test for which a program of Debian is missing, or fail it in CI, which installs it."""
    if shutil.which(program) is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{program} is not installed: apt-get install {program}")


@dataclass(frozen=True)
class Reported:
    """A signal that the server received."""

    signal: str
    rid: str
    body: bytes


class Reports:
    """A server of heartbeats."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.ping_url = site.url("/v1/heartbeats/SECRET/ping")

    @property
    def all(self) -> list[Reported]:
        return [reported(request) for request in self._site.seen]


def reported(request: Seen) -> Reported:
    found = _PATH.fullmatch(request.path)
    assert found is not None
    assert request.method == "POST"
    return Reported(found[1], found[2], request.body)


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.fixture
def serve(targets: TargetServer) -> Callable[[Routes], Reports]:
    return lambda routes: Reports(targets.serve(routes))


@pytest.fixture
def reports(serve: Callable[[Routes], Reports]) -> Reports:
    """A server that accepts everything."""
    return serve([answer(200, b'{"ok":true}')])

"""Agents as separate processes, and the server of their location."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.server import TOKEN, LocationServer
from tests.processes.waiting import until
from tests.targets.server import TargetServer

ROOT = Path(__file__).parents[2]
PATIENCE_SEC = 60


class AgentProcess:
    def __init__(self, folder: Path, arguments: tuple[str, ...], environment: dict[str, str], stdin: str) -> None:
        self.log_path = folder / f"log-{len(list(folder.iterdir()))}"
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pulsekeeper", "agent", *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(stdin)
        self.process.stdin.close()

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def code(self) -> int:
        """Return its exit code, once it has ended."""
        return self.process.wait(PATIENCE_SEC)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.code()


class Agents:
    """Starts agents that share a state file."""

    def __init__(self, folder: Path, server: LocationServer) -> None:
        self.state = folder / "state" / "agent.json"
        self._folder, self._server = folder, server
        self.started: list[AgentProcess] = []

    def start(self, *arguments: str, stdin: str = "", **variables: str) -> AgentProcess:
        environment = {
            "PATH": os.environ["PATH"],
            "PULSEKEEPER_STATE": str(self.state),
            "ALLOWED_PRIVATE_NETWORKS": "127.0.0.0/8",
            "CONNECTIVITY_TARGETS": "",
        }
        self.started.append(AgentProcess(self._folder, arguments, environment | variables, stdin))
        return self.started[-1]

    def serve(self, *arguments: str, **variables: str) -> AgentProcess:
        """Start an agent that joins, and wait until it asks for leases."""
        agent = self.start("--server", self._server.url, "--join", TOKEN, *arguments, **variables)
        until(lambda: self._server.polls or agent.process.poll() is not None, PATIENCE_SEC, "it asks for leases")
        assert agent.process.poll() is None, agent.log
        return agent


@pytest.fixture
def server() -> Iterator[LocationServer]:
    made = LocationServer()
    yield made
    made.close()


@pytest.fixture
def agents(tmp_path: Path, server: LocationServer) -> Iterator[Agents]:
    made = Agents(tmp_path, server)
    yield made
    for agent in made.started:
        agent.process.kill()
        agent.process.wait()


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as made:
        yield made

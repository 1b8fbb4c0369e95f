"""A worker, and `run_checks` as called by a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from pytest_django.live_server_helper import LiveServer

from accounts.models import User
from core.clock import utc_now
from monitors.management.commands.run_checks import Command
from projects.access import Caller
from projects.models import Project
from tests.api.conftest import _unthrottled, user
from tests.contract.conftest import _running_worker, worker
from tests.factories import ProjectFactory
from tests.targets.server import TargetServer
from tokens.services import create_token

__all__ = ["_running_worker", "_unthrottled", "user", "worker"]  # fixtures, which pytest finds by their names


@dataclass(frozen=True)
class Ran:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def run_checks(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*arguments: str) -> Ran:
        code: object = 0
        try:
            Command().run_from_argv(["manage.py", "run_checks", *arguments])
        except SystemExit as ended:
            code = ended.code
        printed = capsys.readouterr()
        return Ran(int(str(code)), printed.out, printed.err)

    return run


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.fixture
def project(user: User) -> Project:
    return ProjectFactory(owner=user)


@pytest.fixture
def token(user: User, project: Project, monkeypatch: pytest.MonkeyPatch) -> str:
    """A token of the project, in the environment."""
    made = create_token(Caller(user), project_id=project.public_id, name="CI", ttl_seconds=None, now=utc_now())
    monkeypatch.setenv("PULSEKEEPER_TOKEN", made[1])
    return made[1]


@pytest.fixture(params=["local", "api"])
def way(request: pytest.FixtureRequest, project: Project) -> list[str]:
    """The options that select the project's monitors."""
    if request.param == "local":
        return ["--project", project.public_id]
    request.getfixturevalue("token")
    server: LiveServer = request.getfixturevalue("live_server")
    return ["--url", server.url]

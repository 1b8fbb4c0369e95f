from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.alerts.inbox import Inbox
from tests.processes.client import PASSWORD, manage
from tests.processes.up import ROOT, Program, Start, Up, copy_cluster


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def start(clean_environment: dict[str, str], data_dir: Path) -> Iterator[Start]:
    running: list[Up] = []

    def start_up(*command: str, **variables: str) -> Up:
        chosen = list(command) or [sys.executable, "manage.py", "up"]
        running.append(Up(chosen, data_dir, clean_environment, **variables))
        return running[-1]

    yield start_up
    # The newest first: an earlier, killed one shares its data folder, and would treat it as leftover.
    for up in reversed(running):
        up.end()


@pytest.fixture
def program(clean_environment: dict[str, str], migrated_cluster: Path) -> Program:
    """Run Python with these arguments, for at most `longest` seconds, with a migrated PostgreSQL to copy."""

    def run(*arguments: str, longest: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=clean_environment | {"CLUSTER": str(migrated_cluster)},
            capture_output=True,
            text=True,
            timeout=longest,
            check=False,
        )

    return run


@pytest.fixture(scope="package")
def inbox() -> Iterator[Inbox]:
    with Inbox() as inbox:
        yield inbox


@pytest.fixture(scope="package")
def up(
    tmp_path_factory: pytest.TempPathFactory, clean_environment: dict[str, str], migrated_cluster: Path, inbox: Inbox
) -> Iterator[Up]:
    """One instance for all tests that start none. It allows checks every second, throttles nothing and sends e-mail."""
    running = Up(
        [sys.executable, "manage.py", "up"],
        copy_cluster(migrated_cluster, tmp_path_factory.mktemp("instance") / "data"),
        clean_environment,
        ADMIN_PASSWORD=PASSWORD,
        EMAIL_URL=f"smtp://127.0.0.1:{inbox.port}",
        EMAIL_FROM="Pulsekeeper <alerts@pulsekeeper.example>",
        THROTTLE_SCALE="0",
    )
    try:
        running.wait_until_up()
        code = "from accounts.models import Plan; Plan.objects.update(min_interval_sec=1)"
        manage(running, code, clean_environment)
        yield running
    finally:
        running.end()

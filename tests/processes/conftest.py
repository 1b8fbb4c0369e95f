from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.up import Start, Up


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
    # The newest first: an earlier one that was killed shares its data folder, and would take it for leftovers.
    for up in reversed(running):
        up.end()

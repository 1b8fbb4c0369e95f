"""Receivers on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.targets.certificates import Certificates
from tests.targets.server import TargetServer


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))

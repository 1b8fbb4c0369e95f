from __future__ import annotations

from collections.abc import Iterator

import pytest

from checks.probes import liveness
from checks.probes.engine import ProbeEngine
from core.egress import EgressGuard, parse_networks
from tests.helpers import restored_partitions
from tests.targets.certificates import Certificates
from tests.targets.server import TargetServer

LOOPBACK = EgressGuard(parse_networks("127.0.0.0/8, ::1/128"))


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def engine(certificates: Certificates) -> ProbeEngine:
    """One engine for all tests, as in a worker, to detect state that leaks between checks."""
    return ProbeEngine(LOOPBACK, certificates.ca_file)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a name server of a test, a thread of this process, take longer to answer while the machine is busy."""
    monkeypatch.setattr(liveness, "_REPEAT_SECONDS", 2.0)


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.fixture(name="restored_partitions")
def _own(transactional_db: None) -> Iterator[None]:
    """The partitions of the migrations, which the test may add and drop."""
    with restored_partitions():
        yield

"""The shell command on the page of a udp monitor does the same as its check."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import ValidationFailed
from monitors import configuration, types
from monitors.services import permits_host
from tests.targets.datagrams import Datagrams, Reply
from tests.targets.server import TargetServer


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


def command(url: str, **given: str) -> str:
    draft = {"type": "udp", "url": url, **given}
    return types.get("udp").reproduce(
        configuration.complete(draft, configuration.Limits(floor_sec=60, permits_host=permits_host))
    )


@pytest.mark.parametrize("body", [b"", b"hello", b"it's 100%\n\\", b"\x00\xff"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_command_sends_the_same(host: str, body: bytes, targets: TargetServer) -> None:
    service = targets.serve_datagrams(Datagrams([[Reply()]]), host=host)
    url = f"udp://[{host}]:{service.port}" if ":" in host else f"udp://{host}:{service.port}"
    given = {"request_body": body.hex(), "request_body_encoding": "hex"} if body else {}
    ran = subprocess.run(
        ["/bin/sh", "-c", command(url, **given)],
        env={"PATH": str(Path(sys.executable).parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == f"{body!r}\n"
    assert [data for _, _, data in service.seen] == [body]


@pytest.mark.parametrize("host", ['a"+b', "a'b", "-e", "$(id)"])
def test_a_host_that_a_shell_could_run_is_refused(host: str) -> None:
    with pytest.raises(ValidationFailed):
        command(f"udp://{host}:1")

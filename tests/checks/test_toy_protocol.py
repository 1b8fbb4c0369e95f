"""A protocol over a plain socket, in one file, runs through the engine beside http checks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from checks.evidence import Evidence
from checks.probes.engine import PROTOCOLS, ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.probes.loop import BlockedTarget, Loop, Probe
from checks.probes.resolver import Resolver
from checks.spec import CheckOutcome, CheckSpec, ReasonCode, Verdict
from checks.verdict import BLOCKED, Failure, timed_out
from tests.checks.conftest import LOOPBACK
from tests.targets.names import Name
from tests.targets.server import TargetServer, answer


@dataclass(frozen=True, slots=True)
class EchoSpec(CheckSpec):
    """Send a line by TCP. The same line has to come back."""

    host: str
    port: int
    line: str = "hello"


class EchoProbe(Probe[EchoSpec]):
    def __init__(self, spec: EchoSpec, loop: Loop[Any]) -> None:
        super().__init__(spec, loop)
        self._socket: socket.socket | None = None
        self._received = b""
        self._address: str | None = None

    def start(self) -> None:
        if self.spec.line == "crash":
            raise LookupError(self.spec.line)
        self.loop.find_addresses(self, self.spec.host, lambda addresses: self._connect(addresses[0]))

    def expire(self) -> None:
        self.fail(timed_out(self.spec, "the echo did not come"))

    def find_failure(self) -> Failure | None:
        echo = self._received.decode().removesuffix("\n")
        if echo == self.spec.line:
            return None
        return Failure(ReasonCode.CONTENT_FAILURE, f"Sent {self.spec.line}, received {echo}.")

    def evidence(self) -> Evidence:
        return Evidence(address=self._address)

    def close(self) -> None:
        if self._socket is not None:
            self.loop.unwatch(self._socket)
            self._socket.close()

    def _connect(self, address: str) -> None:
        try:
            self._socket = self.loop.connect(address, self.spec.port, socket.SOCK_STREAM)
        except BlockedTarget:
            self.fail(BLOCKED)
            return
        self._address = f"{address}:{self.spec.port}"
        self.loop.watch(self, self._socket, self._send, write=True)

    def _send(self) -> None:
        assert self._socket is not None
        if error := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.fail(Failure(ReasonCode.CONNECTION_FAILURE, f"No connection: error {error}."))
            return
        self._socket.send(self.spec.line.encode() + b"\n")
        self.loop.watch(self, self._socket, self._receive)

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            part = self._socket.recv(1_024)
        except BlockingIOError:
            return
        self._received += part
        if self._received.endswith(b"\n") or not part:
            self.outcome.latency_ms = 1_000 if self.spec.line == "slow" else 1
            self.finish()


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that echoes in two parts, answers `lie` wrongly, and never answers `silence`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # closed
                    return
                connections.append(connection)
                line = connection.recv(1_024).strip()
                if line != b"silence":
                    reply = b"something else" if line == b"lie" else line
                    connection.send(reply[:2])
                    connection.send(reply[2:] + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


@pytest.fixture
def toy_engine(targets: TargetServer) -> ProbeEngine:
    names = targets.serve_names({"echo.test": Name(("127.0.0.1",))})
    return ProbeEngine(LOOPBACK, resolver=Resolver([names.address]), protocols={**PROTOCOLS, EchoSpec: EchoProbe})


def test_both_protocols_in_one_batch(toy_engine: ProbeEngine, targets: TargetServer, echo_port: int) -> None:
    site, broken = targets.serve([answer()]), targets.serve([answer(500)])
    specs: dict[str, CheckSpec] = {
        "http": HttpSpec(site.url()),
        "http down": HttpSpec(broken.url()),
        "echo": EchoSpec("127.0.0.1", echo_port),
        "named": EchoSpec("echo.test", echo_port),
        "slow": EchoSpec("127.0.0.1", echo_port, "slow", slow_ms=1_000),
        "lie": EchoSpec("127.0.0.1", echo_port, "lie"),
        "silence": EchoSpec("127.0.0.1", echo_port, "silence", timeout_ms=300),
        "closed": EchoSpec("127.0.0.1", 1),
        "blocked": EchoSpec("10.0.0.1", echo_port),
        "crash": EchoSpec("127.0.0.1", echo_port, "crash"),
    }
    ended: dict[str, CheckOutcome] = {}
    toy_engine.run(specs.items(), lambda key, outcome: ended.setdefault(key, outcome))
    assert {key: (outcome.verdict, outcome.reason_code) for key, outcome in ended.items()} == {
        "http": (Verdict.UP, None),
        "http down": (Verdict.DOWN, ReasonCode.HTTP_FAILURE),
        "echo": (Verdict.UP, None),
        "named": (Verdict.UP, None),
        "slow": (Verdict.SLOW, None),
        "lie": (Verdict.DOWN, ReasonCode.CONTENT_FAILURE),
        "silence": (Verdict.DOWN, ReasonCode.TIMEOUT),
        "closed": (Verdict.DOWN, ReasonCode.CONNECTION_FAILURE),
        "blocked": (Verdict.DOWN, ReasonCode.BLOCKED_TARGET),
        "crash": (Verdict.DOWN, ReasonCode.WORKER_LOST),
    }
    assert next(reversed(ended)) == "silence"
    assert ended["silence"].detail == "No result within 300 ms: the echo did not come."
    assert ended["silence"].evidence == Evidence(address=f"127.0.0.1:{echo_port}")


def test_an_abandoned_run_closes_its_sockets(toy_engine: ProbeEngine, echo_port: int) -> None:
    def fail(key: str, _: CheckOutcome) -> None:
        raise LookupError(key)

    silent = EchoSpec("127.0.0.1", echo_port, "silence")
    with pytest.raises(LookupError):  # a socket left open would be a ResourceWarning
        toy_engine.run([("silent", silent), ("blocked", EchoSpec("10.0.0.1", 1))], fail)
    assert toy_engine.check(EchoSpec("127.0.0.1", echo_port)).verdict is Verdict.UP


def test_an_unknown_protocol_is_a_fault_of_ours(echo_port: int) -> None:
    outcome = ProbeEngine(LOOPBACK).check(EchoSpec("127.0.0.1", echo_port))
    assert outcome.reason_code is ReasonCode.WORKER_LOST


def test_a_timer_calls_unless_the_probe_ended(toy_engine: ProbeEngine, echo_port: int) -> None:
    called: list[str] = []

    class TimedProbe(EchoProbe):
        def start(self) -> None:
            self.loop.call_later(self, 0.02, lambda: called.append("second"))
            self.loop.call_later(self, 0.01, lambda: called.append("first"))
            self.loop.call_later(self, 0.03, self.finish)
            self.loop.call_later(self, 0.04, lambda: called.append("late"))

    engine = ProbeEngine(LOOPBACK, protocols={EchoSpec: TimedProbe})
    silent = EchoSpec("127.0.0.1", echo_port, timeout_ms=200)
    engine.run([("a", silent)], lambda *_: None)
    assert called == ["first", "second"]


def test_a_broken_protocol_fails_its_own_checks_only(echo_port: int, caplog: pytest.LogCaptureFixture) -> None:
    class BrokenProbe(EchoProbe):
        def expire(self) -> None:
            """Leave the probe in progress."""

        def close(self) -> None:
            super().close()
            raise LookupError

    engine = ProbeEngine(LOOPBACK, protocols={EchoSpec: BrokenProbe})
    specs = [(line, EchoSpec("127.0.0.1", echo_port, line, timeout_ms=300)) for line in ("silence", "hello")]
    ended: dict[str, CheckOutcome] = {}
    engine.run(specs, lambda key, outcome: ended.setdefault(key, outcome))
    assert ended["hello"].verdict is Verdict.UP
    assert ended["silence"].reason_code is ReasonCode.WORKER_LOST
    assert caplog.text.count("could not be closed") == 2

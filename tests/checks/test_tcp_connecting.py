"""How tcp checks connect if addresses, families and peers misbehave, and that evidence does not show the body."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from checks.probes.engine import ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.probes.tcp.spec import TcpSpec
from checks.probes.tcp.starttls import Dialogue
from checks.spec import CheckSpec, ContentRule, ReasonCode, RuleType, Verdict
from core.egress import EgressGuard, parse_networks
from tests.checks.test_tcp import Names, blocking_server, run
from tests.targets.namespace import Namespace, why_no_namespace

RESET = struct.pack("ii", 1, 0)
CONTAINS = (ContentRule(RuleType.TEXT_CONTAINS, "hello"),)


@contextmanager
def resetting_server() -> Iterator[int]:
    """Accept connections and reset each at once."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_connection_that_is_reset_at_once_did_stand(engine: ProbeEngine) -> None:
    with resetting_server() as port:
        plain = run(engine, [TcpSpec(host="127.0.0.1", port=port) for _ in range(50)])
        reading = run(engine, [TcpSpec(host="127.0.0.1", port=port, rules=CONTAINS) for _ in range(50)])
    assert {outcome.verdict for outcome in plain} == {Verdict.UP}
    assert {outcome.reason_code for outcome in reading} == {ReasonCode.CONNECTION_FAILURE}


def test_a_reset_while_the_body_is_sent_is_no_end_of_an_answer(engine: ProbeEngine) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(b"hell")
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    with blocking_server(serve) as port:
        outcome = engine.check(TcpSpec(host="127.0.0.1", port=port, body=bytes(8 << 20), rules=CONTAINS))
    assert outcome.reason_code is ReasonCode.CONNECTION_FAILURE


@pytest.mark.parametrize("cut", [1, 7, 1_000])
def test_a_line_that_begins_with_the_digits_of_a_reply_does_not_end_it(cut: int) -> None:
    banner = b"220-Welcome\r\n2201 users are here\r\n220 ready\r\n"
    dialogue = Dialogue("ftp")
    commands = [dialogue.feed(banner[start : start + cut]) for start in range(0, len(banner), cut)]
    assert [command for command in commands if command] == [b"AUTH TLS\r\n"]
    assert dialogue.feed(b"234 go on\r\n") is None


@pytest.mark.parametrize("as_hex", [False, True])
def test_words_of_the_body_are_not_kept_as_evidence(engine: ProbeEngine, as_hex: bool) -> None:
    def serve(connection: socket.socket) -> None:
        said = connection.recv(100).decode()
        connection.sendall(f"-ERR unknown command, with args beginning with: {said.split()[1]}\r\n".encode())

    body = b"AUHT hunter2sEcret\r\n"
    with blocking_server(serve) as port:
        outcome = engine.check(TcpSpec(host="127.0.0.1", port=port, body=body, rules=CONTAINS, as_hex=as_hex))
    assert outcome.reason_code is ReasonCode.CONTENT_FAILURE
    seen = str(outcome.evidence)
    assert "unknown command" in seen
    assert "hunter2sEcret" not in seen
    assert b"hunter2sEcret".hex() not in seen.replace(" ", "")


@pytest.mark.skipif(why_no_namespace() is not None, reason=str(why_no_namespace()))
@pytest.mark.allow_hosts(["127.0.0.0/8", "2001:db8::/32"])
def test_where_ipv6_is_switched_off_it_is_no_fault_of_ours() -> None:
    engine = ProbeEngine(
        EgressGuard(parse_networks("127.0.0.0/8, 2001:db8::/32")),
        resolver=Names(**{"both.test": "127.0.0.1,2001:db8::1", "other.test": "2001:db8::1,127.0.0.1"}),
    )
    specs: list[CheckSpec] = [
        TcpSpec(host="both.test", port=9),
        TcpSpec(host="other.test", port=9),
        TcpSpec(host="2001:db8::1", port=9),
        HttpSpec(url="http://[2001:db8::1]:9/"),
    ]
    with Namespace() as namespace:
        namespace.command("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
        both, other, alone, http = namespace.run(lambda: [engine.check(spec) for spec in specs])
    for outcome in (both, other):
        assert (outcome.reason_code, "refused" in str(outcome.detail)) == (ReasonCode.CONNECTION_FAILURE, True)
    for outcome in (alone, http):
        assert (outcome.reason_code, "IPv4" in str(outcome.detail)) == (ReasonCode.CONNECTION_FAILURE, True)

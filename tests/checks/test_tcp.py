"""The tcp protocol in the engine, in addition to the catalogue: guard, timings, evidence, descriptors, addresses."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from checks.evidence import Evidence
from checks.probes.engine import ProbeEngine
from checks.probes.resolver import Answer, Resolver
from checks.probes.target import BadAddressError
from checks.probes.tcp.spec import TcpSpec, parse_tcp
from checks.probes.tcp.tls import read_certificate
from checks.spec import CheckOutcome, ContentRule, ReasonCode, RuleType, Verdict
from tests.checks.conftest import LOOPBACK
from tests.checks.test_egress import REFUSED
from tests.fuzz import verdicts
from tests.fuzz.connections import Shot, shot
from tests.fuzz.prober import Prober, Report
from tests.fuzz.verdicts import SECRET
from tests.helpers import examples
from tests.targets.certificates import EXPIRED_AT, GOOD_UNTIL, Certificates
from tests.targets.server import Expect, Hang, Pause, StartTls, TargetServer, Unasked

SILENT = Unasked([Hang()])
POP3 = (b"+OK hi\r\n", Expect(b"STLS\r\n"), b"+OK go\r\n")


class Names(Resolver):
    """Answer these names without queries."""

    def __init__(self, **names: str) -> None:
        self._names = names

    def recall(self, host: str) -> Answer:
        return Answer(tuple(self._names[host].split(",")))


def contains(text: str) -> tuple[ContentRule, ...]:
    return (ContentRule(RuleType.TEXT_CONTAINS, text),)


def run(engine: ProbeEngine, specs: Sequence[TcpSpec]) -> list[CheckOutcome]:
    """Run all specs concurrently. Return their outcomes in order."""
    ended: dict[int, CheckOutcome] = {}
    engine.run(enumerate(specs), ended.__setitem__)
    return [ended[number] for number in range(len(specs))]


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_timings(engine: ProbeEngine, targets: TargetServer, certificates: Certificates) -> None:
    greeting = targets.serve(Unasked([Pause(0.1), b"hello", Hang()]))
    plain = TcpSpec(host="127.0.0.1", port=greeting.port)
    outcome = engine.check(plain)
    assert (outcome.verdict, outcome.ttfb_ms, outcome.http_status, outcome.cert_expires_at) == (Verdict.UP, *[None] * 3)
    assert (outcome.connect_ms or 0) <= (outcome.latency_ms or 0)

    outcome = engine.check(replace(plain, rules=contains("hello")))
    assert outcome.verdict is Verdict.UP
    assert (outcome.connect_ms or 0) <= 100 <= (outcome.ttfb_ms or 0) <= (outcome.latency_ms or 0)

    outcome = engine.check(replace(plain, rules=contains("help"), timeout_ms=300))
    assert outcome.reason_code is ReasonCode.CONTENT_FAILURE
    assert (outcome.ttfb_ms or 0) < 300 <= (outcome.latency_ms or 0)

    outcome = engine.check(replace(plain, port=1))
    assert (outcome.connect_ms, outcome.ttfb_ms, outcome.latency_ms) == (None, None, None)

    site = targets.serve(Unasked([*POP3, StartTls(), Hang()]), tls=certificates.good())
    outcome = engine.check(TcpSpec(host="127.0.0.1", port=site.port, tls=True, starttls="pop3"))
    assert (outcome.verdict, outcome.cert_expires_at) == (Verdict.UP, GOOD_UNTIL)
    assert outcome.connect_ms is not None
    assert outcome.connect_ms <= (outcome.ttfb_ms or 0) <= (outcome.latency_ms or 0)


def test_starttls_with_an_own_authority(engine: ProbeEngine, targets: TargetServer) -> None:
    own, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.issue_cert("127.0.0.1", not_after=GOOD_UNTIL).configure_cert(context)
    site = targets.serve(Unasked([*POP3, StartTls(), Hang()]), tls=context)
    spec = TcpSpec(host="127.0.0.1", port=site.port, tls=True, starttls="pop3", check_ssl=True)
    refused = engine.check(spec)
    assert "issuer is unknown" in (refused.detail or "")
    assert "CA certificate (ca_certificate)" in (refused.detail or "")
    for given in ({"ca_certificate": own.cert_pem.bytes().decode()}, {"tls_verify": False, "check_ssl": False}):
        outcome = engine.check(replace(spec, **given))
        assert (outcome.verdict, outcome.cert_expires_at) == (Verdict.UP, GOOD_UNTIL)


def test_evidence_of_an_answer(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve(Unasked([b"token=abcdef \xff\0end"]), host="::1")
    spec = TcpSpec(host="::1", port=site.port, rules=contains("word"))
    received = ("received", "18 bytes")
    assert engine.check(spec).evidence == Evidence(f"[::1]:{site.port}", facts=(received,), body="token=*** \ufffd end")
    assert engine.check(replace(spec, as_hex=True)).evidence == Evidence(
        f"[::1]:{site.port}",
        facts=(received, ("received in hex", b"token=*** \xff\0end".hex())),
        body="token=*** \ufffd end",
    )


def test_hex_of_a_rule_is_whole_bytes(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve(Unasked([b"\x1a\xfe", Pause(0.05), b"\xaf"]))
    spec = TcpSpec(host="127.0.0.1", port=site.port, rules=contains("af"), as_hex=True)
    assert engine.check(spec).verdict is Verdict.UP, "read on after 1afe"
    assert engine.check(replace(spec, rules=contains("aa"))).reason_code is ReasonCode.CONTENT_FAILURE
    assert engine.check(replace(spec, rules=contains("ea"))).reason_code is ReasonCode.CONTENT_FAILURE


def test_evidence_of_a_large_answer_is_short(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve(Unasked([b"\xff" * 100_000]))
    outcome = engine.check(TcpSpec(host="127.0.0.1", port=site.port, rules=contains("x"), as_hex=True))
    assert outcome.evidence is not None
    assert outcome.evidence.facts == (("received", "65,536 bytes"), ("received in hex", "ff" * 256))
    assert outcome.evidence.body == "\ufffd" * 2048


@pytest.mark.parametrize("starts_plain", [True, False])
def test_evidence_of_a_refused_certificate(
    starts_plain: bool, engine: ProbeEngine, targets: TargetServer, certificates: Certificates
) -> None:
    site = targets.serve(Unasked([*POP3, StartTls()] if starts_plain else [Hang()]), tls=certificates.expired())
    spec = TcpSpec(host="127.0.0.1", port=site.port, tls=True, starttls="pop3" if starts_plain else None)
    outcome = engine.check(spec)
    assert outcome.cert_expires_at == EXPIRED_AT
    assert outcome.evidence is not None
    assert outcome.evidence.address == f"127.0.0.1:{site.port}"
    assert (outcome.evidence.tls_issuer or "").startswith("O = trustme")
    assert outcome.evidence.facts == ((("pop3 before TLS", "+OK go"),) if starts_plain else ())


def test_evidence_of_an_accepted_certificate(
    engine: ProbeEngine, targets: TargetServer, certificates: Certificates
) -> None:
    site = targets.serve(Unasked([b"hello"]), tls=certificates.only_1_2())
    outcome = engine.check(TcpSpec(host="127.0.0.1", port=site.port, tls=True, rules=contains("help")))
    assert (outcome.reason_code, outcome.cert_expires_at) == (ReasonCode.CONTENT_FAILURE, GOOD_UNTIL)
    assert outcome.evidence is not None
    assert (outcome.evidence.tls_version, outcome.evidence.body) == ("TLSv1.2", "hello")


def test_the_trust_store_is_the_given_one(targets: TargetServer, certificates: Certificates, tmp_path: Path) -> None:
    site = targets.serve(SILENT, tls=certificates.good())
    spec = TcpSpec(host="127.0.0.1", port=site.port, tls=True, check_ssl=True)
    assert "issuer is unknown" in (ProbeEngine(LOOPBACK).check(spec).detail or "")
    missing = ProbeEngine(LOOPBACK, str(tmp_path / "missing.pem")).check(spec)
    assert missing.reason_code is ReasonCode.WORKER_LOST


def test_any_certificate_can_be_looked_at(certificates: Certificates) -> None:
    context = certificates.good()

    def serve(connection: socket.socket) -> None:
        context.wrap_socket(connection, server_side=True).close()

    with blocking_server(serve) as port:
        der = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))
    assert read_certificate(der) is not None
    chance = random.Random(seed := random.randrange(1 << 32))
    for _ in range(examples(2_000)):
        mutated = bytearray(der)
        for _ in range(chance.randrange(1, 4)):
            mutated[chance.randrange(len(der))] ^= 1 << chance.randrange(8)
        try:
            read_certificate(bytes(mutated))
        except Warning:  # an error in tests alone
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}: {mutated.hex()}") from error


def test_the_server_does_not_choose_what_a_handshake_costs(engine: ProbeEngine, certificates: Certificates) -> None:
    context = certificates.only_dhe()
    client = ssl.create_default_context(cafile=certificates.ca_file)

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(1)

    with (
        blocking_server(serve) as port,
        socket.create_connection(("127.0.0.1", port)) as opened,
        client.wrap_socket(opened, server_hostname="127.0.0.1") as secure,
    ):
        assert "DHE-RSA" in (secure.cipher() or ("",))[0]  # others pay for it
    with blocking_server(serve) as port:
        outcome = engine.check(TcpSpec(host="127.0.0.1", port=port, tls=True))
    assert "have no encryption in common" in (outcome.detail or "")


@contextmanager
def blocking_server(serve: Callable[[socket.socket], object]) -> Iterator[int]:
    """A server of one connection. asyncio closes connections without the alert that gives the reason."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            connection, _ = listening.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def test_a_client_certificate_is_asked_for(engine: ProbeEngine, certificates: Certificates) -> None:
    """TLS 1.3 does so once the handshake is complete."""
    context = certificates.only_1_3()
    context.verify_mode = ssl.CERT_REQUIRED

    def serve(connection: socket.socket) -> None:
        with pytest.raises(ssl.SSLError, match="did not return a certificate"):
            context.wrap_socket(connection, server_side=True)

    with blocking_server(serve) as port:
        spec = TcpSpec(host="127.0.0.1", port=port, tls=True, check_ssl=True, rules=contains("hello"))
        outcome = engine.check(spec)
    assert (outcome.reason_code, outcome.cert_expires_at) == (ReasonCode.TLS_FAILURE, GOOD_UNTIL)
    assert "requires a client certificate" in (outcome.detail or "")


def test_a_body_larger_than_the_buffers(engine: ProbeEngine) -> None:
    body = os.urandom(8 << 20)
    came = bytearray()

    def serve(connection: socket.socket) -> None:
        while len(came) < len(body):
            came.extend(connection.recv(1 << 20))
        connection.sendall(b"taken")

    with blocking_server(serve) as port:
        spec = TcpSpec(host="127.0.0.1", port=port, body=body, rules=contains("taken"), slow_ms=10_000)
        assert engine.check(spec).verdict is Verdict.UP
    assert came == body


def test_an_answer_before_the_end_of_the_body(engine: ProbeEngine) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(b"too large")
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes with a reset

    with blocking_server(serve) as port:
        spec = TcpSpec(host="127.0.0.1", port=port, body=bytes(8 << 20), rules=contains("too large"), slow_ms=10_000)
        assert engine.check(spec).verdict is Verdict.UP
    with blocking_server(serve) as port:
        outcome = engine.check(replace(spec, port=port, rules=()))
    assert outcome.reason_code is ReasonCode.CONNECTION_FAILURE
    assert "before the body was sent" in (outcome.detail or "")


@pytest.mark.parametrize("address", REFUSED.split())
@pytest.mark.parametrize("secure", [False, True])
def test_the_guard_refuses(address: str, secure: bool) -> None:
    engine = ProbeEngine(
        replace(LOOPBACK, allowed=()), resolver=Names(**{"name.test": address, "both.test": f"{address},{address}"})
    )
    hosts = ("name.test", "both.test") if "%" in address else (address, "name.test", "both.test")
    for outcome in run(engine, [TcpSpec(host=host, port=9, tls=secure) for host in hosts]):
        assert outcome.reason_code is ReasonCode.BLOCKED_TARGET
        assert outcome.evidence == Evidence()


def test_no_descriptor_is_a_fault_of_ours(engine: ProbeEngine, targets: TargetServer) -> None:
    spec = TcpSpec(host="127.0.0.1", port=targets.serve(SILENT).port)
    assert engine.check(spec).passed
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        outcome = engine.check(spec)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert outcome.reason_code is ReasonCode.WORKER_LOST
    assert "Too many open files" in (outcome.detail or "")


def test_no_descriptor_is_left_open() -> None:
    engine = ProbeEngine(LOOPBACK, resolver=Names(**{"name.test": "127.0.1.1,127.0.0.1"}))
    with socket.create_server(("127.0.0.1", 0), backlog=500) as listening:  # the kernel accepts
        silence = TcpSpec(host="127.0.0.1", port=listening.getsockname()[1], timeout_ms=300, rules=contains("x"))
        kinds = [
            replace(silence, rules=()),
            silence,
            replace(silence, port=1),
            replace(silence, host="name.test"),
            replace(silence, tls=True),
            replace(silence, starttls="smtp", tls=True),
        ]
        engine.check(kinds[0])
        before = descriptors()
        reasons = {outcome.reason_code for outcome in run(engine, kinds * 10)}
        assert reasons == {None, ReasonCode.TIMEOUT, ReasonCode.CONNECTION_FAILURE}

        def fail(key: int, _: CheckOutcome) -> None:
            raise LookupError(key)

        with pytest.raises(LookupError):
            engine.run(enumerate(kinds * 10), fail)
        assert descriptors() <= before  # targets of other tests may still close theirs


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("tcp://db.example.com:5432", ("tcp", "db.example.com", 5432, None)),
        ("tcp://DB.example.com:5432", ("tcp", "db.example.com", 5432, None)),
        ("tcp://[2001:DB8::1]:22", ("tcp", "2001:db8::1", 22, None)),
        ("tcp://127.1:22", ("tcp", "127.0.0.1", 22, None)),
        ("tls://grün.example:993", ("tls", "xn--grn-ioa.example", 993, None)),
        ("tls://mail.example.com:587?starttls=smtp", ("tls", "mail.example.com", 587, "smtp")),
        ("tls://[::1]:5432?starttls=postgres", ("tls", "::1", 5432, "postgres")),
    ],
)
def test_parse_tcp(url: str, found: tuple[str, str, int, str | None]) -> None:
    server, protocol = parse_tcp(url)
    assert (server.scheme, server.host, server.port, protocol) == found


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("tcp://host", "must name a port from 1 to 65535, for example tcp://db.example.com:5432"),
        ("tls://host", "must name a port from 1 to 65535, for example tls://mail.example.com:993"),
        ("tcp://host:0", "port from 1 to 65535"),
        ("tcp://host:65536", "1 to 65535"),
        ("tcp://:53", "must name a host"),
        ("udp://host:53", "must begin with tcp:// or tls://"),
        ("http://host:80", "must begin with tcp:// or tls://"),
        ("tcp://host:53/", "a path or a fragment"),
        ("tcp://host:53?", "a query"),
        ("tcp://host:53?starttls=smtp", "a query"),
        ("tcp://host:53#", "a path or a fragment"),
        ("tcp://user@host:53", "a user name"),
        ("tcp://ho st:53", "cannot contain spaces"),
        ("tcp://a..b:53", "valid host"),
        ("tls://host:25?", "no query except starttls=smtp, imap, pop3, ftp or postgres, for example tls://mail"),
        ("tls://host:25?starttls=", "no query except"),
        ("tls://host:25?starttls=ldap", "no query except"),
        ("tls://host:25?starttls=smtp&a=b", "no query except"),
        ("tls://host:25?starttls=smtp&starttls=smtp", "no query except"),
    ],
)
def test_parse_tcp_refuses(url: str, words: str) -> None:
    with pytest.raises(BadAddressError) as caught:
        parse_tcp(url)
    assert words in str(caught.value)


def test_a_spec_does_not_show_its_body() -> None:
    assert repr(TcpSpec(host="host", port=1, body=b"secret")) == "TcpSpec(tcp host 1)"


ANSWERS = examples(1_000)
BATCH = 100
OVERRUN_MS = 250
KIB_PER_PROBE = 1024


def test_any_server_leads_to_one_verdict(targets: TargetServer, certificates: Certificates) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    hosts = [f"127.70.0.{number}" for number in range(1, BATCH + 1)]
    context = certificates.for_host(*hosts)
    shots: dict[str, Shot] = {}
    play = Unasked(lambda host: shots[host].script)
    plain = targets.serve(play, host="0.0.0.0").port
    secure = targets.serve(play, host="0.0.0.0", tls=context).port
    faults: list[str] = []
    reports: list[Report] = []
    with Prober(certificates.ca_file) as prober:
        for _ in range(1 + -(-ANSWERS // BATCH)):
            shots |= {host: shot(chance, host, context) for host in hosts}
            specs = [replace(each.spec, port=secure if each.direct else plain) for each in shots.values()]
            reports.append(report := prober.run(specs))
            faults += report.logged
            for number, outcome, late_ms in report.ended:
                found = verdicts.find_faults(outcome)
                if SECRET in repr(outcome.evidence) or SECRET.encode().hex() in repr(outcome.evidence):
                    found.append("evidence that shows a secret")
                if late_ms > OVERRUN_MS:
                    found.append(f"{late_ms} ms late")
                faults += [f"{fault}: {specs[number]}: {outcome}" for fault in found]
            if len(report.ended) != BATCH:
                faults.append(f"{len(report.ended)} outcomes of {BATCH}")
    assert faults == [], f"seed {seed}: {len(faults)} faults, such as {faults[:5]}"
    reasons = {outcome.reason_code for report in reports for _, outcome, _ in report.ended}
    assert reasons == {None, "content_failure", "timeout", "connection_failure", "tls_failure"}
    assert max(report.peak for report in reports) - reports[0].held < BATCH * KIB_PER_PROBE

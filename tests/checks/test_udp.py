"""The udp protocol in the engine, in addition to the catalogue: which datagrams are sent, and when."""

from __future__ import annotations

import os
import random
import resource
import select
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from itertools import islice, product
from pathlib import Path
from threading import Thread

import pytest
from pytest_socket import socket_allow_hosts

from checks.evidence import Evidence
from checks.probes.engine import ProbeEngine
from checks.probes.rate_limit import LocalSeconds, RateLimiter
from checks.probes.resolver import Answer, Resolver
from checks.probes.target import BadAddressError
from checks.probes.udp import UdpSpec, parse_udp
from checks.spec import CheckOutcome, ContentRule, ReasonCode, RuleType, Verdict
from core.egress import EgressGuard, parse_networks
from tests.checks.conftest import LOOPBACK
from tests.checks.test_catalogue import Metronome
from tests.checks.test_egress import REFUSED
from tests.fuzz import verdicts
from tests.fuzz.prober import Prober, Report
from tests.fuzz.verdicts import SECRET
from tests.helpers import examples
from tests.targets.certificates import Certificates
from tests.targets.datagrams import Datagrams, Reply
from tests.targets.namespace import Namespace, why_no_namespace
from tests.targets.pings import packet
from tests.targets.server import TargetServer

ECHO = Datagrams([[Reply()]])
SILENT = Datagrams([()])


class Names(Resolver):
    """Answer these names without queries."""

    def __init__(self, **names: str) -> None:
        self._names = names

    def recall(self, host: str) -> Answer:
        return Answer(tuple(self._names[host].split(",")))


@pytest.fixture
def engine() -> ProbeEngine:
    return ProbeEngine(LOOPBACK)


def unlimited(guard: EgressGuard = LOOPBACK) -> ProbeEngine:
    """Return an engine without the limit of one datagram per second and address."""
    return ProbeEngine(guard, rate_limiter=RateLimiter(LocalSeconds(0.0)))


def contains(text: str) -> tuple[ContentRule, ...]:
    return (ContentRule(RuleType.TEXT_CONTAINS, text),)


def run(engine: ProbeEngine, specs: Sequence[UdpSpec]) -> list[CheckOutcome]:
    """Run all specs concurrently. Return their outcomes in order."""
    ended: dict[int, CheckOutcome] = {}
    engine.run(enumerate(specs), ended.__setitem__)
    return [ended[number] for number in range(len(specs))]


def test_a_passed_check_has_evidence_only_if_it_is_asked_for(engine: ProbeEngine, targets: TargetServer) -> None:
    spec = UdpSpec(host="127.0.0.1", port=targets.serve_datagrams(ECHO).port, body=b"hello")
    assert engine.check(spec).evidence is None
    outcome = engine.check(replace(spec, explains=True))
    assert outcome.verdict is Verdict.UP
    assert outcome.evidence is not None
    assert dict(outcome.evidence.facts)["reply"] == "5 bytes"


def test_a_reply_is_judged_once(engine: ProbeEngine, targets: TargetServer) -> None:
    service = targets.serve_datagrams(Datagrams([[b"one", b"two"]]))
    outcome = engine.check(UdpSpec(host="127.0.0.1", port=service.port, body=b"hello", rules=contains("one")))
    assert (outcome.verdict, outcome.connect_ms, outcome.http_status) == (Verdict.UP, None, None)
    assert outcome.latency_ms == outcome.ttfb_ms is not None
    assert [data for _, _, data in service.seen] == [b"hello"]


def test_it_is_sent_three_times_from_one_port(targets: TargetServer) -> None:
    service = targets.serve_datagrams(SILENT)
    outcome = unlimited().check(UdpSpec(host="127.0.0.1", port=service.port, body=b"hello", timeout_ms=300))
    assert outcome.detail == (
        "No result within 300 ms: none of 3 datagrams got a reply; check the service, and that it answers what is sent."
    )
    assert (outcome.latency_ms, outcome.ttfb_ms) == (None, None)
    assert [data for _, _, data in service.seen] == [b"hello"] * 3
    assert len(service.senders) == 1
    assert outcome.evidence == Evidence(f"127.0.0.1:{service.port}", facts=(("datagrams sent", "3"),))


def test_latency_is_that_of_the_last_datagram(engine: ProbeEngine, targets: TargetServer) -> None:
    service = targets.serve_datagrams(Datagrams([(), (), [b"pong"]]))
    outcome = engine.check(UdpSpec(host="127.0.0.1", port=service.port, timeout_ms=3_000, slow_ms=1_000))
    assert outcome.verdict is Verdict.UP  # although it took two seconds in all


def test_evidence_of_a_reply(engine: ProbeEngine, targets: TargetServer) -> None:
    service = targets.serve_datagrams(Datagrams([[b"token=abcdef \xff\0end"]]), host="::1")
    outcome = engine.check(UdpSpec(host="::1", port=service.port, rules=contains("word")))
    assert outcome.evidence == Evidence(
        f"[::1]:{service.port}",
        facts=(
            ("datagrams sent", "1"),
            ("reply", "18 bytes"),
            ("reply in hex", b"token=*** \xff\0end".hex()),
        ),
        body="token=*** \ufffd end",
    )


def test_hex_of_a_rule_is_whole_bytes(engine: ProbeEngine, targets: TargetServer) -> None:
    service = targets.serve_datagrams(Datagrams([[b"\x1a\xfe"]]))
    outcome = engine.check(UdpSpec(host="127.0.0.1", port=service.port, rules=contains("af"), as_hex=True))
    assert outcome.reason_code is ReasonCode.CONTENT_FAILURE
    assert (outcome.detail or "").startswith('The reply (in hex) does not contain "af"')


def test_evidence_of_a_large_reply_is_short(engine: ProbeEngine, targets: TargetServer) -> None:
    service = targets.serve_datagrams(Datagrams([[b"\xff" * 65_507]]))
    outcome = engine.check(UdpSpec(host="127.0.0.1", port=service.port, rules=contains("x"), as_hex=True))
    assert outcome.evidence is not None
    facts = dict(outcome.evidence.facts)
    assert (facts["reply"], facts["reply in hex"]) == ("65,507 bytes", "ff" * 256)
    assert outcome.evidence.body == "\ufffd" * 2048


@pytest.mark.parametrize("address", REFUSED.split())
def test_the_guard_refuses(address: str, targets: TargetServer) -> None:
    engine = ProbeEngine(
        replace(LOOPBACK, allowed=()), resolver=Names(**{"name.test": address, "both.test": f"{address},{address}"})
    )
    hosts = ("name.test", "both.test") if "%" in address else (address, "name.test", "both.test")
    for outcome in run(engine, [UdpSpec(host=host, port=9) for host in hosts]):
        assert outcome.reason_code is ReasonCode.BLOCKED_TARGET
        assert outcome.evidence is None


def test_a_body_that_is_too_long_is_not_sent(engine: ProbeEngine, targets: TargetServer) -> None:
    service = targets.serve_datagrams(ECHO)
    outcome = engine.check(UdpSpec(host="127.0.0.1", port=service.port, body=b"x" * 513))
    assert outcome.reason_code is ReasonCode.WORKER_LOST
    assert service.seen == []


def test_no_descriptor_is_a_fault_of_ours(engine: ProbeEngine, targets: TargetServer) -> None:
    service = targets.serve_datagrams(ECHO)
    spec = UdpSpec(host="127.0.0.1", port=service.port)
    assert engine.check(spec).passed
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        outcome = engine.check(spec)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert outcome.reason_code is ReasonCode.WORKER_LOST
    assert "Too many open files" in (outcome.detail or "")


def test_no_descriptor_is_left_open(targets: TargetServer) -> None:
    service, silent = targets.serve_datagrams(ECHO, host="0.0.0.0"), targets.serve_datagrams(SILENT, host="0.0.0.0")
    engine = ProbeEngine(LOOPBACK)
    ports = [service.port, silent.port, 1]
    specs = [UdpSpec(host=f"127.30.0.{n}", port=ports[n % 3], timeout_ms=200) for n in range(1, 31)]
    run(engine, specs[:3])
    before = sorted(path.name for path in Path("/proc/self/fd").iterdir())
    assert {outcome.reason_code for outcome in run(engine, specs[3:])} == {None, "timeout", "connection_failure"}

    def fail(key: int, _: CheckOutcome) -> None:
        raise LookupError(key)

    with pytest.raises(LookupError):
        engine.run(enumerate([replace(spec, host=f"127.30.1.{n}") for n, spec in enumerate(specs)]), fail)
    assert sorted(path.name for path in Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("udp://ns1.example.com:53", "ns1.example.com", 53),
        ("udp://NS1.example.com:53", "ns1.example.com", 53),
        ("udp://[2001:db8::1]:53", "2001:db8::1", 53),
        ("udp://127.1:53", "127.0.0.1", 53),
        ("udp://grün.example:1", "xn--grn-ioa.example", 1),
    ],
)
def test_parse_udp(url: str, host: str, port: int) -> None:
    target = parse_udp(url)
    assert (target.host, target.port) == (host, port)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("udp://host", "must name a port"),
        ("udp://host:0", "port from 1 to 65535"),
        ("udp://host:65536", "1 to 65535"),
        ("udp://:53", "must name a host"),
        ("tcp://host:53", "must begin with udp://"),
        ("udp://host:53/", "a path or a fragment"),
        ("udp://host:53?", "a query"),
        ("udp://host:53?a=b", "a query"),
        ("udp://host:53#", "a path or a fragment"),
        ("udp://user@host:53", "a user name"),
        ("udp://ho st:53", "cannot contain spaces"),
        ("udp://a..b:53", "valid host"),
    ],
)
def test_parse_udp_refuses(url: str, words: str) -> None:
    with pytest.raises(BadAddressError, match=words):
        parse_udp(url)


# ICMP messages

REPORTED = {
    "10.66.1.1": ((3, 0), "its network cannot be reached"),
    "10.66.1.2": ((3, 1), "the host cannot be reached"),
    "10.66.1.3": ((3, 3), "The datagram was refused"),
    "10.66.1.4": ((3, 13), "the host cannot be reached"),
    "10.66.1.5": ((11, 0), "the host cannot be reached"),
    "fd66::1:1": ((1, 0), "its network cannot be reached"),
    "fd66::1:2": ((1, 1), "a firewall rejected"),
    "fd66::1:3": ((1, 3), "the host cannot be reached"),
    "fd66::1:4": ((1, 4), "The datagram was refused"),
}
SMALLER_V4, SMALLER_V6, REDIRECTED, FOREIGN = "10.66.2.1", "fd66::2:1", "10.66.2.2", "10.66.2.3"
IGNORED = {SMALLER_V4: (3, 4), SMALLER_V6: (2, 0), REDIRECTED: (5, 1), FOREIGN: (3, 3)}
ERRORS = {address: error for address, (error, _) in REPORTED.items()} | IGNORED


class Routers:
    """Context manager that answers each datagram with an ICMP message, on a TUN device."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self.seen: Counter[str] = Counter()

    def __enter__(self) -> Routers:
        self._tunnel = self._namespace.open_tunnel("routers")
        for command in ("address add 10.66.0.1/16", "address add fd66::1/64 nodad", "link set up"):
            kind, verb, *rest = command.split()
            self._namespace.command("ip", kind, verb, *rest, "dev", "routers")
        self._wake, self._end = os.pipe()
        self._thread = Thread(target=self._serve)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._end)
        self._thread.join()
        os.close(self._wake)
        os.close(self._tunnel)

    def _serve(self) -> None:
        while self._wake not in select.select([self._tunnel, self._wake], [], [])[0]:
            request = os.read(self._tunnel, 2_048)
            v6 = request[0] >> 4 == 6
            at, source, target = (40, 8, 24) if v6 else (20, 12, 16)
            length = 16 if v6 else 4
            host = str(ip_address(request[target : target + length]))
            if host in ERRORS:
                self.seen[host] += 1
                worker = str(ip_address(request[source : source + length]))
                quoted = request[: at + 8]
                if host == FOREIGN:  # it quotes a datagram of another port
                    quoted = quoted[: at + 1] + bytes([quoted[at + 1] ^ 1]) + quoted[at + 2 :]
                # The next hop accepts 576 bytes, and 1,280 by IPv6.
                size = (1_280 if v6 else 576).to_bytes(4, "big") if host in {SMALLER_V4, SMALLER_V6} else bytes(4)
                os.write(self._tunnel, packet(host, worker, bytes(ERRORS[host]) + bytes(2) + size + quoted))


def test_icmp_messages() -> None:
    if reason := why_no_namespace():
        pytest.skip(reason)
    networks = ["10.66.0.0/16", "fd66::/64"]  # of the namespace
    socket_allow_hosts(networks)
    engine = unlimited(EgressGuard(parse_networks(",".join(networks))))
    # The next datagram follows after a third of the timeout: not before the report of a router that got no CPU.
    specs = [UdpSpec(host=host, port=9, timeout_ms=10_000 if host in REPORTED else 500) for host in ERRORS]
    with Namespace() as namespace, Routers(namespace) as routers:
        outcomes = dict(zip(ERRORS, namespace.run(lambda: run(engine, specs)), strict=True))
    for host, (_, words) in REPORTED.items():
        assert (outcomes[host].reason_code, routers.seen[host]) == (ReasonCode.CONNECTION_FAILURE, 1), host
        assert words in (outcomes[host].detail or "")
    for host in IGNORED:
        assert (outcomes[host].reason_code, routers.seen[host]) == (ReasonCode.TIMEOUT, 3), host


# Hostile replies

REPLIES = examples(1_000)
BATCH = 100
OVERRUN_MS = 250
KIB_PER_PROBE = 512
PIECES = (b"", b"ok", b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", "\u202e\u2028\u200f".encode(), b"\r\n", b"\x1b[2J")
SECRETS = (f"token={SECRET}", f'{{"password": "{SECRET}"}}', f"Bearer {SECRET}")
RULES = (("ok", "ff00", "é", "\x00", "�"), tuple(RuleType)[:2])


def hostile(chance: random.Random) -> bytes:
    """Return a reply: input that is hard to parse, noise, a secret, or as much of them as fits into a datagram."""
    kind = chance.randrange(10)
    if kind == 0:
        return chance.choice(SECRETS).encode()
    if kind == 1:
        return chance.randbytes(chance.choice([0, 1, 511, 1472, 9_000, 65_507]))
    if kind == 2:
        return (chance.choice(PIECES) * 65_507)[:65_507]
    return b"".join(chance.choice((*PIECES, chance.randbytes(3))) for _ in range(chance.randrange(30)))


def shot(chance: random.Random, host: str) -> tuple[Datagrams, UdpSpec]:
    """Return the replies of a host, usually at least one, and its check. The port is set later."""
    silent = chance.random() < 0.05
    replies = [
        [
            Reply(hostile(chance), from_port=chance.random() < 0.1, seconds=chance.choice([0.0, 0.0, 0.05]))
            for _ in range(0 if silent else chance.randrange(4))
        ]
        for _ in range(3)
    ]
    rules = tuple(
        ContentRule(chance.choice(RULES[1]), chance.choice(RULES[0])) for _ in range(chance.choice([0, 0, 1, 4]))
    )
    body = chance.randbytes(chance.choice([0, 1, 512]))
    spec = UdpSpec(
        host=host, port=1, body=body, rules=rules, as_hex=chance.random() < 0.5, timeout_ms=chance.choice([300, 900])
    )
    return Datagrams(replies), spec


def test_any_reply_ends_in_one_verdict(targets: TargetServer, certificates: Certificates) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    hosts = (f"127.{a}.{b}.{c}" for a, b, c in product(range(70, 250), range(256), range(1, 255)))
    scripts: dict[str, Datagrams] = {}
    service = targets.serve_datagrams(lambda host: scripts[host], host="0.0.0.0")
    faults: list[str] = []
    reports: list[Report] = []
    with Prober(certificates.ca_file) as prober:
        for _ in range(1 + -(-REPLIES // BATCH)):
            shots = {host: shot(chance, host) for host in islice(hosts, BATCH)}
            scripts |= {host: script for host, (script, _) in shots.items()}
            specs = [replace(spec, port=service.port) for _, spec in shots.values()]
            metronome = Metronome()
            with metronome.beating():
                reports.append(report := prober.run(specs))
            allowed_ms = OVERRUN_MS + 2 * metronome.latest.total_seconds() * 1000
            faults += report.logged
            for number, outcome, late_ms in report.ended:
                found = verdicts.find_faults(outcome)
                if SECRET in repr(outcome.evidence) or SECRET.encode().hex() in repr(outcome.evidence):
                    found.append("evidence that shows a secret")
                if late_ms > allowed_ms:
                    found.append(f"{late_ms} ms late")
                faults += [f"{fault}: {specs[number]}: {outcome}" for fault in found]
            if len(report.ended) != BATCH:
                faults.append(f"{len(report.ended)} outcomes of {BATCH}")
    assert faults == [], f"seed {seed}: {len(faults)} faults, such as {faults[:5]}"
    reasons = {outcome.reason_code for report in reports for _, outcome, _ in report.ended}
    assert reasons == {None, ReasonCode.CONTENT_FAILURE, ReasonCode.TIMEOUT}
    assert max(report.peak for report in reports) - reports[0].held < BATCH * KIB_PER_PROBE


@pytest.mark.parametrize("host", ["192.168.1.256", "foo.123", "1.2.3.4.5"])
def test_a_host_that_only_looks_like_an_address_is_a_name(host: str) -> None:
    engine = ProbeEngine(LOOPBACK, resolver=Resolver(["127.0.0.1:9"]))
    outcome = engine.check(UdpSpec(host=host, port=53, timeout_ms=1_000))
    assert "internal error" not in str(outcome.detail)
    assert "name server" in str(outcome.detail), "it is looked up"

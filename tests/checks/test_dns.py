"""The dns protocol in the engine, in addition to the catalogue: queries, own name servers, hostile messages."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import dns.rdata
import dns.rrset
import pytest
from dns.rdata import RdataStyle

from checks.evidence import BODY_CHARS
from checks.probes.dns.message import Reply, describe, make_query, match_reply, question
from checks.probes.dns.records import kept_form, kept_set, normal_form, normal_record
from checks.probes.dns.spec import DnsSpec, parse_dns
from checks.probes.dns.verdict import find_failure
from checks.probes.dns.wire import Names, read_record
from checks.probes.engine import ProbeEngine
from checks.probes.loop import Loop
from checks.probes.rate_limit import LocalSeconds, RateLimiter
from checks.probes.resolver import Resolver, Server
from checks.probes.target import BadAddressError
from checks.spec import CheckOutcome, ContentRule, ReasonCode, RuleType, Verdict
from core.clock import utc_now
from core.egress import EgressGuard
from core.text import DETAIL_CHARS
from tests.checks.conftest import LOOPBACK
from tests.checks.test_egress import REFUSED
from tests.fuzz.prober import Prober
from tests.helpers import examples
from tests.processes.waiting import until
from tests.targets.catalogue.resolvers import NAME, A, good, mute, of_udp, other_id, truncated
from tests.targets.resolvers import Asked, Hang, Pause, ResolverServer, Resolving, Step, reply, saying
from tests.targets.server import TargetServer

CLOSED = "127.0.0.1:1"
MESSAGES = examples(10_000)
BATCH = 100


def spec(server: ResolverServer, **changes: object) -> DnsSpec:
    return replace(DnsSpec(name=NAME, server=server.host, port=server.port, slow_ms=9_000), **changes)  # type: ignore[arg-type]


def unlimited() -> ProbeEngine:
    """Return an engine that need not wait for seconds of its servers."""
    return ProbeEngine(LOOPBACK, rate_limiter=RateLimiter(LocalSeconds(0.0)))


def ask(*servers: str, guard: EgressGuard = LOOPBACK, **changes: object) -> CheckOutcome:
    """Check by the deployment's name servers."""
    engine = ProbeEngine(guard, resolver=Resolver(servers))
    return engine.check(replace(DnsSpec(name=NAME, slow_ms=9_000), **changes))  # type: ignore[arg-type]


def is_of_check(asked: Asked) -> bool:
    """Return whether it is not the control query about our name servers."""
    return asked.message.question[0].name.to_text() == f"{NAME}."


def descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def server(targets: TargetServer) -> ResolverServer:
    return targets.serve_resolver(saying(A))


def test_sockets_are_closed(targets: TargetServer) -> None:
    servers = [
        targets.serve_resolver(script)
        for script in (saying(A), Resolving(mute), Resolving(truncated), Resolving(truncated, lambda _: [Hang()]))
    ]
    engine = unlimited()
    engine.run([(server.port, spec(server, timeout_ms=100)) for server in servers], lambda *_: None)
    before = descriptors()
    engine.run([(n, spec(servers[n % 4], timeout_ms=300)) for n in range(100)], lambda *_: None)
    until(lambda: descriptors() <= before, 10, "closed sockets, those of the servers too")


# The question


def test_each_query_has_a_random_id_and_port(targets: TargetServer) -> None:
    server = targets.serve_resolver(Resolving(lambda asked: [good(asked)] if asked.number >= 30 else []))
    unlimited().run([(n, spec(server, timeout_ms=2_000)) for n in range(40)], lambda *_: None)
    assert len(server.asked) == 70
    assert len({asked.wire[:2] for asked in server.asked}) > len(server.asked) * 0.9
    assert len(set(server.senders)) > len(server.senders) * 0.9


def test_the_query(server: ResolverServer) -> None:
    assert ProbeEngine(LOOPBACK).check(spec(server, record_type="CAA")).reason_code is ReasonCode.DNS_FAILURE
    query = server.asked[0].message
    assert query.question[0].to_text() == f"{NAME}. IN CAA"
    assert (query.edns, query.payload, query.flags) == (0, 1232, dns.flags.RD)


def test_by_ipv6(targets: TargetServer) -> None:
    server = targets.serve_resolver(Resolving(truncated, lambda asked: [good(asked)]), host="::1")
    outcome = ProbeEngine(LOOPBACK).check(spec(server, records=("192.0.2.9",)))
    assert outcome.reason_code is ReasonCode.CONTENT_FAILURE
    assert outcome.evidence is not None
    assert outcome.evidence.address == f"[::1]:{server.port}"


# The egress guard


@pytest.mark.parametrize("address", REFUSED.split())
def test_named_resolvers_pass_the_guard(address: str) -> None:
    outcome = ProbeEngine(EgressGuard()).check(DnsSpec(name=NAME, server=address.partition("%")[0]))
    assert outcome.reason_code is ReasonCode.BLOCKED_TARGET


def test_a_named_resolver_that_is_the_deployments_own_passes_the_guard(server: ResolverServer) -> None:
    engine = ProbeEngine(EgressGuard(), resolver=Resolver([server.address]))
    assert engine.check(spec(server)).reason_code is ReasonCode.BLOCKED_TARGET
    assert server.asked == []


def test_the_deployments_servers_are_exempt(targets: TargetServer) -> None:
    server = targets.serve_resolver(Resolving(truncated, lambda asked: [good(asked)]))
    assert ask(server.address, guard=EgressGuard()).verdict is Verdict.UP


def test_an_address_of_the_operators_network_is_not_shown(targets: TargetServer) -> None:
    server = targets.serve_resolver(saying(rcode=dns.rcode.SERVFAIL))
    for guard, address in ((EgressGuard(), None), (LOOPBACK, server.address)):
        evidence = ask(server.address, guard=guard).evidence
        assert evidence is not None
        assert evidence.address == address


# The deployment's servers


def test_servers_of_the_deployment() -> None:
    servers = Resolver(["192.0.2.1", "192.0.2.2:5353", "[2001:db8::1]:5353", "2001:db8::2", "192.0.2.1"]).servers()
    assert Resolver(["fe80::1%lo"]).servers() == [Server("fe80::1%lo", 53)]
    assert servers == [
        Server("192.0.2.1", 53),
        Server("192.0.2.2", 5353),
        Server("2001:db8::1", 5353),
        Server("2001:db8::2", 53),
    ]
    assert list(map(str, servers))[1:3] == ["192.0.2.2:5353", "[2001:db8::1]:5353"]
    assert Resolver().servers()


@pytest.mark.parametrize(
    "first",
    [
        None,
        Resolving(mute),
        of_udp(other_id),
        saying(rcode=dns.rcode.SERVFAIL),
        saying(rcode=dns.rcode.REFUSED),
        Resolving(truncated),
        Resolving(truncated, mute),
        Resolving(truncated, lambda _: [Hang()]),
        Resolving(truncated, lambda asked: [other_id(asked)]),
    ],
    ids=["closed", "silent", "forged", "servfail", "refused", "tcp-refused", "tcp-closed", "tcp-silent", "tcp-forged"],
)
def test_the_next_server_is_asked(targets: TargetServer, server: ResolverServer, first: Resolving | None) -> None:
    address = CLOSED if first is None else targets.serve_resolver(first).address
    assert ask(address, server.address).verdict is Verdict.UP
    assert sum(map(is_of_check, server.asked)) == 1


def test_servers_that_all_fail_are_no_fault_of_ours(targets: TargetServer) -> None:
    failing = targets.serve_resolver(saying(rcode=dns.rcode.SERVFAIL))
    for servers in ([failing.address, CLOSED], [CLOSED, failing.address], [failing.address]):
        outcome = ask(*servers)
        assert (outcome.reason_code, "SERVFAIL" in (outcome.detail or "")) == (ReasonCode.DNS_FAILURE, True)


def test_an_error_counts_where_the_other_server_is_silent(targets: TargetServer) -> None:
    failing, silent = targets.serve_resolver(saying(rcode=dns.rcode.SERVFAIL)), targets.serve_resolver(Resolving(mute))
    assert ask(failing.address, silent.address, timeout_ms=500).reason_code is ReasonCode.DNS_FAILURE


def test_evidence_is_of_the_server_that_replied(targets: TargetServer) -> None:
    def fail(asked: Asked) -> list[Step]:
        return [reply(asked, rcode=dns.rcode.SERVFAIL)]

    silent = targets.serve_resolver(Resolving(mute))
    for script, protocol in ((Resolving(fail), "UDP"), (Resolving(truncated, fail), "TCP")):
        failing = targets.serve_resolver(script)
        for servers in ((failing, silent), (failing, targets.serve_resolver(Resolving(truncated, lambda _: [Hang()])))):
            evidence = ask(*(server.address for server in servers), timeout_ms=500).evidence
            assert evidence is not None
            assert (evidence.address, evidence.facts[0]) == (failing.address, ("protocol", protocol))


def test_tcp_has_a_whole_wait_of_its_own(targets: TargetServer) -> None:
    """The answer by TCP comes after the first wait of the check, 1 s, and within that of the connection."""
    first = targets.serve_resolver(
        Resolving(lambda asked: [Pause(0.7), *truncated(asked)], lambda asked: [Pause(0.6), good(asked)])
    )
    second = targets.serve_resolver(saying(rcode=dns.rcode.SERVFAIL))
    assert ask(first.address, second.address).verdict is Verdict.UP
    assert not any(map(is_of_check, second.asked))


def test_a_name_that_does_not_exist_is_an_answer(targets: TargetServer, server: ResolverServer) -> None:
    first = targets.serve_resolver(saying(rcode=dns.rcode.NXDOMAIN))
    assert ask(first.address, server.address).reason_code is ReasonCode.DNS_FAILURE
    assert server.asked == []


def test_unreachable_servers_are_a_fault_of_ours() -> None:
    outcome = ask(CLOSED, "127.0.0.1:2")
    assert outcome.reason_code is ReasonCode.WORKER_LOST
    assert "no name server" in (outcome.detail or "")


def test_a_silent_zone_is_a_timeout(targets: TargetServer) -> None:
    script = Resolving(lambda asked: [] if is_of_check(asked) else [reply(asked)])
    first, second = targets.serve_resolver(script), targets.serve_resolver(script)
    outcome = ask(first.address, second.address, timeout_ms=1_000)
    assert outcome.reason_code is ReasonCode.TIMEOUT
    assert (sum(map(is_of_check, first.asked)), sum(map(is_of_check, second.asked))) == (2, 2)


def test_an_answer_may_come_after_the_next_try(targets: TargetServer) -> None:
    def first_is_late(asked: Asked) -> Iterable[Step]:
        return [Pause(0.3), good(asked)] if asked.number == 0 else []

    server = targets.serve_resolver(Resolving(first_is_late))
    outcome = unlimited().check(spec(server, timeout_ms=1_000))
    assert outcome.verdict is Verdict.UP
    assert len(server.asked) == 2


def test_an_answer_after_the_deadline_is_none(targets: TargetServer) -> None:
    """Even if the loop is late: the answers arrive within its 50 ms."""

    def answer(late: float, asked: Asked) -> list[Step]:
        return [Pause(late), good(asked)] if asked.number == 0 else []

    servers = [targets.serve_resolver(Resolving(partial(answer, late))) for late in (0.205, 0.22, 0.235)]
    found: list[CheckOutcome] = []
    specs = [(n, spec(server, timeout_ms=200)) for n, server in enumerate(servers)]
    unlimited().run(specs, lambda _, outcome: found.append(outcome))
    assert {outcome.reason_code for outcome in found} == {ReasonCode.TIMEOUT}


def test_no_descriptors_are_a_fault_of_ours(server: ResolverServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Loop, "connect", refuse)
    assert ProbeEngine(LOOPBACK).check(spec(server)).reason_code is ReasonCode.WORKER_LOST


# The answer


def test_the_set_of_an_answer_is_kept_where_any_passes(targets: TargetServer) -> None:
    two = targets.serve_resolver(saying((f"{NAME}.", "MX", "20 B.test."), (f"{NAME}.", "MX", "10 a.test.")))
    engine = ProbeEngine(LOOPBACK)
    assert engine.check(spec(two, record_type="MX")).answer == ("10 a.test", "20 b.test")
    broken = engine.check(spec(two, record_type="MX", rules=(ContentRule(RuleType.TEXT_ABSENT, "a.test"),)))
    assert (broken.verdict, broken.answer) == (Verdict.DOWN, ("10 a.test", "20 b.test"))
    assert engine.check(spec(two, record_type="MX", records=("10 a.test", "20 b.test."))).answer is None
    assert engine.check(spec(two, record_type="TXT")).answer is None


def test_evidence(targets: TargetServer) -> None:
    def fail(message: dns.message.Message) -> None:
        message.use_edns(0, options=[dns.edns.EDEOption(dns.edns.EDECode.DNSSEC_BOGUS, "no valid key")])
        message.authority.append(dns.rrset.from_text("zone.test.", 60, "IN", "SOA", "a. b. 1 2 3 4 5"))

    server = targets.serve_resolver(
        Resolving(lambda asked: [other_id(asked), reply(asked, A, rcode=dns.rcode.SERVFAIL, change=fail)])
    )
    evidence = ProbeEngine(LOOPBACK).check(spec(server)).evidence
    assert evidence is not None
    assert evidence.address == server.address
    facts = dict(evidence.facts)
    assert facts.pop("size").endswith(" bytes")
    assert facts == {
        "protocol": "UDP",
        "response code": "SERVFAIL",
        "flags": "qr rd ra",
        "records": "1 answer, 1 authority, 1 additional",
        "ignored": "1 message that does not answer the question",
    }
    assert evidence.body == (
        f"; answer\n{NAME}. 300 IN A 192.0.2.1\n; authority\nzone.test. 60 IN SOA a. b. 1 2 3 4 5\n"
        "; EDE 6 (DNSSEC Bogus): no valid key"
    )


def test_evidence_of_an_answer_by_tcp(targets: TargetServer) -> None:
    server = targets.serve_resolver(Resolving(truncated, lambda asked: [reply(asked, A, rcode=dns.rcode.SERVFAIL)]))
    evidence = ProbeEngine(LOOPBACK).check(spec(server)).evidence
    assert evidence is not None
    assert evidence.facts[0] == ("protocol", "TCP")


# URLs and expected records


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("dns:example.com", DnsSpec(name="example.com", record_type="A", server=None, port=53)),
        ("dns:.?type=NS", DnsSpec(name=".", record_type="NS", server=None, port=53)),
        ("dns://192.0.2.53/.?type=SOA", DnsSpec(name=".", record_type="SOA", server="192.0.2.53", port=53)),
        ("DNS:Example.COM.?type=mx", DnsSpec(name="example.com", record_type="MX", server=None, port=53)),
        (
            "dns:grün.example?TYPE=AAAA;class=IN",
            DnsSpec(name="xn--grn-ioa.example", record_type="AAAA", server=None, port=53),
        ),
        (
            "dns:_sip._tcp.example.com?type=SRV",
            DnsSpec(name="_sip._tcp.example.com", record_type="SRV", server=None, port=53),
        ),
        (
            "dns:0%2F25.2.0.192.in-addr.arpa?type=PTR",
            DnsSpec(name="0/25.2.0.192.in-addr.arpa", record_type="PTR", server=None, port=53),
        ),
        (
            "dns://192.0.2.53/example.com?type=TXT",
            DnsSpec(name="example.com", record_type="TXT", server="192.0.2.53", port=53),
        ),
        (
            "dns://[2001:DB8::53]:5353/example.com",
            DnsSpec(name="example.com", record_type="A", server="2001:db8::53", port=5353),
        ),
        (
            "dns://[::ffff:192.0.2.53]/example.com",
            DnsSpec(name="example.com", record_type="A", server="192.0.2.53", port=53),
        ),
    ],
)
def test_urls(url: str, target: DnsSpec) -> None:
    assert parse_dns(url) == target


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://example.com", "must begin with dns:"),
        ("dns:", "must name what to look up"),
        ("dns://192.0.2.53", "must name what to look up"),
        ("dns://ns.example.com/example.com", "by its IP address"),
        ("dns:///example.com", "by its IP address"),
        ("dns://192.0.2.53:0/example.com", "port from 1 to 65535"),
        ("dns://192.0.2.53:x/example.com", "port from 1 to 65535"),
        ("dns://[::1/example.com", "not a valid address"),
        ("dns://user@192.0.2.53/example.com", "a user name"),
        ("dns:example.com/path", "a path after the name"),
        ("dns:example.com#part", "a fragment"),
        ("dns:example.com?type=ANY", "must ask for one of these types: A, AAAA, CAA"),
        ("dns:example.com?type=MX;type=A", "accepts only a type"),
        ("dns:example.com?type=MX;ttl=1", "accepts only a type"),
        ("dns:example.com?class=CH", "class IN"),
        ("dns:a..b", "valid host"),
        ("dns:192.0.2.1?type=PTR", "in-addr.arpa"),
        ("dns:a%20b.com", "valid domain"),
        (f"dns:{'a' * 64}.com", "valid host"),
        (f"dns:{'a.' * 130}com", "valid domain"),
    ],
)
def test_bad_urls(url: str, words: str) -> None:
    with pytest.raises(BadAddressError, match=words):
        parse_dns(url)


@pytest.mark.parametrize(
    ("record_type", "text", "normal"),
    [
        ("AAAA", "2001:DB8:0:0::1", "2001:db8::1"),
        ("MX", "10  Mail.Example.com.", "10 mail.example.com"),
        ("MX", "0 .", "0 ."),
        ("NS", "ns.grün.de", "ns.xn--grn-ioa.de"),
        ("SOA", "a. B. 1 2h 3 4 5", "a b 1 7200 3 4 5"),
        ("CAA", "0 ISSUE ca.test", '0 issue "ca.test"'),
        ("TXT", "v=spf1 -all", "v=spf1 -all"),
        ("TXT", '"a b" "c\\"d"', 'a bc"d'),
        ("TXT", f'"{"a" * 300}"', "a" * 300),
        ("TXT", '"gr\\195\\188n \\000\\255"', "grün \\x00\\xff"),
        ("TXT", "grün", "grün"),
        ("TXT", "a; (b) @", "a; (b) @"),
        ("TXT", '"a; (b) @" "\\"; c"', 'a; (b) @"; c'),
        ("CAA", '0 issue ";"', '0 issue ";"'),
    ],
)
def test_normal_records(record_type: str, text: str, normal: str) -> None:
    assert normal_record(record_type, text) == normal
    if record_type != "TXT":
        assert normal_record(record_type, normal) == normal


def test_kept_records_stay_distinct_and_printable() -> None:
    assert kept_form("10 mail.test") == "10 mail.test"
    records = ["a" * 1_000, "a" * 1_001, "abc\u202edef", "abc\u202adef", "a" * 299 + "\u202e"]
    kept = list(map(kept_form, records))
    assert len(set(kept)) == len(records)
    assert all(text.isprintable() and len(text) < 330 for text in kept)


@pytest.mark.parametrize(
    ("record_type", "text"),
    [
        ("A", "192.0.2"),
        ("A", ""),
        ("MX", "mail.test"),
        ("NS", "a..b"),
        ("TXT", '"open'),
        ("A", "192.0.2.1\n"),
        ("DS", "1 2"),
        ("MX", "10 mail.example.com; 20 b.example.com"),
        ("MX", "( 10 mail.example.com )"),
        ("MX", "10 @"),
        ("NS", "@"),
        ("TXT", '"a"; x'),
        ("TXT", '"a" (b)'),
        ("CAA", "0 issue ca.test; policy=ev"),
    ],
)
def test_bad_records(record_type: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"is not a valid {record_type} record; write it like "):
        normal_record(record_type, text)


# Hostile messages


def replies(record_type: str) -> list[bytes]:
    asked = Asked(make_query(question(NAME, record_type), edns=True), 0)
    chain = [(f"{NAME}.", "CNAME", "b.zone.test."), ("b.zone.test.", "MX", "10 mail.zone.test.")]
    texts = [(f"{NAME}.", "TXT", '"some text" "more"'), (f"{NAME}.", "SOA", "a. b. 1 2 3 4 5")]
    return [
        reply(asked),
        reply(asked, A),
        reply(asked, *chain, *texts),
        reply(asked, *texts, rcode=dns.rcode.NXDOMAIN),
        reply(asked, rcode=dns.rcode.SERVFAIL, flags=dns.flags.TC),
        reply(asked, A, (f"{NAME}.", "CAA", '0 issue "ca.test"')),
    ]


REPLIES = {record_type: replies(record_type) for record_type in ("A", "MX", "TXT", "CAA", "CNAME", "SOA")}


def hostile(chance: random.Random, query: bytes, record_type: str = "A") -> bytes:
    """Return a reply with random damage, or random bytes."""
    if chance.random() < 0.05:
        return query[:2] + chance.randbytes(chance.randrange(600))
    wire = bytearray(query[:2] + chance.choice(REPLIES[record_type])[2:])
    first = chance.choice([12 + len(question(NAME, "A")), 2])  # most damage after the question, which has to match
    for _ in range(chance.randrange(1, 6)):
        if len(wire) > first:
            place = chance.randrange(first, len(wire))
            match chance.randrange(4):
                case 0:
                    wire[place] = chance.choice([0, 12, 63, 64, 192, 255, chance.randrange(256)])
                case 1:
                    wire[place : place + 2] = (0xC000 | chance.randrange(len(wire) + 8)).to_bytes(2, "big")
                case 2:
                    del wire[place : place + chance.randrange(1, 9)]
                case _:
                    wire[place:place] = chance.randbytes(chance.randrange(1, 30))
    return bytes(wire)


def test_any_message_ends_in_a_verdict() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for _ in range(MESSAGES):
        record_type = chance.choice(list(REPLIES))
        given = DnsSpec(name=NAME, record_type=record_type, records=chance.choice([None, ()]))
        asked = question(NAME, record_type)
        query = make_query(asked, edns=True)
        wire = hostile(chance, query, record_type)
        found = match_reply(wire, query, asked)
        if found is not None:
            failure = find_failure(given, found, CheckOutcome(Verdict.UP, utc_now()))
            lines = list(describe(found, limit=BODY_CHARS))
            assert failure is None or failure.detail.endswith("."), (seed, wire)
            assert sum(map(len, lines)) < 2 * BODY_CHARS + 65_535, (seed, wire)


def records_of(kind: str, data: Iterable[bytes], owner: bytes = b"\xc0\x0c") -> tuple[Reply, int]:
    """Return a reply of 64 KiB full of these records, and their number."""
    asked = question(NAME, kind)
    head = 12 + len(asked)
    found, size = [], head
    for each in data:
        record = owner + asked[-4:] + bytes(4) + len(each).to_bytes(2, "big") + each
        if size + len(record) > 65_535:
            break
        found.append(record)
        size += len(record)
    query = make_query(asked, edns=False)
    wire = query[:2] + b"\x84\0\0\1" + len(found).to_bytes(2, "big") + bytes(4) + asked + b"".join(found)
    reply = match_reply(wire, query, asked)
    assert reply is not None
    return reply, len(found)


def chained(kind: str, prefix: bytes) -> Iterable[bytes]:
    """Yield names of 127 labels; each differs from the first name in one label."""
    yield prefix + b"\1a" * 118 + b"\0"
    pointer = (0xC000 | 12 + len(question(NAME, kind)) + 12 + len(prefix)).to_bytes(2, "big")
    for number in count():
        label = bytes((97 + number % 26, 97 + number // 26 % 26, 97 + number // 676 % 26))
        yield prefix + b"\3" + label + pointer


def numbered(prefix: bytes, size: int) -> Iterable[bytes]:
    return (prefix + number.to_bytes(size, "big") for number in count())


COSTLY = {
    "A": numbered(b"", 4),
    "TXT": numbered(b"\2", 2),
    "CAA": numbered(b"\0\1a", 2),
    "DNSKEY": numbered(b"\1\1\3\x0d", 2),
    "NS": chained("NS", b""),
    "MX": chained("MX", b"\0\1"),
    "SRV": chained("SRV", b"\0\1\0\1\0\1"),
}


@pytest.mark.parametrize("kind", COSTLY)
def test_the_costliest_messages(kind: str) -> None:
    """They cost at most ten times as much as the same number of short A records, which take linear time."""
    plain, usual = records_of("A", (bytes((192, 0, 2, 1)) for _ in range(2_000)))
    reply, many = records_of(kind, COSTLY[kind])
    assert many > 2_000

    def cost(record_type: str, message: Reply) -> float:
        given = DnsSpec(name=NAME, record_type=record_type, rules=(ContentRule(RuleType.TEXT_ABSENT, "none of it"),))
        taken = []
        for _ in range(3):
            outcome = CheckOutcome(Verdict.UP, utc_now())
            started = time.thread_time()
            assert find_failure(given, message, outcome) is None
            taken.append(time.thread_time() - started)
            assert len(outcome.answer or ()) <= 257
        return min(taken)

    assert cost(kind, reply) / many < 10 * cost("A", plain) / usual


def test_a_large_set_that_changes_is_noticed() -> None:
    many = [f"10.0.{number // 250}.{number % 250}" for number in range(3_000)]
    before, after = kept_set(many), kept_set([*many[:-1], "192.0.2.1"])
    assert (len(before), len(set(before) ^ set(after))) == (257, 2)
    assert kept_set(many[:256]) == tuple(sorted(many[:256]))


RDATA: dict[str, Callable[[random.Random], bytes]] = {
    "A": lambda chance: chance.randbytes(4),
    "AAAA": lambda chance: b"\x20" + chance.randbytes(15),
    "CAA": lambda chance: b"\0\5issue" + chance.randbytes(chance.randrange(40)),
    "CNAME": lambda chance: name_of(chance),
    "DNSKEY": lambda chance: chance.randbytes(5 + chance.randrange(80)),
    "DS": lambda chance: chance.randbytes(2) + b"\x0d\2" + chance.randbytes(32),
    "MX": lambda chance: chance.randbytes(2) + name_of(chance),
    "SOA": lambda chance: name_of(chance) + name_of(chance) + chance.randbytes(20),
    "SRV": lambda chance: chance.randbytes(6) + name_of(chance),
    "TXT": lambda chance: b"".join(bytes([size]) + chance.randbytes(size) for size in (0, 3, chance.randrange(256))),
}


def name_of(chance: random.Random) -> bytes:
    labels = (chance.randbytes(chance.randrange(1, 20)) for _ in range(chance.randrange(5)))
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


@pytest.mark.parametrize("kind", RDATA)
def test_records_read_as_dnspython_does(kind: str) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for _ in range(200):
        wire = RDATA[kind](chance)
        rdata = dns.rdata.from_wire("IN", kind, wire, 0, len(wire))
        expected = rdata.to_styled_text(RdataStyle(base64_chunk_size=0, hex_chunk_size=0))
        assert read_record(kind, Names(wire), 0, len(wire)).presentation() == expected, seed
        if kind != "AAAA":
            assert normal_record(kind, expected) == normal_form(read_record(kind, Names(wire), 0, len(wire))), seed


def test_hostile_resolvers(targets: TargetServer, certificates: object) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)

    def by_udp(asked: Asked) -> Sequence[Step]:
        return [hostile(chance, asked.wire) for _ in range(chance.randrange(1, 4))]

    def by_tcp(asked: Asked) -> Sequence[Step]:
        return [hostile(chance, asked.wire), Hang()]

    server = targets.serve_resolver(Resolving(by_udp, by_tcp))
    specs = [spec(server, timeout_ms=chance.choice([200, 400])) for _ in range(BATCH)]
    with Prober("") as prober:
        before = prober.run(specs)
        reports = [prober.run(specs) for _ in range(max(1, MESSAGES // BATCH // 20))]
        assert prober.printed() == ""
    for report in reports:
        assert report.logged == [], seed
        assert len(report.ended) == BATCH
        assert max(late for _, _, late in report.ended) < 250
        assert all(outcome.reason_code is not ReasonCode.WORKER_LOST for _, outcome, _ in report.ended)
        assert all(len(outcome.detail or "") <= DETAIL_CHARS for _, outcome, _ in report.ended)
    assert reports[-1].held - before.held < 4 * 1024

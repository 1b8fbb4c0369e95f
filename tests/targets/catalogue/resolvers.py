"""Resolvers that answer, refuse, stall, lie and send garbage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import dns.rrset

from tests.targets.catalogue.case import LEAST, Closed, Group, Place, contains, lacks
from tests.targets.names import Fault, Name
from tests.targets.resolvers import Asked, Elsewhere, Hang, Pause, Raw, Reset, Resolving, Step, reply, saying

GROUP = Group("Resolvers")

# At most one datagram a second is sent to a named resolver, and all cases are checked concurrently.
_hosts = (f"127.21.{number // 250}.{number % 250 + 1}" for number in count())

NAME = "www.zone.test"
A = (f"{NAME}.", "A", "192.0.2.1")
OTHER = (f"{NAME}.", "A", "192.0.2.2")
KEY = "257 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+KkxLbxILfDLUT0rAK9iUzy1L53eKGQ=="
DIGEST = "60485 13 2 d4b7d520e7bb5f0f67674a0cceb1e3e0614b93c4f9e99b8383f6a1e4469da50a"
CNAME = "CNAME"


def up(name: str, about: str, target: Resolving, kind: str = "A", **given: Any) -> None:
    place = Place(target, scheme="dns", host=next(_hosts))
    GROUP.up(name, about, place, type="dns", http_status=None, url=f"@main@/{NAME}?type={kind}", **given)


def slow(name: str, about: str, target: Resolving, **given: Any) -> None:
    place = Place(target, scheme="dns", host=next(_hosts))
    GROUP.slow(name, about, place, type="dns", http_status=None, url=f"@main@/{NAME}", **given)


def down(
    name: str,
    about: str,
    target: Resolving | Closed,
    reason_code: str,
    words: str,
    kind: str = "A",
    **given: Any,
) -> None:
    place = Place(target, scheme="dns", host=next(_hosts))
    GROUP.down(name, about, place, reason_code, words, type="dns", url=f"@main@/{NAME}?type={kind}", **given)


def mute(asked: Asked) -> Iterable[Step]:
    return []


def truncated(asked: Asked) -> Iterable[Step]:
    return [reply(asked, flags=dns.flags.RA | dns.flags.TC)]


def cut_short(*steps: Step | Callable[[Asked], Step]) -> Resolving:
    """Truncate the answer by UDP, and play these steps by TCP."""
    return Resolving(truncated, lambda asked: [step(asked) if callable(step) else step for step in steps])


def raw(asked: Asked, answers: int, after: bytes) -> bytes:
    """Return a reply with these bytes as its answer section."""
    head = reply(asked)
    question_end = head.index(b"\0\0\1\0\1", 12) + 5
    return head[:6] + answers.to_bytes(2, "big") + b"\0\0\0\0" + head[12:question_end] + after


def of_udp(*steps: Callable[[Asked], Step]) -> Resolving:
    return Resolving(lambda asked: [step(asked) for step in steps])


def other_id(asked: Asked) -> bytes:
    wire = reply(asked, OTHER)
    return bytes([wire[0] ^ 1]) + wire[1:]


def other_question(**change: Any) -> Callable[[Asked], bytes]:
    def forge(asked: Asked) -> bytes:
        message = dns.message.make_query(**{"qname": f"{NAME}.", "rdtype": "A", "rdclass": "IN"} | change)
        message.id = asked.message.id
        return reply(Asked(message.to_wire(), 0), OTHER)

    return forge


def not_a_response(asked: Asked) -> bytes:
    return reply(asked, OTHER, change=lambda message: setattr(message, "flags", message.flags & ~dns.flags.QR))


def good(asked: Asked) -> bytes:
    return reply(asked, A)


def large(asked: Asked, count: int = 200) -> bytes:
    records = (b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\xc0\0" + number.to_bytes(2, "big") for number in range(count))
    return raw(asked, count, b"".join(records))


def dripping(asked: Asked) -> Iterable[Step]:
    wire = good(asked)
    for byte in len(wire).to_bytes(2, "big") + wire:
        yield Raw(bytes([byte]))
        yield Pause(0.001)


# All types, with their text form

types: tuple[tuple[str, str, str, str], ...] = (
    ("A", "192.0.2.1", "192.0.2.1", "192.0.2.2"),
    ("AAAA", "2001:db8::1", "2001:DB8:0:0::1", "2001:db8::2"),
    ("CAA", '0 issue "ca.example.net"', "0 Issue ca.example.net", "0 issuewild ca.example.net"),
    ("CNAME", "target.zone.test.", "Target.zone.test", "other.zone.test"),
    ("DNSKEY", KEY, KEY, KEY.replace("257", "256")),
    ("DS", DIGEST, DIGEST.upper(), DIGEST.replace("13 2", "8 2")),
    ("MX", "10 mail.zone.test.", "10 MAIL.zone.test", "20 mail.zone.test"),
    ("NS", "ns1.zone.test.", "ns1.zone.test", "ns2.zone.test"),
    ("PTR", "host.zone.test.", "host.zone.test.", "guest.zone.test"),
    (
        "SOA",
        "ns1.zone.test. root.zone.test. 7 7200 3600 1209600 60",
        "ns1.zone.test root.zone.test 7 2h 1h 14d 60",
        "ns1.zone.test root.zone.test 8 7200 3600 1209600 60",
    ),
    ("SRV", "0 5 5060 sip.zone.test.", "0 5 5060 sip.zone.test", "0 5 5061 sip.zone.test"),
    ("TXT", '"v=spf1 include:" "spf.test -all"', "v=spf1 include:spf.test -all", "v=spf1 -all"),
)
for kind, data, expected, other in types:
    target = saying((f"{NAME}.", kind, data))
    up(f"resolver-type-{kind}", f"Has one {kind} record.", target, kind, content_rules=[contains(data)])
    up(f"resolver-set-{kind}", f"Has the {kind} record that is expected.", target, kind, records=[expected])
    down(
        f"resolver-other-{kind}",
        f"Has another {kind} record.",
        target,
        "content_failure",
        "extra",
        kind,
        records=[other],
    )

# Sets and rules

TWO = saying(A, OTHER)
up(
    "resolver-set-order",
    "Has the two records that are expected, in another order.",
    TWO,
    records=["192.0.2.2", "192.0.2.1"],
)
up("resolver-set-repeated", "Has the same record twice.", saying(A, A), records=["192.0.2.1"])
up("resolver-rule-absent", "Has no record that must be absent.", TWO, content_rules=[lacks("192.0.2.9")])
up(
    "resolver-rule-sorted",
    "Has records that a rule sees sorted, one a line.",
    saying(OTHER, A),
    content_rules=[contains("192.0.2.1\n192.0.2.2")],
)
down(
    "resolver-rule-broken",
    "Lacks the text that a rule requires.",
    TWO,
    "content_failure",
    "does not contain",
    content_rules=[contains("203.0.113.1")],
)
down(
    "resolver-rule-present",
    "Has a text that must be absent.",
    TWO,
    "content_failure",
    "must be absent",
    content_rules=[lacks("192.0.2.2")],
)
down(
    "resolver-set-missing",
    "Lacks a record.",
    saying(A),
    "content_failure",
    'missing "192.0.2.2"',
    records=["192.0.2.1", "192.0.2.2"],
)
down(
    "resolver-set-extra",
    "Has one record too many.",
    TWO,
    "content_failure",
    'extra "192.0.2.2"',
    records=["192.0.2.1"],
)
down(
    "resolver-set-both",
    "Has another record.",
    saying(OTHER),
    "content_failure",
    'missing "192.0.2.1"; extra "192.0.2.2"',
    records=["192.0.2.1"],
)
down(
    "resolver-set-many",
    "Has a hundred records too many.",
    Resolving(lambda asked: [large(asked, 101)]),
    "content_failure",
    "and 98 more",
    records=["192.0.0.0"],
)

# Errors

for code, words in {
    "NXDOMAIN": "does not exist",
    "SERVFAIL": "SERVFAIL",
    "REFUSED": "REFUSED",
    "NOTAUTH": "NOTAUTH",
    "NOTIMP": "NOTIMP",
    "FORMERR": "FORMERR",
}.items():
    down(f"resolver-{code.lower()}", f"Answers {code}.", saying(rcode=dns.rcode.from_text(code)), "dns_failure", words)
down(
    "resolver-nxdomain-with-alias",
    "Has an alias of a name that does not exist.",
    saying((f"{NAME}.", CNAME, "gone.zone.test."), rcode=dns.rcode.NXDOMAIN),
    "dns_failure",
    "does not exist",
)
down(
    "resolver-servfail-bare",
    "Answers SERVFAIL without the question.",
    saying(rcode=dns.rcode.SERVFAIL, change=lambda message: message.question.clear()),
    "dns_failure",
    "SERVFAIL",
)
down("resolver-nodata", "Has the name, without records of the type.", saying(), "dns_failure", "no A record")
down(
    "resolver-referral",
    "Refers to other servers.",
    saying(
        flags=0,
        change=lambda message: message.authority.append(
            dns.rrset.from_text("zone.test.", 60, "IN", "NS", "ns.zone.test.")
        ),
    ),
    "dns_failure",
    "nor looks it up",
)
down(
    "resolver-other-type",
    "Has records of another type only.",
    saying((f"{NAME}.", "TXT", "hello")),
    "dns_failure",
    "no A record",
)
down(
    "resolver-other-owner",
    "Has a record of another name only.",
    saying(("other.zone.test.", "A", "192.0.2.1")),
    "dns_failure",
    "no A record",
)
down(
    "resolver-other-class",
    "Has a record of another class only.",
    of_udp(lambda asked: raw(asked, 1, b"\xc0\x0c\0\1\0\3\0\0\0\0\0\4\1\2\3\4")),
    "dns_failure",
    "no A record",
)
up(
    "resolver-without-edns",
    "Is so old that it refuses extensions.",
    of_udp(lambda asked: reply(asked, rcode=dns.rcode.FORMERR) if asked.message.edns >= 0 else good(asked)),
)

GROUP.up(
    "resolver-root",
    "Has the name servers of the root.",
    Place(saying((".", "NS", "a.root-servers.test.")), scheme="dns", host=next(_hosts)),
    type="dns",
    http_status=None,
    url="@main@/.?type=NS",
    records=["a.root-servers.test"],
)

# Aliases

up(
    "resolver-alias",
    "Has an alias.",
    saying((f"{NAME}.", CNAME, "real.zone.test."), ("real.zone.test.", "A", "192.0.2.1")),
    records=["192.0.2.1"],
)
up(
    "resolver-alias-reversed",
    "Has an alias, which comes after its record.",
    saying(("real.zone.test.", "A", "192.0.2.1"), (f"{NAME}.", CNAME, "real.zone.test.")),
    records=["192.0.2.1"],
)
up(
    "resolver-alias-chain",
    "Has twenty aliases of each other.",
    saying(
        (f"{NAME}.", CNAME, "a0.zone.test."),
        *((f"a{number}.zone.test.", CNAME, f"a{number + 1}.zone.test.") for number in range(20)),
        ("A20.Zone.test.", "A", "192.0.2.1"),
    ),
    records=["192.0.2.1"],
)
up(
    "resolver-alias-asked",
    "Gets a query for an alias itself.",
    saying((f"{NAME}.", CNAME, "real.zone.test.")),
    CNAME,
    records=["real.zone.test"],
)
down(
    "resolver-alias-loop",
    "Has two aliases of each other.",
    saying((f"{NAME}.", CNAME, "b.zone.test."), ("b.zone.test.", CNAME, f"{NAME}.")),
    "dns_failure",
    "circle",
)
down("resolver-alias-self", "Has an alias of itself.", saying((f"{NAME}.", CNAME, f"{NAME}.")), "dns_failure", "circle")
down(
    "resolver-alias-open",
    "Has an alias of a name that the answer leaves out.",
    saying((f"{NAME}.", CNAME, "real.zone.test.")),
    "dns_failure",
    "alias of real.zone.test",
)
down(
    "resolver-alias-aside",
    "Has records of the type, of a name that is not the alias's.",
    saying((f"{NAME}.", CNAME, "real.zone.test."), ("c.zone.test.", "A", "192.0.2.1")),
    "dns_failure",
    "alias of real.zone.test",
)

# Truncated answers, and TCP

up("resolver-tcp", "Truncates its answer by UDP.", cut_short(good), records=["192.0.2.1"])
up("resolver-tcp-large", "Has 200 records, by TCP only.", cut_short(large))
up("resolver-tcp-dripping", "Sends its answer byte by byte by TCP.", Resolving(truncated, dripping))
up(
    "resolver-tcp-half",
    "Truncates its answer, but sends some records with it.",
    Resolving(
        lambda asked: [reply(asked, A, flags=dns.flags.TC | dns.flags.RA)], lambda asked: [reply(asked, A, OTHER)]
    ),
    records=["192.0.2.1", "192.0.2.2"],
)
down(
    "resolver-tcp-refused",
    "Refuses TCP after a truncated answer.",
    Resolving(truncated),
    "connection_failure",
    "refused",
)
down("resolver-tcp-stalled", "Never answers by TCP.", cut_short(Hang()), "timeout", "by TCP", **LEAST)
down(
    "resolver-tcp-half-stalled",
    "Stalls in the middle of its answer by TCP.",
    cut_short(Raw(b"\0\x40abc"), Hang()),
    "timeout",
    "by TCP",
    **LEAST,
)
down(
    "resolver-tcp-closed",
    "Ends the TCP connection without an answer.",
    cut_short(),
    "connection_failure",
    "ended the TCP connection",
)
down(
    "resolver-tcp-cut",
    "Ends the TCP connection in the middle of its answer.",
    cut_short(Raw(b"\0\x40abc")),
    "partial_response",
    "before its answer was complete",
)
down("resolver-tcp-reset", "Resets the TCP connection.", cut_short(Reset()), "connection_failure", "reset")
down(
    "resolver-tcp-truncated",
    "Truncates its answer by TCP too.",
    Resolving(truncated, truncated),
    "dns_failure",
    "by TCP too",
)
down("resolver-tcp-other-id", "Answers another query by TCP.", cut_short(other_id), "dns_failure", "does not match")
down("resolver-tcp-empty", "Sends an empty message by TCP.", cut_short(b""), "dns_failure", "does not match")
down(
    "resolver-tcp-garbage",
    "Speaks another protocol on TCP.",
    cut_short(Raw(b"SSH-2.0-OpenSSH_9.6\r\n" * 1200)),
    "dns_failure",
    "does not match",
)
up("resolver-tcp-huge", "Has 4,000 records, nearly 64 KiB.", cut_short(lambda asked: large(asked, 4000)))
down(
    "resolver-tcp-huge-other",
    "Has 4,000 records, and none of those that are expected.",
    cut_short(lambda asked: large(asked, 4000)),
    "content_failure",
    "and 3998 more",
    records=["203.0.113.1"],
)
down(
    "resolver-tcp-loop",
    "Sends a compression loop by TCP.",
    cut_short(lambda asked: raw(asked, 1, b"\xc0\x1f")),
    "dns_failure",
    "circle",
)

# Forged and broken messages

up("resolver-forged-id", "Answers after a forged reply with another id.", of_udp(other_id, good), records=["192.0.2.1"])
up(
    "resolver-forged-many",
    "Answers after 50 forged replies.",
    Resolving(lambda asked: [*[other_id(asked)] * 50, good(asked)]),
    records=["192.0.2.1"],
)
up(
    "resolver-forged-name",
    "Answers after a reply about another name.",
    of_udp(other_question(qname="evil.test."), good),
    records=["192.0.2.1"],
)
up(
    "resolver-forged-elsewhere",
    "Answers after a reply from another port.",
    of_udp(lambda asked: Elsewhere(reply(asked, OTHER)), good),
    records=["192.0.2.1"],
)
up(
    "resolver-forged-query",
    "Sends a query back before its answer.",
    of_udp(not_a_response, good),
    records=["192.0.2.1"],
)
up(
    "resolver-forged-short",
    "Sends a few bytes before its answer.",
    of_udp(lambda asked: asked.wire[:2], good),
    records=["192.0.2.1"],
)
up(
    "resolver-question-case",
    "Repeats the question in capitals.",
    of_udp(lambda asked: good(asked).replace(b"zone", b"ZoNe", 1)),
    records=["192.0.2.1"],
)
up("resolver-trailing-bytes", "Sends bytes after its answer.", of_udp(lambda asked: good(asked) + b"trailing"))
up("resolver-udp-large", "Sends 3 KiB by UDP, more than the query allows.", Resolving(lambda asked: [large(asked)]))
for name, about, forged in (
    ("id", "Answers with another id only.", other_id),
    ("name", "Answers about another name only.", other_question(qname="evil.test.")),
    ("type", "Answers about another type only.", other_question(rdtype="AAAA")),
    ("class", "Answers about another class only.", other_question(rdclass="CH")),
    (
        "questions",
        "Repeats the question twice.",
        lambda asked: reply(asked, A, change=lambda m: m.question.append(m.question[0])),
    ),
    ("query", "Sends the query back.", lambda asked: asked.wire),
    ("text", "Speaks another protocol.", lambda _: b"500 unknown command\r\n"),
    (
        "no-question",
        "Answers without the question.",
        lambda asked: reply(asked, A, change=lambda m: m.question.clear()),
    ),
):
    down(f"resolver-wrong-{name}", about, of_udp(forged), "timeout", "nothing that answers", **LEAST)
down(
    "resolver-wrong-port",
    "Answers from another port.",
    of_udp(lambda asked: Elsewhere(good(asked))),
    "timeout",
    "gave no answer",
    **LEAST,
)
for name, about, section in (
    ("loop", "Sends a compression loop.", b"\xc0\x1f"),
    ("forward", "Sends a name that points ahead.", b"\xc0\xff\0\1\0\1\0\0\0\0\0\4\1\2\3\4"),
    ("label", "Sends a label of an unknown kind.", b"\x80\0\1\0\1\0\0\0\0\0\4\1\2\3\4"),
    ("cut", "Sends half of a record.", b"\xc0\x0c\0\1\0\1\0\0"),
    ("none", "Announces a record and sends none.", b""),
    ("length", "Sends an A record of three bytes.", b"\xc0\x0c\0\1\0\1\0\0\0\0\0\3\1\2\3"),
    ("overlong", "Sends a record that is longer than the message.", b"\xc0\x0c\0\1\0\1\0\0\0\0\xff\xff\1\2\3\4"),
    ("alias", "Sends an alias whose name is a compression loop.", b"\xc0\x0c\0\5\0\1\0\0\0\0\0\2\xc0\x2b"),
):
    down(
        f"resolver-malformed-{name}",
        about,
        of_udp(partial(raw, answers=1, after=section)),
        "dns_failure",
        "The name server's answer",
    )
down(
    "resolver-flood",
    "Sends a thousand forged replies.",
    Resolving(lambda asked: [other_id(asked)] * 1100),
    "dns_failure",
    "flood",
)

# Silence and delay

up("resolver-lossy", "Loses every other query.", Resolving(lambda asked: [good(asked)] if asked.number % 2 else []))
up(
    "resolver-late",
    "Answers the first query after the second has come.",
    Resolving(lambda asked: [] if asked.number % 2 else [Pause(1.5), good(asked)]),
    timeout_ms=8000,
)
slow("resolver-slow", "Takes 0.5 s.", Resolving(lambda asked: [Pause(0.5), good(asked)]), slow_ms=400)
down("resolver-silent", "Never answers.", Resolving(mute), "timeout", "gave no answer", **LEAST)
down(
    "resolver-too-late",
    "Answers after the deadline.",
    Resolving(lambda asked: [Pause(3.0), good(asked)]),
    "timeout",
    "gave no answer",
    **LEAST,
)
down("resolver-closed", "Has no resolver on its port.", Closed(), "connection_failure", "refused")

# The deployment's own name server

own: tuple[tuple[str, str, Name, str | None, str], ...] = (
    ("found", "Has an address.", Name(("192.0.2.1",)), None, ""),
    ("truncated", "Has an address that comes by TCP only.", Name(("192.0.2.1",), truncated=True), None, ""),
    ("nodata", "Has no address.", Name(), "dns_failure", "no A record"),
    ("unknown", "Does not exist.", Name(Fault.NXDOMAIN), "dns_failure", "does not exist"),
    ("failing", "Has servers that fail.", Name(Fault.SERVFAIL), "dns_failure", "SERVFAIL"),
    ("refusing", "Has servers that refuse.", Name(Fault.REFUSED), "dns_failure", "REFUSED"),
    ("silent", "Has servers that never answer.", Name(Fault.SILENCE), "timeout", "gave no answer"),
    ("garbage", "Has servers that answer with garbage.", Name(Fault.GARBAGE), "timeout", "nothing that answers"),
    ("forged", "Has servers that answer other queries.", Name(Fault.OTHER_ID), "timeout", "nothing that answers"),
)
for name, about, said, reason, words in own:
    host = f"{name}.own.test"
    given: dict[str, Any] = {"type": "dns", "url": f"dns:{host}", "zone": {host: said}}
    if reason is None:
        GROUP.up(f"resolver-own-{name}", about, Place(Closed()), http_status=None, records=["192.0.2.1"], **given)
    else:
        hurry = LEAST if reason == "timeout" else {}
        GROUP.down(f"resolver-own-{name}", about, Place(Closed()), reason, words, **given, **hurry)

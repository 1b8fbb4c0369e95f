"""Hosts that answer echo requests wrongly. `tests/checks/test_ping.py` starts and checks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.targets.catalogue.case import LEAST, Case, Group
from tests.targets.names import Fault, Name
from tests.targets.pings import (
    LOST,
    REPLY,
    Answer,
    Answers,
    other_identifier,
    other_payload,
    other_sequence,
)


@dataclass(frozen=True, kw_only=True)
class PingCase(Case):
    """`hosts`: those that answer, by address. `loss`: in percent, None if nothing is sent."""

    hosts: Mapping[str, Answers] = field(default_factory=dict)
    loss: int | None = None


GROUP = Group("Pings")
CASES: list[PingCase] = []


def _add(
    name: str,
    about: str,
    *answers: Answer,
    loss: int | None,
    status: str = "down",
    reason_code: str | None = None,
    words: str = "",
    v6: bool = False,
    host: str | None = None,
    hosts: Mapping[str, Answers] | None = None,
    zone: Mapping[str, Name] | None = None,
    **settings: Any,
) -> None:
    """Without a `host` the case gets a separate address, and `answers` are those of that address."""
    number = len(CASES) + 1
    address = f"fd66::1:{number:x}" if v6 else f"10.66.1.{number}"
    host = host or (f"[{address}]" if v6 else address)
    CASES.append(
        PingCase(
            id=f"ping-{name}",
            group=GROUP.name,
            about=about,
            places={},
            settings={"type": "ping", **settings},
            status=status,
            reason_code=reason_code,
            words=words,
            zone=zone or {},
            url=f"icmp://{host}",
            hosts={address: answers} if answers else hosts or {},
            loss=loss,
        )
    )
    GROUP.cases.append(CASES[-1])


def up(name: str, about: str, *answers: Answer, loss: int = 0, **given: Any) -> None:
    _add(name, about, *answers, status="up", loss=loss, **given)


def silent(
    name: str, about: str, *answers: Answer, words: str = "0 of 3 packets returned (100 % lost)", **given: Any
) -> None:
    _add(name, about, *answers, reason_code="timeout", words=words, **{"loss": 100, **LEAST, **given})


def refused(name: str, about: str, *answers: Answer, words: str, **given: Any) -> None:
    _add(name, about, *answers, reason_code="connection_failure", words=words, **{"loss": 100, **given})


def error(kind: int, code: int, **given: Any) -> Answer:
    return Answer(error=(kind, code), **given)


def replies(*more: Answer, **given: Any) -> Answer:
    """The first answer with the fields of `given`, followed by the correct reply."""
    return Answer(then=(*more, REPLY), **given)


HURRIED = {"timeout_ms": 2_000}  # for targets that answer, also on a busy machine
TIMELY = Answer(seconds=0.3)

up("answered", "Answers every packet.", REPLY)
up("answered-ten", "Answers ten packets within two seconds.", REPLY, packets=10, min_replies=10, **HURRIED)
up("answered-one", "Answers the only packet.", REPLY, packets=1)
up("late-in-time", "Answers after 300 ms.", TIMELY)
up("out-of-order", "Answers the first packet after the others.", Answer(seconds=0.6), REPLY)
_add(
    "slow",
    "Answers after 300 ms, which counts as slow.",
    TIMELY,
    status="slow",
    words="which is slow",
    loss=0,
    slow_ms=200,
)
up("lost-some", "Answers two of three packets, and one is enough.", REPLY, LOST, REPLY, loss=33, **HURRIED)
up(
    "lost-most",
    "Answers two of ten packets, and two are enough.",
    REPLY,
    REPLY,
    LOST,
    loss=80,
    packets=10,
    min_replies=2,
    **HURRIED,
)
silent(
    "lost-too-many",
    "Answers two of three packets, and three have to return.",
    REPLY,
    LOST,
    REPLY,
    words="2 of 3 packets returned (33 % lost), 3 required",
    loss=33,
    min_replies=3,
)
silent("silent", "Answers nothing.", LOST)
silent("silent-one", "Does not answer the only packet.", LOST, packets=1, words="0 of 1 packets")
silent("silent-ten", "Answers none of ten packets.", LOST, packets=10, words="0 of 10 packets")
silent("late", "Answers past the deadline.", Answer(seconds=1.02))
silent("late-each", "Answers long after the deadline.", Answer(seconds=1.3))
silent("foreign-identifier", "Sends replies to another process' requests.", Answer(change=other_identifier))
silent("foreign-sequence", "Sends replies to requests that were not sent.", Answer(change=other_sequence))
silent("foreign-payload", "Sends back other bytes than it got.", Answer(change=other_payload))
silent("cut-payload", "Sends back a part of what it got.", Answer(change=lambda message: message[:-1]))
silent("no-payload", "Sends back the header only.", Answer(change=lambda message: message[:8]))
silent("long-payload", "Sends back more than it got.", Answer(change=lambda message: message + b"\0"))
silent("huge-payload", "Sends back a kilobyte.", Answer(change=lambda message: message + bytes(1_024)))
silent("half-header", "Sends half an ICMP header.", Answer(change=lambda message: message[:5]))
silent("empty-message", "Sends IP packets without an ICMP message.", Answer(change=lambda _: b""))
silent("foreign-address", "Has another host answer.", Answer(source="10.66.9.9"))
silent("echoed-request", "Sends the requests themselves back.", Answer(change=lambda message: b"\x08" + message[1:]))
silent("other-type", "Answers with timestamps.", Answer(change=lambda message: b"\x0e" + message[1:]))
silent("bad-checksum", "Sends damaged replies.", Answer(checksum=False))
silent(
    "duplicates",
    "Answers one packet three times, and two have to return.",
    Answer(copies=3),
    LOST,
    words="1 of 3 packets returned (67 % lost), 2 required",
    loss=67,
    min_replies=2,
)
up("duplicate-each", "Answers every packet a hundred times.", Answer(copies=100))
up("among-foreign", "Answers among foreign replies.", replies(change=other_payload), min_replies=3)
refused("host", "Is down, as a router reports.", error(3, 1), words="the host cannot be reached")
refused("network", "Is in a network without a route.", error(3, 0), words="its network cannot be reached")
refused("port", "Is behind a firewall that rejects pings.", error(3, 3), words="pings to it are rejected")
refused("prohibited", "Is behind a router that prohibits pings.", error(3, 13), words="pings to it are rejected")
refused("routing-loop", "Is behind routers that send to each other.", error(11, 0), words="in a loop")
refused(
    "short-quote", "Has a router that quotes the ICMP header only.", error(3, 1, quoted=8), words="cannot be reached"
)
refused(
    "later",
    "Answers one packet, and is unreachable from then on.",
    REPLY,
    error(3, 1),
    words="the host cannot be reached",
    min_replies=2,
    loss=67,
)
up("refused-first", "Is unreachable for the first packet, and answers from then on.", error(3, 1), REPLY, loss=33)
up("refused-between", "Is too far for the second of three packets.", REPLY, error(11, 0), REPLY, loss=33)
up("refused-enough", "Answers one packet, and is unreachable from then on.", REPLY, error(3, 1), loss=67)
up(
    "error-foreign-identifier",
    "Has a router report another process' packet.",
    replies(error=(3, 1), change=other_identifier),
)
up(
    "error-foreign-sequence",
    "Has a router report a packet that was not sent.",
    replies(error=(3, 1), change=other_sequence),
)
up(
    "error-foreign-payload",
    "Has a router report a packet with other bytes.",
    replies(error=(3, 1), change=other_payload),
)
up("error-unquoted", "Has a router report half an ICMP header.", replies(error=(3, 1), quoted=4))
up("error-fragmentation", "Has a router ask for smaller packets.", replies(error=(3, 4)))
up("error-redirect", "Has a router redirect its packets.", replies(error=(5, 1)))
up("error-quench", "Has a router ask for fewer packets.", replies(error=(4, 0)))
up("error-checksum", "Has a router send damaged errors.", replies(error=(3, 1), checksum=False))
up("error-afterwards", "Answers, and has a router report the same packet.", Answer(then=(error(3, 1),)), min_replies=3)
refused("no-route", "Is where no route leads.", host="10.69.0.1", words="its network cannot be reached", loss=None)
refused(
    "unreachable-route",
    "Is where the worker's own table says unreachable.",
    host="10.67.0.1",
    words="the host cannot be reached",
    loss=None,
)
refused(
    "prohibited-route",
    "Is where the worker's own table says prohibited.",
    host="10.68.0.1",
    words="no packet can be sent",
    loss=None,
)
refused(
    "broadcast",
    "Is the broadcast address of a network.",
    host="10.66.255.255",
    words="no packet can be sent",
    loss=None,
)

up("v6-answered", "Answers over IPv6.", REPLY, v6=True)
up("v6-lost-some", "Answers two of three packets over IPv6.", REPLY, LOST, REPLY, v6=True, loss=33, **HURRIED)
silent("v6-silent", "Answers nothing over IPv6.", LOST, v6=True)
silent(
    "v6-foreign-identifier",
    "Sends replies to another process' requests over IPv6.",
    Answer(change=other_identifier),
    v6=True,
)
silent("v6-foreign-payload", "Sends back other bytes than it got over IPv6.", Answer(change=other_payload), v6=True)
silent("v6-foreign-address", "Has another host answer over IPv6.", Answer(source="fd66::9:9"), v6=True)
up("v6-duplicates", "Answers every packet three times over IPv6.", Answer(copies=3), v6=True)
refused("v6-host", "Is down, as an IPv6 router reports.", error(1, 3), v6=True, words="the host cannot be reached")
refused(
    "v6-network", "Is in an IPv6 network without a route.", error(1, 0), v6=True, words="its network cannot be reached"
)
refused(
    "v6-prohibited",
    "Is behind an IPv6 firewall that prohibits pings.",
    error(1, 1),
    v6=True,
    words="pings to it are rejected",
)
refused(
    "v6-port", "Is behind an IPv6 firewall that rejects pings.", error(1, 4), v6=True, words="pings to it are rejected"
)
refused("v6-routing-loop", "Is behind IPv6 routers that send to each other.", error(3, 0), v6=True, words="in a loop")
up("v6-too-big", "Has an IPv6 router ask for smaller packets.", replies(error=(2, 0)), v6=True)
up(
    "v6-error-foreign",
    "Has an IPv6 router report another process' packet.",
    replies(error=(1, 3), change=other_identifier),
    v6=True,
)
refused(
    "v6-no-route",
    "Is where no route leads over IPv6.",
    host="[fd69::1]",
    words="its network cannot be reached",
    loss=None,
)

up("mapped", "Is named by an IPv4 address in IPv6 form.", host="[::ffff:10.66.2.1]", hosts={"10.66.2.1": [REPLY]})
up(
    "name",
    "Is named, and answers.",
    host="good.ping.test",
    zone={"good.ping.test": Name(("10.66.2.2",))},
    hosts={"10.66.2.2": [REPLY]},
)
up(
    "name-v6",
    "Is named, has IPv6 only, and answers.",
    host="six.ping.test",
    zone={"six.ping.test": Name(aaaa=("fd66::2:2",))},
    hosts={"fd66::2:2": [REPLY]},
)
up(
    "second-address",
    "Has two addresses, and the first is unreachable.",
    host="two.ping.test",
    zone={"two.ping.test": Name(("10.67.0.2", "10.66.2.3"))},
    hosts={"10.66.2.3": [REPLY]},
)
up(
    "second-address-reported",
    "Has two addresses, and a router reports the first as unreachable.",
    host="either.ping.test",
    zone={"either.ping.test": Name(("10.66.2.4", "10.66.2.5"))},
    hosts={"10.66.2.4": [error(3, 1)], "10.66.2.5": [REPLY]},
    min_replies=3,
)
refused(
    "no-address-reached",
    "Has two addresses: no route leads to one, and a router reports the other.",
    words="the host cannot be reached",
    host="neither.ping.test",
    zone={"neither.ping.test": Name(("10.66.2.6", "10.69.2.6"))},
    hosts={"10.66.2.6": [error(3, 1)]},
)
up(
    "one-blocked",
    "Has a private address, which is not tried, and another one.",
    host="half.ping.test",
    zone={"half.ping.test": Name(("192.168.7.7", "10.66.2.7"))},
    hosts={"10.66.2.7": [REPLY]},
)
_add(
    "blocked",
    "Has private addresses only.",
    host="private.ping.test",
    zone={"private.ping.test": Name(("192.168.7.8",), ("::1", "::ffff:192.168.7.8"))},
    reason_code="blocked_target",
    words="private or reserved",
    loss=None,
)
_add(
    "unknown-name",
    "Has a name that does not exist.",
    host="missing.ping.test",
    zone={"missing.ping.test": Name(Fault.NXDOMAIN, Fault.NXDOMAIN)},
    reason_code="dns_failure",
    words="does not exist",
    loss=None,
)
silent(
    "silent-name",
    "Has a name whose servers never answer.",
    host="silent.ping.test",
    zone={"silent.ping.test": Name(Fault.SILENCE, Fault.SILENCE)},
    words="name servers gave no answer",
    loss=None,
)

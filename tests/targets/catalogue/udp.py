"""Datagrams: lost, late, refused, and from hosts other than the target."""

from __future__ import annotations

import base64
from itertools import count
from typing import Any

from tests.targets.catalogue.case import Closed, Group, Place, contains, lacks
from tests.targets.datagrams import Datagrams, Reply
from tests.targets.names import Fault, Name

GROUP = Group("Datagrams")

# At most one datagram per address and second is sent, and all cases are checked concurrently.
_hosts = (f"127.20.0.{number}" for number in count(1))
_ECHO = Datagrams([[Reply()]])
_SILENT = Datagrams([()])
_SHORT = {"timeout_ms": 2000}


def _place(script: Datagrams | Closed, **given: Any) -> Place:
    return Place(script, scheme="udp", **{"host": next(_hosts), **given})


def _replies(*replies: Reply | bytes) -> Place:
    return _place(Datagrams([replies]))


def _up(name: str, about: str, target: Any, **given: Any) -> None:
    GROUP.up(f"udp-{name}", about, target, http_status=None, **_asking(given))


def _down(name: str, about: str, target: Any, reason_code: str, words: str, **given: Any) -> None:
    GROUP.down(f"udp-{name}", about, target, reason_code, words, **_asking(given))


def _asking(given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "udp", "url": "@main@", **given}


_up("answered", "Sends back what came.", _place(_ECHO), request_body="hello", content_rules=[contains("hello")])
_up("empty-datagram", "Replies to an empty datagram.", _place(Datagrams([[b"pong"]], expects=b"")))
_up(
    "body-text",
    "Replies to one text only.",
    _place(Datagrams([[b"ja"]], expects="grüß dich\n".encode())),
    request_body="grüß dich\n",
)
_up(
    "body-hex",
    "Replies to certain bytes only.",
    _place(Datagrams([[b"pong"]], expects=b"\x00\xff\x10ping")),
    request_body="00ff1070696e67",
    request_body_encoding="hex",
)
_up(
    "body-base64",
    "Replies to certain bytes only, which are given in base64.",
    _place(Datagrams([[b"pong"]], expects=b"\xff\x00" * 9)),
    request_body=base64.b64encode(b"\xff\x00" * 9).decode(),
    request_body_encoding="base64",
)
_up(
    "body-largest",
    "Sends 512 bytes back.",
    _place(_ECHO),
    request_body="x" * 509 + "end",
    content_rules=[contains("end")],
)
_up("first-lost", "Loses the first datagram.", _place(Datagrams([(), [b"pong"]])), timeout_ms=3000)
_up("two-lost", "Loses the first two datagrams.", _place(Datagrams([(), (), [b"pong"]])), timeout_ms=3000)
_up(
    "late",
    "Replies to each datagram only after the second was sent.",
    _replies(Reply(b"pong", seconds=1.4)),
    timeout_ms=3000,
)
_up("empty-reply", "Replies with an empty datagram.", _replies(b""))
_up("garbage", "Replies with random bytes.", _replies(bytes(range(256))))
_up(
    "largest-reply",
    "Replies with 65,507 bytes, the most that fits into a datagram.",
    _replies(b"x" * 65_504 + b"end"),
    content_rules=[contains("end")],
)
_up(
    "first-reply-decides",
    "Replies twice, first with the word of the rule.",
    _replies(b"all good", b"bad"),
    content_rules=[contains("good"), lacks("bad")],
)
_up(
    "stranger-first",
    "Replies after one from another port, which does not count.",
    _replies(Reply(b"bad", from_port=True), Reply(b"good", seconds=0.05)),
    content_rules=[contains("good"), lacks("bad")],
)
_up(
    "impostor-first",
    "Replies after one from the same port of another address, which does not count.",
    _replies(Reply(b"bad", from_host=True), Reply(b"good", seconds=0.05)),
    content_rules=[contains("good"), lacks("bad")],
)
_up(
    "binary",
    "Replies with bytes that the rule gives in hex.",
    _replies(b"\x00\x01\xfe\xff"),
    request_body="00",
    request_body_encoding="hex",
    content_rules=[contains("01feff"), lacks("1fef")],
)
_up(
    "binary-base64",
    "Replies with bytes that the rule gives in hex, to a body in base64.",
    _replies(b"\x00\x01\xfe\xff"),
    request_body="AAE=",
    request_body_encoding="base64",
    content_rules=[contains("0001")],
)
_up(
    "not-utf-8",
    "Replies with bytes that are not UTF-8 in addition to the word.",
    _replies(b"\xff\xfeok\xc3"),
    content_rules=[contains("ok")],
)
_up("ipv6", "Listens on IPv6.", _place(_ECHO, host="::1"))

GROUP.slow(
    "udp-slow",
    "Replies after 0.5 s.",
    _replies(Reply(b"pong", seconds=0.5)),
    **_asking({"http_status": None, "slow_ms": 400}),
)

_named = _place(_ECHO, name="one.udp.test")
_up("name", "Has a name.", _named, zone={"one.udp.test": Name((_named.host,))})
_aliased = _place(_ECHO, name="alias.udp.test")
_up(
    "alias",
    "Has an alias.",
    _aliased,
    zone={"alias.udp.test": Name(alias="real.udp.test"), "real.udp.test": Name((_aliased.host,))},
)
_mapped = _place(_ECHO, name="mapped.udp.test")
_up(
    "mapped",
    "Has an IPv4 address in IPv6 form.",
    _mapped,
    zone={"mapped.udp.test": Name((), (f"::ffff:{_mapped.host}",))},
)
_beside = _place(_ECHO, name="beside.udp.test")
_up(
    "mixed-guard",
    "Has a private address and one that may be asked.",
    _beside,
    zone={"beside.udp.test": Name(("10.0.0.1", _beside.host))},
)
_half = {"main": _place(_ECHO, name="half.udp.test"), "dead": _place(Closed(), port_of="main")}
_up(
    "one-refuses",
    "Refuses at one address and replies at the other.",
    _half,
    zone={"half.udp.test": Name(tuple(place.host for place in _half.values()))},
)
_many = {"main": _place(_ECHO, name="many.udp.test")} | {
    f"dead{number}": _place(Closed(), port_of="main") for number in range(7)
}
_up(
    "seven-refuse",
    "Has eight addresses, and all but one refuse.",
    _many,
    zone={"many.udp.test": Name(tuple(place.host for place in _many.values()))},
)

_down("silent", "Never replies.", _place(_SILENT), "timeout", "none of 3 datagrams got a reply", timeout_ms=4000)
_down(
    "silent-soon",
    "Never replies, and a third datagram would come too late.",
    _place(_SILENT),
    "timeout",
    "none of 2 datagrams got a reply",
    timeout_ms=1500,
)
_down(
    "too-late", "Replies past the deadline.", _replies(Reply(b"pong", seconds=2.5)), "timeout", "got a reply", **_SHORT
)
_down(
    "other-body",
    "Replies to another text than the monitor sends.",
    _place(Datagrams([[b"pong"]], expects=b"ping")),
    "timeout",
    "got a reply",
    request_body="pong",
    **_SHORT,
)
_down(
    "other-port",
    "Replies from another port.",
    _replies(Reply(b"pong", from_port=True)),
    "timeout",
    "got a reply",
    **_SHORT,
)
_down(
    "other-address",
    "Replies from the same port of another address.",
    _replies(Reply(b"pong", from_host=True)),
    "timeout",
    "got a reply",
    **_SHORT,
)
_down("refused", "Has no listener on the port.", _place(Closed()), "connection_failure", "refused")
_down(
    "refused-ipv6",
    "Refuses over IPv6.",
    _place(Closed(), host="::1"),
    "connection_failure",
    "refused",
)
_none = {"main": _place(Closed(), name="none.udp.test"), "dead": _place(Closed(), port_of="main")}
_down(
    "all-refuse",
    "Refuses at every address.",
    _none,
    "connection_failure",
    "refused",
    zone={"none.udp.test": Name(tuple(place.host for place in _none.values()))},
)
_mute = {"main": _place(_SILENT, name="mute.udp.test"), "dead": _place(Closed(), port_of="main")}
_down(
    "refuses-or-silent",
    "Refuses at one address and never replies at the other.",
    _mute,
    "timeout",
    "No result within 2000 ms",
    zone={"mute.udp.test": Name(tuple(place.host for place in _mute.values()))},
    **_SHORT,
)

_NO_WORD = (
    ("without-word", "Replies without the word of the rule.", b"pong", [contains("ping")], "does not contain"),
    ("with-word", "Replies with the word that must be absent.", b"error 5", [lacks("error")], "must be absent"),
    (
        "empty-reply-rule",
        "Replies with nothing, where a rule looks for a word.",
        b"",
        [contains("x")],
        "does not",
    ),
    ("encoding", "Replies in Latin-1, which is not UTF-8.", "café".encode("latin-1"), [contains("café")], "does not"),
    (
        "largest-without-word",
        "Replies with much, without the word.",
        b"x" * 65_507,
        [contains("end")],
        "does not",
    ),
)
for name, about, reply, rules, words in _NO_WORD:
    _down(name, about, _replies(reply), "content_failure", words, content_rules=rules)
_down(
    "split",
    "Splits the word of the rule over two datagrams; only the first counts.",
    _replies(b"hel", b"lo"),
    "content_failure",
    'does not contain "hello"',
    content_rules=[contains("hello")],
)
_down(
    "second-reply",
    "Replies with the word of the rule in its second datagram.",
    _replies(b"wait", b"ready"),
    "content_failure",
    "does not contain",
    content_rules=[contains("ready")],
)
_down(
    "binary-without-word",
    "Replies without the bytes that the rule gives in hex.",
    _replies(b"\x00\x01"),
    "content_failure",
    "(in hex) does not contain",
    request_body="00",
    request_body_encoding="hex",
    content_rules=[contains("0002")],
)

for name, about, said in (
    ("private", "a private address", Name(("10.0.0.1",))),
    ("metadata", "the address of cloud metadata", Name(("169.254.169.254",))),
    ("carrier", "an address of carrier-grade NAT", Name(("100.64.0.1",))),
    ("multicast", "a multicast address", Name(("224.0.0.251",))),
    ("broadcast", "the broadcast address", Name(("255.255.255.255",))),
    ("unique-local", "a unique local IPv6 address", Name((), ("fd00::1",))),
    ("mapped", "a private address in IPv6 form", Name((), ("::ffff:10.0.0.1",))),
    ("nat64", "a private address behind NAT64", Name((), ("64:ff9b::10.0.0.1",))),
    ("both", "private addresses of both families", Name(("192.168.1.1",), ("fd00::1",))),
):
    host = f"{name}.guard.udp.test"
    _down(
        f"guard-{name}",
        f"Has a name that resolves to {about}.",
        _place(_ECHO, name=host),
        "blocked_target",
        "private or reserved",
        zone={host: said},
    )
_down(
    "unknown-name",
    "Has a name that does not exist.",
    _place(_ECHO, name="no.udp.test"),
    "dns_failure",
    "does not exist",
)
_down(
    "hanging-name",
    "Has a name whose servers never answer.",
    _place(_ECHO, name="hanging.udp.test"),
    "timeout",
    "name servers",
    zone={"hanging.udp.test": Name(Fault.SILENCE, Fault.SILENCE)},
    **_SHORT,
)

"""TCP connections: which servers answer, what is read, and when reading ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.targets.catalogue.case import SHORT, Closed, Full, Group, Place, Target, contains, lacks
from tests.targets.names import Fault, Name
from tests.targets.server import Expect, Hang, HangUp, Listen, Pause, Repeat, Reset, Script, Step, Unasked

GROUP = Group("TCP connections")

CAP = 64 * 1024
HERE = ("127.0.0.1",)
HELLO = Unasked([b"hello\r\n", Hang()])


def _given(target: Target, given: dict[str, Any]) -> dict[str, Any]:
    places = target if isinstance(target, Mapping) else {"main": target if isinstance(target, Place) else Place(target)}
    return {
        "target": {key: replace(place, scheme="tcp") for key, place in places.items() if isinstance(place, Place)},
        "type": "port",
        "url": "@main@",
        **given,
    }


def up(name: str, about: str, target: Target, **given: Any) -> None:
    GROUP.up(f"tcp-{name}", about, http_status=None, **_given(target, given))


def slow(name: str, about: str, target: Target, **given: Any) -> None:
    GROUP.slow(f"tcp-{name}", about, http_status=None, **_given(target, given))


def down(name: str, about: str, target: Target, reason_code: str, words: str, **given: Any) -> None:
    GROUP.down(f"tcp-{name}", about, reason_code=reason_code, words=words, **_given(target, given))


def says(*steps: Step) -> Unasked:
    """A server that sends this after connecting."""
    return Unasked(steps)


# Connections
up("open", "Accepts the connection.", says(Hang()))
up("open-closes", "Closes the connection in order at once.", says())
up("open-ipv6", "Listens at an IPv6 address.", Place(says(Hang()), host="::1"))
names: tuple[tuple[str, str, Name], ...] = (
    ("name", "Has a name.", Name(HERE)),
    ("alias", "Has an alias for a name.", Name(alias="name.tcp.test")),
    ("name-second", "Has two addresses, and the first refuses.", Name(("127.0.1.1", "127.0.0.1"))),
    ("name-many", "Has thirty addresses, and all but one refuse.", Name(tuple(f"127.0.{n}.1" for n in range(30)))),
    ("name-ipv6-refuses", "Refuses at its IPv6 address.", Name(HERE, ("::1",))),
    ("name-some-blocked", "Has a private address and a public one.", Name(("10.0.0.1", "127.0.0.1"))),
)
for name, about, said in names:
    host = f"{name}.tcp.test"
    up(name, about, Place(HELLO, name=host), zone={host: said}, content_rules=[contains("hello")])
up(
    "name-first-silent",
    "Has two addresses, and the first does not answer.",
    {
        "main": Place(HELLO, name="silent-first.tcp.test"),
        "other": Place(Full(), host="127.0.1.2", port_of="main"),
    },
    zone={"silent-first.tcp.test": Name(("127.0.1.2", "127.0.0.1"))},
)
up("name-capitals", "Is named in capitals.", Place(HELLO, name="NAME.tcp.test"))
up("name-dot", "Is named with a dot at the end.", Place(HELLO, name="name.tcp.test."))
up(
    "name-many-silent",
    "Has nine addresses, and only the last answers.",
    {
        "main": Place(HELLO, name="many-silent.tcp.test"),
        **{f"silent{n}": Place(Full(), host=f"127.0.2.{n}", port_of="main") for n in range(1, 9)},
    },
    zone={"many-silent.tcp.test": Name((*(f"127.0.2.{n}" for n in range(1, 9)), "127.0.0.1"))},
)
slow(
    "name-slow",
    "Has name servers that take 0.5 s.",
    Place(HELLO, name="slow.tcp.test"),
    zone={"slow.tcp.test": Name(HERE, seconds=0.5)},
    slow_ms=400,
)
down("refused", "Refuses the connection.", Place(Closed()), "connection_failure", "refused")
down("refused-ipv6", "Refuses the connection at IPv6.", Place(Closed(), host="::1"), "connection_failure", "refused")
down(
    "refused-everywhere",
    "Refuses the connection at all of its addresses.",
    Place(Closed(), name="refused.tcp.test"),
    "connection_failure",
    "refused",
    zone={"refused.tcp.test": Name(("127.0.0.1", "127.0.1.1"), ("::1",))},
)
down("full", "Has a full backlog.", Place(Full()), "timeout", "connection was not established", **SHORT)
down("unknown", "Has a name that does not exist.", Place(HELLO, name="unknown.tcp.test"), "dns_failure", "not exist")
down(
    "no-address",
    "Has a name without an address.",
    Place(HELLO, name="empty.tcp.test"),
    "dns_failure",
    "no address",
    zone={"empty.tcp.test": Name()},
)
down(
    "silent-names",
    "Has name servers that never answer.",
    Place(HELLO, name="mute.tcp.test"),
    "timeout",
    "name servers gave no answer",
    zone={"mute.tcp.test": Name(Fault.SILENCE, Fault.SILENCE)},
    **SHORT,
)
for name, said in (
    ("private", Name(("10.0.0.1",))),
    ("metadata", Name(("169.254.169.254",))),
    ("mapped", Name((), ("::ffff:10.0.0.1",))),
    ("nat64", Name((), ("64:ff9b::10.0.0.1",))),
):
    host = f"{name}.blocked.tcp.test"
    down(
        f"blocked-{name}",
        "Has no address but one that is not probed.",
        Place(HELLO, name=host),
        "blocked_target",
        "private or reserved",
        zone={host: said},
    )

# Reading
RULE: dict[str, Any] = {"content_rules": [contains("hello")]}
BRIEFLY = {**RULE, **SHORT}
HEX: dict[str, Any] = {"request_body_encoding": "hex"}
reads: tuple[tuple[str, str, Script, dict[str, Any]], ...] = (
    ("at-once", "Greets at once.", [b"hello\r\n", Hang()], RULE),
    ("closes", "Greets and closes.", [b"hello"], RULE),
    ("half-closed", "Greets, closes its side and waits.", [b"hello", HangUp()], RULE),
    ("drip", "Greets byte by byte.", [step for byte in b"hello" for step in (b"%c" % byte, Pause(0.02))], RULE),
    ("split", "Greets in two pieces.", [b"so hel", Pause(0.05), b"lo", Hang()], RULE),
    ("reset-later", "Greets and resets the connection once it is closed.", [b"hello", Hang(), Reset()], RULE),
    ("goes-on", "Greets and does not stop sending.", [b"hello", Repeat(b"x" * 999)], RULE),
    ("after-nul", "Greets after bytes of zero.", [b"\0\0\0hello\0", Hang()], RULE),
    ("after-binary", "Greets between bytes that are not text.", [b"\xff\xfe\x80hello\xc3", Hang()], RULE),
    (
        "split-character",
        "Sends a text that is cut within a character.",
        ["Grün".encode()[:3], Pause(0.05), "Grün".encode()[3:], Hang()],
        {"content_rules": [contains("Grün")]},
    ),
    (
        "replaced-and-waits",
        "Sends a byte that is not text, in two pieces, and waits.",
        [b"so a\xff", Pause(0.05), b"b", Hang()],
        {"content_rules": [contains("a\ufffdb")]},
    ),
    (
        "replaced",
        "Sends a byte that is not text, and closes.",
        [b"a\xffb"],
        {"content_rules": [contains("a\ufffdb")]},
    ),
    (
        "two-words",
        "Sends two texts in another order.",
        [b"second", Pause(0.05), b"first", Hang()],
        {"content_rules": [contains("first"), contains("second")]},
    ),
    ("absent", "Lacks a text.", [b"all is well", Hang()], {"content_rules": [lacks("error")]}),
    (
        "both",
        "Sends one text and lacks another.",
        [b"all is well", Hang()],
        {"content_rules": [contains("well"), lacks("error")]},
    ),
    ("to-the-cap", "Sends the text at the end of 64 KiB.", [b"x" * (CAP - 5) + b"hello", Hang()], RULE),
    ("hex", "Sends bytes.", [b"\x00\xff\xfe", Hang()], {"content_rules": [contains("fffe")], **HEX}),
    (
        "hex-between",
        "Sends the digits of the rule, but as halves of two bytes, before its byte.",
        [b"\x12\x34", Pause(0.05), b"\x23\x40", Hang()],
        {"content_rules": [contains("23"), lacks("42"), contains("40")], **HEX},
    ),
    (
        "hex-split",
        "Sends bytes in two pieces.",
        [b"\x12\x34", Pause(0.05), b"\x56\x78", Hang()],
        {"content_rules": [contains("3456")], **HEX},
    ),
    ("hex-absent", "Lacks bytes.", [b"\x12\x34", Hang()], {"content_rules": [lacks("ff")], **HEX}),
    (
        "answer",
        "Answers the body.",
        [Expect(b"PING\r\n"), b"+PONG\r\n", Hang()],
        {"request_body": "PING\r\n", "content_rules": [contains("+PONG")]},
    ),
    (
        "answer-text",
        "Answers a non-ASCII body.",
        [Expect("Grüß".encode()), b"ok", Hang()],
        {"request_body": "Grüß", "content_rules": [contains("ok")]},
    ),
    (
        "answer-hex",
        "Answers a body given in hex.",
        [Expect(b"\x00\xff"), b"\x01", Hang()],
        {"request_body": "00ff", "content_rules": [contains("01")], **HEX},
    ),
    (
        "answer-base64",
        "Answers a body given in Base64.",
        [Expect(b"\x00\xff"), b"\x01", Hang()],
        {"request_body": "AP8=", "request_body_encoding": "base64", "content_rules": [contains("01")]},
    ),
    (
        "answer-http",
        "Answers an HTTP request.",
        [Expect(b"GET / HTTP/1.0\r\n\r\n"), b"HTTP/1.1 200 OK\r\n\r\n"],
        {"request_body": "GET / HTTP/1.0\r\n\r\n", "content_rules": [contains("200 OK")]},
    ),
    (
        "answer-echo",
        "Sends a long body back.",
        [Expect(b"x" * 8_192), b"x" * 8_192, Hang()],
        {"request_body": "x" * 8_192, "content_rules": [contains("x" * 256)]},
    ),
)
for name, about, script, settings in reads:
    up(f"read-{name}", about, Unasked(script), **settings)
up("body-unread", "Accepts a body and sends nothing.", says(Hang()), request_body="hello")
up("body-closed", "Takes a body and closes.", says(Expect(b"hello")), request_body="hello")
up("greeting-unread", "Greets without a rule that reads it.", HELLO)
slow(
    "read-slow",
    "Greets after 0.5 s.",
    says(Pause(0.5), b"hello"),
    content_rules=[contains("hello")],
    slow_ms=400,
)

broken: tuple[tuple[str, str, Script, str, str, dict[str, Any]], ...] = (
    ("silent", "Accepts the connection and sends nothing.", [Hang()], "timeout", "sent nothing", BRIEFLY),
    (
        "silent-absent",
        "Sends nothing where a text must be absent.",
        [Hang()],
        "timeout",
        "sent nothing",
        {"content_rules": [lacks("error")], **SHORT},
    ),
    (
        "asks-first",
        "Sends nothing before the request.",
        [Listen(), b"hello"],
        "timeout",
        "sent nothing",
        BRIEFLY,
    ),
    ("late", "Greets after the deadline.", [Pause(3.0), b"hello"], "timeout", "sent nothing", BRIEFLY),
    (
        "other",
        "Sends another text and waits.",
        [b"help", Hang()],
        "content_failure",
        "until the deadline",
        BRIEFLY,
    ),
    ("other-closes", "Sends another text and closes.", [b"help"], "content_failure", 'not contain "hello"', RULE),
    (
        "other-half-closed",
        "Sends another text, closes its side and waits.",
        [b"help", HangUp()],
        "content_failure",
        'not contain "hello"',
        RULE,
    ),
    ("beginning", "Sends the beginning of the text.", [b"hell"], "content_failure", 'not contain "hello"', RULE),
    ("capitals", "Sends the text in capitals.", [b"HELLO"], "content_failure", 'not contain "hello"', RULE),
    (
        "drip-other",
        "Sends another text byte by byte, without end.",
        [Repeat(b"l", 0.05)],
        "content_failure",
        "until the deadline",
        BRIEFLY,
    ),
    ("closed", "Closes without sending anything.", [], "content_failure", "without sending anything", RULE),
    (
        "closed-absent",
        "Closes without sending anything where a text must be absent.",
        [],
        "connection_failure",
        "without sending anything",
        {"content_rules": [lacks("error")]},
    ),
    (
        "reset",
        "Resets the connection when asked.",
        [Listen(), Reset()],
        "connection_failure",
        "reset",
        RULE | {"request_body": "?"},
    ),
    (
        "reset-within",
        "Resets the connection within its greeting.",
        [b"hell", Pause(0.2), Reset()],
        "connection_failure",
        "after 4 bytes",
        RULE,
    ),
    ("too-much", "Sends without end.", [Repeat(b"x" * 9_999)], "content_failure", "first 64 KiB", RULE),
    (
        "beyond-the-cap",
        "Sends the text after 64 KiB.",
        [b"x" * CAP + b"hello", Hang()],
        "content_failure",
        "first 64 KiB",
        RULE,
    ),
    (
        "across-the-cap",
        "Sends a text that ends after 64 KiB.",
        [b"x" * (CAP - 4) + b"hello", Hang()],
        "content_failure",
        "first 64 KiB",
        RULE,
    ),
    (
        "one-of-two",
        "Sends one of two texts.",
        [b"first"],
        "content_failure",
        'not contain "second"',
        {"content_rules": [contains("first"), contains("second")]},
    ),
    (
        "present",
        "Sends a text that must be absent.",
        [b"an error", Hang()],
        "content_failure",
        'contains "error"',
        {"content_rules": [lacks("error")]},
    ),
    (
        "present-later",
        "Sends a text that must be absent before the expected one.",
        [b"an error ", Pause(0.05), b"hello", Hang()],
        "content_failure",
        'contains "error"',
        {"content_rules": [contains("hello"), lacks("error")]},
    ),
    (
        "hex-other",
        "Sends other bytes.",
        [b"\x12\x34"],
        "content_failure",
        'not contain "ff"',
        {"content_rules": [contains("ff")], **HEX},
    ),
    (
        "hex-present",
        "Sends bytes that must be absent.",
        [b"\x12\xff", Hang()],
        "content_failure",
        'contains "ff"',
        {"content_rules": [lacks("ff")], **HEX},
    ),
    (
        "refused-body",
        "Refuses the body.",
        [Listen(), b"-ERR unknown command\r\n"],
        "content_failure",
        'not contain "+PONG"',
        {"request_body": "PING\r\n", "content_rules": [contains("+PONG")]},
    ),
    (
        "blank-lines",
        "Sends blank lines and closes.",
        [b"\r\n\r\n"],
        "content_failure",
        'not contain "hello"',
        RULE,
    ),
)
for name, about, script, reason_code, words, settings in broken:
    down(f"read-{name}", about, Unasked(script), reason_code, words, **settings)

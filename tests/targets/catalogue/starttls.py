"""TLS without HTTP: directly, and after the STARTTLS dialogues of five protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.targets.catalogue.case import SHORT, Group, Place, contains, lacks
from tests.targets.names import Name
from tests.targets.server import Expect, Hang, HangUp, Listen, Pause, Repeat, Reset, Script, StartTls, Step, Unasked

DIRECT = Group("TLS connections")
STARTTLS = Group("STARTTLS")

CAP = 64 * 1024
HERE = Name(("127.0.0.1",))
WATCHED: dict[str, Any] = {"check_ssl": True}
RULE: dict[str, Any] = {"content_rules": [contains("hello")]}
BRIEFLY = {**RULE, **SHORT}
HELLO: Script = [b"hello\r\n", Hang()]
WAITS: Script = [Hang()]
ALERT = b"\x15\x03\x03\x00\x02\x02"


def _given(script: Script, tls: str | None, place: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    target = Place(Unasked(script), tls=tls, scheme="tls", **place)
    return {"target": target, "type": "port", "url": "@main@", **given}


def up(name: str, about: str, script: Script, tls: str | None = "good", *, place: Any = (), **given: Any) -> None:
    DIRECT.up(f"tls-port-{name}", about, http_status=None, **_given(script, tls, dict(place), given))


def down(
    name: str,
    about: str,
    script: Script,
    reason_code: str,
    words: str,
    tls: str | None = "good",
    *,
    place: Any = (),
    **given: Any,
) -> None:
    arguments = _given(script, tls, dict(place), given)
    DIRECT.down(f"tls-port-{name}", about, reason_code=reason_code, words=words, **arguments)


up("good", "Shows a good certificate.", WAITS, **WATCHED)
up("good-unwatched", "Shows a good certificate, without check_ssl.", WAITS)
up("good-closes", "Closes the connection after the handshake.", [], **WATCHED)
for name, about in (
    ("only_1_2", "Speaks TLS 1.2 only."),
    ("only_1_3", "Speaks TLS 1.3 only."),
    ("chain", "Shows a certificate with its intermediate."),
):
    up(name.replace("_", "-"), about, WAITS, name, **WATCHED)
up("ipv6", "Shows a certificate for its IPv6 address.", WAITS, place={"host": "::1"}, **WATCHED)
for name, tls, host in (
    ("name", "good", "www.tls.test"),
    ("name-dot", "good", "www.tls.test."),
    ("wildcard", "wildcard", "port.wild.tls.test"),
    ("sni", "by_name", "named.tls.test"),
):
    zone = {} if host.removesuffix(".") in {"www.tls.test", "named.tls.test"} else {host: HERE}
    up(
        name,
        f"Shows a certificate that fits its name ({host}).",
        WAITS,
        tls,
        place={"name": host},
        zone=zone,
        **WATCHED,
    )

CERTIFICATES = (
    ("expired", "has expired", "expired"),
    ("other_host", "is for another host", "another"),
    ("self_signed", "is self-signed", "self-signed"),
    ("unknown_issuer", "comes from an unknown authority", "issuer is unknown"),
)
for tls, what, words in (
    *CERTIFICATES,
    ("not_yet_valid", "is not valid yet", "not valid yet"),
    ("no_intermediate", "lacks the intermediate certificate", "intermediate"),
    ("name_only", "is for a name, while the URL has an address", "another address"),
    ("huge", "is too large", "too large"),
):
    name = tls.replace("_", "-")
    about = f"Shows a certificate that {what}."
    down(name, about, WAITS, "tls_failure", "SSL problem: ", tls, **WATCHED)
    down(f"{name}-unwatched", f"{about[:-1]}, without check_ssl.", WAITS, "connection_failure", words, tls)
down("old", "Speaks TLS 1.1 at most.", WAITS, "tls_failure", "TLS", "old", **WATCHED)
down(
    "only-dhe",
    "Exchanges keys only in a custom group (DHE).",
    WAITS,
    "tls_failure",
    "SSL problem: ",
    "only_dhe",
    **WATCHED,
)
down(
    "wildcard-too-deep",
    "Shows a certificate for all names of a domain, one level too high.",
    WAITS,
    "tls_failure",
    "another host name",
    "wildcard",
    place={"name": "a.port.wild.tls.test"},
    zone={"a.port.wild.tls.test": HERE},
    **WATCHED,
)
handshakes: tuple[tuple[str, str, Script, str], ...] = (
    ("closes", "Closes the connection at the handshake.", [Listen()], "ended the connection"),
    ("half-closes", "Closes its side at the handshake.", [Listen(), HangUp()], "ended the connection"),
    ("resets", "Resets the connection at the handshake.", [Listen(), Reset()], "ended the connection"),
    ("greets", "Greets in plain text.", [b"220 mail.example.com ESMTP\r\n", Hang()], "does not speak TLS"),
    ("http", "Answers the handshake in plain HTTP.", [Listen(), b"HTTP/1.1 400 Bad\r\n\r\n"], "does not speak TLS"),
    ("garbage", "Answers the handshake with random bytes.", [Listen(), bytes(range(200, 256))], "does not speak TLS"),
    ("alert", "Refuses every way of encryption.", [Listen(), ALERT + b"\x28"], "no encryption in common"),
    ("alert-name", "Refuses the name.", [Listen(), ALERT + b"\x70"], "no certificate for this host name"),
    ("alert-client", "Demands a client certificate.", [Listen(), ALERT + b"\x74"], "client certificate"),
    ("alert-internal", "Answers with an internal error.", [Listen(), ALERT + b"\x50"], "handshake failed"),
    ("cut", "Truncates its answer to the handshake.", [Listen(), b"\x16\x03\x03\x40\x00\x02"], "ended the connection"),
    ("too-much", "Answers the handshake without end.", [Listen(), Repeat(b"\x16\x03\x03\x40\x00" + bytes(0x4000))], ""),
)
for name, about, script, words in handshakes:
    down(f"handshake-{name}", about, script, "tls_failure", words or "SSL problem: ", None, **WATCHED)
down("stall", "Never answers the handshake.", [Hang()], "timeout", "TLS handshake did not finish", None, **SHORT)
down(
    "drip",
    "Answers the handshake byte by byte.",
    [b"\x16\x03\x03\x40\x00", Repeat(b"\0", 0.05)],
    "timeout",
    "TLS handshake did not finish",
    None,
    **SHORT,
    **WATCHED,
)

reads: tuple[tuple[str, str, Script, dict[str, Any]], ...] = (
    ("greets", "Greets.", HELLO, RULE),
    ("split", "Greets in two pieces.", [b"hel", Pause(0.05), b"lo", Hang()], RULE),
    ("closes", "Greets and closes.", [b"hello"], RULE),
    ("cuts", "Greets and closes in TCP only.", [b"hello", HangUp()], RULE),
    ("to-the-cap", "Sends the text at the end of 64 KiB.", [b"x" * (CAP - 5) + b"hello", Hang()], RULE),
    (
        "answer",
        "Answers the body.",
        [Expect(b"a LOGOUT\r\n"), b"* BYE\r\n"],
        {"request_body": "a LOGOUT\r\n", "content_rules": [contains("BYE")]},
    ),
    (
        "hex",
        "Answers bytes.",
        [Expect(b"\x00"), b"\xff\x00", Hang()],
        {"request_body": "00", "request_body_encoding": "hex", "content_rules": [contains("ff00"), lacks("01")]},
    ),
)
for name, about, script, settings in reads:
    up(f"read-{name}", about, script, **settings, **WATCHED)
broken: tuple[tuple[str, str, Script, str, str, Mapping[str, Any]], ...] = (
    ("silent", "Sends nothing after the handshake.", WAITS, "timeout", "sent nothing", BRIEFLY),
    ("closed", "Closes after the handshake.", [], "content_failure", "without sending anything", RULE),
    ("reset", "Resets the connection after the handshake.", [Reset()], "connection_failure", "", RULE),
    ("other", "Sends another text and closes.", [b"help"], "content_failure", 'not contain "hello"', RULE),
    ("cut", "Sends another text and closes in TCP only.", [b"help", HangUp()], "content_failure", "hello", RULE),
    ("too-much", "Sends without end.", [Repeat(b"x" * 9_999)], "content_failure", "first 64 KiB", RULE),
)
for name, about, script, reason_code, words, given in broken:
    down(f"read-{name}", about, script, reason_code, words or "connection", **given, **WATCHED)


@dataclass(frozen=True)
class Protocol:
    """A dialogue up to the server's go-ahead. `dialogue` begins with the server, except for postgres."""

    name: str
    dialogue: Script
    go: bytes
    refusal: bytes
    refused: str
    greeting: bytes


PROTOCOLS = (
    Protocol(
        "smtp",
        [
            b"220-mail.example.com ESMTP\r\n220 ready\r\n",
            Expect(b"EHLO pulsekeeper.invalid\r\n"),
            b"250-mail.example.com\r\n250-SIZE 1000\r\n250-STARTTLS\r\n250 HELP\r\n",
            Expect(b"STARTTLS\r\n"),
        ],
        b"220 go ahead\r\n",
        b"454 TLS not available\r\n",
        "refuses STARTTLS",
        b"220-more\r\n",
    ),
    Protocol(
        "imap",
        [
            b"* OK [CAPABILITY IMAP4rev1 STARTTLS] ready\r\n* NO full\r\n* CAP",
            b"ABILITY\r\n",
            Expect(b"a STARTTLS\r\n"),
            b"* CAPABILITY IMAP4rev1\r\n",
        ],
        b"a OK go ahead\r\n",
        b"a NO not now\r\n",
        "refuses STARTTLS",
        b"* OK more\r\n",
    ),
    Protocol(
        "pop3",
        [b"+OK ready\r\n", Expect(b"STLS\r\n")],
        b"+OK go ahead\r\n",
        b"-ERR not now\r\n",
        "refuses STLS",
        b"+OK more\r\n",
    ),
    Protocol(
        "ftp",
        [b"120 soon\r\n220-welcome\r\nto this server\r\n 220 is not the end\r\n220 ready\r\n", Expect(b"AUTH TLS\r\n")],
        b"234 go ahead\r\n",
        b"534 not now\r\n",
        "refuses AUTH TLS",
        b"220-more\r\n",
    ),
    Protocol("postgres", [Expect(b"\x00\x00\x00\x08\x04\xd2\x16\x2f")], b"S", b"N", "refuses TLS", b""),
)


def dialogue_up(name: str, about: str, protocol: Protocol, script: Script, tls: str = "good", **given: Any) -> None:
    arguments = _given(script, tls, {}, {"url": f"@main@?starttls={protocol.name}", **given})
    STARTTLS.up(f"{protocol.name}-{name}", about, http_status=None, **arguments)


def dialogue_down(
    name: str,
    about: str,
    protocol: Protocol,
    script: Script,
    reason_code: str,
    words: str,
    tls: str = "good",
    **given: Any,
) -> None:
    context = tls if StartTls() in script else None
    arguments = _given(script, context, {}, {"url": f"@main@?starttls={protocol.name}", **given})
    STARTTLS.down(f"{protocol.name}-{name}", about, reason_code=reason_code, words=words, **arguments)


def dripping(step: Step) -> Script:
    return [piece for byte in step for piece in (bytes([byte]), Pause(0.002))] if isinstance(step, bytes) else [step]


for protocol in PROTOCOLS:
    to_tls: Script = [*protocol.dialogue, protocol.go, StartTls()]
    dialogue_up("good", f"Leads from {protocol.name} to TLS.", protocol, [*to_tls, Hang()], **WATCHED)
    dialogue_up(
        "drip",
        f"Leads from {protocol.name} to TLS with each byte by itself.",
        protocol,
        [*[piece for step in (*protocol.dialogue, protocol.go) for piece in dripping(step)][:-1], StartTls(), Hang()],
        **WATCHED,
    )
    dialogue_up(
        "answer",
        f"Leads from {protocol.name} to TLS and answers the body there.",
        protocol,
        [*to_tls, Expect(b"NOOP\r\n"), b"hello\r\n", Hang()],
        request_body="NOOP\r\n",
        **RULE,
        **WATCHED,
    )
    for tls, what, words in CERTIFICATES:
        name = tls.replace("_", "-")
        about = f"Leads from {protocol.name} to a certificate that {what}."
        dialogue_down(name, about, protocol, to_tls, "tls_failure", words, tls, **WATCHED)
    dialogue_down(
        "expired-unwatched",
        f"Leads from {protocol.name} to a certificate that has expired, without check_ssl.",
        protocol,
        to_tls,
        "connection_failure",
        "No secure connection: the certificate has expired",
        "expired",
    )
    stops: tuple[tuple[str, str, Script, str, str, Mapping[str, Any]], ...] = (
        ("silent", "Sends nothing.", [Hang()], "timeout", "did not start TLS", SHORT),
        (
            "stalls",
            "Stalls in the dialogue.",
            [*protocol.dialogue, protocol.go[:-1], Hang()],
            "timeout",
            "did not start TLS",
            SHORT,
        ),
        (
            "stalling-tls",
            "Gives the go-ahead and never answers the handshake.",
            [*protocol.dialogue, protocol.go, Hang()],
            "timeout",
            "TLS handshake did not finish",
            SHORT,
        ),
        ("closes", "Closes the connection in the dialogue.", protocol.dialogue, "connection_failure", "before TLS", {}),
        (
            "resets",
            "Resets the connection in the dialogue.",
            [*protocol.dialogue, Reset()],
            "connection_failure",
            "reset before TLS",
            WATCHED,
        ),
        (
            "closes-after",
            "Gives the go-ahead and closes.",
            [*protocol.dialogue, protocol.go],
            "tls_failure",
            "ended the connection during the TLS handshake",
            WATCHED,
        ),
        (
            "refuses",
            "Refuses TLS.",
            [*protocol.dialogue, protocol.refusal, Hang()],
            "tls_failure",
            protocol.refused,
            WATCHED,
        ),
        (
            "refuses-unwatched",
            "Refuses TLS, without check_ssl.",
            [*protocol.dialogue, protocol.refusal, Hang()],
            "connection_failure",
            f"No secure connection: the server {protocol.refused}",
            {},
        ),
        (
            "injected",
            "Sends bytes behind its go-ahead.",
            [*protocol.dialogue, protocol.go + b"hello\r\n", StartTls(), Hang()],
            "tls_failure",
            "behind the server's go-ahead",
            WATCHED | RULE,
        ),
        (
            "injected-unwatched",
            "Sends bytes behind its go-ahead, without check_ssl.",
            [*protocol.dialogue, protocol.go + b"x", StartTls(), Hang()],
            "connection_failure",
            "behind the server's go-ahead",
            {},
        ),
        (
            "plain-after",
            "Gives the go-ahead and goes on in plain text.",
            [*protocol.dialogue, protocol.go, Listen(), b"250 this is no TLS\r\n", Hang()],
            "tls_failure",
            "does not speak TLS",
            WATCHED,
        ),
        (
            "other-protocol",
            "Speaks another protocol.",
            [*protocol.dialogue[: protocol.name == "postgres"], b"RFB 003.008\n", Hang()],
            "connection_failure",
            "does not greet",
            WATCHED if protocol.name != "postgres" else {},
        ),
    )
    for name, about, script, reason_code, words, given in stops:
        dialogue_down(name, f"{about[:-1]} ({protocol.name}).", protocol, script, reason_code, words, **given)
    if protocol.greeting:
        dialogue_down(
            "endless",
            f"Sends greetings without end ({protocol.name}).",
            protocol,
            [Repeat(protocol.greeting * 50)],
            "connection_failure",
            "The server sent more than",
            **WATCHED,
        )
        dialogue_down(
            "endless-line",
            f"Sends a line without end ({protocol.name}).",
            protocol,
            [Repeat(protocol.greeting[:4] + b"x" * 996)],
            "connection_failure",
            "16 KiB before TLS",
        )
smtp, imap, pop3, ftp, postgres = PROTOCOLS
others: tuple[tuple[Protocol, str, str, Script, str, str], ...] = (
    (smtp, "turns-away", "Turns the client away.", [b"554 no\r\n", Hang()], "connection_failure", '"554 no"'),
    (
        smtp,
        "not-offered",
        "Does not offer STARTTLS.",
        [b"220 hi\r\n", Expect(b"EHLO pulsekeeper.invalid\r\n"), b"250-hi\r\n250 HELP\r\n", Hang()],
        "tls_failure",
        "does not offer STARTTLS",
    ),
    (
        smtp,
        "no-ehlo",
        "Does not know EHLO.",
        [b"220 hi\r\n", Expect(b"EHLO pulsekeeper.invalid\r\n"), b"502 what?\r\n", Hang()],
        "tls_failure",
        "refuses EHLO",
    ),
    (
        smtp,
        "out-of-turn",
        "Sends all its replies at once.",
        [b"220 hi\r\n250 STARTTLS\r\n220 go\r\n", Hang()],
        "connection_failure",
        "more than one reply",
    ),
    (
        imap,
        "out-of-turn",
        "Sends all its replies at once.",
        [b"* OK hi\r\na OK go\r\n", Hang()],
        "connection_failure",
        "more than one reply",
    ),
    (imap, "bye", "Turns the client away.", [b"* BYE too many\r\n"], "connection_failure", "BYE too many"),
    (imap, "preauth", "Takes the client as signed in.", [b"* PREAUTH hi\r\n"], "connection_failure", "PREAUTH"),
    (
        imap,
        "untagged",
        "Sends untagged lines without end.",
        [b"* OK hi\r\n", Expect(b"a STARTTLS\r\n"), Repeat(b"* 1 EXISTS\r\n" * 50)],
        "connection_failure",
        "16 KiB before TLS",
    ),
    (pop3, "turns-away", "Turns the client away.", [b"-ERR busy\r\n", Hang()], "connection_failure", "ERR busy"),
    (ftp, "turns-away", "Turns the client away.", [b"421 busy\r\n", Hang()], "connection_failure", "421 busy"),
    (ftp, "unknown", "Does not know AUTH.", [b"220 hi\r\n", Listen(), b"500 what?\r\n", Hang()], "tls_failure", "500"),
    (postgres, "error", "Answers with an error.", [Listen(), b"E"], "connection_failure", '"E"'),
)
for protocol, name, about, script, reason_code, words in others:
    dialogue_down(name, about, protocol, script, reason_code, words, **WATCHED)

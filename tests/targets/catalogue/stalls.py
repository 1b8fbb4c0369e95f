"""Targets that stop at some point, and targets that send slowly without an end."""

from __future__ import annotations

from tests.targets.catalogue.case import CHUNKED, SHORT, UNLIMITED, Full, Group, Place, chunk, contains, squeezed
from tests.targets.names import Fault, Name
from tests.targets.server import Hang, Pause, Repeat, Script, Unasked, answer

GROUP = Group("Stalls and drips")
up, down = GROUP.up, GROUP.down

down(
    "stall-dns",
    "Has a name whose servers never answer.",
    Place([answer()], name="silent.stall.test"),
    "timeout",
    "name servers gave no answer",
    zone={"silent.stall.test": Name(Fault.SILENCE, Fault.SILENCE)},
    **SHORT,
)
down(
    "stall-connect",
    "Answers no attempt to connect.",
    Place(Full()),
    "timeout",
    "connection was not established",
    **SHORT,
)
down(
    "stall-tls",
    "Accepts the connection and never answers the TLS handshake.",
    Place(Unasked([Hang()]), scheme="https"),
    "timeout",
    "TLS handshake did not finish",
    check_ssl=True,
    **SHORT,
)
down(
    "stall-tls-without-check-ssl",
    "Never answers the TLS handshake, without check_ssl.",
    Place(Unasked([Hang()]), scheme="https"),
    "timeout",
    "TLS handshake did not finish",
    **SHORT,
)
stalls: tuple[tuple[str, str, Script, str, int | None], ...] = (
    ("answer", "Takes the request and never answers.", [Hang()], "did not answer", None),
    (
        "headers",
        "Stops in the middle of the headers.",
        [b"HTTP/1.1 200 OK\r\nServer:", Hang()],
        "headers did not end",
        200,
    ),
    (
        "last-header",
        "Leaves out the line that ends the headers.",
        [b"HTTP/1.1 200 OK\r\nA: b\r\n", Hang()],
        "headers did not end",
        200,
    ),
    ("first-byte", "Sends headers and not a byte of the body.", [answer(200, length=9), Hang()], "did not end", 200),
    (
        "last-byte",
        "Sends all of the body but a byte.",
        [answer(200, b"12345678", length=9), Hang()],
        "did not end",
        200,
    ),
    (
        "error-body",
        "Answers 500 and stops in the middle of the body.",
        [answer(500, length=9), Hang()],
        "did not end",
        500,
    ),
    ("chunk", "Stops in the middle of a chunk.", [CHUNKED, b"9\r\n1234", Hang()], "did not end", 200),
    ("chunk-size", "Stops before the next chunk.", [CHUNKED, chunk(b"1234"), Hang()], "did not end", 200),
    ("last-chunk", "Leaves out the last chunk.", [CHUNKED, chunk(b"all there is"), Hang()], "did not end", 200),
    ("trailer", "Stops after the last chunk.", [CHUNKED, b"0\r\n", Hang()], "did not end", 200),
    (
        "no-length",
        "Sends a body without a length and does not close.",
        [UNLIMITED, b"hello", Hang()],
        "did not end",
        200,
    ),
    (
        "gzip",
        "Stops in the middle of a compressed body.",
        [answer(200, squeezed(b"x" * 999)[:-9], "Content-Encoding: gzip", length=999), Hang()],
        "did not end",
        200,
    ),
)
for name, about, script, words, status in stalls:
    down(f"stall-{name}", about, script, "timeout", words, http_status=status, **SHORT)
down(
    "stall-status-line",
    "Stops in the middle of the status line.",
    [b"HTTP/1.1 2", Hang()],
    "timeout",
    "did not",
    **SHORT,
)
down(
    "stall-after-the-word",
    "Sends what the rule asks for, and then does not end.",
    [answer(200, b"the end", length=99), Hang()],
    "timeout",
    "did not end",
    http_status=200,
    content_rules=[contains("the end")],
    **SHORT,
)
down(
    "stall-tls-answer",
    "Ends the TLS handshake and never answers the request.",
    Place([Hang()], tls="good"),
    "timeout",
    "did not answer",
    check_ssl=True,
    **SHORT,
)
down("stall-trigger", "Never answers a trigger.", [Hang()], "timeout", "did not answer", type="scheduler", **SHORT)

drips: tuple[tuple[str, str, Script, str, int | None], ...] = (
    (
        "headers",
        "Sends a header every 50 ms, without end.",
        [b"HTTP/1.1 200 OK\r\n", Repeat(b"X: y\r\n", 0.05)],
        "headers did not end",
        200,
    ),
    (
        "header-line",
        "Sends one header byte by byte, without end.",
        [b"HTTP/1.1 200 OK\r\nX: ", Repeat(b"y", 0.05)],
        "headers did not end",
        200,
    ),
    (
        "body",
        "Sends a byte of the body every 50 ms.",
        [answer(200, length=9999), Repeat(b"x", 0.05)],
        "did not end",
        200,
    ),
    ("chunks", "Sends a chunk every 50 ms, without end.", [CHUNKED, Repeat(chunk(b"x"), 0.05)], "did not end", 200),
    (
        "interim",
        "Sends an interim answer every 50 ms, without end.",
        [Repeat(b"HTTP/1.1 102 Processing\r\n\r\n", 0.05)],
        "did not",
        102,
    ),
    ("blanks", "Sends blanks before a body that never comes.", [UNLIMITED, Repeat(b" ", 0.05)], "did not end", 200),
)
for name, about, script, words, status in drips:
    down(f"drip-{name}", about, script, "timeout", words, http_status=status, **SHORT)
down(
    "drip-tls",
    "Sends a TLS handshake byte by byte.",
    Place(Unasked([b"\x16\x03\x03\x40\x00", Repeat(b"\0", 0.05)]), scheme="https"),
    "timeout",
    "TLS handshake did not finish",
    **SHORT,
)
up(
    "drip-in-time",
    "Sends its answer in pieces, and ends in time.",
    [b"HTTP/1.1 ", Pause(0.05), b"200 OK\r\nContent-", Pause(0.05), b"Length: 7\r\n\r\nthe ", Pause(0.05), b"end"],
    content_rules=[contains("the end")],
)
up("kept-open", "Answers in full and keeps the connection open.", [answer(200, b"hello"), Hang()])
up("kept-open-empty", "Answers 204 and keeps the connection open.", [answer(204), Hang()], http_status=204)

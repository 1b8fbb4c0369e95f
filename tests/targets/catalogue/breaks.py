"""Truncated responses, reset connections, and data that is not HTTP."""

from __future__ import annotations

from tests.targets.catalogue.case import CHUNKED, UNLIMITED, Closed, Group, Place, chunk, contains
from tests.targets.server import HangUp, Listen, Repeat, Reset, Script, Unasked, answer

GROUP = Group("Truncation, resets and invalid HTTP")
up, down = GROUP.up, GROUP.down

_HEAD = b"HTTP/1.1 200 OK\r\n"
cut: tuple[tuple[str, str, Script, int], ...] = (
    ("length", "Closes before the announced length.", [answer(200, b"half", length=9)], 200),
    ("no-body", "Announces a body and closes.", [answer(200, length=9)], 200),
    ("reset-body", "Resets the connection in the middle of the body.", [answer(200, b"half", length=9), Reset()], 200),
    ("error-body", "Answers 500 and closes in the middle of the body.", [answer(500, b"half", length=9)], 500),
    ("chunk", "Closes in the middle of a chunk.", [CHUNKED, b"9\r\nhalf"], 200),
    ("no-chunk", "Announces chunks and sends none.", [CHUNKED], 200),
    ("last-chunk", "Closes before the last chunk.", [CHUNKED, chunk(b"the end")], 200),
    ("reset-chunk", "Resets the connection between chunks.", [CHUNKED, chunk(b"half"), Reset()], 200),
    ("chunk-size", "Sends a chunk whose size is not a number.", [CHUNKED, b"zz\r\nhalf\r\n0\r\n\r\n"], 200),
    ("chunk-end", "Sends a chunk longer than announced.", [CHUNKED, b"4\r\ntoo long\r\n0\r\n\r\n"], 200),
    ("headers", "Closes in the middle of the headers.", [_HEAD, b"Server: x\r\n"], 200),
    ("header-line", "Closes in the middle of a header.", [_HEAD, b"Server: "], 200),
    ("reset-headers", "Resets the connection in the middle of the headers.", [_HEAD, b"Server: x\r\n", Reset()], 200),
)
for name, about, script, status in cut:
    down(f"cut-{name}", about, script, "partial_response", "cut short", http_status=status)
down(
    "cut-after-the-word",
    "Sends what the rule asks for, and closes before the end.",
    [answer(200, b"the end", length=99)],
    "partial_response",
    "cut short",
    http_status=200,
    content_rules=[contains("the end")],
)
down(
    "cut-tls-length",
    "Closes before the announced length, over TLS.",
    Place([answer(200, b"half", length=9)], tls="good"),
    "partial_response",
    "cut short",
    http_status=200,
)
down(
    "cut-tls-without-notice",
    "Ends a body without a length, over TLS, without the notice that it is the end.",
    Place([UNLIMITED, b"half", HangUp()], tls="good"),
    "partial_response",
    "cut short",
    http_status=200,
)

up("more-than-announced", "Sends more than the announced length.", [answer(200, b"too long", length=3)])
up("until-close", "Sends a body that ends with the connection.", [UNLIMITED, b"hello"])
up(
    "chunked",
    "Sends chunks.",
    [CHUNKED, chunk(b"the "), chunk(b"end"), b"0\r\n\r\n"],
    content_rules=[contains("the end")],
)
up(
    "chunked-and-length",
    "Announces a length and sends chunks, which count.",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(b"the end"), b"0\r\n\r\n"],
    content_rules=[contains("the end")],
)
up(
    "chunk-extensions",
    "Sends chunks with extensions and trailers.",
    [CHUNKED, b"0007;a=b\r\nthe end\r\n0\r\nX: y\r\n\r\n"],
    content_rules=[contains("the end")],
)

broken: tuple[tuple[str, str, Script, str], ...] = (
    ("empty", "Closes without an answer.", [], "without an answer"),
    ("reset", "Resets the connection instead of an answer.", [Reset()], "without an answer"),
    ("blank-line", "Answers with an empty line only.", [b"\r\n"], "not valid HTTP"),
    ("html", "Answers with a page and no headers.", [b"<!doctype html><p>hello"], "not valid HTTP"),
    ("ssh", "Answers as an SSH server.", [b"SSH-2.0-OpenSSH_9\r\n"], "not valid HTTP"),
    ("binary", "Answers with random bytes.", [bytes(range(256))], "not valid HTTP"),
    ("zeros", "Answers with zero bytes.", [bytes(999)], "not valid HTTP"),
)
for name, about, script, words in broken:
    down(f"broken-{name}", about, script, "connection_failure", words)
unasked: tuple[tuple[str, str, Script, str], ...] = (
    ("close", "Closes the connection before the request.", [], "without an answer"),
    ("reset", "Resets the connection before the request.", [Reset()], "connection"),
    ("listen-close", "Closes the connection in the middle of the request.", [Listen()], "without an answer"),
    ("smtp", "Greets first, as mail servers do.", [b"220 mail.example ESMTP\r\n", Listen()], "not valid HTTP"),
)
for name, about, script, words in unasked:
    down(f"unasked-{name}", about, Place(Unasked(script)), "connection_failure", words)
up("unasked-answer", "Answers before the request.", Place(Unasked([answer(200, b"hello"), Listen()])))
down("closed-port", "Has no listener on the port.", Place(Closed()), "connection_failure", "refused")

malformed: tuple[tuple[str, str, Script], ...] = (
    ("no-colon", "Sends a header without a colon.", [_HEAD + b"odd\r\n\r\n"]),
    ("nul", "Sends a header with a NUL.", [answer(200, b"", "X: a\0b")]),
    ("length-negative", "Announces a negative length.", [_HEAD + b"Content-Length: -1\r\n\r\n"]),
    ("length-letters", "Announces a length of letters.", [_HEAD + b"Content-Length: abc\r\n\r\n"]),
    ("endless", "Sends headers without end.", [_HEAD, Repeat(b"X-Long: " + b"x" * 8000 + b"\r\n")]),
    ("endless-line", "Sends one header without end.", [_HEAD + b"X: ", Repeat(b"x" * 8000)]),
)
for name, about, script in malformed:
    down(f"headers-{name}", about, script, "connection_failure", "not valid HTTP", http_status=200)

"""Headers and sizes at their limits, and latency around `slow_ms`."""

from __future__ import annotations

from tests.targets.catalogue.case import CHUNKED, MIB, Group, Place, chunk, contains
from tests.targets.server import Pause, Repeat, Script, Seen, answer, redirect

GROUP = Group("Sizes, headers and latency")
up, slow, down = GROUP.up, GROUP.slow, GROUP.down

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"

good_headers: tuple[tuple[str, str, Script], ...] = (
    ("many", "Sends 2,000 headers.", [_HEAD, b"X-Short: y\r\n" * 2000, b"\r\n"]),
    ("long", "Sends a header of 90,000 bytes.", [_HEAD, b"X-Long: " + b"x" * 90_000, b"\r\n\r\n"]),
    ("no-charset", "Sends headers of no known charset.", [answer(200, b"", "X-Odd: \x01\xff", "Content-Type: \xff")]),
    ("empty", "Sends empty headers.", [answer(200, b"", "X-Empty:", "X-Blank:   ")]),
    ("folded", "Folds a header over two lines.", [answer(200, b"", "X-Folded: a\r\n  b")]),
    ("cookies", "Sets a hundred cookies.", [answer(200, b"", *(f"Set-Cookie: c{n}=v" for n in range(100)))]),
)
for name, about, script in good_headers:
    up(f"headers-{name}", about, script)
bad_headers: tuple[tuple[str, str, Script], ...] = (
    ("too-long", "Sends a header of 120,000 bytes.", [_HEAD, b"X-Long: " + b"x" * 120_000, b"\r\n\r\n"]),
    ("too-many", "Sends 400,000 bytes of headers.", [_HEAD, (b"X-Long: " + b"x" * 4000 + b"\r\n") * 100, b"\r\n"]),
)
for name, about, script in bad_headers:
    down(f"headers-{name}", about, script, "connection_failure", "not valid HTTP", http_status=200)

bodies: tuple[tuple[str, str, Script], ...] = (
    ("empty", "Sends an empty body.", [answer(200)]),
    ("one-byte", "Sends a byte.", [answer(200, b"x")]),
    ("one-mib", "Sends exactly 1 MiB.", [answer(200, b"x" * MIB)]),
    ("over", "Sends 3 MiB.", [answer(200, b"x" * (3 * MIB))]),
    ("huge", "Announces a terabyte and sends without end.", [answer(200, length=10**12), Repeat(b"x" * 65536)]),
    ("endless-chunks", "Sends chunks without end.", [CHUNKED, Repeat(chunk(b"x" * 65536))]),
    ("tiny-chunks", "Sends 5,000 chunks of a byte.", [CHUNKED, chunk(b"x") * 5000, b"0\r\n\r\n"]),
    ("second-answer", "Sends a second, unrequested response.", [answer(200, b"one"), answer(500, b"two")]),
)
for name, about, script in bodies:
    up(f"body-{name}", about, script)
up(
    "url-long",
    "Gets a request for an address of 2,000 characters.",
    lambda seen: [answer(200 if len(seen.path) > 1900 else 414)],
    url="@main@/" + "x" * 1950,
)
up(
    "url-query",
    "Gets a request with a non-ASCII query.",
    lambda seen: [answer(200 if seen.path == "/a?q=%C3%BC" else 404)],
    url="@main@/a?q=ü#part",
)
up(
    "request-headers",
    "Answers only requests with the monitor's own header.",
    lambda seen: [answer(200 if seen.header("x-key") == "s3cret" else 401)],
    request_headers=[{"name": "X-Key", "value": "s3cret"}],
)
down(
    "request-headers-wrong",
    "Refuses the monitor's own header, and repeats it.",
    lambda seen: [answer(401, (seen.header("x-key") or "").encode())],
    "http_failure",
    "401",
    http_status=401,
    request_headers=[{"name": "X-Key", "value": "wrong"}],
)


def two_slow_hops(seen: Seen) -> Script:
    return [Pause(0.3), *([answer()] if seen.path == "/end" else redirect("/end"))]


def head_and_get(seen: Seen) -> Script:
    return [Pause(0.3), answer(405 if seen.method == "HEAD" else 200)]


up("latency-below", "Answers faster than the threshold.", [answer()], slow_ms=9000)
slow("latency-at-0", "Answers where every latency is slow.", [answer()], slow_ms=0)
slow("latency-answer", "Answers after 0.4 s.", [Pause(0.4), answer()], slow_ms=300)
slow(
    "latency-body",
    "Answers at once and takes 0.4 s for the body.",
    [answer(200, b"half", length=8), Pause(0.4), b"half"],
    slow_ms=300,
)
slow(
    "latency-rules",
    "Answers with the word after 0.4 s.",
    [Pause(0.4), answer(200, b"the end")],
    slow_ms=300,
    content_rules=[contains("the end")],
)
slow(
    "latency-redirects",
    "Takes 0.3 s for each of two hops, which count together.",
    two_slow_hops,
    slow_ms=500,
    follow_redirects=True,
)
slow(
    "latency-head-and-get",
    "Takes 0.3 s to refuse HEAD and 0.3 s for GET, which count together.",
    head_and_get,
    slow_ms=500,
    method="HEAD",
)
slow("latency-trigger", "Answers a trigger after 0.4 s.", [Pause(0.4), answer()], slow_ms=300, type="scheduler")
slow(
    "latency-tls",
    "Answers after 0.4 s, over TLS.",
    Place([Pause(0.4), answer()], tls="good"),
    slow_ms=300,
    check_ssl=True,
)
down(
    "latency-500",
    "Answers 500 after 0.4 s, which is down and not slow.",
    [Pause(0.4), answer(500)],
    "http_failure",
    "500",
    http_status=500,
    slow_ms=300,
)
up("latency-below-timeout", "Answers after 0.8 s of the 2 s it has.", [Pause(0.8), answer()], timeout_ms=2000)

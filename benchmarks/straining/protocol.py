"""Inputs of the gateway's own protocol, as bytes: request lines, headers, encodings and chunks."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.straining.measuring import Input

PATHS = (
    "/healthz",
    "/account/login/",
    "/v1/monitors",
    "/status/full",
    "/metrics",
    "/static/pulsekeeper.css",
    "/nothing",
)


def inputs(slug: str) -> Iterator[Input]:
    for path in PATHS:
        place = path.replace("full", slug)
        for title, lines in _headers():
            raw = f"GET {place} HTTP/1.1\r\nHost: localhost\r\n{lines}Connection: close\r\n\r\n"
            yield Input("anonymous", f"protocol {path} {title}", raw.encode("utf-8", "surrogateescape"))
    for title, line in _lines():
        yield Input("anonymous", f"protocol {title}", line)
    for path in ("/v1/sessions", "/account/login/", "/nothing"):
        for title, body in _bodies(path):
            yield Input("anonymous", f"protocol {path} {title}", body)


def _headers() -> Iterator[tuple[str, str]]:
    yield "bare", ""
    for name, value in (
        ("Accept-Language", "de;q=0.1," * 900),
        ("Accept-Language", "a-" * 4_000),
        ("Accept", "text/html;q=0.1," * 4_000),
        ("Accept", "a/b;" * 8_000),
        ("Accept-Encoding", "gzip;q=0.5, br;q=0," * 3_000),
        ("Cookie", "; ".join(f"a{number}=1" for number in range(5_000))),
        ("Cookie", 'a="' + "\\303" * 15_000 + '"'),
        ("Cookie", "sessionid=" + "a" * 60_000),
        ("Cookie", "csrftoken=" + "a" * 60_000),
        ("If-None-Match", ", ".join(f'"{number}"' for number in range(8_000))),
        ("If-None-Match", 'W/"' + "\\" * 60_000),
        ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT" + " " * 50_000),
        ("Range", "bytes=" + ",".join("0-1" for _ in range(15_000))),
        ("Authorization", "Bearer " + "a" * 60_000),
        ("Authorization", "Bearer ses_" + "a" * 68),
        ("Authorization", "Basic " + "A" * 60_000),
        ("User-Agent", "é" * 30_000),
        ("User-Agent", "(" * 60_000),
        ("Referer", "http://" + "a." * 30_000),
        ("Origin", "http://" + "[" * 60_000),
        ("X-Forwarded-For", ", ".join(["192.0.2.1"] * 5_000)),
        ("Forwarded", "for=" * 15_000),
        ("X-Request-Id", "a" * 60_000),
        ("Idempotency-Key", "a" * 60_000),
        ("Content-Type", "multipart/form-data; boundary=" + "b" * 60_000),
        ("Content-Type", "text/plain;" + " a=b;" * 10_000),
        ("HX-Current-URL", "http://" + "%" * 60_000),
        ("Host", "a." * 30_000),
        ("Host", "[" + ":" * 60_000 + "]"),
        ("traceparent", "00-" + "a" * 60_000),
        ("baggage", ",".join(f"a{number}=1" for number in range(6_000))),
    ):
        yield f"{name} of {len(value)} bytes: {value[:20]!r}", f"{name}: {value}\r\n"
    for number in (90, 400, 4_000):
        yield f"{number} headers", "".join(f"X-{each}: y\r\n" for each in range(number))
        yield f"a header {number} times", "X-A: y\r\n" * number
        yield f"Cookie {number} times", "Cookie: a=b\r\n" * number
    yield "a header of 300 KB", f"X-A: {'y' * 300_000}\r\n"


def _lines() -> Iterator[tuple[str, bytes]]:
    end = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    yield "path of 60 KB", b"GET /" + b"a" * 60_000 + end
    yield "slashes", b"GET " + b"/" * 60_000 + end
    yield "dots", b"GET " + b"/.." * 20_000 + end
    yield "escapes", b"GET /" + b"%f0%9f%98%80" * 5_000 + end
    yield "invalid escapes", b"GET /" + b"%ff" * 20_000 + end
    yield "id of 60 KB", b"GET /v1/monitors/" + b"a" * 60_000 + end
    yield "slug of 60 KB", b"GET /status/" + b"a" * 60_000 + end
    yield "static of 60 KB", b"GET /static/" + b"../" * 20_000 + end
    yield "admin of 60 KB", b"GET /admin/" + b"a/" * 30_000 + end
    yield "confirmation of 60 KB", b"GET /account/confirm-email/" + b":" * 60_000 + b"/" + end
    yield "reset of 60 KB", b"GET /account/password/reset/" + b"z" * 30_000 + b"-" + b"a" * 30_000 + b"/" + end
    yield "method of 60 KB", b"G" * 60_000 + b" /" + end
    yield "odd method", b"PROPFIND /v1/monitors" + end
    yield "absolute target", b"GET http://" + b"a." * 20_000 + b"/" + end
    yield "query of 60 KB", b"GET /account/login/?next=" + b"%2F" * 20_000 + end
    yield "no HTTP", b"\x16\x03\x01" * 1_000 + b"\r\n\r\n"
    yield "HTTP/1.0", b"GET / HTTP/1.0\r\n\r\n"


def _bodies(path: str) -> Iterator[tuple[str, bytes]]:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n".encode()
    )
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    yield "chunks of one byte", chunked + b"1\r\n \r\n" * 250_000 + b"0\r\n\r\n"
    yield "chunk extensions", chunked + (b"1;" + b"a=b;" * 200 + b"\r\n \r\n") * 200 + b"0\r\n\r\n"
    yield "a chunk of 1.5 MB", chunked + b"16e360\r\n" + b" " * 1_500_000 + b"\r\n0\r\n\r\n"
    yield "a chunk of 3 MB", chunked + b"2dc6c0\r\n" + b" " * 3_000_000 + b"\r\n0\r\n\r\n"
    yield "trailers", chunked + b"0\r\n" + b"X: y\r\n" * 2_000 + b"\r\n"
    yield "1.5 MB", head + b"Content-Length: 1500000\r\n\r\n" + b" " * 1_500_000
    yield "a length of 1 GB", head + b"Content-Length: 1000000000\r\n\r\n" + b" " * 100_000
    yield "gzip", head + b"Content-Encoding: gzip\r\nContent-Length: 100000\r\n\r\n" + b"\x1f\x8b" * 50_000
    yield "two lengths", head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"
    yield (
        "utf-16",
        head.replace(b"/json", b"/json; charset=utf-16") + b"Content-Length: 200000\r\n\r\n" + b"a\0" * 100_000,
    )

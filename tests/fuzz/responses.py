"""Strategies: a complete response, its delivery, and the check that gets it."""

from __future__ import annotations

import gzip
import itertools
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from hypothesis import strategies as st

from checks.probes.http.spec import HttpSpec
from checks.spec import ContentRule, RuleType
from tests.fuzz import pools
from tests.fuzz.verdicts import SECRET
from tests.targets.server import Hang, Pause, Repeat, Reset, Script, Step

MIB = 1024 * 1024
# The wheel's libcurl decodes it, and no module here can encode it.
BROTLI_HELLO = b"\x0b\x05\x80hello world\x03"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
EMPTY_MEMBER = gzip.compress(b"", mtime=0)
EMPTY_BLOCK = b"\0\0\0\xff\xff"  # of deflate, stored
SILENT_BYTES = 64 * MIB

Draw = st.DrawFn
chance = st.integers(0, 99)


@dataclass(frozen=True)
class Shot:
    """A script and the check that gets it. The spec's URL is set when the server is known."""

    script: Script
    spec: HttpSpec
    host: str = "127.0.0.1"
    tls: bool = False

    def __repr__(self) -> str:
        steps = [step if not isinstance(step, bytes) else _abridged(step) for step in self.script]
        return f"Shot({self.spec.method} tls={self.tls} host={self.host} {steps} {_settings(self.spec)})"


def _abridged(data: bytes) -> object:
    if len(data) <= 600:
        return data
    return (data[:400], f"… {len(data)} bytes, crc {zlib.crc32(data):08x} …", data[-100:])


def _settings(spec: HttpSpec) -> str:
    names = ("timeout_ms", "slow_ms", "expect_status", "follow_redirects", "check_ssl", "only_2xx", "body", "rules")
    return " ".join(f"{name}={getattr(spec, name)!r}" for name in names)


def noise(seed: int, size: int) -> bytes:
    """Random bytes that cost hypothesis one choice instead of thousands."""
    return random.Random(seed).randbytes(size)


@st.composite
def random_bytes(draw: Draw) -> bytes:
    size = draw(st.sampled_from((0, 1, 2, 7, 40, 300, 5_000, 70_000)))
    return draw(st.sampled_from((b"", b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n"))) + noise(
        draw(st.integers(0, 65_535)), size
    )


def _status_line(version: bytes, status: int) -> bytes:
    return b"HTTP/%s %d Whatever" % (version, status)


# Mostly statuses that pass or redirect, so that the check continues with the body or the next response.
SOBER_STATUS_LINES = st.builds(
    _status_line,
    st.sampled_from((b"1.1", b"1.1", b"1.1", b"1.0")),
    st.sampled_from((*(200,) * 16, *(302, 307) * 3, *pools.STATUSES)),
)


def _valued(name: bytes, values: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    return st.sampled_from(values).map(lambda value: name + b": " + value)


LOCATION_LINES = _valued(b"Location", pools.LOCATIONS)
# No Location among them: libcurl refuses a response with two.
SOBER_LINES = _valued(b"Content-Type", tuple(b"text/html; charset=" + name for name in pools.CHARSETS))
HEADER_LINES: st.SearchStrategy[bytes] = st.one_of(
    SOBER_LINES,
    LOCATION_LINES,
    _valued(b"Content-Length", pools.LENGTHS),
    _valued(b"Transfer-Encoding", pools.TRANSFER_ENCODINGS),
    _valued(b"Content-Encoding", pools.CODINGS),
    st.sampled_from(pools.ODD_LINES),
    st.sampled_from(pools.ODD_LINES),
)


@st.composite
def plain_bodies(draw: Draw) -> bytes:
    kind = draw(chance)
    if kind < 30:
        return draw(st.sampled_from((b"", b"the end", b"hello the end\n", b"\xff\xfe\x00", b"\xc3\xbcber the end")))
    if kind < 75:
        return draw(st.sampled_from(pools.JSON_TEXTS))
    if kind < 95:
        return noise(draw(st.integers(0, 255)), draw(st.sampled_from((1, 100, 10_000))))
    return draw(st.sampled_from((b"x" * MIB, b"x" * (MIB + 1), b"ab" * MIB, b"\xf0\x9f\x98\x80" * (MIB // 4))))


def _raw_deflate(data: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return coder.compress(data) + coder.flush()


ENCODERS: tuple[tuple[bytes, Callable[[bytes], bytes]], ...] = (
    (b"gzip", gzip.compress),
    (b"gzip", gzip.compress),
    (b"gzip", gzip.compress),
    (b"deflate", zlib.compress),
    (b"deflate", zlib.compress),
    (b"deflate", _raw_deflate),
    (b"br", lambda _: BROTLI_HELLO),
    (b"zstd", lambda data: ZSTD_MAGIC + data),
    (b"odd", lambda data: data),
)


@lru_cache
def bomb(layers: int, size: int) -> bytes:
    """Zeros behind `layers` of gzip."""
    data = bytes(size)
    for _ in range(layers):
        data = gzip.compress(data, 6)
    return data


@lru_cache
def silent_bomb(piece: bytes, size: int) -> bytes:
    """Two layers of gzip; the inner one is `size` bytes that decode to nothing, so that no cap on output ends it."""
    start = b"" if piece == EMPTY_MEMBER else gzip.compress(b"")[:10]
    return gzip.compress(start + piece * (size // len(piece)), 6)


@st.composite
def coded_bodies(draw: Draw) -> tuple[list[bytes], bytes]:
    """Header lines and a body: encoded correctly, truncated, corrupted, followed by garbage, or a bomb."""
    kind = draw(chance)
    if kind < 4:
        silent = silent_bomb(draw(st.sampled_from((EMPTY_MEMBER, EMPTY_BLOCK))), SILENT_BYTES)
        return [b"Content-Encoding: gzip, gzip"], silent
    if kind < 12:
        layers = draw(st.integers(1, 4))
        data = bomb(layers, draw(st.sampled_from((MIB, MIB + 1, 4 * MIB, 32 * MIB))))
        return [b"Content-Encoding: " + b", ".join([b"gzip"] * layers)], data
    data, names = draw(plain_bodies()), []
    for name, encode in draw(st.lists(st.sampled_from(ENCODERS), min_size=1, max_size=3)):
        data = encode(data)
        names.append(name)
    how = draw(st.sampled_from((0, 0, 0, 0, 1, 2, 3, 4)))
    at = draw(st.integers(0, 255)) * len(data) // 256
    if how == 1:
        data = data[:at]
    elif how == 2:
        data = data[:at] + noise(at, 3) + data[at + 3 :]
    elif how == 3:
        data += noise(at, 1 + at % 64)
    elif how == 4:
        data += data  # a second member
    return [b"Content-Encoding: " + b", ".join(names)], data


@st.composite
def chunked(draw: Draw, body: bytes) -> bytes:
    size = draw(st.sampled_from((1, 7, 1_000, 65_536)))
    size = max(size, len(body) // 200 + 1)
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    framed = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
    if draw(chance) < 30:
        framed.insert(draw(st.integers(0, 255)) * (len(framed) + 1) // 256, draw(st.sampled_from(pools.BAD_CHUNKS)))
    return b"".join(framed) + draw(st.sampled_from(pools.CHUNK_ENDS))


@st.composite
def http_responses(draw: Draw) -> bytes:
    """A response like HTTP: half of them are odd only in the body, the other half anywhere."""
    sober = draw(chance) < 50
    odd_start = not sober and draw(chance) < 20
    lines = [draw(st.sampled_from(pools.ODD_STATUS_LINES) if odd_start else SOBER_STATUS_LINES)]
    if b" 30" in lines[0] and draw(chance) < 85:
        lines.append(draw(LOCATION_LINES))
    lines += draw(st.lists(SOBER_LINES if sober else HEADER_LINES, min_size=0 if sober else 1, max_size=3))
    coding, body = draw(coded_bodies()) if draw(chance) < 45 else ([], draw(plain_bodies()))
    if draw(chance) < 90:  # otherwise the body's coding is not declared
        lines += coding
    framing = draw(chance)
    if framing < 45:
        lines.append(b"Content-Length: %d" % len(body))
    elif framing < 75:
        lines.append(b"Transfer-Encoding: chunked")
        body = draw(chunked(body))
    elif framing < 88:
        lines.append(b"Content-Length: %d" % max(0, len(body) + draw(st.sampled_from((-7, -1, 1, 9, 99_999)))))
    ending = b"\r\n" if sober or draw(chance) < 90 else draw(st.sampled_from((b"\n", b"\r", b"\r\r\n", b"\n\r\n")))
    response = ending.join(lines) + ending * 2 + body
    if draw(chance) < 8:
        response = b"".join(draw(st.lists(st.sampled_from(pools.INTERIM), min_size=1, max_size=3))) + response
    if draw(chance) < 8:
        response += draw(st.sampled_from((b"HTTP/1.1 500 Next\r\n\r\n", b"\r\n\r\n", response[:5_000])))
    return response


@st.composite
def spoilt(draw: Draw, data: bytes) -> bytes:
    """`data` with some bytes replaced, dropped or doubled, mostly near the start, in the headers."""
    spoiled = bytearray(data)
    for _ in range(draw(st.integers(0, 4))):
        within = min(len(spoiled), draw(st.sampled_from((64, 400, 100_000))))
        at = draw(st.integers(0, 255)) * within // 256
        gone = draw(st.sampled_from((0, 1, 1, 2, 8, 100)))
        spoiled[at : at + gone] = draw(st.binary(max_size=4))
    if draw(st.booleans()):
        del spoiled[draw(st.integers(0, 255)) * len(spoiled) // 256 :]
    return bytes(spoiled)


@st.composite
def deliveries(draw: Draw, data: bytes) -> list[Step]:
    """The bytes in pieces, and the actions of the server between and after them."""
    how = draw(chance)
    if how < 45:
        return [data]
    places = sorted(draw(st.lists(st.integers(0, 255), min_size=1, max_size=4)))
    cuts = [0, *(place * len(data) // 256 for place in places), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(cuts)]
    if how < 65:
        return [step for piece in pieces for step in (piece, Pause(0.002))]
    if how < 73:
        return [pieces[0], Hang()]
    if how < 76:
        return [data, Hang()]
    if how < 83:
        return [pieces[0], Reset()]
    if how < 89:  # a drip that lasts longer than any deadline
        step = max(1, len(data) // 40)
        drips = [data[at : at + step] for at in range(0, len(data), step)]
        return [item for drip in drips for item in (drip, Pause(0.02))]
    if how < 95:
        return [pieces[0], Repeat(pieces[1] or b"\0", draw(st.sampled_from((0.001, 0.01, 0.05))))]
    return [data, Repeat(noise(how, 16_384), 0.001)]


RULES = (
    (),
    (),
    (),
    (ContentRule(RuleType.TEXT_CONTAINS, value="the end"),),
    (ContentRule(RuleType.TEXT_CONTAINS, value="ü\0\u202e" + "x" * 500),),
    (ContentRule(RuleType.TEXT_ABSENT, value="error"),),
    (ContentRule(RuleType.TEXT_ABSENT, value=""),),
    (ContentRule(RuleType.JSON_FIELD, path="a"),),
    (ContentRule(RuleType.JSON_FIELD, path="a", equals="1"),),
    (ContentRule(RuleType.JSON_FIELD, path="a.b.1", equals="2"),),
    (ContentRule(RuleType.JSON_FIELD, path="..", equals=""), ContentRule(RuleType.TEXT_ABSENT, value="z")),
    (ContentRule(RuleType.TEXT_ABSENT, value="z"), ContentRule(RuleType.JSON_FIELD, path="0")),
)
METHODS = ("GET", "GET", "GET", "GET", "HEAD", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
HOSTS = ("127.0.0.1",) * 12 + ("localhost", "localhost", "good.test", "both.test", "127.1")


@st.composite
def specs(draw: Draw) -> HttpSpec:
    method = draw(st.sampled_from(METHODS))
    return HttpSpec(
        "",
        method=method,
        body='{"ü": 1}' if method in {"POST", "PUT", "DELETE"} and draw(st.booleans()) else None,
        headers=(("Authorization", SECRET), ("X-Empty", "")) if draw(chance) < 30 else (),
        timeout_ms=draw(st.sampled_from((300, 400, 500, 600))),
        slow_ms=draw(st.sampled_from((0, 50, 1_500))),
        expect_status=draw(st.sampled_from((None, None, None, 200, 302, 405, 999))),
        follow_redirects=draw(st.booleans()),
        check_ssl=draw(st.booleans()),
        rules=draw(st.sampled_from(RULES)),
        only_2xx=draw(chance) < 10,
    )


@st.composite
def shots(draw: Draw) -> Shot:
    response = draw(random_bytes() if draw(chance) >= 94 else http_responses())
    if draw(chance) >= 80:
        response = draw(spoilt(response))
    return Shot(
        script=draw(deliveries(response)), spec=draw(specs()), host=draw(st.sampled_from(HOSTS)), tls=draw(chance) >= 85
    )

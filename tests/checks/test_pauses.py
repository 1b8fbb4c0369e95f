"""How long one response blocks all other checks of the loop, in CPU time: targets send responses that are slow to read.

CPU time of the loop's thread is measured, so that a busy machine does not lengthen pauses. Slow responses need
quadratic time, or have a mebibyte at a slow step; the bound is several times the slowest case.
"""

from __future__ import annotations

import gzip
import itertools
import random
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from checks.probes import reactor
from checks.probes.engine import ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.probes.resolver import Resolver
from checks.spec import CheckOutcome, ContentRule, ReasonCode, RuleType
from tests.checks.conftest import LOOPBACK
from tests.targets.certificates import Certificates
from tests.targets.names import Name
from tests.targets.server import Script, Site, TargetServer

LONGEST_PAUSE = 0.15  # seconds of CPU
TRIES = 3  # a garbage collection may fall into one
MIB = 1024 * 1024

HEADERS = (
    "Location",
    "Content-Type",
    "Content-Encoding",
    "Transfer-Encoding",
    "Set-Cookie",
    "Server",
    "WWW-Authenticate",
    "Proxy-Authenticate",
    "Retry-After",
    "Alt-Svc",
    "Strict-Transport-Security",
    "Connection",
    "Link",
    "Via",
    "X-Of-Their-Own",
)  # fmt: skip
ATOMS = (
    "?", "=", "&", ";", ",", " ", "\t", "a", "a-", "a=", "?a", "&a", ".", "../", "//", "://", "http://", "a@", '"',
    "\\", "%", "%41", "token ", "token:", "bearer ", "basic ", "sig", "charset ", "charset=", "gzip,", "é", "\u0301",
    "\u0327\u0301", "\U0001f600", "\u3002",
)  # fmt: skip
LONG = 40_000


class Looks:
    """An epoll that records the CPU time of its thread between two calls of `poll`."""

    longest: float
    _since: float

    def __init__(self) -> None:
        self._epoll = select.epoll()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        self.note()
        ready = self._epoll.poll(timeout)
        Looks._since = time.thread_time()
        return ready

    @staticmethod
    def note() -> None:
        Looks.longest = max(Looks.longest, time.thread_time() - Looks._since)

    @staticmethod
    def begin() -> None:
        Looks.longest, Looks._since = 0.0, time.thread_time()


class Range:
    """A server of bait, and the engine that reads it."""

    def __init__(self, targets: TargetServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reactor, "select", SimpleNamespace(**vars(select) | {"epoll": Looks}))
        self.targets = targets
        self.site = targets.serve(lambda _: self._script)
        self._script: Script = [b""]
        self._marks = itertools.count()
        self.engine = ProbeEngine(LOOPBACK)
        self.pause(lambda mark: [response(200, f"X: {mark}")])  # loads everything that is loaded once

    def pause(self, bait: Callable[[int], Script], **changes: Any) -> float:
        """Return the longest pause of a check. `bait` gets another number each time, so that caches do not help."""

        def check() -> CheckOutcome:
            self._script = bait(next(self._marks))
            return self.engine.check(spec(self.site, **changes))

        return shortest(check)


def shortest(check: Callable[[], object]) -> float:
    """Return the longest pause within `check`, in the best of several attempts."""
    found = float("inf")
    for _ in range(TRIES):
        Looks.begin()
        check()
        Looks.note()
        found = min(found, Looks.longest)
        if found < LONGEST_PAUSE:
            break
    return found


def spec(site: Site, **changes: Any) -> HttpSpec:
    unhurried = HttpSpec(site.url(), method="GET", timeout_ms=60_000, slow_ms=60_000, expect_status=204)
    return replace(unhurried, **changes)


def response(status: int, *lines: str, body: bytes = b"") -> bytes:
    head = [f"HTTP/1.1 {status} Whatever", *lines, f"Content-Length: {len(body)}"]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def filled(text: str, size: int = LONG) -> str:
    return (text * (size // len(text) + 1))[:size]


@pytest.fixture
def range_(targets: TargetServer, monkeypatch: pytest.MonkeyPatch) -> Range:
    return Range(targets, monkeypatch)


def pairs() -> Iterator[str]:
    """Return a sample, different in every run by the seed of the test run."""
    for _ in range(100):
        yield "".join(random.choices(ATOMS, k=2))  # seeded by pytest-randomly


def too_long(found: dict[str, float]) -> dict[str, float]:
    return {name: seconds for name, seconds in found.items() if seconds >= LONGEST_PAUSE}


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_line(header: str, range_: Range) -> None:
    found = {}
    for text in (*ATOMS, *pairs()):
        found[text] = range_.pause(lambda mark, text=text: [response(503, f"{header}: {mark}{filled(text)}")])  # type: ignore[misc]
    assert too_long(found) == {}


@pytest.mark.parametrize("start", ["", "/", "//", "//x.", "http://", "http://x.test/?"])
def test_a_redirect(start: str, range_: Range) -> None:
    found = {}
    for text in (*ATOMS, *pairs()):
        found[text] = range_.pause(
            lambda mark, text=text: [response(302, f"Location: {start}{mark}{filled(text)}")],  # type: ignore[misc]
            follow_redirects=True,
        )
    assert too_long(found) == {}


def test_the_reason_phrase_and_many_lines(range_: Range) -> None:
    found = {}
    for text in ATOMS:
        found[text] = range_.pause(
            lambda mark, text=text: [  # type: ignore[misc]
                f"HTTP/1.1 503 {mark}{filled(text)}\r\nContent-Length: 0\r\n\r\n".encode()
            ]
        )
    for header, value in itertools.product(HEADERS, ("", "a", filled("a, ", 60))):
        lines = [f"{header}: {value}"] * (140_000 // (len(header) + len(value) + 4))
        found[f"{header}: {value}"] = range_.pause(
            lambda mark, lines=lines: [  # type: ignore[misc]
                f"HTTP/1.1 503 {mark}{filled('a', 90_000)}\r\n".encode(),
                "\r\n".join(lines).encode() + b"\r\nContent-Length: 0\r\n\r\n",
            ],
            follow_redirects=True,
        )
    interim = b"HTTP/1.1 103 Early Hints\r\n" + b"X: y\r\n" * 1_000 + b"\r\n"
    found["interim"] = range_.pause(lambda mark: [interim * 30, response(503, f"X: {mark}")])
    assert too_long(found) == {}


def _text(value: str) -> ContentRule:
    return ContentRule(RuleType.TEXT_ABSENT, value=value)


def _json(path: str, equals: str | None = None) -> ContentRule:
    return ContentRule(RuleType.JSON_FIELD, path=path, equals=equals)


def _numbers(size: int) -> bytes:
    return b"[" + b"1," * (size // 2) + b"1]"


DEEP = [".".join("a" * (64 - number)) for number in range(4)]
JSON_BAIT = {
    "many layers around much": (b'{"a":' * 64 + _numbers(MIB - 1_000) + b"}" * 64, [_json(path) for path in DEEP]),
    "halves of characters": (b'["' + b"\\ud800" * (MIB // 6 - 2) + b'"]', [_json("0")] * 3 + [_json("x")]),
    "halves of characters, no JSON": (b'["' + b'"\\ud800",' * (MIB // 9 - 2), [_json("0")]),
    "backslashes": (b'["' + b"\\u" * (MIB // 2 - 4), [_json("0")]),
    "far items": (_numbers(MIB - 8), [_json(str(200_000 + number)) for number in range(4)]),
    "far items of far items": (
        b"[" + b"1," * 1_000 + b"[" + b"1," * 1_000 + _numbers(MIB - 8_000) + b"]]",
        [_json("1000.1000.2000"), _json("1000.1000.3000"), _json("1000.2")],
    ),
    "a long value": (b'{"x":[' + b'{"":""},' * 8_000 + b"1]}", [_json("x", "y")]),
    "odd names": (b'{"a\\"":' * 40 + _numbers(MIB - 1_000) + b"}" * 40, [_json(".".join(['a"'] * 40))]),
}  # fmt: skip


@pytest.mark.parametrize("bait", JSON_BAIT)
def test_json(bait: str, range_: Range) -> None:
    body, rules = JSON_BAIT[bait]
    script = [response(200, body=body)]
    assert range_.pause(lambda _: script, rules=tuple(rules), expect_status=None) < LONGEST_PAUSE


CHARSETS = (
    "utf-8", "utf-7", "utf-16", "utf-16-be", "utf-32", "idna", "punycode", "unicode_escape", "raw_unicode_escape",
    "ascii", "iso-8859-1", "iso-8859-8", "windows-1252", "windows-1255", "cp869", "koi8-t", "gb18030", "big5", "hz",
    "shift_jis", "euc-jp", "iso-2022-jp", "johab", "undefined", "zlib", "unheard-of",
)  # fmt: skip
BYTES = (b"\xff", b"\x81", b"\xa1", b"\x00\xd8", b"\xd8\x00", b"+", b"a", b"a-", b"\x1b$", b"~{", b"\xe3\x81\x82")
NEEDLES = ("a" * 5 + "b", "b" + "a" * 255, "a" * 127 + "b" + "a" * 128, "ab" * 120 + "c")


@pytest.mark.parametrize("charset", CHARSETS)
def test_text_rules(charset: str, range_: Range) -> None:
    found = {}
    for filler in BYTES:
        script = [response(200, f"Content-Type: x/y; charset={charset}", body=(filler * MIB)[:MIB])]
        found[repr(filler)] = range_.pause(
            lambda _, script=script: script,  # type: ignore[misc]
            rules=tuple(map(_text, NEEDLES)),
            expect_status=None,
        )
    assert too_long(found) == {}


def test_the_body_of_a_failure(range_: Range) -> None:
    """With many long secret header values to redact."""
    headers = tuple((f"X-{number}", filled("a", 4_095) + str(number)) for number in range(4))
    found = {}
    for text in ATOMS:
        body = filled(text).encode()
        found[text] = range_.pause(
            lambda mark, body=body: [response(503, f"X: {mark}", body=body)],  # type: ignore[misc]
            headers=headers,
        )
    assert too_long(found) == {}


def _chunked(data: bytes) -> bytes:
    return b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n"


def _tiny_blocks() -> bytes:
    """Return a gzip stream of deflate blocks without data; each has a code table that is slow to build."""
    bits: list[int] = []
    lengths = {18: 1, 1: 1}
    order = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1]

    def put(value: int, size: int) -> None:
        bits.extend(value >> place & 1 for place in range(size))

    for _ in range(8):
        put(0b100, 3)  # not the last, with a table of its own
        put(0, 10)  # 257 lengths of literals and one of distances
        put(len(order) - 4, 4)
        for symbol in order:
            put(lengths.get(symbol, 0), 3)
        for run in (138, 118):  # no literal has a code
            put(1, 1)
            put(run - 11, 7)
        put(0, 3)  # the end of the block has one, and a distance; the end
    data = sum(bit << place for place, bit in enumerate(bits)).to_bytes(len(bits) // 8, "little")
    return gzip.compress(b"")[:10] + data * (2 * MIB // len(data))


CODED: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a bomb": ("gzip", lambda: gzip.compress(bytes(64 * MIB))),
    "a bomb in a bomb": ("gzip, gzip", lambda: gzip.compress(gzip.compress(bytes(64 * MIB)))),
    "empty streams": ("gzip, gzip", lambda: gzip.compress(gzip.compress(b"") * 100_000)),
    "tables": ("gzip", _tiny_blocks),
    "tables in a bomb": ("gzip, gzip", lambda: gzip.compress(_tiny_blocks())),
    "a byte at a time": ("identity\r\nTransfer-Encoding: chunked", lambda: _chunked(bytes(100_000))),
    "a coded byte at a time": (
        "gzip\r\nTransfer-Encoding: chunked",
        lambda: _chunked(gzip.compress(random.randbytes(100_000))),
    ),
}


@pytest.mark.parametrize("bait", CODED)
def test_a_body_in_codings(bait: str, range_: Range) -> None:
    coding, make = CODED[bait]
    script = [f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\n".encode() + make()]
    assert range_.pause(lambda _: script, rules=(_text("zzz"),), expect_status=None) < LONGEST_PAUSE


@pytest.mark.parametrize(("size", "names"), [(15_000, 300), (600, 1_000)])
@pytest.mark.parametrize("text", ["?", "?a", "token:", "\u0301\u0327", "a"])
def test_a_certificate(text: str, size: int, names: int, range_: Range, certificates: Certificates) -> None:
    """A certificate near OpenSSL's limit of 100 KB, by its names, or with a field beyond libcurl's limit."""
    context = certificates.wordy(filled(text, size), names=names)
    site = range_.targets.serve([response(503)], tls=context)
    outcomes: list[CheckOutcome] = []
    pause = shortest(lambda: outcomes.append(range_.engine.check(spec(site, check_ssl=True))))
    assert pause < LONGEST_PAUSE
    assert outcomes[0].reason_code is ReasonCode.TLS_FAILURE


def test_names(range_: Range) -> None:
    """A chain of aliases that ends in a thousand closed addresses, or in nothing."""
    links = [f"{number}.{'a' * 60}.{'b' * 60}.test" for number in range(200)]
    addresses = tuple(f"127.0.{number // 256}.{number % 256}" for number in range(2, 1_000))
    zone = {link: Name(alias=after) for link, after in itertools.pairwise(links)}
    zone[links[-1]] = Name(addresses, truncated=True)
    zone[links[0]] = Name(alias=links[1], truncated=True)
    zone |= {f"lost-{link}": Name(alias=f"lost-{after}", truncated=True) for link, after in itertools.pairwise(links)}
    names = range_.targets.serve_names(zone)
    engine = ProbeEngine(LOOPBACK, resolver=Resolver([names.address]))
    for host, reason in ((links[0], ReasonCode.CONNECTION_FAILURE), (f"lost-{links[0]}", ReasonCode.DNS_FAILURE)):
        outcomes: list[CheckOutcome] = []
        url = range_.site.url(host=host)
        pause = shortest(lambda: outcomes.append(engine.check(spec(range_.site, url=url))))  # noqa: B023
        assert pause < LONGEST_PAUSE
        assert outcomes[0].reason_code is reason

"""The engine against real local servers: a case is what the target does and what must come of it."""

from __future__ import annotations

import gzip
import random
import socket
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from checks.probes import ProbeEngine
from checks.probes.resolver import Answer, Resolver
from checks.spec import CheckOutcome, CheckSpec, ContentRule, ReasonCode, RuleType, Verdict
from core.egress import EgressGuard, parse_networks
from tests.checks.conftest import LOOPBACK
from tests.targets.server import Hang, Pause, Repeat, Reset, Script, Seen, TargetServer, answer, redirect

UP, SLOW, DOWN = Verdict.UP, Verdict.SLOW, Verdict.DOWN
MIB = 1024 * 1024
OVERRUN_MS = 250
CONTAINS_END = (ContentRule(RuleType.TEXT_CONTAINS, value="the end"),)
HAS_FIELD = (ContentRule(RuleType.JSON_FIELD, path="a"),)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Case:
    id: str
    script: Script
    verdict: Verdict = UP
    reason: ReasonCode | None = None
    words: str = ""
    status: int | None = 200
    spec: CheckSpec = field(default_factory=lambda: get())


def short(**changes: Any) -> CheckSpec:
    """For targets that stall: the deadline is the end of the test."""
    return replace(CheckSpec("", method="GET", timeout_ms=300), **changes)


def get(**changes: Any) -> CheckSpec:
    return replace(CheckSpec("", method="GET", timeout_ms=5000), **changes)


def gzipped(body: bytes, *, length: int | None = None) -> bytes:
    return answer(200, gzip.compress(body), "Content-Encoding: gzip", length=length)


CASES = [
    Case("good", [answer(200, b"hello")]),
    Case("good, by HEAD", [answer(200)], spec=get(method="HEAD")),
    Case("HTTP/1.0 without a length", [b"HTTP/1.0 200 OK\r\n\r\nhello"]),
    Case("no content", [answer(204)], status=204),
    Case("interim answers first", [b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", answer()]),
    Case("redirect, not followed", redirect("/elsewhere"), status=302),
    Case("redirect without a Location, not followed", [answer(302)], status=302),
    Case("redirect to nonsense, not followed", redirect("http://["), status=302),
    Case(
        "bytes of no charset in the headers", [answer(200, b"", "X-Odd: \x01\xff\xfe", "Content-Type: \xff")]
    ),
    Case("more body than announced", [answer(200, b"too long", length=3)]),
    Case("chunked", [CHUNKED, b"7\r\nthe end\r\n0\r\n\r\n"], spec=get(rules=CONTAINS_END)),
    Case("gzip", [gzipped(b"the end")], spec=get(rules=CONTAINS_END)),
    Case(
        "deflate",
        [answer(200, zlib.compress(b"the end"), "Content-Encoding: deflate")],
        spec=get(rules=CONTAINS_END),
    ),
    Case(
        "HEAD that names an unknown coding",
        [answer(200, b"", "Content-Encoding: odd")],
        spec=get(method="HEAD"),
    ),
    Case("slow", [Pause(0.05), answer()], SLOW, words="counts as slow", spec=get(slow_ms=50)),
    Case("server error", [answer(500)], DOWN, ReasonCode.HTTP_FAILURE, "500", 500),
    Case("status 999", [answer(999)], DOWN, ReasonCode.HTTP_FAILURE, "999", 999),
    Case("expected status", [answer(500)], status=500, spec=get(expect_status=500)),
    Case(
        "2xx alone, met by a redirect",
        redirect("/"),
        DOWN,
        ReasonCode.HTTP_FAILURE,
        "2xx",
        302,
        get(only_2xx=True),
    ),
    Case("no answer", [], DOWN, ReasonCode.CONNECTION_FAILURE, "without an answer", None),
    Case(
        "reset instead of an answer",
        [Reset()],
        DOWN,
        ReasonCode.CONNECTION_FAILURE,
        "without an answer",
        None,
    ),
    Case("not HTTP", [b"SSH-2.0-OpenSSH_9\r\n"], DOWN, ReasonCode.CONNECTION_FAILURE, "not valid HTTP", None),
    Case(
        "header without a colon",
        [b"HTTP/1.1 200 OK\r\nodd\r\n\r\n"],
        DOWN,
        ReasonCode.CONNECTION_FAILURE,
        "not valid HTTP",
    ),
    Case(
        "NUL in a header",
        [answer(200, b"", "X: a\0b")],
        DOWN,
        ReasonCode.CONNECTION_FAILURE,
        "not valid HTTP",
    ),
    Case(
        "headers without end",
        [b"HTTP/1.1 200 OK\r\n", Repeat(b"X-Long: " + b"x" * 8000 + b"\r\n")],
        DOWN,
        ReasonCode.CONNECTION_FAILURE,
        "not valid HTTP",
    ),
    Case(
        "only an interim answer",
        [b"HTTP/1.1 100 Continue\r\n\r\n"],
        DOWN,
        ReasonCode.CONNECTION_FAILURE,
        "",
        100,
    ),
    Case(
        "cut amid the headers",
        [b"HTTP/1.1 200 OK\r\nServer: x\r\n"],
        DOWN,
        ReasonCode.PARTIAL_RESPONSE,
        "headers",
    ),
    Case(
        "cut short of its length",
        [answer(200, b"abc", length=9)],
        DOWN,
        ReasonCode.PARTIAL_RESPONSE,
        "cut short",
    ),
    Case("cut amid the chunks", [CHUNKED, b"7\r\nthe"], DOWN, ReasonCode.PARTIAL_RESPONSE, "cut short"),
    Case("chunks of no size", [CHUNKED, b"odd\r\n"], DOWN, ReasonCode.PARTIAL_RESPONSE, "cut short"),
    Case(
        "reset amid the body",
        [answer(200, b"abc", length=9), Reset()],
        DOWN,
        ReasonCode.PARTIAL_RESPONSE,
        "cut short",
    ),
    Case(
        "gzip that is none",
        [answer(200, b"plain text", "Content-Encoding: gzip")],
        DOWN,
        ReasonCode.CONTENT_FAILURE,
        "Content-Encoding",
    ),
    Case("answer that stalls", [Hang()], DOWN, ReasonCode.TIMEOUT, "did not answer", None, short()),
    Case(
        "headers that stall",
        [b"HTTP/1.1 200 OK\r\nServer:", Hang()],
        DOWN,
        ReasonCode.TIMEOUT,
        "headers",
        200,
        short(),
    ),
    Case(
        "body that stalls",
        [answer(200, length=9), Hang()],
        DOWN,
        ReasonCode.TIMEOUT,
        "did not end",
        200,
        short(),
    ),
    Case(
        "HEAD that stalls", [Hang()], DOWN, ReasonCode.TIMEOUT, "did not answer", None, short(method="HEAD")
    ),
    Case(
        "dripping body",
        [answer(200, length=9999), Repeat(b"x", 0.02)],
        DOWN,
        ReasonCode.TIMEOUT,
        "did not end",
        200,
        short(),
    ),
    Case(
        "dripping headers",
        [b"HTTP/1.1 200 OK\r\n", Repeat(b"X: y\r\n", 0.02)],
        DOWN,
        ReasonCode.TIMEOUT,
        "headers did not end",
        200,
        short(),
    ),
    Case("exactly 1 MiB", [answer(200, b"x" * (MIB - 7) + b"the end")], spec=get(rules=CONTAINS_END)),
    Case(
        "over 1 MiB",
        [answer(200, b"x" * MIB + b"the end")],
        DOWN,
        ReasonCode.CONTENT_FAILURE,
        "first MiB",
        spec=get(rules=CONTAINS_END),
    ),
    Case(
        "body without end",
        [answer(200, b"the end", length=99 * MIB), Repeat(b"x" * 65536)],
        spec=get(rules=CONTAINS_END),
    ),
    Case("body without end, and no rules", [answer(200, length=99 * MIB), Repeat(b"x" * 65536)]),
    Case(
        "gzip bomb",
        [gzipped(b"0" * (64 * MIB))],
        DOWN,
        ReasonCode.CONTENT_FAILURE,
        "too large",
        spec=get(rules=HAS_FIELD),
    ),
    Case("gzip of exactly 1 MiB", [gzipped(b"x" * (MIB - 7) + b"the end")], spec=get(rules=CONTAINS_END)),
    Case(
        "JSON too deep",
        [answer(200, b"[" * 200_000)],
        DOWN,
        ReasonCode.CONTENT_FAILURE,
        "too deep",
        spec=get(rules=HAS_FIELD),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_verdict(case: Case, engine: ProbeEngine, targets: TargetServer) -> None:
    spec = replace(case.spec, url=targets.serve(case.script).url())
    started = time.monotonic()
    outcome = engine.check(spec)
    assert (time.monotonic() - started) * 1000 < spec.timeout_ms + OVERRUN_MS
    assert (outcome.verdict, outcome.reason_code, outcome.http_status) == (
        case.verdict,
        case.reason,
        case.status,
    )
    assert case.words in (outcome.detail or "")
    assert (outcome.detail is None) is (case.verdict is UP)
    assert (outcome.latency_ms is not None) is (
        outcome.passed
        or case.reason is ReasonCode.HTTP_FAILURE
        or (case.reason is ReasonCode.CONTENT_FAILURE and "decoded" not in (outcome.detail or ""))
    )
    assert outcome.connect_ms is not None


def test_all_cases_in_one_batch(engine: ProbeEngine, targets: TargetServer) -> None:
    """Each ends as it does alone, and those that stall hold up nobody."""
    specs = [(case, replace(case.spec, url=targets.serve(case.script).url())) for case in CASES]
    ended: dict[str, CheckOutcome] = {}
    engine.run(specs, lambda case, outcome: ended.setdefault(case.id, outcome))
    assert {case.id: (case.verdict, case.reason) for case in CASES} == {
        name: (outcome.verdict, outcome.reason_code) for name, outcome in ended.items()
    }


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_are_a_verdict_too(seed: int, engine: ProbeEngine, targets: TargetServer) -> None:
    """Responses of the cases above, cut, doubled and scrambled: every one ends, in time, with a reason."""
    chance = random.Random(seed)
    whole = [b"".join(step for step in case.script if isinstance(step, bytes))[:4096] for case in CASES]

    def spoil(response: bytes) -> bytes:
        spoilt = bytearray(response or b"HTTP/1.1 200 OK\r\n")
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(spoilt))
            spoilt[at : at + chance.randrange(8)] = chance.randbytes(chance.randrange(8))
            spoilt = spoilt or bytearray(b"\0")
        return bytes(spoilt[: chance.randrange(len(spoilt) + 1)])

    responses = [spoil(chance.choice(whole)) for _ in range(150)]
    site = targets.serve(lambda seen: [responses[int(seen.path[1:])]])
    rules = (HAS_FIELD, CONTAINS_END, ())
    specs = [
        (n, short(url=site.url(f"/{n}"), rules=rules[n % 3], follow_redirects=n % 2 == 0, timeout_ms=2000))
        for n in range(len(responses))
    ]
    ended: dict[int, CheckOutcome] = {}
    started = time.monotonic()
    engine.run(specs, lambda key, outcome: ended.setdefault(key, outcome))
    assert (time.monotonic() - started) * 1000 < 2000 + OVERRUN_MS
    assert len(ended) == len(responses)
    for outcome in ended.values():
        assert outcome.passed or outcome.reason_code not in {None, ReasonCode.WORKER_LOST}


def test_outcomes_come_as_checks_end(engine: ProbeEngine, targets: TargetServer) -> None:
    good, hanging = targets.serve([answer()]), targets.serve([Hang()])
    specs = [("hanging", short(url=hanging.url()))] + [(f"good {n}", get(url=good.url())) for n in range(20)]
    order: list[str] = []
    engine.run(specs, lambda key, _: order.append(key))
    assert order[-1] == "hanging"
    assert len(order) == 21


def test_no_more_than_so_many_at_once(engine: ProbeEngine, targets: TargetServer) -> None:
    stalling = targets.serve([Hang()])
    order: list[int] = []
    engine.run(
        ((number, short(url=stalling.url(), timeout_ms=100)) for number in range(3)),
        lambda *_: order.append(stalling.connections),
        max_in_flight=1,
    )
    assert order == [1, 2, 3]


def test_threads_run_at_once(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve([answer()])
    verdicts: list[Verdict] = []

    def run() -> None:
        specs = ((number, get(url=site.url())) for number in range(50))
        engine.run(specs, lambda _, outcome: verdicts.append(outcome.verdict))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert verdicts == [UP] * 200
    assert site.connections == 200


def test_a_callback_that_raises_leaves_the_engine_usable(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve([answer()])

    def fail(key: object, outcome: CheckOutcome) -> None:
        raise LookupError(key)

    with pytest.raises(LookupError):
        engine.run(((number, get(url=site.url())) for number in range(10)), fail)
    assert engine.check(get(url=site.url())).verdict is UP


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "nonsense"},
        {"url": ""},
        {"url": "ftp://127.0.0.1/"},
        {"url": "http://"},
        {"url": "http://[::1"},
        {"url": "http://127.0.0.1:99999/"},
        {"url": "http://a b/"},
        {"url": "http://127.0.0.1/\n"},
        {"url": "http://127.0.0.1/\0"},
        {"url": "http://\ud800/"},
        {"url": "http://" + "a" * 300 + "ü/"},
        {"url": "http://127.0.0.1:1/", "method": "BREW\r\nX: y"},
        {"url": "http://127.0.0.1:1/", "headers": (("X", "secret\r\nY: z"),)},
        {"url": "http://127.0.0.1:1/", "headers": (("X Y", "secret"),)},
        {"url": "http://127.0.0.1:1/", "headers": (("X", "secret\ud800"),)},
        {"url": None},
        {"url": "http://127.0.0.1:1/", "timeout_ms": None},
        {"url": "http://127.0.0.1:1/", "timeout_ms": 0},
        {"url": "http://127.0.0.1:1/", "timeout_ms": 10**30},
        {"url": "http://127.0.0.1:1/", "headers": 7},
    ],
    ids=str,
)
def test_a_spec_that_cannot_be_sent_is_one_failed_check(
    changes: dict[str, Any], engine: ProbeEngine, targets: TargetServer
) -> None:
    good = get(url=targets.serve([answer()]).url())
    ended: dict[str, CheckOutcome] = {}
    engine.run(
        [("odd", replace(get(), **changes)), ("good", good)],
        lambda key, outcome: ended.setdefault(key, outcome),
    )
    assert ended["good"].verdict is UP
    assert ended["odd"].verdict is DOWN
    assert ended["odd"].reason_code is not None
    assert "secret" not in (ended["odd"].detail or "")


def test_sends_what_the_monitor_asks_for(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve([answer()])
    headers = (
        ("X-Empty", ""),
        ("user-agent", "mine"),
        ("Host", "shop.example"),
        ("X-Ü".replace("Ü", "U"), "grün"),
    )
    engine.check(get(url=site.url("/a b?q=ü#fragment"), method="POST", headers=headers, body='{"a": "ü"}'))
    engine.check(get(url=site.url(), method="HEAD"))
    engine.check(get(url=site.url(), method="PUT"))
    engine.check(get(url=site.url(), method="DELETE", body="x", headers=(("content-type", "text/plain"),)))
    post, head, put, delete = site.seen
    assert (post.method, post.path, post.body) == ("POST", "/a%20b?q=%C3%BC", '{"a": "ü"}'.encode())
    names = [name for name, _ in post.headers]
    assert len(names) == len(set(names))
    assert post.header("x-empty") == ""
    assert post.header("user-agent") == "mine"
    assert post.header("host") == "shop.example"
    assert post.header("x-u") == "grün"
    assert post.header("content-type") == "application/json"
    assert post.header("accept") == "*/*"
    assert post.header("expect") is None
    # The same handle afterwards: nothing of the first request is left.
    assert (head.method, head.body) == ("HEAD", b"")
    assert (head.header("user-agent") or "").startswith("Pulsekeeper/")
    assert head.header("x-empty") is None
    assert head.header("host") == f"127.0.0.1:{site.port}"
    assert (put.header("content-length"), put.header("content-type")) == ("0", None)
    assert (delete.method, delete.body, delete.header("content-type")) == ("DELETE", b"x", "text/plain")


def test_takes_nothing_from_the_environment(
    engine: ProbeEngine, targets: TargetServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login user password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    site = targets.serve([answer(200, b"", "Set-Cookie: a=b")])
    for _ in range(2):
        assert engine.check(get(url=site.url())).verdict is UP
    assert all(seen.header("authorization") is None and seen.header("cookie") is None for seen in site.seen)
    assert site.connections == 2


@pytest.mark.parametrize("refusal", [405, 501])
def test_a_refused_head_is_repeated_as_get(refusal: int, engine: ProbeEngine, targets: TargetServer) -> None:
    def routes(seen: Seen) -> Script:
        return [answer(refusal)] if seen.method == "HEAD" else [Pause(0.05), answer(200)]

    site = targets.serve(routes)
    outcome = engine.check(get(url=site.url(), method="HEAD"))
    assert (outcome.verdict, outcome.http_status) == (UP, 200)
    assert [seen.method for seen in site.seen] == ["HEAD", "GET"]
    assert outcome.latency_ms is not None
    assert outcome.latency_ms >= 50
    expecting = engine.check(get(url=site.url(), method="HEAD", expect_status=refusal))
    assert (expecting.verdict, expecting.http_status) == (UP, refusal)


def test_the_deadline_covers_the_repetition(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve(lambda seen: [Pause(0.2), answer(405)] if seen.method == "HEAD" else [Hang()])
    started = time.monotonic()
    outcome = engine.check(short(url=site.url(), method="HEAD"))
    assert outcome.reason_code is ReasonCode.TIMEOUT
    assert (time.monotonic() - started) * 1000 < 300 + OVERRUN_MS


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_no_other_answer_is_tried_again(
    method: str, status: int, engine: ProbeEngine, targets: TargetServer
) -> None:
    site = targets.serve([answer(status)])
    assert engine.check(get(url=site.url(), method=method)).http_status == status
    assert site.connections == 1


def test_follows_redirects(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve(
        {
            "/": redirect("/a b?c=d e"),
            "/a%20b?c=d%20e": redirect("sub/../end?x#y", 307),
            "/end?x": [answer(200, b"the end")],
        }
    )
    outcome = engine.check(
        get(url=site.url(), follow_redirects=True, rules=CONTAINS_END, headers=(("X-Key", "s"),))
    )
    assert (outcome.verdict, outcome.http_status) == (UP, 200)
    assert (outcome.connect_ms, outcome.ttfb_ms) == (None, None)
    assert [seen.header("x-key") for seen in site.seen] == ["s", "s", "s"]


def test_headers_stay_with_their_origin(engine: ProbeEngine, targets: TargetServer) -> None:
    away = targets.serve([answer()])
    home = targets.serve(redirect(away.url("/x")))
    headers = (("Authorization", "Bearer secret"), ("Host", "home.example"))
    assert engine.check(get(url=home.url(), follow_redirects=True, headers=headers)).verdict is UP
    assert home.seen[0].header("authorization") == "Bearer secret"
    assert away.seen[0].header("authorization") is None
    assert away.seen[0].header("host") == f"127.0.0.1:{away.port}"


@pytest.mark.parametrize(
    ("method", "status", "then"),
    [
        ("POST", 301, "GET"),
        ("POST", 302, "GET"),
        ("POST", 303, "GET"),
        ("POST", 307, "POST"),
        ("POST", 308, "POST"),
        ("PUT", 302, "PUT"),
        ("PUT", 303, "GET"),
        ("DELETE", 301, "DELETE"),
    ],
)
def test_method_after_a_redirect(
    method: str, status: int, then: str, engine: ProbeEngine, targets: TargetServer
) -> None:
    site = targets.serve({"/": redirect("/end", status), "/end": [answer()]})
    engine.check(get(url=site.url(), method=method, body="{}", follow_redirects=True))
    last = site.seen[-1]
    assert (last.path, last.method, last.body) == ("/end", then, b"" if then == "GET" else b"{}")
    assert (last.header("content-type") is None) is (then == "GET")


def _chain(length: int) -> Callable[[Seen], Script]:
    def routes(seen: Seen) -> Script:
        number = int(seen.path[1:] or 0)
        return [answer()] if number == length else redirect(f"/{number + 1}")

    return routes


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        (_chain(11), "more than 10"),
        ({"/": redirect("/")}, "circle"),
        ({"/": redirect("/a"), "/a": redirect("/")}, "circle"),
        ([answer(302)], "without a Location"),
        ([answer(302, b"", "Location:")], "without a Location"),
        (redirect("ftp://127.0.0.1/"), "only http and https"),
        (redirect("javascript:alert(1)"), "only http and https"),
        (redirect("http://"), "names no host"),
        (redirect("http://[::1"), "cannot be used"),
        (redirect("http://127.0.0.1:99999/"), "Port out of range"),
    ],
)
def test_redirects_that_lead_nowhere(
    routes: Any, words: str, engine: ProbeEngine, targets: TargetServer
) -> None:
    outcome = engine.check(get(url=targets.serve(routes).url(), follow_redirects=True))
    assert (outcome.verdict, outcome.reason_code) == (DOWN, ReasonCode.REDIRECT_FAILURE)
    assert words in (outcome.detail or "")
    assert outcome.http_status == 302


def test_ten_redirects_are_followed(engine: ProbeEngine, targets: TargetServer) -> None:
    assert engine.check(get(url=targets.serve(_chain(10)).url("/0"), follow_redirects=True)).verdict is UP


def test_the_body_of_a_redirect_is_not_waited_for(engine: ProbeEngine, targets: TargetServer) -> None:
    endless: Script = [answer(302, b"x", "Location: /end", length=9999), Hang()]
    site = targets.serve({"/": endless, "/end": [answer()]})
    assert engine.check(get(url=site.url(), follow_redirects=True)).verdict is UP


@pytest.mark.parametrize("status", [300, 304, 305])
def test_other_3xx_are_final(status: int, engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve([answer(status, b"", "Location: /nowhere")])
    outcome = engine.check(get(url=site.url(), follow_redirects=True))
    assert (outcome.verdict, outcome.http_status, site.connections) == (UP, status, 1)


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://0x0a000001/",
        "http://192.168.1/",
        "https://100.64.0.1/",
    ],
)
def test_the_guard_refuses(url: str, engine: ProbeEngine) -> None:
    outcome = engine.check(get(url=url))
    assert (outcome.reason_code, outcome.connect_ms) == (ReasonCode.BLOCKED_TARGET, None)


def test_the_guard_stands_on_every_hop(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve(redirect("http://10.0.0.1/"))
    outcome = engine.check(get(url=site.url(), follow_redirects=True))
    assert outcome.reason_code is ReasonCode.BLOCKED_TARGET


class FixedNames(Resolver):
    """Names of the test's own; an address of None is a name whose servers never answer."""

    def __init__(self, names: dict[str, str | None]) -> None:
        super().__init__()
        self._names = names

    def recall(self, host: str) -> Answer | None:
        addresses = self._names[host]
        return None if addresses is None else Answer(addresses)

    def resolve(self, host: str, on_answer: Callable[[Answer], None]) -> None:
        """Never answers."""


def test_of_a_name_only_the_permitted_addresses_are_used(targets: TargetServer) -> None:
    inside = targets.serve([answer()], host="127.0.0.1")
    outside = targets.serve([answer()], host="127.0.0.2", port=inside.port)
    names = FixedNames({"both.example": "127.0.0.1,127.0.0.2", "inside.example": "127.0.0.1,[::1]"})
    engine = ProbeEngine(EgressGuard(parse_networks("127.0.0.2/32")), resolver=names)
    assert engine.check(get(url=inside.url(host="both.example"))).verdict is UP
    assert engine.check(get(url=inside.url(host="inside.example"))).reason_code is ReasonCode.BLOCKED_TARGET
    assert (inside.connections, outside.connections) == (0, 1)


def test_the_second_address_is_tried_where_the_first_is_dead(targets: TargetServer) -> None:
    site = targets.serve([answer()], host="127.0.0.2")
    engine = ProbeEngine(LOOPBACK, resolver=FixedNames({"two.example": "[::1],127.0.0.1,127.0.0.2"}))
    assert engine.check(get(url=site.url(host="two.example"))).verdict is UP
    assert site.seen[0].header("host") == f"two.example:{site.port}"


def test_a_name_that_hangs_ends_at_the_deadline_and_delays_nobody(targets: TargetServer) -> None:
    site = targets.serve([answer()])
    engine = ProbeEngine(LOOPBACK, resolver=FixedNames({"hanging.example": None}))
    specs = [(f"hanging {n}", short(url="http://hanging.example/")) for n in range(50)]
    ended: dict[str, CheckOutcome] = {}
    started = time.monotonic()
    engine.run([*specs, ("good", get(url=site.url()))], lambda key, outcome: ended.setdefault(key, outcome))
    assert (time.monotonic() - started) * 1000 < 300 + OVERRUN_MS
    assert next(iter(ended)) == "good"
    assert {outcome.reason_code for outcome in ended.values()} == {None, ReasonCode.TIMEOUT}


def test_a_name_of_the_system(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve([answer()])
    for _ in range(2):
        assert engine.check(get(url=site.url(host="localhost"))).verdict is UP


def test_a_name_that_does_not_exist(engine: ProbeEngine) -> None:
    # No label may be longer than 63 characters, so no name server is asked.
    outcome = engine.check(get(url=f"http://{'a' * 64}.invalid/"))
    assert (outcome.verdict, outcome.reason_code) == (DOWN, ReasonCode.DNS_FAILURE)


def test_over_ipv6(engine: ProbeEngine, targets: TargetServer) -> None:
    assert engine.check(get(url=targets.serve([answer()], host="::1").url())).verdict is UP


def test_a_closed_port(engine: ProbeEngine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    outcome = engine.check(get(url=f"http://127.0.0.1:{port}/"))
    assert (outcome.reason_code, outcome.connect_ms) == (ReasonCode.CONNECTION_FAILURE, None)
    assert "refused" in (outcome.detail or "")


def test_a_connect_without_an_answer(engine: ProbeEngine) -> None:
    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())  # takes the one place in the queue
        started = time.monotonic()
        outcome = engine.check(short(url=f"http://127.0.0.1:{full.getsockname()[1]}/"))
    assert (time.monotonic() - started) * 1000 < 300 + OVERRUN_MS
    assert (outcome.reason_code, outcome.connect_ms) == (ReasonCode.TIMEOUT, None)
    assert "connection was not established" in (outcome.detail or "")

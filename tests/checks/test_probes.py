"""The engine against real local servers: its requests, and isolation of checks. The catalogue tests its verdicts."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from checks.probes.engine import ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.probes.resolver import Resolver
from checks.spec import CheckOutcome, ContentRule, ReasonCode, RuleType, Verdict
from core.egress import EgressGuard, parse_networks
from tests.checks.conftest import LOOPBACK
from tests.targets.names import Fault, Name
from tests.targets.server import Hang, TargetServer, answer, redirect

UP, DOWN = Verdict.UP, Verdict.DOWN
OVERRUN_MS = 250
CONTAINS_END = (ContentRule(RuleType.TEXT_CONTAINS, value="the end"),)


def short(**changes: Any) -> HttpSpec:
    """For targets that stall: the deadline is the end of the test."""
    return replace(HttpSpec("", method="GET", timeout_ms=300), **changes)


def get(**changes: Any) -> HttpSpec:
    return replace(HttpSpec("", method="GET", timeout_ms=5000), **changes)


def test_outcomes_come_as_checks_end(engine: ProbeEngine, targets: TargetServer) -> None:
    good, hanging = targets.serve([answer()]), targets.serve([Hang()])
    specs = [("hanging", short(url=hanging.url()))] + [(f"good {n}", get(url=good.url())) for n in range(20)]
    order: list[str] = []
    engine.run(specs, lambda key, _: order.append(key))
    assert order[-1] == "hanging"
    assert len(order) == 21


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
        [("odd", replace(get(), **changes)), ("good", good)], lambda key, outcome: ended.setdefault(key, outcome)
    )
    assert ended["good"].verdict is UP
    assert ended["odd"].verdict is DOWN
    assert ended["odd"].reason_code is not None
    assert "secret" not in (ended["odd"].detail or "")


def test_sends_what_the_monitor_asks_for(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve([answer()])
    headers = (("X-Empty", ""), ("user-agent", "mine"), ("Host", "shop.example"), ("X-Ü".replace("Ü", "U"), "grün"))
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
    # The same handle is used next: nothing of the first request is left.
    assert (head.method, head.body) == ("HEAD", b"")
    assert (head.header("user-agent") or "").startswith("Pulsekeeper/")
    assert head.header("x-empty") is None
    assert head.header("host") == f"127.0.0.1:{site.port}"
    assert (put.header("content-length"), put.header("content-type")) == ("0", None)
    assert (delete.method, delete.body, delete.header("content-type")) == ("DELETE", b"x", "text/plain")


def test_a_request_does_not_depend_on_the_one_before(engine: ProbeEngine, targets: TargetServer) -> None:
    """The engine reuses the idle handle."""
    site = targets.serve([answer()])
    secret = (("X-Secret", "one tenant's"),)
    specs = [
        get(url=url, method=method, **changes)
        for url in (site.url(), site.url().replace("127.0.0.1", "localhost"))
        for method, changes in (
            *((method, {}) for method in ("HEAD", "GET", "OPTIONS", "PUT")),
            *((method, {"body": "b", "headers": secret}) for method in ("GET", "POST", "DELETE")),
        )
    ]
    sent: dict[HttpSpec, set[Any]] = {spec: set() for spec in specs}
    for before, after in permutations(specs, 2):
        assert engine.check(before).passed
        assert engine.check(after).passed
        sent[after].add(site.seen[-1])
    for spec, requests in sent.items():
        (request,) = requests
        assert (request.method, request.body) == (spec.method, (spec.body or "").encode())
        assert request.header("x-secret") == dict(spec.headers).get("X-Secret")


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


def test_follows_redirects(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve(
        {
            "/": redirect("/a b?c=d e"),
            "/a%20b?c=d%20e": redirect("sub/../end?x#y", 307),
            "/end?x": [answer(200, b"the end")],
        }
    )
    outcome = engine.check(get(url=site.url(), follow_redirects=True, rules=CONTAINS_END, headers=(("X-Key", "s"),)))
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


def test_a_name_of_the_system(engine: ProbeEngine, targets: TargetServer) -> None:
    site = targets.serve([answer()])
    for _ in range(2):
        assert engine.check(get(url=site.url(host="localhost"))).verdict is UP


def test_a_name_that_does_not_exist(engine: ProbeEngine) -> None:
    # Labels have at most 63 characters, so no name server is queried.
    outcome = engine.check(get(url=f"http://{'a' * 64}.invalid/"))
    assert (outcome.verdict, outcome.reason_code) == (DOWN, ReasonCode.DNS_FAILURE)


def test_of_a_name_only_the_permitted_addresses_are_used(targets: TargetServer) -> None:
    inside = targets.serve([answer()], host="127.0.0.1")
    outside = targets.serve([answer()], host="127.0.0.2", port=inside.port)
    names = targets.serve_names(
        {"both.test": Name(("127.0.0.1", "127.0.0.2")), "inside.test": Name(("127.0.0.1",), ("::1",))}
    )
    guard = EgressGuard(parse_networks("127.0.0.2/32"))
    engine = ProbeEngine(guard, resolver=Resolver([names.address]))
    assert engine.check(get(url=inside.url(host="both.test"))).verdict is UP
    assert engine.check(get(url=inside.url(host="inside.test"))).reason_code is ReasonCode.BLOCKED_TARGET
    assert (inside.connections, outside.connections) == (0, 1)
    assert outside.seen[0].header("host") == f"both.test:{inside.port}"


@pytest.mark.usefixtures("patient")
def test_names_that_hang_end_at_the_deadline_and_delay_nobody(targets: TargetServer) -> None:
    site = targets.serve([answer()])
    silent = {f"silent{n}.test": Name(Fault.SILENCE, Fault.SILENCE) for n in range(300)}
    names = targets.serve_names({**silent, "good.test": Name(("127.0.0.1",))})
    engine = ProbeEngine(LOOPBACK, resolver=Resolver([names.address]))
    specs = [(name, short(url=f"http://{name}/", timeout_ms=5_000)) for name in silent]
    good = ("good", get(url=site.url(host="good.test")))
    ended: dict[str, CheckOutcome] = {}
    engine.run([*specs, good], lambda key, outcome: ended.setdefault(key, outcome))
    assert next(iter(ended)) == "good"
    assert ended.pop("good").verdict is UP
    assert {outcome.reason_code for outcome in ended.values()} == {ReasonCode.TIMEOUT}

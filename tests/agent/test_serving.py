"""Agents that make checks: real ones of loopback targets, for a server on loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import msgspec
import pytest

from checks.agent_protocol import LEASES, MAX_LEASES, PROTOCOL, RESULTS, Found
from checks.probes.http.spec import HttpSpec
from checks.probes.tcp.spec import TcpSpec
from checks.spec import ContentRule, ReasonCode, RuleType, Verdict
from core.clock import EPOCH
from pulsekeeper.agent.prober import MAX_IN_FLIGHT
from tests.agent.conftest import PATIENCE_SEC, ROOT, Agents
from tests.agent.server import LocationServer, Reply, error
from tests.processes.up import free_port
from tests.processes.waiting import until
from tests.targets.server import Hang, TargetServer, answer

HEADER = "hunter2-in-a-header"


def results(server: LocationServer, count: int = 1) -> dict[str, Found]:
    """Wait for this number of results, and return them by lease."""
    until(lambda: len(server.results) >= count, PATIENCE_SEC, f"{count} results came")
    assert len(server.results) == count
    return {found.lease: found for found in server.results}


def test_checks_are_made(agents: Agents, server: LocationServer, targets: TargetServer) -> None:
    site = targets.serve([answer(200, b'{"status": "ok"}')])
    failing = targets.serve([answer(503, HEADER.encode())])
    rule = ContentRule(RuleType.JSON_FIELD, path="status", equals="ok")
    agent = agents.serve()
    headers = (("X-Key", HEADER),)
    server.lease("good", HttpSpec(url=site.url(), method="GET", headers=headers, rules=(rule,)), owner="a")
    server.lease("bad", HttpSpec(url=failing.url(), method="GET", headers=headers), owner="b")
    server.lease("refused", TcpSpec(host="127.0.0.1", port=free_port(), body=b"\xff"))
    server.lease("blocked", HttpSpec(url="http://10.1.2.3/"))
    found = results(server, 4)
    assert (found["good"].verdict, found["good"].http_status) == (Verdict.UP, 200)
    assert site.seen[0].header("x-key") == HEADER
    assert (found["bad"].verdict, found["bad"].reason_code) == (Verdict.DOWN, ReasonCode.HTTP_FAILURE)
    assert found["bad"].evidence is not None
    assert "***" in (found["bad"].evidence.body or "")
    assert found["refused"].reason_code is ReasonCode.CONNECTION_FAILURE
    assert found["blocked"].reason_code is ReasonCode.BLOCKED_TARGET
    assert "start it with --allow" in (found["blocked"].detail or "")
    assert all(each.took_ms >= each.age_ms >= 0 for each in found.values())
    assert {poll.protocol for poll in server.polls} == {PROTOCOL}
    assert server.polls[0].room == MAX_IN_FLIGHT
    assert agent.stop(signal.SIGINT) == 0
    assert HEADER not in agent.log


def test_what_it_cannot_make_is_not_made(agents: Agents, server: LocationServer, targets: TargetServer) -> None:
    agents.serve()
    server.lease_raw("kind", "QuicSpec", b"{}")
    server.lease_raw("shape", "HttpSpec", b'{"url": 1}')
    server.lease_raw("value", "UdpSpec", msgspec.json.encode({"host": "127.0.0.1", "port": 9, "body": b"x" * 600}))
    server.lease("late", HttpSpec(url=targets.serve([answer()]).url()), start_within_ms=0)
    found = results(server, 4)
    assert {each.verdict for each in found.values()} == {None}
    assert "knows no checks of kind QuicSpec" in (found["kind"].detail or "")
    assert "cannot read its settings" in (found["shape"].detail or "")
    assert "its settings cannot be read" in (found["value"].detail or "")
    assert {lease for lease, each in found.items() if each.retry_ms is not None} == {"late"}
    outcome = found["kind"].outcome(checked_at=EPOCH)
    assert (outcome.reason_code, outcome.detail) == (ReasonCode.WORKER_LOST, found["kind"].detail)


def test_a_lease_that_comes_twice_is_made_once(agents: Agents, server: LocationServer, targets: TargetServer) -> None:
    site = targets.serve([answer()])
    agents.serve()
    for lease in ("a", "a", "b", "a"):
        server.lease(lease, HttpSpec(url=site.url()))
    assert results(server, 2).keys() == {"a", "b"}
    server.lease("b", HttpSpec(url=site.url()))
    server.lease("c", HttpSpec(url=site.url()))
    assert results(server, 3).keys() == {"a", "b", "c"}
    assert len(site.seen) == 3


def test_many_checks_and_hanging_ones(agents: Agents, server: LocationServer, targets: TargetServer) -> None:
    hanging, site = targets.serve([Hang()]), targets.serve([answer()])
    agents.serve()
    for number in range(MAX_LEASES):
        server.lease(f"h{number}", HttpSpec(url=hanging.url(), timeout_ms=600_000))
    until(lambda: len(hanging.seen) == MAX_LEASES, PATIENCE_SEC, "all have begun")
    for number in range(700):
        server.lease(f"g{number}", HttpSpec(url=site.url()))
    assert {each.verdict for each in results(server, 700).values()} <= {Verdict.UP, Verdict.SLOW}
    assert min(poll.room for poll in server.polls) <= MAX_IN_FLIGHT - MAX_LEASES


@pytest.mark.parametrize("path", [LEASES, RESULTS])
@pytest.mark.parametrize(
    "reply",
    [
        None,
        (200, b"", {}),
        (200, b"<html>Sign in</html>", {}),
        (200, b'[{"lease": "x"}]', {}),
        (200, b"[" * 100_000, {}),
        (200, b"{}", {"Content-Length": "100", "Connection": "close"}),
        (401, b"<html>Sign in</html>", {}),
        (302, b"", {"Location": "http://127.0.0.1:1/"}),
        (500, b"Oops", {}),
        error(429, "rate_limited"),
        (503, b"", {"Retry-After": "1"}),
    ],
    ids=str,
)
def test_answers_that_do_not_help_are_repeated(
    agents: Agents, server: LocationServer, targets: TargetServer, path: str, reply: Reply | None
) -> None:
    agent = agents.serve()
    server.fail(path, *[reply] * (2 if reply is None else 1))  # libcurl repeats a request on a new connection
    if path == LEASES:  # one that is held open may still return the lease
        until(lambda: not server.faults[path], PATIENCE_SEC, "it got the reply")
    server.lease("a", HttpSpec(url=targets.serve([answer()]).url()))
    assert results(server)["a"].verdict is Verdict.UP
    assert {*server.faults_seen} == {path}
    assert agent.stop() == 0
    is_busy = reply is not None and "Retry-After" in reply[2]
    assert agent.log.count("the server accepts no") == (0 if is_busy else 1)
    assert ("again" in agent.log) is not is_busy
    assert "Traceback" not in agent.log


@pytest.mark.parametrize("leases", [b"{}", b'[{"lease": "x"}]'])
def test_leases_of_another_shape_are_asked_for_again(
    agents: Agents, server: LocationServer, targets: TargetServer, leases: bytes
) -> None:
    reply: Reply = (200, b'{"leases": %s}' % leases, {})
    test_answers_that_do_not_help_are_repeated(agents, server, targets, LEASES, reply)


def test_results_wait_while_the_server_is_away(agents: Agents, server: LocationServer, targets: TargetServer) -> None:
    agent = agents.serve()
    site = targets.serve([answer()])
    server.fail(RESULTS, None, None)
    for number in range(3):
        server.lease(f"lease {number}", HttpSpec(url=site.url()))
    found = results(server, 3)
    assert all(each.age_ms >= 1_000 for each in found.values()), "they waited, and their age is that of the sending"
    assert agent.log.count("the server accepts no results") == 1


def test_a_busy_server_is_logged_when_it_stays_busy(
    agents: Agents, server: LocationServer, targets: TargetServer
) -> None:
    agent = agents.serve()
    server.fail(RESULTS, *[(503, b"", {"Retry-After": "1"})] * 3)
    server.lease("a", HttpSpec(url=targets.serve([answer()]).url()))
    results(server)
    assert agent.stop() == 0
    assert agent.log.count("the server accepts no results") == agent.log.count("accepts results again") == 1


def test_refused_results_are_dropped(agents: Agents, server: LocationServer, targets: TargetServer) -> None:
    agent = agents.serve()
    site = targets.serve([answer()])
    server.fail(RESULTS, error(422, "invalid", "results[0]: another agent's."))
    server.lease("refused", HttpSpec(url=site.url()))
    until(lambda: server.faults_seen, PATIENCE_SEC, "it was refused")
    server.lease("next", HttpSpec(url=site.url()))
    assert results(server).keys() == {"next"}
    assert "1 result dropped" in agent.log


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (error(401, "unauthorized", "Revoked."), 3, "this agent was revoked"),
        (error(409, "agent_outdated", "Versions 2 to 3 are accepted."), 5, "Versions 2 to 3 are accepted."),
    ],
)
def test_it_ends_when_it_is_not_wanted(
    agents: Agents, server: LocationServer, reply: Reply, code: int, words: str
) -> None:
    agent = agents.serve()
    server.fail(LEASES, *[reply] * 2)
    assert agent.code() == code
    assert words in agent.log
    assert "Traceback" not in agent.log
    assert agents.state.exists()


def test_a_signal_gives_leases_back(agents: Agents, server: LocationServer, targets: TargetServer) -> None:
    hanging = targets.serve([Hang()])
    agent = agents.serve()
    server.lease("check", HttpSpec(url=hanging.url(), timeout_ms=600_000))
    server.lease("trigger", HttpSpec(url=hanging.url(), timeout_ms=600_000), start_within_ms=600_000)
    until(lambda: len(hanging.seen) == 2, PATIENCE_SEC, "both run")
    assert agent.stop() == 0
    found = results(server, 2)
    assert {each.verdict for each in found.values()} == {None}
    assert (found["check"].retry_ms, found["trigger"].retry_ms) == (0, None), "a trigger may have been sent"


def test_a_signal_while_the_server_is_away(agents: Agents, server: LocationServer, targets: TargetServer) -> None:
    hanging = targets.serve([Hang()])
    agent = agents.serve()
    server.lease("check", HttpSpec(url=hanging.url(), timeout_ms=600_000))
    until(lambda: hanging.seen, PATIENCE_SEC, "it runs")
    server.away = True
    assert agent.stop() == 0
    assert "1 result could not be sent" in agent.log


def test_its_own_network(agents: Agents, server: LocationServer, targets: TargetServer) -> None:
    """Loopback is allowed, and so is never behind the uplink: what fails by it is a name server that is silent."""
    hanging = targets.serve([Hang()])
    with socket.socket(type=socket.SOCK_DGRAM) as name_server, socket.create_server(("127.0.0.1", 0)) as uplink:
        name_server.bind(("127.0.0.1", 0))
        place, asked = uplink.getsockname(), name_server.getsockname()
        agent = agents.serve("--connectivity", f"127.0.0.1:{place[1]}", "--dns", f"127.0.0.1:{asked[1]}")
        uplink.accept()[0].close()
        uplink.close()
        server.lease("allowed", HttpSpec(url=hanging.url(), timeout_ms=1_000))
        server.lease("trigger", HttpSpec(url="http://a.example/", timeout_ms=1_000), start_within_ms=60_000)
        server.lease("public", HttpSpec(url="http://b.example/", timeout_ms=1_000))
        found = results(server, 3)
        assert found["allowed"].verdict is Verdict.DOWN
        for lease in ("public", "trigger"):
            assert "its own network is down" in (found[lease].detail or "")
            assert found[lease].retry_ms == 8_000, "no connection was made, so a trigger was not sent either"
        server.release()
        until(lambda: server.polls[-1].network_down, PATIENCE_SEC, "the server knows")
        server.lease("next", HttpSpec(url=hanging.url(), timeout_ms=1_000))
        with socket.create_server(place):
            assert results(server, 4)["next"].verdict is Verdict.DOWN
    assert agent.stop() == 0
    assert agent.log.count("our own network is down") == agent.log.count("our own network is back") == 1


def test_it_loads_no_framework() -> None:
    code = "import sys, pulsekeeper.agent.command; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={}, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"checks", "pycurl", "msgspec"} <= loaded
    assert not loaded & {"django", "celery", "redis", "requests", "rich", "ruamel", "monitors", "config", "locations"}

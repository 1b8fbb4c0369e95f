"""Network failures, with reference servers that stop and start: real ones on loopback."""

from __future__ import annotations

import errno
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_network

import pycares
import pytest

from checks import own_network
from checks.evidence import Evidence
from checks.own_network import OwnNetwork, is_within
from checks.probes import resolver
from checks.probes.faults import explain_errno
from checks.probes.http.spec import HttpSpec
from checks.spec import CheckOutcome, Verdict
from checks.verdict import Failure, failed, timed_out
from core import metrics
from core.clock import EPOCH
from monitors.checking.own_network import DOWN, follow, silent_servers
from tests.helpers import flush_broker
from tests.processes.waiting import until

PATIENCE_SEC = 30


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., OwnNetwork]]:
    monkeypatch.setattr(own_network, "NO_SEC", 0.05)
    monkeypatch.setattr(own_network, "_APART_SEC", 0.01)
    flush_broker()
    running = []

    def make(*servers: tuple[str, int]) -> OwnNetwork:
        running.append(OwnNetwork(servers))
        follow(running[-1])
        threading.Thread(target=running[-1].run, daemon=True).start()
        return running[-1]

    yield make
    for each in running:
        each.close()


def verdict(network: OwnNetwork, *, asks: bool = True, began_at: float | None = None) -> str:
    """Return who caused a network failure of a check that has just ended."""
    found: queue.SimpleQueue[str] = queue.SimpleQueue()
    network.judge(
        time.monotonic() if began_at is None else began_at,
        ours=lambda: found.put("ours"),
        theirs=lambda: found.put("theirs"),
        asks=asks,
    )
    return found.get(timeout=PATIENCE_SEC)


def listening(address: tuple[str, int] = ("127.0.0.1", 0)) -> socket.socket:
    return socket.create_server(address)


def levels() -> Mapping[str, float]:
    metrics.report()
    return metrics.read_levels()


def silent() -> list[str]:
    return silent_servers(levels())


def is_down() -> bool:
    return DOWN.read(levels())[()] == 1


def on_answer(monkeypatch: pytest.MonkeyPatch, note: Callable[[bool], object]) -> None:
    """Call `note` when it is found whether a server accepts a connection, before the network knows it."""
    connects = OwnNetwork._connects

    def noted(network: OwnNetwork, server: tuple[str, int]) -> bool:
        answer = connects(network, server)
        note(answer)
        return answer

    monkeypatch.setattr(OwnNetwork, "_connects", noted)


def test_a_failure_is_ours_while_no_server_answers(made: Callable[..., OwnNetwork]) -> None:
    with listening() as server, listening() as other:
        place = server.getsockname()
        network = made(place, other.getsockname())
        until(lambda: not silent(), PATIENCE_SEC, "both answer")
        assert verdict(network) == "theirs"
        assert not is_down()
        other.close()
        assert verdict(network) == "theirs", "one answer is enough"
        server.close()
        began_at = time.monotonic()
        assert verdict(network) == "ours"
        assert is_down()
        assert verdict(network, asks=False) == "ours", "what is known counts for all"
    with listening(place):
        until(lambda: not is_down(), PATIENCE_SEC, "it is noticed without another failure")
        assert verdict(network, began_at=began_at) == "ours", "a check that began during the cut"
        assert verdict(network) == "theirs"


def test_servers_that_never_answered_hold_back_nothing(
    made: Callable[..., OwnNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    on_answer(monkeypatch, asked.append)
    with listening() as unused:
        place = unused.getsockname()
    network = made(place)
    assert verdict(network) == "theirs"
    until(lambda: len(asked) > 3, PATIENCE_SEC, "it asks again although nothing else fails")
    assert silent() == [f"127.0.0.1:{place[1]}"]
    with listening(place):
        until(lambda: not silent(), PATIENCE_SEC, "a server that answers later is noticed before anything fails")
    assert verdict(network) == "ours"


def test_a_failure_during_a_question_that_finds_an_outage(
    made: Callable[..., OwnNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: queue.SimpleQueue[str] = queue.SimpleQueue()
    began_at = time.monotonic()

    def judge() -> None:
        network.judge(began_at, ours=lambda: found.put("ours"), theirs=lambda: found.put("theirs"), asks=True)

    with listening() as server:
        place = server.getsockname()
        network = made(place)
        until(lambda: not silent(), PATIENCE_SEC, "it answers")
    asked: list[bool] = []

    def ask_again(answer: bool) -> None:
        if not asked:
            judge()  # before the answer is known
        asked.append(answer)

    on_answer(monkeypatch, ask_again)
    monkeypatch.setattr(own_network, "NO_SEC", 1.0)
    judge()
    assert found.get(timeout=PATIENCE_SEC) == "ours"
    with listening(place):
        assert found.get(timeout=PATIENCE_SEC) == "ours"
    assert asked[0] is False


def test_a_failure_that_does_not_ask_is_theirs_until_one_did(made: Callable[..., OwnNetwork]) -> None:
    with listening() as server:
        network = made(server.getsockname())
        until(lambda: not silent(), PATIENCE_SEC, "it answers")
    assert verdict(network, asks=False) == "theirs"
    assert verdict(network) == "ours"


def test_without_servers_nothing_is_asked(made: Callable[..., OwnNetwork]) -> None:
    assert verdict(made()) == "theirs"
    assert levels() == {}


@pytest.mark.parametrize(
    ("address", "is_private"),
    [
        ("10.1.2.3:80", True),
        ("10.1.2.3", True),
        ("[fd00::1]:443", True),
        ("fd00::1", True),
        ("192.0.2.1:80", False),
        ("2001:db8::1", False),
        (None, False),
    ],
)
def test_targets_in_the_operator_s_networks_are_distinguished(address: str | None, is_private: bool) -> None:
    outcome = CheckOutcome(Verdict.DOWN, EPOCH, by_network=True, evidence=Evidence(address=address))
    assert is_within(outcome, (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))) is is_private


def lookup_failure(code: int) -> Failure | None:
    return resolver._failed("example.com", code).failure


@pytest.mark.parametrize(
    ("failure", "by_network"),
    [
        (explain_errno(errno.ENETUNREACH), True),
        (explain_errno(errno.EHOSTUNREACH), True),
        (explain_errno(errno.ETIMEDOUT), True),
        (timed_out(HttpSpec("http://example.com/"), "nothing came"), True),
        (lookup_failure(pycares.errno.ARES_ESERVFAIL), True),
        (lookup_failure(pycares.errno.ARES_ECONNREFUSED), True),
        (explain_errno(errno.ECONNREFUSED), False),
        (explain_errno(errno.ECONNRESET), False),
        (explain_errno(errno.EMFILE), False),
        (lookup_failure(pycares.errno.ARES_ENOTFOUND), False),
    ],
)
def test_what_fails_by_the_network(failure: Failure, by_network: bool) -> None:
    assert failure.by_network is by_network
    assert failed(failure, now=EPOCH).by_network is by_network

"""The resolver against a local name server, including its faults."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from checks.probes.engine import ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.probes.resolver import _TRIES, Answer, Resolver
from checks.spec import ReasonCode
from checks.verdict import own_fault
from tests.checks.conftest import LOOPBACK
from tests.targets.names import Fault, Name
from tests.targets.server import TargetServer

ROOT = Path(__file__).parents[2]
V4, V6 = ("127.0.0.1",), ("::1",)
SILENCE = Fault.SILENCE


class Asker:
    """Query one resolver and collect its results, in order."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._came = threading.Condition()
        self.answers: list[tuple[str, Answer]] = []

    def ask(self, host: str) -> None:
        def take(answer: Answer) -> None:
            with self._came:
                self.answers.append((host, answer))
                self._came.notify_all()

        self._resolver.resolve(host, take)

    def first(self, count: int = 1) -> list[Answer]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.answers) >= count, timeout=60)
        return [answer for _, answer in self.answers[:count]]

    def answer(self, host: str) -> Answer:
        self.answers.clear()
        self.ask(host)
        return self.first()[0]


ADDRESSES = [
    pytest.param(Name(V4, V6), "::1,127.0.0.1", id="both, in the order of RFC 6724"),
    pytest.param(Name(V4), "127.0.0.1", id="A alone"),
    pytest.param(Name((), V6), "::1", id="AAAA alone"),
    pytest.param(Name(V4, SILENCE), "127.0.0.1", id="AAAA unanswered"),
    pytest.param(Name(SILENCE, V6), "::1", id="A unanswered"),
    pytest.param(Name(V4, Fault.SERVFAIL), "127.0.0.1", id="AAAA fails"),
    pytest.param(Name(Fault.SERVFAIL, V6), "::1", id="A fails"),
    pytest.param(Name(V4, Fault.NXDOMAIN), "127.0.0.1", id="AAAA denied"),
    pytest.param(Name(V4, Fault.GARBAGE), "127.0.0.1", id="AAAA garbled"),
    pytest.param(Name(V4, V6, truncated=True), "::1,127.0.0.1", id="over TCP"),
    pytest.param(Name(alias="real.test"), "127.0.0.9", id="alias"),
    pytest.param(Name(("127.0.0.1", "127.0.0.1")), "127.0.0.1", id="twice the same"),
    pytest.param(Name(V4, ("fe80::1",)), "127.0.0.1,fe80::1", id="link-local, for the guard to refuse"),
]


@pytest.mark.parametrize(("name", "addresses"), ADDRESSES)
def test_addresses(name: Name, addresses: str, targets: TargetServer) -> None:
    names = targets.serve_names({"www.test": name, "real.test": Name(("127.0.0.9",))})
    found = Asker(Resolver([names.address])).answer("www.test")
    assert sorted(found.addresses) == sorted(addresses.split(","))
    if "fe80" not in addresses:  # its position depends on the machine's own addresses
        assert found == Answer(tuple(addresses.split(",")))
    if SILENCE in (name.a, name.aaaa):
        assert max(names.asked.values()) < _TRIES, "it waited for all tries of a question without an answer"


FAILURES = [
    pytest.param("gone.test", "does not exist", id="does not exist"),
    pytest.param("empty.test", "no address", id="no records"),
    pytest.param("failing.test", "refused or failed to answer", id="SERVFAIL"),
    pytest.param("refusing.test", "refused or failed to answer", id="REFUSED"),
    pytest.param("garbled.test", "refused or failed to answer", id="garbage"),
    pytest.param("dangling.test", "does not exist", id="alias of nothing"),
    pytest.param("x..test", "could not be resolved", id="empty label"),
    pytest.param(f"{'a' * 64}.test", "could not be resolved", id="label too long"),
    pytest.param(".".join(["a" * 60] * 5), "could not be resolved", id="name too long"),
    pytest.param("grün.test", "could not be resolved", id="not ASCII"),
    pytest.param("real.test\0.evil.test", "could not be resolved", id="NUL"),
    pytest.param("\ud800.test", "could not be resolved", id="lone surrogate"),
]


@pytest.mark.parametrize(("host", "words"), FAILURES)
def test_failures(host: str, words: str, targets: TargetServer) -> None:
    names = targets.serve_names(
        {
            "real.test": Name(V4),
            "empty.test": Name(),
            "failing.test": Name(Fault.SERVFAIL, Fault.SERVFAIL),
            "refusing.test": Name(Fault.REFUSED, Fault.REFUSED),
            "garbled.test": Name(Fault.GARBAGE, Fault.GARBAGE),
            "dangling.test": Name(alias="nothing.test"),
        }
    )
    resolver = Resolver([names.address])
    answer = Asker(resolver).answer(host)
    assert answer.addresses == ()
    assert answer.failure is not None
    assert answer.failure.reason_code is ReasonCode.DNS_FAILURE
    assert words in answer.failure.detail
    assert answer.failure.detail.endswith(".")
    assert len(answer.failure.detail) < 300
    assert resolver.recall(host) is None


def test_a_good_answer_is_remembered_and_one_question_serves_all_who_ask(targets: TargetServer) -> None:
    names = targets.serve_names({"www.test": Name(V4, seconds=0.1)})
    resolver = Resolver([names.address])
    asker = Asker(resolver)
    for _ in range(20):
        asker.ask("www.test")
    assert asker.first(20) == [Answer(("127.0.0.1",))] * 20
    assert resolver.recall("www.test") == Answer(("127.0.0.1",))
    assert names.asked == {("www.test", "A"): 1, ("www.test", "AAAA"): 1}


def test_the_hosts_file_and_localhost(targets: TargetServer) -> None:
    names = targets.serve_names({})
    found = Asker(Resolver([names.address])).answer("localhost").addresses
    assert "127.0.0.1" in found
    assert not names.asked


def test_names_that_hang_delay_no_other(targets: TargetServer) -> None:
    zone = {f"hanging{number}.test": Name(SILENCE, SILENCE) for number in range(300)}
    names = targets.serve_names(zone | {"good.test": Name(V4)})
    asker = Asker(Resolver([names.address]))
    for host in zone:
        asker.ask(host)
    asker.ask("good.test")
    assert asker.first() == [Answer(("127.0.0.1",))]
    assert asker.answers[0][0] == "good.test"


def test_a_name_whose_answers_are_garbage_harms_no_other(targets: TargetServer) -> None:
    late = {f"late{number}.test": Name(V4, seconds=0.2) for number in range(30)}
    garbled = {f"garbled{number}.test": Name(Fault.GARBAGE, Fault.GARBAGE) for number in range(5)}
    names = targets.serve_names({**late, **garbled})
    asker = Asker(Resolver([names.address]))
    for host in (*late, *garbled):
        asker.ask(host)
    asker.first(35)
    assert {host for host, answer in asker.answers if answer.failure is not None} == set(garbled)


def test_a_silent_server_is_distinguished() -> None:
    """No server listens on the port, so c-ares fails at once with a refused connection."""
    answer = Asker(Resolver(["127.0.0.1:9"])).answer("www.test")
    assert answer.failure == own_fault("no name server could be reached", by_network=True)
    outcome = ProbeEngine(LOOPBACK, resolver=Resolver(["127.0.0.1:9"])).check(HttpSpec("http://www.test/"))
    assert outcome.reason_code is ReasonCode.WORKER_LOST, "it says nothing about the target"


def test_a_lookup_under_way_holds_up_no_exit(targets: TargetServer) -> None:
    names = targets.serve_names({"hanging.test": Name(SILENCE, SILENCE)})
    code = f"""
        from checks.probes.resolver import Resolver
        Resolver(["{names.address}"]).resolve("hanging.test", print)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, timeout=600, check=True
    )
    assert (ended.stdout, ended.stderr) == (b"", b"")
    assert names.asked["hanging.test", "A"] < _TRIES

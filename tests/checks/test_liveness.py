"""If our name servers drop every packet, no check counts as a failure of its target."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from checks.probes.dns.spec import DnsSpec
from checks.probes.engine import ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.probes.liveness import Liveness, Wait
from checks.probes.ping.spec import PingSpec
from checks.probes.resolver import Resolver
from checks.probes.tcp.spec import TcpSpec
from checks.probes.udp import UdpSpec
from checks.spec import CheckOutcome, CheckSpec, ReasonCode, Verdict
from tests.checks.conftest import LOOPBACK
from tests.checks.test_resolver import Asker
from tests.processes.waiting import until
from tests.targets.names import Fault, Name, NameServer
from tests.targets.server import TargetServer, answer

PATIENCE = 60
LEAST_MS = 1_000  # that a monitor may have
SILENT_ZONE = Name(Fault.SILENCE, Fault.SILENCE)
GARBLED_ZONE = Name(Fault.GARBAGE, Fault.GARBAGE)
ZONES = {"silent.test": SILENT_ZONE, "www.test": Name(("127.0.0.1",))}
CONTROL = ("", "NS")
NO_ANSWER = "Pulsekeeper could not run this check: no name server answers."


def specs(host: str, *, timeout_ms: int = LEAST_MS) -> dict[str, CheckSpec]:
    """Return a check of each protocol that needs our name servers."""
    return {
        "http": HttpSpec(f"http://{host}/", timeout_ms=timeout_ms),
        "tcp": TcpSpec(host=host, port=1, timeout_ms=timeout_ms),
        "udp": UdpSpec(host=host, port=1, timeout_ms=timeout_ms),
        "ping": PingSpec(host=host, timeout_ms=timeout_ms),
        "dns": DnsSpec(name=host, timeout_ms=timeout_ms),
    }


def check(engine: ProbeEngine, checks: Mapping[str, CheckSpec]) -> dict[str, CheckOutcome]:
    ended: dict[str, CheckOutcome] = {}
    engine.run(checks.items(), ended.__setitem__)
    return ended


def reasons(outcomes: Mapping[Any, CheckOutcome]) -> set[ReasonCode | None]:
    return {outcome.reason_code for outcome in outcomes.values()}


def engine_of(*servers: NameServer | str) -> ProbeEngine:
    addresses = [server if isinstance(server, str) else server.address for server in servers]
    return ProbeEngine(LOOPBACK, resolver=Resolver(addresses))


@pytest.fixture
def names(targets: TargetServer) -> NameServer:
    return targets.serve_names(ZONES)


@pytest.fixture
def closed() -> Iterator[str]:
    """The address of a name server that refuses packets."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as reserved:
        reserved.bind(("127.0.0.1", 0))
        reserved.connect(("127.0.0.1", 1))  # accepts packets of this peer only
        yield f"127.0.0.1:{reserved.getsockname()[1]}"


def test_silence_is_our_fault_and_the_next_checks_are_right(names: NameServer, targets: TargetServer) -> None:
    names.dead = True
    engine = engine_of(names)
    outcomes = check(engine, specs("www.test"))
    assert {key: outcome.detail for key, outcome in outcomes.items()} == dict.fromkeys(specs(""), NO_ANSWER)
    assert reasons(outcomes) == {ReasonCode.WORKER_LOST}
    names.dead = False
    site = targets.serve([answer()])
    assert engine.check(HttpSpec(site.url(host="www.test"))).verdict is Verdict.UP

    def is_down() -> bool:
        return reasons(check(engine, specs("silent.test"))) == {ReasonCode.TIMEOUT}

    # The earlier control query may get its answer now, while the check is already waiting.
    until(is_down, PATIENCE, "a silent zone is down again")


def test_a_silent_zone_is_no_fault_of_ours(names: NameServer) -> None:
    """While hostile zones send garbage that makes c-ares repeat all queries."""
    names.zone = {**ZONES, **{f"garbled{number}.test": GARBLED_ZONE for number in range(5)}}
    garbled = {f"garbled {number}": HttpSpec(f"http://garbled{number}.test/") for number in range(5)}
    outcomes = check(engine_of(names), {**specs("silent.test"), **garbled})
    assert {outcomes.pop(key).reason_code for key in garbled} == {ReasonCode.DNS_FAILURE}
    assert reasons(outcomes) == {ReasonCode.TIMEOUT}
    assert all("name servers gave no answer" in str(outcome.detail) for outcome in outcomes.values())


def test_lookups_that_time_out(names: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checks.probes.resolver._TRIES", 3)  # otherwise it takes 12 s
    resolver = Resolver([names.address])
    found = Asker(resolver).answer("silent.test")
    assert found.failure is not None
    assert found.failure.reason_code is ReasonCode.DNS_FAILURE
    assert "check that those of its zone are up" in found.failure.detail
    names.dead = True
    found = Asker(resolver).answer("www.test")
    assert found.failure is not None
    assert (found.failure.reason_code, found.failure.detail) == (ReasonCode.WORKER_LOST, NO_ANSWER)


def test_silence_during_a_part_of_the_wait_is_enough(names: NameServer, targets: TargetServer) -> None:
    """Later attempts of a lookup are seconds apart, so a lookup that began in the outage may miss the recovery."""
    names.dead = True
    url = targets.serve([answer()]).url(host="www.test")

    def recover() -> None:
        until(lambda: names.asked[CONTROL] > 3, PATIENCE, "the silence is noticed")
        names.dead = False

    thread = threading.Thread(target=recover)
    thread.start()
    checks = {**specs("silent.test", timeout_ms=2_000), "slow": HttpSpec(url, slow_ms=500)}
    outcomes = check(engine_of(names), checks)
    thread.join()
    assert reasons(outcomes) == {ReasonCode.WORKER_LOST}


@pytest.mark.usefixtures("patient")
def test_many_names_share_the_control_queries(names: NameServer) -> None:
    hosts = [f"silent{number}.test" for number in range(300)]
    names.zone = dict.fromkeys(hosts, SILENT_ZONE)
    outcomes = check(engine_of(names), {host: HttpSpec(f"http://{host}/", timeout_ms=LEAST_MS) for host in hosts})
    assert reasons(outcomes) == {ReasonCode.TIMEOUT}
    assert 0 < names.asked[CONTROL] < len(hosts) / 10


def test_a_wait_that_ended_in_time_costs_no_query() -> None:
    asked: list[None] = []

    def servers() -> list[tuple[str, int]]:
        asked.append(None)
        return []

    liveness, ended, lasting = Liveness(servers), Wait(), Wait()
    ended.end()
    liveness.watch(ended)
    liveness.watch(lasting)
    until(lambda: liveness.was_silent(lasting), PATIENCE, "the silence is noticed")
    assert len(asked) == 1
    assert not liveness.was_silent(ended)


def test_one_server_that_answers_is_enough(names: NameServer, targets: TargetServer, closed: str) -> None:
    dead = targets.serve_names({})
    dead.dead = True
    url = targets.serve([answer()]).url(host="www.test")
    lists = [(dead, names), (names, dead), (closed, names), (dead, closed, names), (dead, closed)]
    checks = {"up": HttpSpec(url, timeout_ms=3_000), **specs("silent.test")}
    with ThreadPoolExecutor() as threads:
        *found, without = threads.map(lambda servers: check(engine_of(*servers), checks), lists)
    for outcomes in found:
        assert outcomes.pop("up").verdict is Verdict.UP
        assert reasons(outcomes) == {ReasonCode.TIMEOUT}
    assert reasons(without) == {ReasonCode.WORKER_LOST}


def test_an_outage_during_many_checks_fails_none(names: NameServer, targets: TargetServer) -> None:
    """Lookups begin before, in and at the end of the outage; c-ares has cached parts of the answers."""
    hosts = [f"www{number}.test" for number in range(200)]
    names.zone = {
        host: Name(("127.0.0.1",), ("::1",), seconds=number % 3 / 20, ttl=1 + number % 2, aaaa_ttl=1 + number % 3)
        for number, host in enumerate(hosts)
    }
    site = targets.serve([answer()])

    ended: dict[int, CheckOutcome] = {}
    service = engine_of(names).service(ended.__setitem__)
    thread = threading.Thread(target=service.run)
    thread.start()
    for number, host in enumerate([*hosts[:50], *hosts]):
        names.dead = 70 < number < 210
        service.submit(number, HttpSpec(site.url(host=host), timeout_ms=2_000 + number % 3 * 500))
        time.sleep(0.015)  # a steady load
    service.close()
    thread.join()
    assert reasons(ended) == {None, ReasonCode.WORKER_LOST}


def test_a_half_of_an_answer_from_the_cache_proves_nothing(names: NameServer) -> None:
    """c-ares still has the AAAA record, and this host may have no IPv6."""
    names.zone = {"www.test": Name(("127.0.0.1",), ("::1",), ttl=1, aaaa_ttl=60)}
    asker = Asker(Resolver([names.address]))

    def has_expired() -> bool:
        asker.answer("www.test")
        return names.asked["www.test", "A"] > 1

    until(has_expired, PATIENCE, "A is asked again")
    names.dead = True

    def is_asked() -> bool:
        asker.ask("www.test")
        return names.asked["www.test", "A"] > 2

    until(is_asked, PATIENCE, "A is asked again")
    asker.answers.clear()
    failure = asker.answer("www.test").failure
    assert failure is not None
    assert failure.reason_code is ReasonCode.WORKER_LOST
    assert names.asked["www.test", "AAAA"] == 1

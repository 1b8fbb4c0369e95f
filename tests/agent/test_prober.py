"""Leases that end before their checks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from checks.agent_protocol import Lease
from checks.own_network import OwnNetwork
from checks.probes.engine import ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.spec import ReasonCode, Verdict
from core.egress import EgressGuard, parse_networks
from pulsekeeper.agent import prober
from pulsekeeper.agent.outbox import Result
from pulsekeeper.agent.prober import Prober
from tests.agent.conftest import PATIENCE_SEC
from tests.processes.waiting import until
from tests.targets.server import Hang, TargetServer, answer

LOOPBACK = parse_networks("127.0.0.0/8")


@dataclass
class Made:
    prober: Prober = field(init=False)
    results: list[Result] = field(default_factory=list)
    online: bool = True

    def by_lease(self, count: int) -> dict[str, Result]:
        until(lambda: len(self.results) >= count, PATIENCE_SEC, f"{count} results")
        return {result.lease: result for result in self.results}


@pytest.fixture
def made() -> Iterator[Made]:
    made = Made()
    made.prober = Prober(
        ProbeEngine(EgressGuard(LOOPBACK)),
        OwnNetwork(()),
        LOOPBACK,
        is_online=lambda: made.online,
        done=made.results.append,
    )
    threading.Thread(target=made.prober.run, daemon=True).start()
    yield made
    made.prober.close()


def lease(name: str, url: str, *, start_within_ms: int | None = None) -> Lease:
    spec = msgspec.Raw(msgspec.json.encode(HttpSpec(url=url, timeout_ms=2_000)))
    return Lease(name, "HttpSpec", spec, start_within_ms=start_within_ms)


def test_what_has_not_started_is_forgotten_when_leases_end(made: Made, targets: TargetServer) -> None:
    hanging, site = targets.serve([Hang()]), targets.serve([answer()])
    made.prober.take([lease("running", hanging.url())])
    until(lambda: hanging.seen, PATIENCE_SEC, "it runs")
    made.online = False
    made.prober.take([lease("forgotten", site.url())])
    found = made.by_lease(1)
    assert found["running"].outcome.reason_code is ReasonCode.TIMEOUT, "history"
    assert found.keys() == {"running"}
    assert made.prober.room == prober.MAX_IN_FLIGHT
    made.online = True
    made.prober.take([lease("next", site.url())])
    assert made.by_lease(2)["next"].outcome.verdict is Verdict.UP
    assert len(site.seen) == 1


def test_more_leases_than_it_asked_for(made: Made, targets: TargetServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "MAX_IN_FLIGHT", 1)
    hanging = targets.serve([Hang()])
    made.prober.take([lease(name, hanging.url()) for name in "ab"])
    assert made.prober.room == 0
    refused = made.by_lease(1)["b"].outcome
    assert (refused.reason_code, refused.postponed) == (ReasonCode.WORKER_LOST, 2.0)


def test_leases_that_arrive_while_it_stops(made: Made, targets: TargetServer) -> None:
    site = targets.serve([answer()])
    made.prober.close()
    made.prober.take([lease("check", site.url()), lease("trigger", site.url(), start_within_ms=60_000)])
    assert {found.outcome.postponed for found in made.by_lease(2).values()} == {0.0}, "the trigger was not sent"
    assert site.seen == []


def test_leases_show_no_secrets() -> None:
    assert "hunter2" not in repr([lease("a", "https://u:hunter2@a.example/")])

"""Accounts take turns when large responses with rules are judged, so that they do not delay checks of others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from checks.probes import loop
from checks.probes.engine import ProbeEngine
from checks.probes.http import probe
from checks.probes.http.spec import HttpSpec
from checks.probes.loop import Loop
from checks.spec import CheckOutcome, ContentRule, ReasonCode, RuleType, Verdict
from core.clock import utc_now
from tests.checks.conftest import LOOPBACK
from tests.processes.waiting import until
from tests.targets.server import TargetServer, answer

PATIENCE_SEC = 30
RULE = (ContentRule(RuleType.TEXT_CONTAINS, "x"),)


class Service:
    """A loop in a thread. `ended`: the checks (owner, number) in the order of their outcomes."""

    def __init__(self) -> None:
        self.ended: dict[tuple[str, int], CheckOutcome] = {}
        self.service: Loop[tuple[str, int]] = ProbeEngine(LOOPBACK).service(
            self.ended.__setitem__, party_of=lambda key: (key[0], None)
        )

    @property
    def heavy(self) -> int:
        """Return the number of responses that wait to be judged."""
        return len(self.service._heavy)

    def spec(self, url: str) -> HttpSpec:
        return HttpSpec(timeout_ms=20_000, url=url, method="GET", rules=RULE)


@contextmanager
def judging_nothing_heavy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_judge_heavy", lambda _: None)
        yield


@contextmanager
def running() -> Iterator[Service]:
    found = Service()
    thread = threading.Thread(target=found.service.run)
    thread.start()
    try:
        yield found
    finally:
        found.service.close()
        thread.join(PATIENCE_SEC)


@pytest.fixture
def url() -> Iterator[str]:
    with TargetServer() as server:
        yield server.serve([answer(body=b"x" * 100)]).url()


@pytest.fixture
def heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_HEAVY_BYTES", 10)


@pytest.mark.usefixtures("heavy")
def test_accounts_take_turns(url: str) -> None:
    with running() as found:
        with judging_nothing_heavy():
            for number in range(20):
                found.service.submit(("crowd", number), found.spec(url))
            until(lambda: found.heavy == 20, PATIENCE_SEC, "all wait to be judged")
            found.service.submit(("quiet", 0), found.spec(url))
            found.service.submit(("light", 0), replace(found.spec(url), rules=()))
            until(lambda: found.heavy == 21, PATIENCE_SEC, "it waits, too")
            until(lambda: ("light", 0) in found.ended, PATIENCE_SEC, "what is light waits for nothing")
            answered = utc_now()
        until(lambda: len(found.ended) == 22, PATIENCE_SEC, "all are judged")
    assert list(found.ended).index(("quiet", 0)) <= 2
    assert {outcome.verdict for outcome in found.ended.values()} == {Verdict.UP}
    assert all(outcome.checked_at <= answered for outcome in found.ended.values()), "the time of the response"


@pytest.mark.usefixtures("heavy")
def test_what_is_too_much_comes_back_unless_it_is_a_trigger(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_MOST_HEAVY", 1)
    with running() as found:
        with judging_nothing_heavy():
            found.service.submit(("quiet", 0), found.spec(url))
            until(lambda: found.heavy == 1, PATIENCE_SEC, "it waits")
            found.service.submit(("crowd", 0), found.spec(url))
            found.service.submit(("crowd", 1), replace(found.spec(url), only_2xx=True))
            until(lambda: len(found.ended) == 2, PATIENCE_SEC, "the others are rejected")
        until(lambda: len(found.ended) == 3, PATIENCE_SEC, "the first one is judged")
    refused = [found.ended["crowd", number] for number in range(2)]
    assert {outcome.reason_code for outcome in refused} == {ReasonCode.WORKER_LOST}
    assert [outcome.postponed for outcome in refused] == [loop._REFUSED_SECONDS, None]
    assert found.ended["quiet", 0].verdict is Verdict.UP

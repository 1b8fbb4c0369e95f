"""Real agents of two locations, over http, with the gateway and the dispatcher of this process."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.handlers.wsgi import WSGIHandler
from pytest_django.fixtures import Settings

from checks.results.models import CheckResult
from checks.spec import Verdict
from config import agents as gateway_agents
from config.gateway import Gateway
from core.clock import utc_now
from locations.models import Agent
from locations.services import create_shared
from monitors import tasks
from tests.agent.conftest import AgentProcess
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import flush_broker, state_of
from tests.processes.waiting import until
from tests.serving import serving
from tests.targets.server import Site, TargetServer, answer

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SEC = 60


@pytest.fixture(autouse=True)
def _own_broker(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[None]:
    monkeypatch.setattr(gateway_agents, "FLUSH_SEC", 0.02)
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    flush_broker()
    yield
    tasks.leave()
    flush_broker()


@pytest.fixture
def probes(tmp_path: Path) -> Iterator[list[AgentProcess]]:
    """An agent of the location fra, and one of ams."""
    started = []
    with serving(Gateway(WSGIHandler())) as port:
        for name in ("fra", "ams"):
            _, token = create_shared(name, name=name, now=utc_now())
            folder = tmp_path / name
            folder.mkdir()
            arguments = ("--server", f"http://127.0.0.1:{port}", "--join", token, "--allow", "127.0.0.0/8")
            environment = {"PULSEKEEPER_STATE": str(folder / "agent.json"), "CONNECTIVITY_TARGETS": ""}
            started.append(AgentProcess(folder, arguments, environment, ""))
        until(lambda: Agent.objects.exclude(last_seen_at=None).count() == 2, PATIENCE_SEC, "both are online")
        try:
            yield started
        finally:
            for each in started:
                each.process.kill()
                each.code()


def test_checks_run_elsewhere_and_failures_are_verified(probes: list[AgentProcess]) -> None:
    with TargetServer() as targets:
        _run(targets.serve([answer()]), probes)


def _run(target: Site, probes: list[AgentProcess]) -> None:
    given = {"locations": ["fra", "ams"], "fail_threshold": 1, "interval_sec": 60}
    monitor = MonitorFactory(
        owner=UserFactory(), url=target.url(), created_at=utc_now() - timedelta(minutes=9), up=True, **given
    )

    def check() -> int:
        """Make the next check of the monitor, and return its claim."""
        state = state_of(monitor)
        state.next_due_at = utc_now()
        state.save(update_fields=["next_due_at"])
        tasks.dispatch_due()
        claim = state_of(monitor).claim
        until(lambda: state_of(monitor).claimed_at is None, PATIENCE_SEC, "the check is recorded")
        return claim

    claims = [check(), check()]
    places = CheckResult.objects.filter(monitor_id=monitor.pk, claim__in=claims).values_list("location_id", flat=True)
    assert len(set(places)) == 2, "the locations take turns"
    assert state_of(monitor).status == Verdict.UP

    target.routes = [answer(500)]
    claim = check()
    result = CheckResult.objects.get(monitor_id=monitor.pk, claim=claim)
    assert (result.verdict, result.confirmed, state_of(monitor).status) == (Verdict.DOWN, True, Verdict.DOWN)
    assert result.evidence is not None
    (own, (name, said), *_) = result.evidence["facts"]
    assert (own, name) in ((["checked from", "fra"], "from ams"), (["checked from", "ams"], "from fra"))
    assert said.startswith("down: ")
    assert [each.stop() for each in probes] == [0, 0]

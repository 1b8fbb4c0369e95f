"""`manage.py run_checks`, by the database and by the API: the same results and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from junitparser import JUnitXml
from pytest_django.live_server_helper import LiveServer

from accounts.models import User
from checks.probes.ping.rights import may_ping
from checks.spec import Verdict
from core.clock import utc_now
from monitors.models import Monitor, MonitorState
from monitors.stale import NOT_STARTED
from projects.models import Project
from tests.factories import MonitorFactory
from tests.helpers import state_of
from tests.pipelines.conftest import Ran
from tests.targets.datagrams import Datagrams
from tests.targets.resolvers import saying
from tests.targets.server import Pause, TargetServer, answer

pytestmark = pytest.mark.django_db(transaction=True)
NOWHERE = "http://127.0.0.1:1"


def fill(user: User, project: Project, targets: TargetServer) -> dict[str, Monitor]:
    """Create one monitor for each reported outcome, by its name."""
    site = targets.serve({"/up": [answer()], "/slow": [Pause(0.06), answer()], "/down": [answer(503, b"Sorry")]})
    given: dict[str, dict[str, Any]] = {
        "up": {"url": site.url("/up")},
        "slow": {"url": site.url("/slow"), "slow_ms": 50},
        "down": {"url": site.url("/down"), "method": "GET"},
        "paused": {"url": site.url("/up")},
        "waiting": {"type": "heartbeat"},
        "trigger": {"type": "scheduler", "url": site.url("/up")},
    }
    made = {
        name: MonitorFactory(
            owner=user,
            name=name,
            project=project,
            first=None if name in ("waiting", "trigger") else Verdict.UP,
            created_at=utc_now(),
            **fields,
        )
        for name, fields in given.items()
    }
    Monitor.objects.filter(pk=made["paused"].pk).update(enabled=False)
    return made


@pytest.mark.usefixtures("worker")
def test_all_standings_both_ways(
    run_checks: Callable[..., Ran], way: list[str], user: User, project: Project, targets: TargetServer, tmp_path: Path
) -> None:
    made = fill(user, project, targets)
    MonitorFactory(owner=user, name="elsewhere", url="http://127.0.0.1:9/")
    report = tmp_path / "report.xml"
    ran = run_checks(*way, "--json", "--junit", str(report))
    told = json.loads(ran.out)
    assert ran.code == told["exit_code"] == 1, ran.err
    assert {monitor["name"]: monitor["status"] for monitor in told["monitors"]} == {
        "up": "up",
        "slow": "slow",
        "down": "down",
        "paused": "paused",
        "waiting": "waiting",
        "trigger": "waiting",
    }
    down = next(monitor for monitor in told["monitors"] if monitor["name"] == "down")
    assert (down["reason_code"], down["http_status"], down["evidence"]["body"]) == ("http_failure", 503, "Sorry")
    suite = JUnitXml.fromfile(str(report))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (6, 1, 0, 3)
    assert state_of(made["down"]).failures == 1, "recorded, and counted towards the threshold"
    assert state_of(made["trigger"]).claim == 1, "nothing was fired"

    passing = run_checks(*way, "--name", "[us]*")
    assert (passing.code, passing.out.splitlines()[-1]) == (0, "2 monitors: 1 up, 1 slow")
    assert run_checks(*way, "--name", "slow", "--fail-on", "slow").code == 1
    assert run_checks(*way, "--name", "slow", "--fail-on", "slow", "--slow-ms", "60000").code == 0
    assert run_checks(*way, "--monitor", made["up"].public_id).code == 0
    plain = run_checks(*way, "--name", "down")
    assert plain.out.startswith("DOWN        down http://127.0.0.1:")
    assert "\n  | answer: HTTP/1.1 503 Whatever\n" in plain.out


@pytest.mark.usefixtures("worker")
def test_other_types_both_ways(
    run_checks: Callable[..., Ran], way: list[str], user: User, project: Project, targets: TargetServer, tmp_path: Path
) -> None:
    host = f"127.44.1.{len(way)}"
    service = targets.serve_datagrams(Datagrams([[b"pong"]]), host=host)
    server = targets.serve_resolver(saying(("shop.example.", "MX", "10 mail.shop.example.")))
    site = targets.serve([answer()])
    resolver = f"dns://127.0.0.1:{server.port}"
    given: dict[str, dict[str, Any]] = {
        "port": {"type": "port", "url": f"tcp://127.0.0.1:{site.port}"},
        "port-down": {"type": "port", "url": "tls://127.0.0.1:1?starttls=smtp"},
        "udp-down": {"type": "udp", "url": f"udp://{host}:{service.port}", "request_body": "ping"}
        | {"content_rules": [{"type": "text_contains", "value": "absent"}]},
        "dns": {"type": "dns", "url": f"{resolver}/shop.example?type=MX", "records": ["10 mail.shop.example"]},
        "dns-down": {"type": "dns", "url": f"{resolver}/shop.example?type=MX", "records": ["20 mail.shop.example"]},
    }
    if may_ping():
        given["ping"] = {"type": "ping", "url": "icmp://127.0.0.1", "packets": 2}
    for name, fields in given.items():
        MonitorFactory(owner=user, name=name, project=project, first=Verdict.UP, created_at=utc_now(), **fields)
    report = tmp_path / "report.xml"
    ran = run_checks(*way, "--json", "--junit", str(report))
    found = {monitor["name"]: monitor for monitor in json.loads(ran.out)["monitors"]}
    assert {name: monitor["status"] for name, monitor in found.items()} == {
        name: "down" if name.endswith("-down") else "up" for name in given
    }
    assert {monitor["http_status"] for monitor in found.values()} == {None}
    assert found["port-down"]["url"] == "tls://127.0.0.1:1?starttls=smtp", "nothing in it is a secret"
    assert found["dns-down"]["url"].endswith("/shop.example?type=MX")
    assert (found["udp-down"]["reason_code"], found["udp-down"]["evidence"]["body"]) == ("content_failure", "pong")
    text = report.read_text()
    assert "reply in hex: 706f6e67" in text
    assert "response code: NOERROR" in text
    plain = run_checks(*way, "--name", "dns*")
    assert "\n  | protocol: UDP\n" in plain.out


def test_what_is_asked_of_an_account(run_checks: Callable[..., Ran], user: User, project: Project) -> None:
    MonitorFactory(owner=user, name="own", heartbeat=True)
    MonitorFactory(owner=user, name="shared", heartbeat=True, project=project)
    MonitorFactory(name="foreign", heartbeat=True)
    ran = run_checks("--account", user.email.upper())
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "2 monitors: 2 waiting")
    assert run_checks("--account", user.email, "--project", project.public_id).out.splitlines()[-1] == (
        "1 monitor: 1 waiting"
    )


@pytest.mark.usefixtures("worker")
def test_requests_wait_for_retry_after(
    run_checks: Callable[..., Ran],
    live_server: LiveServer,
    token: str,
    user: User,
    project: Project,
    site: Any,
    settings: Any,
) -> None:
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = django_settings.THROTTLES | {"check-now": (1, 1)}
    for _ in range(2):
        MonitorFactory(owner=user, up=True, created_at=utc_now(), url=site.url("/ok"), project=project)
    ran = run_checks("--url", live_server.url)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "2 monitors: 2 up")


def test_a_scheduler_that_no_longer_runs_does_not_pass(
    run_checks: Callable[..., Ran], way: list[str], user: User, project: Project
) -> None:
    trigger = MonitorFactory(
        owner=user,
        name="trigger",
        project=project,
        type="scheduler",
        url=NOWHERE,
        first=Verdict.UP,
        created_at=utc_now(),
    )
    assert run_checks(*way).code == 0
    due = utc_now() - timedelta(days=1)
    MonitorState.objects.filter(monitor=trigger).update(next_due_at=due, last_checked_at=due)
    ran = run_checks(*way, "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["monitors"][0]["status"]) == (3, "not checked")
    assert told["monitors"][0]["detail"] == NOT_STARTED

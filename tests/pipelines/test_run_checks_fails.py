"""`manage.py run_checks` when something is missing: each exit code above 1, and leftover files."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django.live_server_helper import LiveServer

from accounts.models import User
from core.clock import utc_now
from monitors import pipelines
from monitors.scheduling import claim_due
from projects.models import Project
from pulsekeeper.check import api
from pulsekeeper.client import Server
from tests.factories import MonitorFactory, ProjectFactory
from tests.helpers import flush_broker, state_of
from tests.pipelines.conftest import Ran
from tests.targets.server import Hang, TargetServer, answer

pytestmark = pytest.mark.django_db(transaction=True)
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "PATIENCE_SEC", -0.7)
    monkeypatch.setattr("monitors.checking.interactive.PATIENCE_SEC", -0.7)


@pytest.mark.usefixtures("_impatient")
def test_no_worker_is_3_and_the_check_is_left_to_the_scheduler(
    run_checks: Callable[..., Ran], way: list[str], user: User, project: Project
) -> None:
    flush_broker()
    monitor = MonitorFactory(owner=user, up=True, project=project, timeout_ms=1000)
    ran = run_checks(*way)
    assert ran.code == 3, ran.err
    assert "NOT CHECKED Untitled" in ran.out
    assert "No worker ran the check in time" in ran.out
    assert [claim.monitor_id for claim in claim_due(utc_now(), limit=10)] == [monitor.pk]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--project, --account or --monitor"),
        (("--account", "unknown@example.com"), "account unknown@example.com not found"),
        (("--project", "prj_none"), "project prj_none not found"),
        (("--account", "OWNER", "--project", "STRANGER"), "not found"),
        (("--monitor", "mon_none"), "monitor mon_none not found"),
        (("--project", "OWN"), "nothing to check"),
        (("--project", "OWN", "--slow-ms", "-1"), "--slow-ms"),
        (("--project", "OWN", "--timeout", "0"), "--timeout"),
        (("--project", "OWN", "--timeout", "nan"), "--timeout"),
        (("--project", "OWN", "--junit", "/nowhere/report.xml"), "/nowhere/report.xml"),
        (("--project", "OWN", "--fail-on", "up"), "--fail-on"),
        (("--unknown",), "--unknown"),
        (("--url", NOWHERE), "PULSEKEEPER_TOKEN"),
        (("--url", "ftp://x/"), "--url"),
        (("--url", NOWHERE, "--account", "a@b.c"), "--account"),
    ],
    ids=str,
)
def test_wrong_use_is_2(
    run_checks: Callable[..., Ran],
    arguments: tuple[str, ...],
    words: str,
    user: User,
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if arguments[:2] == ("--url", "ftp://x/"):
        monkeypatch.setenv("PULSEKEEPER_TOKEN", "svc_x")
    names = {"OWN": project.public_id, "OWNER": user.email, "STRANGER": ProjectFactory().public_id}
    ran = run_checks(*(names.get(word, word) for word in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("token", ["svc_" + "a" * 60, "a\nb", " "])
def test_a_token_that_is_none_is_2_and_is_not_shown(
    run_checks: Callable[..., Ran], live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("PULSEKEEPER_TOKEN", token)
    ran = run_checks("--url", live_server.url)
    assert (ran.code, ran.out) == (2, "")
    assert "PULSEKEEPER_TOKEN" in ran.err
    assert token.strip() == "" or token not in ran.err


def test_what_is_away_is_4(
    run_checks: Callable[..., Ran], user: User, project: Project, targets: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSEKEEPER_TOKEN", "svc_x")
    assert run_checks("--url", NOWHERE).err == (f"CommandError: {NOWHERE} cannot be reached: nothing answers there\n")
    other = targets.serve([answer(200, b"<html>")])
    for address in (NOWHERE, other.url().rstrip("/"), targets.serve([answer(502)]).url().rstrip("/")):
        assert run_checks("--url", address).code == 4
    monitor = MonitorFactory(owner=user, up=True, project=project)
    monkeypatch.setattr("monitors.checking.on_demand.current_app", unreachable_app())
    gone = run_checks("--project", project.public_id)
    assert (gone.code, gone.err) == (4, "CommandError: the broker (REDIS_URL) does not answer\n")
    assert [claim.monitor_id for claim in claim_due(utc_now(), limit=10)] == [monitor.pk], "given back"
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE projects_project RENAME TO away")
    try:
        assert run_checks("--project", project.public_id).code == 4
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE away RENAME TO projects_project")


def unreachable_app() -> Any:
    """Return a real Celery app whose broker address refuses connections."""
    from celery import Celery

    app = Celery(broker="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.task_publish_retry_policy = {"max_retries": 0}
    return app


def test_a_redirect_is_reported_and_not_followed(
    run_checks: Callable[..., Ran], targets: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSEKEEPER_TOKEN", "svc_x")
    site = targets.serve([answer(301, b"", "Location: https://other.example/")])
    ran = run_checks("--url", site.url().rstrip("/"))
    assert ran.code == 2
    assert "redirects to https://other.example/" in ran.err


def test_an_api_that_falls_silent_is_3(
    run_checks: Callable[..., Ran], targets: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSEKEEPER_TOKEN", "svc_x")
    listed = (
        '[{"id": "mon_1", "name": "Shop", "type": "http", "url": "https://shop.example/", "project_id": null, '
        '"enabled": true, "status": null, "timeout_ms": 1000, "last_latency_ms": null, "last_checked_at": null}]'
    )
    site = targets.serve(lambda seen: [answer(200, listed.encode()) if seen.method == "GET" else Hang()])
    ran = run_checks("--url", site.url().rstrip("/"), "--timeout", "0.5")
    assert (ran.code, ran.out.splitlines()[-1]) == (3, "1 monitor: 1 not checked")


def test_ctrl_c_is_130_and_leaves_nothing_claimed(
    run_checks: Callable[..., Ran], user: User, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hand_out(claims: dict[int, int], *, now: datetime) -> None:
        assert claims
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("monitors.checking.on_demand.hand_out", hand_out)
    monitor = MonitorFactory(owner=user, up=True, project=project)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for background processes
    try:
        ran = run_checks("--project", project.public_id)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ran.code, ran.err) == (130, "CommandError: interrupted; nothing was checked yet\n")
    assert state_of(monitor).claimed_at is None


def test_tokens_go_where_they_are_meant_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A .netrc of the machine does not replace the token."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with TargetServer() as server:
        site = server.serve([answer(200, b"[]")])
        api.ApiSource(Server(site.url(), token="svc_x"), project=None).targets()
        assert site.seen[0].header("authorization") == "Bearer svc_x"

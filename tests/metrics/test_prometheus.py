"""deploy/prometheus with a real Prometheus: the rules, and alerts that fire after scrapes of a running server."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from django.db import connection, connections
from django.test import Client
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer
from redis import Redis

from alerts.outbox import DELIVERIES, MAX_QUEUED
from checks.results.models import RollupProgress
from config.celery import app
from config.routes import REQUESTS
from core import metrics
from core.clock import BROKER, utc_now
from core.postgresql import HISTORY
from monitors import metrics as instruments
from monitors.checking import own_network
from monitors.models import Canary, Monitor, MonitorState
from monitors.scheduling import tick
from notifications.outbox import MAIL_FAILING
from projects.models import Project
from statuspages.subscriptions import MAILS
from tests.api.client import Api
from tests.factories import ChannelFactory, DeliveryFactory, MonitorFactory, PingGapFactory, ProjectFactory
from tests.helpers import flush_broker
from tests.locations import add_agent, shared
from tests.metrics.prometheus import FOLDER, START_SECONDS, Ask, firing, running_prometheus
from tests.metrics.test_writes import read_only
from tests.oncall.making import make_schedule
from tests.processes.up import free_port
from tests.processes.waiting import until
from tests.wrapper.conftest import require
from tokens.models import ProjectToken

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_counted(fresh_health: None) -> Iterator[None]:
    require("promtool")
    flush_broker()
    yield
    flush_broker()


def promtool(*arguments: str, text: bytes | None = None) -> str:
    """Return what promtool prints. Raises AssertionError if it finds a fault."""
    found = subprocess.run(["promtool", *arguments], cwd=FOLDER, input=text, capture_output=True, timeout=60)
    printed = (found.stdout + found.stderr).decode()
    assert found.returncode == 0, printed
    return printed


def test_the_files_are_valid() -> None:
    promtool("check", "config", "--lint=all", "--lint-fatal", "prometheus.yml")
    promtool("check", "rules", "--lint=all", "--lint-fatal", "pulsekeeper.rules.yml", "monitors.rules.yml")


def test_each_rule_follows_from_its_series_alone() -> None:
    promtool("test", "rules", "pulsekeeper.tests.yml", "monitors.tests.yml")


def test_names_and_help_texts_pass_the_lint() -> None:
    DELIVERIES.add(1, "dead", "email")
    assert promtool("check", "metrics", text=Client().get("/metrics").content) == ""


@pytest.fixture
def monitor() -> Monitor:
    monitor = MonitorFactory(project=ProjectFactory(), name='The "new"\nshop')
    MonitorState.objects.update(
        status="down", last_checked_at=utc_now(), next_due_at=None
    )  # neither a late check nor a late alert
    return monitor


def project_of(monitor: Monitor) -> Project:
    assert monitor.project is not None
    return monitor.project


@pytest.fixture
def prometheus(live_server: LiveServer, tmp_path: Path, monitor: Monitor) -> Iterator[Ask]:
    """Yield `ask(path)` of a Prometheus with our files, which fires alerts without waiting."""
    for rules in FOLDER.glob("*.rules.yml"):
        at_once = re.sub(r"for: \w+", "for: 0s", rules.read_text())
        (tmp_path / rules.name).write_text(re.sub(r"interval: \w+", "interval: 1s", at_once))
    (tmp_path / "token").write_text(str(Api.with_token(monitor.owner, project_of(monitor)).token))
    sample = re.sub(r"^  # (?=- job_name|  )", "  ", (FOLDER / "prometheus.yml").read_text(), flags=re.MULTILINE)
    config = yaml.safe_load(sample)
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for job in config["scrape_configs"]:
        target = live_server.url.removeprefix("http://").replace("localhost", "127.0.0.1")
        job |= {"scheme": "http", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    _, of_monitors = config["scrape_configs"]
    of_monitors["authorization"]["credentials_file"] = str(tmp_path / "token")
    with running_prometheus(tmp_path, config) as ask:
        yield ask


def test_each_alert_is_fired_by_its_cause(
    prometheus: Ask, monitor: Monitor, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause the faults in the database, the broker or the settings of the scraped server."""
    groups = [yaml.safe_load(rules.read_text())["groups"] for rules in FOLDER.glob("*.rules.yml")]
    expected = {rule["alert"] for [group] in groups for rule in group["rules"] if "alert" in rule}
    seen: set[str] = set()

    def fired() -> set[tuple[str, str]]:
        """Return the firing alerts by name, each with the value of the label that distinguishes it."""
        labels = firing(prometheus)
        seen.update(each["alertname"] for each in labels)
        return {(each["alertname"], each.get("process") or each.get("kind") or each.get("name", "")) for each in labels}

    def have_fired(names: set[str]) -> bool:
        fired()
        return names <= seen

    missing = {("PulsekeeperProcessMissing", kind) for kind in ("web", "worker", "interactive", "dispatcher", "beat")}
    until(lambda: fired() == missing | {("MonitorDown", monitor.name)}, START_SECONDS, "only what is wrong fires")
    for target in prometheus("targets")["activeTargets"]:
        assert target["health"] == "up", target["lastError"]

    def another_error() -> bool:
        REQUESTS.add(1, "/v1/monitors", "GET", "500")
        return have_fired({"PulsekeeperServerErrors"})

    until(another_error, START_SECONDS, "answers are server errors")

    DELIVERIES.add(1, "dead", "webhook")
    dead = ("PulsekeeperDeliveriesDead", "webhook")
    until(lambda: dead in fired(), START_SECONDS, "the first dead delivery is an increase")

    now = utc_now()
    never_checked = MonitorFactory(project=monitor.project, interval_sec=60)
    MonitorState.objects.filter(pk=never_checked.pk).update(next_due_at=now - timedelta(hours=1), claimed_at=None)
    MonitorState.objects.filter(pk=monitor.pk).update(cert_expires_at=now, domain_expires_at=now)
    tick(now - timedelta(hours=1))
    PingGapFactory(started_at=now - timedelta(minutes=10))
    long_ago = now - timedelta(hours=1)
    Canary.objects.create(
        answered_at=long_ago,
        ping_ok_at=long_ago,
        ping_failing_since=long_ago,
        ping_error="refused",
        page_ok_at=long_ago,
        page_ms=2_000,
    )
    DeliveryFactory(channel=ChannelFactory(), created_at=now - timedelta(hours=1))
    schedule = make_schedule(monitor.owner, monitor.owner)
    type(schedule).objects.update(announced_until=long_ago)
    for _ in range(MAX_QUEUED + 1):
        app.send_task("alerts.tasks.tick")
    metrics.LATE.add(1, "pings")
    instruments.CLOCK_STEPS.add(1, "back")
    Redis.from_url(settings.REDIS_URL or "").hset(metrics.PROCESSES_KEY, "web|other", f"{BROKER.time()}|600")
    instruments.DISPATCH_HELD_BACK.add()
    instruments.CLAIMS_LOST.add(1, "again")
    instruments.CHECKS_DROPPED.add(1, "not_made")
    instruments.SLOW_JUDGEMENTS.add()
    DELIVERIES.add(1, "waiting", "webhook")
    MAILS.add(1, "dead")
    add_agent(shared())
    RollupProgress.objects.create(rolled_until=now - timedelta(hours=4))
    for databases in (settings.DATABASES, connections.settings):
        monkeypatch.setitem(databases, HISTORY, connection.settings_dict | {"HOST": "127.0.0.1", "PORT": "1"})
    for level in (instruments.WITHOUT_PINGS, MAIL_FAILING, own_network.DOWN):
        level.follow(lambda: 1)
    with read_only():
        until(lambda: have_fired({"PulsekeeperNoWrites"}), START_SECONDS, "the database is read-only")
    unreadable = {"PulsekeeperUnreachable", "PulsekeeperDown", "MonitorMetricsMissing"}
    until(lambda: have_fired(expected - unreadable), START_SECONDS, f"all of these fire: {expected - unreadable}")

    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    until(lambda: have_fired({"PulsekeeperUnreachable"}), START_SECONDS, "the broker is away")
    settings.METRICS_ALLOWED = ()
    ProjectToken.objects.all().delete()
    until(lambda: have_fired(expected), START_SECONDS, "nothing can be scraped")

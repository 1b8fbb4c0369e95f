"""`/readyz`, also while a server is unreachable."""

from __future__ import annotations

import re
import socket
import time
from datetime import timedelta

import pytest
import time_machine
from django.db import connection, connections
from django.test import Client
from pytest_django.fixtures import Settings

from alerts.outbox import MAX_QUEUED
from config import health
from config.celery import app
from core import metrics
from core.clock import utc_now
from core.metrics import LATE
from core.postgresql import HISTORY
from locations.models import Agent, Location
from monitors.checking import own_network
from monitors.models import Canary, Monitor, MonitorState, SchedulerTick
from monitors.scheduling import tick
from oncall.notices import announce_shifts
from tests.alerts.drivers import claim, finish
from tests.factories import ChannelFactory, DeliveryFactory, MonitorFactory, UserFactory
from tests.helpers import flush_broker
from tests.locations import add_agent, shared
from tests.oncall.making import make_schedule

pytestmark = pytest.mark.django_db(transaction=True)

OF_BROKER = ("mail", "network", "lateness", "clocks")
GOOD = dict.fromkeys(
    (
        *(
            "database",
            "migrations",
            "writes",
            "scheduler",
            "monitors",
            "coverage",
            "locations",
            "alerts",
            "on_call",
            "canary",
            "broker",
        ),
        *OF_BROKER,
        "version",
    ),
    "ok",
)


@pytest.fixture(autouse=True)
def _ticking(fresh_health: None) -> None:
    flush_broker()
    tick(utc_now())


def ready() -> tuple[int, dict[str, str]]:
    answer = Client().get("/readyz")
    body = answer.json()
    degraded = any(body["checks"].get(name, "ok") != "ok" for name in ("lateness", "history"))
    assert body["status"] == (("degraded" if degraded else "ready") if answer.status_code == 200 else "not_ready")
    return answer.status_code, body["checks"]


def test_all_is_well() -> None:
    assert ready() == (200, GOOD)


@pytest.mark.parametrize("listening", [True, False], ids=["silent", "refusing"])
def test_without_the_broker(settings: Settings, listening: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE_SEC", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.REDIS_URL = f"redis://:secret@127.0.0.1:{silent.getsockname()[1]}/0"
        if not listening:
            silent.close()
        start = time.monotonic()
        assert ready() == (
            503,
            GOOD | {"broker": "does not answer"} | dict.fromkeys(OF_BROKER, "not checked"),
        )
        assert time.monotonic() - start < 5


@pytest.mark.usefixtures("no_database")
def test_without_the_database() -> None:
    away = "the database does not answer"
    assert ready() == (
        503,
        dict.fromkeys(GOOD, away) | dict.fromkeys(("broker", *OF_BROKER), "ok"),
    )
    assert "secret" not in Client().get("/readyz").content.decode()


def test_with_migrations_to_apply() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'monitors' AND name = '0001_initial'")
        try:
            status, checks = ready()
        finally:
            cursor.execute(
                "INSERT INTO django_migrations (app, name, applied) VALUES ('monitors', '0001_initial', now())"
            )
    assert (status, checks["database"], checks["migrations"]) == (503, "ok", "1 migration not applied")


def test_with_a_scheduler_that_stands_still() -> None:
    with time_machine.travel(utc_now(), tick=False):
        SchedulerTick.objects.update(at=utc_now() - timedelta(seconds=100))
        status, checks = ready()
    assert (status, checks["scheduler"]) == (503, "last ran 100 s ago")
    SchedulerTick.objects.all().delete()
    assert ready() == (503, GOOD | {"scheduler": "has never run"})


def test_stale_monitors_degrade_it_and_web_processes_stay_in_the_load_balancer() -> None:
    monitor = MonitorFactory(interval_sec=60)
    fault = "Pulsekeeper could not run this check: no name server could be reached."
    past = utc_now() - timedelta(minutes=10)
    MonitorState.objects.update(fault=fault, fault_since=past, last_checked_at=past)
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["checks"] == GOOD | {
        "monitors": f"1 not checked: {fault.rstrip('.')}",
        "coverage": "1 of 1 monitors have no result since it was due",
    }
    monitor.delete()
    assert Client().get("/readyz").json()["status"] == "ready"


def test_a_shared_location_that_is_offline_degrades_it() -> None:
    fra, private = shared(), shared("loc_private")
    owner = UserFactory()
    Location.objects.filter(pk=private.pk).update(owner=owner)
    agent = add_agent(fra, seen=utc_now())
    iad = shared("iad")
    monitor = MonitorFactory(owner=owner, locations=["default", "fra", "iad", private.public_id])
    add_agent(private, seen=utc_now() - timedelta(hours=1))
    MonitorState.objects.update(last_checked_at=utc_now(), next_due_at=utc_now() + timedelta(minutes=1))

    def found() -> tuple[int, str, str]:
        answer = Client().get("/readyz")
        return answer.status_code, answer.json()["status"], answer.json()["checks"]["locations"]

    assert found() == (200, "degraded", "1 shared location used by monitors: no agent is online"), "none has joined"
    add_agent(iad, seen=utc_now())
    assert found()[2] == "ok"
    for columns in ({"network_down": True}, {"network_down": False, "last_seen_at": utc_now() - timedelta(seconds=31)}):
        Agent.objects.filter(pk=agent.pk).update(**columns)
        assert found() == (200, "degraded", "1 shared location used by monitors: no agent is online")
    Monitor.objects.filter(pk=monitor.pk).update(enabled=False)
    assert found() == (200, "ready", "ok")


def test_schedules_whose_gaps_are_not_looked_for_degrade_it() -> None:
    owner = UserFactory()
    schedule = make_schedule(owner, owner)
    past = utc_now() - timedelta(minutes=6)

    def found() -> tuple[int, str, str]:
        answer = Client().get("/readyz")
        return answer.status_code, answer.json()["status"], answer.json()["checks"]["on_call"]

    for columns in ({"created_at": past}, {"created_at": past, "announced_until": past}):
        type(schedule).objects.update(**columns)
        status, word, text = found()
        assert (status, word) == (200, "degraded")
        assert re.fullmatch(r"gaps and hand-overs of a schedule were last looked for 36\d s ago", text)
    announce_shifts(utc_now())
    assert found() == (200, "ready", "ok")


def test_requests_to_base_url_that_fail_degrade_it() -> None:
    now = utc_now()
    failing = {"ping_ok_at": now - timedelta(minutes=5), "ping_failing_since": now - timedelta(minutes=2)}
    Canary.objects.update_or_create(
        defaults={"base_url": "https://x.example", "answered_at": now, "ping_error": "No answer.", **failing}
    )
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert re.fullmatch(r"a ping at BASE_URL has failed for 12\d s: No answer.", answer.json()["checks"]["canary"])


def test_what_was_late_in_the_last_minute_degrades_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for amount, what in ((2, "pings"), (3, "pings"), (1, "alerts")):
        LATE.add(amount, what)
    metrics.report()
    assert ready() == (200, GOOD | {"lateness": "late or refused in the last minute: 5 pings, 1 alert"})
    monkeypatch.setattr(metrics, "RECENT_SEC", 0)
    metrics.report()
    assert ready() == (200, GOOD)
    flush_broker()


def test_an_answer_is_good_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ready() == (200, GOOD)
    monkeypatch.setattr(health, "FRESH_SEC", 60.0)
    SchedulerTick.objects.all().delete()
    assert ready() == (200, GOOD)


def test_with_alerts_that_are_not_sent() -> None:
    DeliveryFactory(channel=ChannelFactory(), created_at=utc_now() - timedelta(seconds=100))
    status, checks = ready()
    assert status == 503
    assert re.fullmatch(r"the oldest that could be sent has waited for 10\d s", checks.pop("alerts"))
    assert checks.items() <= GOOD.items()


def test_with_a_queue_of_alerts_without_a_consumer() -> None:
    flush_broker()
    for _ in range(MAX_QUEUED + 1):
        app.send_task("alerts.tasks.tick")
    said = "61 messages wait in queue alerts: does interactive run?"
    assert ready() == (503, GOOD | {"alerts": said})
    flush_broker()
    assert ready() == (200, GOOD)


def test_a_dead_receiver_of_one_account_is_none_of_our_readiness() -> None:
    """Its message is retried later, and another waits for that."""
    channel = ChannelFactory()
    long_ago = utc_now() - timedelta(hours=1)
    for _ in range(2):
        DeliveryFactory(channel=channel, created_at=long_ago)
    claimed = claim(utc_now())
    assert claimed is not None
    assert ready() == (200, GOOD)
    finish(claimed, delivered=False, detail="It hung.", retry=True, now=utc_now())
    assert ready() == (200, GOOD)


def test_a_process_without_network() -> None:
    own_network.DOWN.follow(lambda: 1)
    metrics.report()
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["checks"] == GOOD | {"network": health.NO_NETWORK}
    own_network.DOWN.follow(lambda: 0)
    metrics.report()
    assert ready() == (200, GOOD)


@pytest.mark.usefixtures("second_database")
@pytest.mark.django_db(transaction=True, databases="__all__")
def test_a_history_database_makes_it_degraded_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ready() == (200, GOOD | {"history": "ok"})
    with connection.cursor() as cursor:  # of before the second database
        cursor.execute(
            "INSERT INTO checks_hourlyrollup (monitor_id, hour, latency_sum, up, slow, down, timed)"
            " VALUES (1, now(), 0, 1, 0, 0, 0)"
        )
        assert ready() == (200, GOOD | {"history": health.UNMOVED})
        cursor.execute("DELETE FROM checks_hourlyrollup")
    database = connections[HISTORY]
    monkeypatch.setattr(database, "settings_dict", database.settings_dict | {"NAME": "template1"})
    status, checks = ready()
    assert status == 200
    assert re.fullmatch(r"\d+ migrations of its database not applied", checks["history"])
    monkeypatch.setattr(database, "settings_dict", database.settings_dict | {"HOST": "127.0.0.1", "PORT": "1"})
    assert ready()[1]["history"].startswith("its database does not answer")

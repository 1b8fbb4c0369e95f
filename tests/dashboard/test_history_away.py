"""While the history database does not answer: what is known is shown, what cannot be read is not shown as empty."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from accounts.models import User
from alerts.tasks import tick
from core.clock import utc_now
from incidents.models import Incident
from monitors.models import StatusChange
from tests.api.client import Api
from tests.factories import CheckResultFactory, MonitorFactory, StatusChangeFactory

pytestmark = [pytest.mark.django_db(transaction=True, databases="__all__"), pytest.mark.usefixtures("no_history")]
HOUR = timedelta(hours=1)
SENTENCE = "The history of checks cannot be read right now"


@pytest.fixture(autouse=True, scope="class")
def _two(second_database: None) -> None:
    pass


def test_the_list_and_the_page_of_a_monitor_open(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, name="Shop", up=True)
    shown = web.get("/monitors").content.decode()
    assert "Shop" in shown
    assert "Earlier latencies cannot be read right now" in shown
    page = web.get(f"/monitors/{monitor.public_id}")
    assert page.status_code == 200
    assert SENTENCE in page.content.decode()


def test_the_latest_checks_are_shown(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    for minutes in range(30):
        CheckResultFactory(monitor=monitor, claim=minutes + 1, checked_at=utc_now() - timedelta(minutes=minutes))
    page = web.get(f"/monitors/{monitor.public_id}").content.decode()
    assert SENTENCE not in page
    assert Api.signed_in(user).get(f"/v1/monitors/{monitor.public_id}/checks?limit=20").status == 200


def test_what_needs_the_history_answers_503(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    api = Api.signed_in(user)
    for path in ("checks", "uptime"):
        answer = api.get(f"/v1/monitors/{monitor.public_id}/{path}")
        assert (answer.status, answer.json["error"]) == (503, "history_unavailable")
        assert answer.headers["Retry-After"] == "5"
    chart = web.get(f"/monitors/{monitor.public_id}/latency?range=30d")
    assert chart.status_code == 200  # the page would take 503 for a lost connection
    assert SENTENCE in chart.json()["unavailable"]


def test_the_api_shows_states_and_changes_monitors(user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    api = Api.signed_in(user)
    (listed,) = api.get("/v1/monitors").json
    assert (listed["status"], listed["avg_latency_24h"]) == ("up", None)
    changed = api.patch(f"/v1/monitors/{monitor.public_id}", {"name": "Renamed"})
    assert (changed.status, changed.json["name"]) == (200, "Renamed")


def test_an_incident_that_is_opened_late_lacks_only_its_evidence() -> None:
    monitor = MonitorFactory(up=True)
    at = utc_now() - 3 * HOUR
    StatusChangeFactory(
        monitor=monitor, kind=StatusChange.Kind.STATUS, before="up", after="down", at=at, failing_since=at
    )
    tick()
    assert Incident.objects.get().evidence is None


def test_the_page_of_a_heartbeat_opens(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, type="heartbeat", url="", up=True)
    page = web.get(f"/monitors/{monitor.public_id}")
    assert page.status_code == 200
    assert SENTENCE in page.content.decode()
    assert "No run yet" not in page.content.decode()

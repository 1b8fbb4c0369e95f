"""The form of a monitor replays past checks with what is typed."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from checks.spec import Verdict
from core.clock import utc_now
from monitors.models import Monitor
from tests.api.test_history import add_result
from tests.dashboard.test_monitor_pages import typed
from tests.factories import MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import flush_broker, keep_checked

UP, DOWN = Verdict.UP, Verdict.DOWN


@pytest.fixture
def monitor(user: User) -> Monitor:
    """A monitor that failed twice within the last three hours, one and two times in a row."""
    start = utc_now() - timedelta(hours=3)
    monitor = MonitorFactory(owner=user, name="Shop", created_at=start, fail_threshold=1)
    for number, verdict in enumerate([UP, DOWN, UP, DOWN, DOWN, UP]):
        add_result(monitor, number + 1, start + timedelta(minutes=30 * number), verdict)
    keep_checked(utc_now() + timedelta(hours=1))
    return monitor


def replayed(web: Client, monitor: Monitor, *, htmx: bool = True, **given: str) -> str:
    body = typed(name="Shop", url=monitor.url, fail_threshold="1") | given | {"backtest": "yes"}
    headers = {"HX-Request": "true"} if htmx else {}
    answer = web.post(f"/monitors/{monitor.public_id}/edit", body, headers=headers)
    assert answer.status_code == 200
    return answer.content.decode()


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_what_the_typed_thresholds_would_have_been(web: Client, monitor: Monitor) -> None:
    page = replayed(web, monitor, fail_threshold="2")
    assert "<form" not in page, "the result only, so that further input in the form is kept"
    text = text_of(page)
    assert "With these settings: 1 alert instead of 2 in 3 hours." in text
    assert "Outages 2 1 Time down 1 h 30 min 1 h Noticed after 0 s 30 min" in text
    assert "These: no outage" in text
    assert Monitor.objects.get().fail_threshold == 1


def test_without_scripts_it_is_the_whole_page(web: Client, monitor: Monitor) -> None:
    page = replayed(web, monitor, htmx=False, fail_threshold="2")
    assert "1 alert instead of 2" in page
    assert re.search(r'name="fail_threshold"[^>]*value="2"|value="2"[^>]*name="fail_threshold"', page)


def test_unchanged_thresholds(web: Client, monitor: Monitor) -> None:
    assert "With the saved settings: 2 alerts in 3 hours. Change a threshold" in text_of(replayed(web, monitor))


def test_an_invalid_form_shows_its_errors(web: Client, monitor: Monitor) -> None:
    page = replayed(web, monitor, fail_threshold="0")
    assert "Nothing was tested yet." in page
    assert "instead of" not in page


def test_no_history(web: Client, user: User) -> None:
    assert "No check of the last 90 days is stored." in replayed(web, MonitorFactory(owner=user, name="Shop"))


def test_heartbeats_and_new_monitors_have_no_button(web: Client, user: User) -> None:
    heartbeat = MonitorFactory(owner=user, heartbeat=True)
    for path in (f"/monitors/{heartbeat.public_id}/edit", "/monitors/new"):
        assert 'name="backtest"' not in web.get(path).content.decode()


def test_who_asks_too_often(web: Client, monitor: Monitor, settings: Settings) -> None:
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = settings.THROTTLES | {"backtest": (1, 60)}
    flush_broker()
    assert ["instead of" in replayed(web, monitor, fail_threshold="2") for _ in range(2)] == [True, False]


def test_a_viewer_cannot_open_the_form(client: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    viewer = UserFactory()
    MembershipFactory(project=project, user=viewer, role="viewer")
    client.force_login(viewer)
    shared = MonitorFactory(owner=user, project=project)
    given: dict[str, Any] = {"backtest": "yes"}
    assert client.post(f"/monitors/{shared.public_id}/edit", given).status_code == 403

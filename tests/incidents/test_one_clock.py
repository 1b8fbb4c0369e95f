"""One outage has one clock: every screen, message and endpoint gives the same start, end and length."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from alerts.messages import render
from checks.spec import Verdict
from core.clock import to_ms, utc_now
from incidents.models import Incident
from monitors.models import Monitor
from monitors.selectors import get_monitor
from monitors.uptime.daily import daily_uptime
from projects.access import Caller
from tests.alerts.drivers import Drive, make_channel
from tests.factories import UserFactory
from tests.helpers import minutes
from tests.statuspages.making import look, make_page

pytestmark = pytest.mark.django_db

FIRST_FAILURE, CONFIRMED, FIRST_PASS, RECOVERED = 10, 12.5, 15, 16.5
"""Minutes; `fail_threshold` is 3 and `recover_threshold` 2."""


def text_of(answer: Any) -> str:
    assert answer.status_code == 200, answer.status_code
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", answer.content.decode())))


def times_in(answer: Any) -> list[str]:
    return re.findall(r'<time datetime="([^"]*)"', answer.content.decode())


def test_all_that_show_an_outage_agree(client: Client, settings: Settings) -> None:
    settings.THROTTLE_SCALE = 0
    owner, drive = UserFactory(), Drive()
    make_channel(owner)
    # Yesterday, so that the day of the outage is over.
    now = utc_now()
    start = (now - timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)

    def at(minute: float) -> datetime:
        return start + minutes(minute)

    monitor = drive.monitor(owner, "Shop", interval_sec=3600, fail_threshold=3, recover_threshold=2)
    Monitor.objects.update(created_at=start - timedelta(days=1))
    page = make_page(owner, [monitor])
    client.force_login(owner)

    drive.check(monitor, Verdict.UP, at(0))
    for minute in (FIRST_FAILURE, 11, CONFIRMED):
        drive.check(monitor, Verdict.DOWN, at(minute))
    drive.tick(at(CONFIRMED))

    began = at(FIRST_FAILURE)
    shown = get_monitor(Caller(owner), monitor.public_id)
    assert shown.state.status_since == at(CONFIRMED), "the contract's field: when it became down"
    incident = Incident.objects.get()
    assert (incident.started_at, incident.confirmed_at) == (began, at(CONFIRMED))
    iso = began.isoformat(timespec="seconds")
    row = client.get("/monitors")
    assert iso in times_in(row)
    assert "Down since" in text_of(row)
    own = client.get(f"/monitors/{monitor.public_id}")
    assert f'since <time datetime="{iso}"' in own.content.decode()
    assert iso in times_in(client.get("/incidents"))
    public = look(f"/status/{page.slug}.json").json()
    zulu = iso.replace("+00:00", "Z")
    assert public["groups"][0]["monitors"][0]["since"] == public["incidents"][0]["started_at"] == zulu
    assert drive.payload[-1].started_at == to_ms(began)

    for minute in (FIRST_PASS, RECOVERED):
        drive.check(monitor, Verdict.UP, at(minute))
    drive.tick(at(RECOVERED))

    lasted = minutes(RECOVERED - FIRST_FAILURE)
    incident.refresh_from_db()
    assert incident.resolved_at == began + lasted
    shown = get_monitor(Caller(owner), monitor.public_id)
    assert shown.state.status_since == began + lasted, "it is up from the check on that brought it back"
    day = daily_uptime(shown, days=2, now=now)[0]
    assert (day.date, day.down_sec, day.incidents) == (start.date(), lasted.total_seconds(), 1)
    words = "6 min 30 s"
    for path in ("/incidents", f"/incidents/{incident.public_id}", f"/monitors/{monitor.public_id}"):
        assert words in text_of(client.get(path)), path
    assert f"down {words}" in unescape(own_bar(client, monitor))
    assert words in text_of(look(f"/status/{page.slug}"))
    message = render(drive.payload[-1:], key="k", base_url="https://pulsekeeper.example", now=at(17))
    assert f"({words})" in message.text
    assert f"It was down for {words}." in message.short
    told = message.webhook_body["incident"]
    assert (told["started_at"], told["resolved_at"]) == (to_ms(began), to_ms(began + lasted))


def own_bar(client: Client, monitor: Monitor) -> str:
    """Return the texts of the day bars on the monitor's page."""
    return " ".join(
        re.findall(r"<title>([^<]*)</title>", client.get(f"/monitors/{monitor.public_id}").content.decode())
    )

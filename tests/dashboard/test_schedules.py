"""The schedule in a monitor's form, and its preview."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
import time_machine
from django.test import Client

from accounts.models import User
from monitors.models import Monitor
from tests.dashboard.test_monitor_pages import created, errors_in, typed
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory

HEARTBEAT = {"type": "heartbeat", "name": "Backup", "url": ""}
NIGHTLY = {"timing": "schedule", "schedule": "30 3 * * MON-FRI", "timezone": "Europe/Berlin"}


def timing_of(monitor: Monitor) -> tuple[int, str | None, str]:
    config = monitor.full_config
    return config.interval_sec, config["schedule"], config["timezone"]


def edited(web: Client, monitor: Monitor, **given: str) -> Any:
    given = {"type": monitor.type, "name": monitor.name, "url": monitor.url, "grace_sec": "1m"} | given
    return web.post(f"/monitors/{monitor.public_id}/edit", typed(**given))


@pytest.mark.parametrize(
    "given",
    [
        {"timing": "schedule"},
        {"timing": "schedule", "interval_sec": "often"},
        {"timing": "schedule", "interval_sec": ""},
        {},
    ],
)
def test_a_schedule_ignores_what_the_interval_says(web: Client, user: User, given: dict[str, str]) -> None:
    schedule = {"schedule": NIGHTLY["schedule"], "timezone": NIGHTLY["timezone"]}
    assert web.post("/monitors/new", typed(**HEARTBEAT, **schedule, **given)).status_code == 302
    assert timing_of(created(user))[1:] == ("30 3 * * MON-FRI", "Europe/Berlin")


def test_an_interval_ignores_what_the_schedule_says(web: Client, user: User) -> None:
    nonsense = {"timing": "interval", "schedule": "nonsense", "timezone": "Nowhere", "interval_sec": "1h"}
    assert web.post("/monitors/new", typed(**HEARTBEAT | nonsense)).status_code == 302
    assert timing_of(created(user)) == (3600, None, "UTC")


def test_changing_from_one_to_the_other_and_back(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, heartbeat=True, name="Backup", interval_sec=7200)
    for given, stored in (
        (NIGHTLY | {"interval_sec": "5m"}, (7200, "30 3 * * MON-FRI", "Europe/Berlin")),
        ({"timing": "interval", "schedule": "0 3 * * *", "interval_sec": "1h"}, (3600, None, "Europe/Berlin")),
    ):
        assert edited(web, monitor, **given).status_code == 302
        monitor = created(user)
        assert timing_of(monitor) == stored


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"schedule": ""}, "Schedule: Enter a cron expression, or choose the interval."),
        ({"schedule": "30 3 * *"}, "Schedule: Has 4 fields. Write five fields"),
        ({"schedule": "61 3 * * *"}, "Schedule: The minute is out of range or never occurs."),
        ({"timezone": "Europe/Lark"}, "Time zone: Is not a time zone. Write one as Europe/Berlin or UTC."),
    ],
)
def test_errors_are_shown_beside_the_fields(web: Client, given: dict[str, str], error: str) -> None:
    page = web.post("/monitors/new", typed(**HEARTBEAT | NIGHTLY | given)).content.decode()
    assert len(errors_in(page)) == 1
    assert errors_in(page)[0].startswith(error)


def test_missed_runs_are_for_schedulers(web: Client, user: User) -> None:
    scheduler = {"type": "scheduler", "url": "https://shop.example/nightly", "missed": "once"}
    assert web.post("/monitors/new", typed(**scheduler | NIGHTLY)).status_code == 302
    assert created(user).full_config["missed"] == "once"


def test_the_page_explains_the_schedule_and_hides_the_interval(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, heartbeat=True, schedule="30 3 * * MON-FRI", timezone="Europe/Berlin")
    page = web.get(f"/monitors/{monitor.public_id}").content.decode()
    assert "<dd>30 3 * * MON-FRI<br>At 03:30 on Monday through Friday</dd>" in page
    assert "A ping comes every" not in page


def preview(web: Client, **given: str) -> str:
    answer = web.get("/monitors/schedule", given, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))).strip()


@time_machine.travel("2026-10-24T10:00:00Z", tick=False)
def test_the_preview_shows_the_next_runs_in_the_schedules_zone_and_in_utc(web: Client) -> None:
    """times.js changes UTC to the viewer's zone. The clocks change on the first of these nights."""
    shown = preview(web, schedule="30 2 * * *", timezone="Europe/Berlin")
    assert "At 02:30" in shown
    assert "Sun 25 Oct 2026, 02:30 25 Oct 2026, 00:30 UTC" in shown
    assert "Mon 26 Oct 2026, 02:30 26 Oct 2026, 01:30 UTC" in shown
    assert shown.count("UTC") == 5


@pytest.mark.parametrize(
    ("schedule", "timezone", "text"),
    [
        ("", "UTC", ""),
        ("30 3 * *", "UTC", "Schedule: Has 4 fields."),
        ("30 3 * * *", "Europe/Lark", "Time zone: Is not a time zone."),
        ("30 3 * * *", "", "Next runs, UTC"),
        ("<script>alert(1)</script>", "UTC", "Schedule: Has 1 field."),
        ("0 0 30 2 *", "UTC", "Schedule: "),
    ],
)
def test_the_preview_says_what_is_wrong(web: Client, schedule: str, timezone: str, text: str) -> None:
    shown = preview(web, schedule=schedule, timezone=timezone)
    assert text in shown
    assert bool(text) == bool(shown)


def test_the_preview_knows_the_minimum_of_the_plan(web: Client, user: User) -> None:
    user.plan = PlanFactory(min_interval_sec=300)
    user.save()
    assert "300 s" in preview(web, schedule="* * * * *")
    owner = UserFactory(plan=PlanFactory(min_interval_sec=600))
    monitor = MonitorFactory(project=ProjectFactory(owner=owner, member=user), heartbeat=True)
    assert "600 s" in preview(web, schedule="* * * * *", monitor=monitor.public_id)


def test_the_preview_of_another_tenants_monitor_is_not_found(web: Client) -> None:
    other = MonitorFactory(heartbeat=True)
    for monitor in (other.public_id, "\0"):
        answer = web.get("/monitors/schedule", {"schedule": "* * * * *", "monitor": monitor})
        assert answer.status_code == 404


def test_missed_runs_are_shown_and_set_for_schedulers_with_an_interval(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, type="scheduler", interval_sec=3600)
    assert edited(web, monitor, timing="interval", missed="once").status_code == 302
    assert Monitor.objects.get(pk=monitor.pk).config["missed"] == "once"
    assert "Missed runs" in web.get(f"/monitors/{monitor.public_id}").content.decode()

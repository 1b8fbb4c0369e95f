"""The pages of maintenance windows, and the recurrences that their form offers."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from dashboard.windows import MOST_SHOWN, calendar_of, in_words, read_recurrence, write_recurrence
from incidents.models import MaintenanceWindow
from incidents.windows import create_window
from projects.access import Caller
from tests.factories import MonitorFactory, ProjectFactory, UserFactory

NOW = datetime(2026, 3, 20, 12, 0, tzinfo=UTC)  # a Friday, nine days before clocks are put forward in Europe
pytestmark = pytest.mark.usefixtures("template_contexts")

HOSTILE = '<script>alert(1)</script> & "quoted"'
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quoted&quot;"
NEW = "/maintenance/new"
FIELDS = {
    "name": "Deploy",
    "starts_at": "2026-03-21T02:30",
    "ends_at": "2026-03-21T04:00",
    "time_zone": "Europe/Berlin",
    "repeats": "once",
    "monitors": "all",
}


@pytest.fixture(autouse=True)
def _now() -> Any:
    with time_machine.travel(NOW, tick=False):
        yield


def add(web: Client, **fields: Any) -> Any:
    page = web.get(NEW).content.decode()
    key = re.findall(r'name="form_key" value="(\w+)"', page)[0]
    return web.post(NEW, FIELDS | {"form_key": key} | fields, follow=True)


def make(
    user: User, *, now: datetime = NOW, starts: datetime = NOW, hours: float = 1, **given: Any
) -> MaintenanceWindow:
    times = {"starts_at": starts, "ends_at": starts + timedelta(hours=hours)}
    return create_window(Caller(user), {"name": "Deploy", "monitors": "all", **times, **given}, now=now)


@pytest.mark.parametrize(
    ("fields", "rrule", "words"),
    [
        ({}, "", "once"),
        ({"repeats": "daily", "until": "2026-04-30"}, "FREQ=DAILY;UNTIL=20260430", "every day until 30 Apr 2026"),
        (
            {"repeats": "weekly", "days": ["SU", "SA"], "until": "2026-12-31"},
            "FREQ=WEEKLY;BYDAY=SA,SU;UNTIL=20261231",
            "every week on Saturday and Sunday until 31 Dec 2026",
        ),
        ({"repeats": "daily"}, "FREQ=DAILY", "every day"),
        ({"repeats": "weekly"}, "FREQ=WEEKLY;BYDAY=SA", "every week on Saturday"),
        ({"repeats": "monthly", "until": "2027-01-01"}, "FREQ=MONTHLY;UNTIL=20270101", "every month until 1 Jan 2027"),
        (
            {"repeats": "rule", "rrule": "FREQ=MONTHLY;BYDAY=3SA;COUNT=9"},
            "FREQ=MONTHLY;BYDAY=3SA;COUNT=9",
            "custom rule",
        ),
        ({"repeats": "rule", "rrule": "freq=daily;count=3"}, "freq=daily;count=3", "every day, 3 times"),
        # Fields of another choice are ignored.
        ({"rrule": "nonsense", "until": "2020-01-01", "days": ["MO"]}, "", "once"),
    ],
)
def test_a_window_is_at_the_times_of_its_clock(web: Client, fields: dict[str, Any], rrule: str, words: str) -> None:
    page = add(web, **fields)
    window = MaintenanceWindow.objects.get()
    assert page.redirect_chain == [("/maintenance", 302)]
    assert (window.rrule, window.time_zone, window.all_monitors) == (rrule, "Europe/Berlin", True)
    assert window.starts_at == datetime(2026, 3, 21, 1, 30, tzinfo=UTC)
    assert window.ends_at == datetime(2026, 3, 21, 3, 0, tzinfo=UTC)
    text = page.content.decode()
    assert words in text
    assert "02:30 to 04:00" in text
    assert "21 Mar 2026, 01:30 UTC" in text, "for the reader, whose zone a script knows"
    # Saving an unchanged form changes nothing.
    form = web.get(f"/maintenance/{window.public_id}")
    assert form.context["form"].initial["starts_at"].hour == 2
    web.post(f"/maintenance/{window.public_id}", FIELDS | fields | {"name": "Deploy 2"})
    again = MaintenanceWindow.objects.get()
    assert (again.name, again.rrule, again.starts_at) == ("Deploy 2", rrule, window.starts_at)


@pytest.mark.parametrize(
    ("fields", "place", "reason"),
    [
        ({"name": ""}, "name", "This field is required."),
        ({"starts_at": "soon"}, "starts_at", "Enter a valid date/time."),
        ({"ends_at": "2026-03-21T02:30"}, "ends_at", "Must be after the start."),
        ({"ends_at": "2026-05-21T02:30"}, "ends_at", "more than 30 days after"),
        ({"starts_at": "2026-03-01T00:00", "ends_at": "2026-03-01T01:00"}, "ends_at", "Is in the past."),
        ({"time_zone": "../../etc/passwd"}, "time_zone", "Select a valid choice."),
        ({"repeats": "daily", "until": "2026-03-20"}, "until", "The last day is before the start."),
        ({"repeats": "daily", "until": "2046-03-20"}, "until", "more than 10 years after the start"),
        (
            {"repeats": "daily", "until": "2026-04-20", "ends_at": "2026-03-23T02:30"},
            "ends_at",
            "begins before the previous one ends",
        ),
        ({"repeats": "weekly", "until": "2026-04-20", "days": ["MO"]}, "days", "The window starts on a Saturday"),
        ({"repeats": "rule"}, "rrule", "Enter a rule."),
        ({"repeats": "rule", "rrule": "FREQ=HOURLY;COUNT=3"}, "rrule", "is not supported"),
        ({"repeats": "rule", "rrule": "FREQ=WEEKLY;BYDAY=MO;COUNT=3"}, "starts_at", "Does not match the rule"),
        ({"monitors": "chosen"}, "monitor_ids", "Select at least one monitor or tag."),
        ({"monitors": "chosen", "monitor_ids": ["mon_x"]}, "monitor_ids", "mon_x is not one of"),
        ({"project_id": "prj_x"}, "project_id", "Select a valid choice."),
    ],
)
def test_what_is_refused_is_said_beside_its_field_and_kept(
    web: Client, user: User, fields: dict[str, Any], place: str, reason: str
) -> None:
    MonitorFactory(owner=user)
    page = add(web, **({"name": HOSTILE} | fields))
    assert any(reason in error for error in page.context["form"].errors[place]), page.context["form"].errors
    text = page.content.decode()
    assert "<script>alert" not in text
    for name, value in ({"name": HOSTILE} | fields).items():
        if name in ("name", "starts_at", "ends_at", "until", "rrule") and value:
            assert f'value="{value if name != "name" else ESCAPED}"' in text
    assert not MaintenanceWindow.objects.exists()


@pytest.mark.parametrize(
    "recurrence",
    [
        ("daily", date(2027, 1, 31), []),
        ("weekly", date(2027, 1, 31), ["MO", "SU"]),
        ("weekly", date(2027, 1, 31), []),
        ("monthly", date(2027, 1, 31), []),
        ("weekly", None, ["TU"]),
        ("monthly", None, []),
    ],
)
def test_what_the_form_writes_it_can_read(recurrence: tuple[str, date | None, list[str]]) -> None:
    assert read_recurrence(write_recurrence(*recurrence)) == recurrence


@pytest.mark.parametrize(
    "rrule",
    [
        "",
        "FREQ=DAILY;COUNT=3",
        "FREQ=DAILY;INTERVAL=2;UNTIL=20270101",
        "FREQ=DAILY;BYDAY=MO;UNTIL=20270101",
        "FREQ=WEEKLY;BYDAY=2MO;UNTIL=20270101",
        "FREQ=WEEKLY;UNTIL=20270101T000000Z",
        "FREQ=DAILY;UNTIL=20270199",
        "FREQ=YEARLY;UNTIL=20270101",
    ],
)
def test_what_it_has_no_words_for_stays_a_rule(rrule: str) -> None:
    assert read_recurrence(rrule) is None
    assert in_words(rrule)


def test_the_calendar_has_what_is_on_what_comes_and_what_is_over(web: Client, user: User) -> None:
    past = NOW - timedelta(days=3)
    make(user, name="over", starts=past, now=past)
    make(user, name="on", starts=NOW - timedelta(minutes=5))
    make(user, name="night", starts=NOW + timedelta(days=1), rrule="FREQ=DAILY;COUNT=3", hours=13)
    make(user, name="later", starts=NOW + timedelta(days=31))
    calendar = web.get("/maintenance").context["calendar"]
    assert [row.window.name for row in calendar["active"]] == ["on"]
    assert [(day, [row.span for row in rows]) for day, rows in calendar["days"]] == [
        (date(2026, 3, 21), ["12:00 to Sun 22 Mar, 01:00"]),
        (date(2026, 3, 22), ["12:00 to Mon 23 Mar, 01:00"]),
        (date(2026, 3, 23), ["12:00 to Tue 24 Mar, 01:00"]),
    ]
    assert [row.window.name for row in calendar["later"]] == ["later"]
    assert [shown.window.name for shown in calendar["over"]] == ["over"]


def test_the_calendar_goes_by_the_window_s_clock_over_the_change_to_summer(web: Client, user: User) -> None:
    start = datetime(2026, 3, 27, 23, 30, tzinfo=UTC)  # 28 March, 00:30 in Berlin
    make(user, starts=start, time_zone="Europe/Berlin", rrule="FREQ=DAILY;COUNT=3", now=NOW)
    days = web.get("/maintenance").context["calendar"]["days"]
    assert [(day.day, [(row.span, row.starts_at.hour) for row in rows]) for day, rows in days] == [
        (28, [("00:30 to 01:30", 23)]),
        (29, [("00:30 to 01:30", 23)]),
        (30, [("00:30 to 01:30", 22)]),
    ]


def test_the_calendar_is_cut_where_it_would_have_no_end(user: User) -> None:
    long_ago = NOW - timedelta(days=3600)
    windows = [
        make(user, name=f"{n}", starts=long_ago, now=long_ago, rrule="FREQ=DAILY;UNTIL=20260501") for n in range(8)
    ]
    calendar = calendar_of(windows, now=NOW)
    shown = [row for _, rows in calendar["days"] for row in rows]
    assert (len(calendar["active"]) + len(shown), calendar["cut"]) == (MOST_SHOWN, True)


def test_one_that_is_on_is_ended_by_hand(web: Client, user: User) -> None:
    window = make(user, starts=NOW - timedelta(minutes=5))
    page = web.post(f"/maintenance/{window.public_id}/end", follow=True)
    assert "Maintenance ended." in page.content.decode()
    calendar = page.context["calendar"]
    assert (calendar["active"], [shown.window.name for shown in calendar["over"]]) == ([], ["Deploy"])
    window.refresh_from_db()
    assert (window.ends_at, window.current_ends_at) == (NOW, None)


@pytest.mark.parametrize("given", [{"rrule": "FREQ=DAILY;COUNT=2"}, {"starts": NOW + timedelta(hours=1)}])
def test_what_recurs_or_has_not_begun_is_not_ended(web: Client, user: User, given: dict[str, Any]) -> None:
    window = make(user, **given)
    page = web.post(f"/maintenance/{window.public_id}/end", follow=True)
    assert "Only an active window" in page.content.decode()
    assert MaintenanceWindow.objects.get().ends_at == window.ends_at


def test_an_edit_changes_what_was_changed(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user, name="Tills")
    inside = MonitorFactory(owner=user, name="Till", project=project)
    start = NOW + timedelta(hours=1, seconds=17)
    window = make(user, starts=start, project_id=project.public_id)
    address = f"/maintenance/{window.public_id}"
    fields = {
        "name": "Deploy",
        "starts_at": "2026-03-20T13:00",
        "ends_at": "2026-03-20T14:00",
        "time_zone": "UTC",
        "repeats": "once",
        "monitors": "chosen",
        "monitor_ids": [inside.public_id],
    }
    web.post(address, fields)
    window.refresh_from_db()
    assert (window.starts_at, window.all_monitors, list(window.monitors.all())) == (start, False, [inside])
    web.post(address, fields | {"ends_at": "2026-03-20T15:00"})
    window.refresh_from_db()
    assert (window.starts_at.second, window.ends_at.hour) == (0, 15)


def test_a_window_of_a_zone_that_the_list_leaves_out_can_be_edited(web: Client, user: User) -> None:
    window = make(user, starts=NOW + timedelta(hours=1), time_zone="CET")
    text = web.get(f"/maintenance/{window.public_id}").content.decode()
    assert '<option value="CET" selected>' in text


def test_a_form_that_is_sent_twice_plans_one_window(web: Client) -> None:
    key = re.findall(r'name="form_key" value="(\w+)"', web.get(NEW).content.decode())[0]
    for _ in range(2):
        assert web.post(NEW, FIELDS | {"form_key": key}).status_code == 302
    assert MaintenanceWindow.objects.count() == 1


def test_the_list_takes_as_many_queries_for_one_as_for_many(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(owner=user, project=project)
    counts = []
    for count in (1, 9):
        for _ in range(count):
            make(user, project_id=project.public_id, monitors="chosen", monitor_ids=[monitor.public_id])
        with CaptureQueriesContext(connection) as queries:
            web.get("/maintenance")
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 7


def test_windows_of_others_are_not_there(web: Client) -> None:
    theirs = make(UserFactory(), name="Theirs")
    address = f"/maintenance/{theirs.public_id}"
    assert "Theirs" not in web.get("/maintenance").content.decode()
    assert web.get(address).status_code == 404
    for path in ("", "/end", "/delete"):
        assert web.post(f"{address}{path}", FIELDS).status_code == 404
    assert MaintenanceWindow.objects.filter(name="Theirs").exists()


def test_a_deleted_window_is_gone_and_hostile_names_are_text(web: Client, user: User) -> None:
    window = make(user, name=HOSTILE)
    text = web.get("/maintenance").content.decode() + web.get(f"/maintenance/{window.public_id}").content.decode()
    assert "<script>alert" not in text
    assert ESCAPED in text
    page = web.post(f"/maintenance/{window.public_id}/delete", follow=True)
    assert "No maintenance scheduled" in page.content.decode()


def test_forms_without_their_token_are_refused(user: User) -> None:
    window = make(user)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    for path in (NEW, *(f"/maintenance/{window.public_id}{to}" for to in ("", "/end", "/delete"))):
        assert strict.post(path, FIELDS).status_code == 403

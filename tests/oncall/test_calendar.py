"""The calendar of a schedule: what it says, and who may read it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from icalendar import Calendar

from accounts.models import User
from core.clock import to_ms, utc_now
from oncall import rotation
from oncall.calendar import to_ical
from oncall.models import OnCallSchedule
from oncall.rotation import Shift, parse_schedule
from oncall.services import new_calendar
from projects.access import Caller
from tests.factories import MembershipFactory, ProjectFactory, UserFactory
from tests.oncall.making import make_schedule

START = datetime(2026, 10, 1, tzinfo=UTC)
DAY = timedelta(days=1)
Event = tuple[str, datetime, datetime, str]


def events(data: bytes) -> list[Event]:
    """Return (uid, beginning, end, summary) of each event."""
    return [
        (str(event["uid"]), event.decoded("dtstart"), event.decoded("dtend"), str(event["summary"]))
        for event in Calendar.from_ical(data).walk("VEVENT")
    ]


def rendered(start: datetime, *, name: str = "Backend", made_at: datetime = START) -> list[Event]:
    layer = {"user_ids": ["a", "b"], "every": {"unit": "week", "count": 1}, "hours": [], "starts_at": to_ms(START)}
    schedule = parse_schedule("Europe/Berlin", [layer])
    shifts = rotation.shifts(schedule, start, start + 120 * DAY, "ab")
    named = [(shift, f"{shift.user_id}@example.com") for shift in shifts]
    return events(to_ical("ocs_1", name, named, start, made_at))


def test_events_are_the_shifts() -> None:
    found = rendered(START)
    assert len(found) == 18
    assert [event[1:] for event in found[3:5]] == [
        (START + 21 * DAY, START + 28 * DAY + timedelta(hours=1), "b@example.com on call: Backend"),
        (
            START + 28 * DAY + timedelta(hours=1),
            START + 35 * DAY + timedelta(hours=1),
            "a@example.com on call: Backend",
        ),
    ]
    assert len({event[0] for event in found}) == 18


def test_events_keep_their_ids_while_the_range_moves_on() -> None:
    before, after = ({event[0]: event[1] for event in rendered(START + days * DAY)} for days in (10, 12))
    # The first shift is cut by both ranges; others begin within them.
    assert len(before.keys() & after.keys()) == len(before)
    whole = {event[0] for event in rendered(START + 6 * DAY)}
    assert len(whole - before.keys()) == 2  # one that is over, and the cut one


def test_texts_are_escaped_and_lines_folded() -> None:
    name = "A, B; C\\D \N{SNOWMAN}\r\nATTENDEE:x " + "long " * 30
    data = to_ical("ocs_1", name, [(Shift(START, START + DAY, "a", 0), "a@example.com")], START, START)
    assert max(map(len, data.split(b"\r\n"))) <= 75
    calendar = Calendar.from_ical(data)
    (event,) = calendar.walk("VEVENT")
    assert {"ATTENDEE"}.isdisjoint({*event, *calendar})
    assert str(event["summary"]).endswith("long")


@pytest.mark.django_db
class TestAddress:
    def test_it_has_30_days_back_and_90_ahead_of_those_who_are_there(self, client: Client) -> None:
        project = ProjectFactory()
        owner = project.memberships.get(role="owner").user
        gone, anna = UserFactory(), UserFactory(email="anna@example.com")
        MembershipFactory(project=project, user=anna)
        schedule = make_schedule(project, gone, anna)
        url = path_of(owner, schedule)
        with CaptureQueriesContext(connection) as queries:
            answer = client.get(url)
        assert len(queries) <= 3
        assert (answer.status_code, answer["Content-Type"]) == (200, "text/calendar; charset=utf-8")
        assert answer["Cache-Control"] == "private, max-age=300"
        assert (answer["Referrer-Policy"], answer["X-Robots-Tag"]) == ("no-referrer", "noindex")
        (event,) = events(answer.content)
        midnight = utc_now().replace(hour=0, minute=0, second=0, microsecond=0)
        assert event[1:] == (midnight - 30 * DAY, midnight + 90 * DAY, "anna@example.com on call: Nights")
        assert client.get(url, headers={"if-none-match": answer["ETag"]}).status_code == 304
        assert client.head(url).content == b""
        assert client.post(url).status_code == 405

    def test_a_change_is_shown_at_once(self, client: Client) -> None:
        owner = UserFactory()
        schedule = make_schedule(owner, owner)
        url = path_of(owner, schedule)
        assert len(events(client.get(url).content)) == 1
        OnCallSchedule.objects.update(layers=[])
        assert events(client.get(url).content) == []

    def test_only_the_last_address_works(self, client: Client) -> None:
        owner = UserFactory()
        schedule = make_schedule(owner, owner)
        first = path_of(owner, schedule)
        second = path_of(owner, schedule)
        assert client.get(first).status_code == 404
        assert client.get(second).status_code == 200
        User.objects.update(is_active=False)
        refused = client.get(second)
        assert (refused.status_code, refused["Cache-Control"]) == (404, "no-store")
        for odd in ("x", "x" * 64, schedule.public_id):
            assert client.get(f"/calendar/{odd}.ics").status_code == 404


def path_of(owner: User | None, schedule: OnCallSchedule) -> str:
    assert owner is not None
    url = new_calendar(Caller(owner), schedule.public_id)
    return "/calendar/" + url.rpartition("/")[2]

"""Delay, hours and templates in the form of a channel."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from accounts.models import User
from alerts.models import AlertChannel
from dashboard.hours import HoursField, write_hours
from tests.dashboard.test_channels import add
from tests.factories import ChannelFactory

FIELDS = {"name": "Pager", "topics": ["down"], "remind_every_hours": "6", "monitors": "all", "delay_min": "10"}
TIMING = FIELDS | {
    "hours": "Mon-Fri 9:00-17:00\r\n\r\nsat, SUN 22:00 - 06:00",
    "timezone": "Europe/Berlin",
    "outside": "drop",
}
HOURS = [
    {"days": [1, 2, 3, 4, 5], "from": "09:00", "to": "17:00"},
    {"days": [6, 7], "from": "22:00", "to": "06:00"},
]
LINES = {
    "Mon-Fri 09:00-17:00": [1, 2, 3, 4, 5],
    "09:00-17:00": [1, 2, 3, 4, 5, 6, 7],
    "daily 09:00 to 17:00": [1, 2, 3, 4, 5, 6, 7],
    "Fri-Mon 09:00\u201317:00": [1, 5, 6, 7],
    "Monday, Wed,fri 09:00-17:00": [1, 3, 5],
}  # fmt: skip


@pytest.mark.parametrize(("line", "days"), LINES.items())
def test_hours_are_read_as_people_write_them(line: str, days: list[int]) -> None:
    found = HoursField(label="Hours").clean(line)
    assert found == [{"days": days, "from": "09:00", "to": "17:00"}]
    assert HoursField(label="Hours").clean("\n".join(write_hours(found))) == found


@pytest.mark.parametrize(
    "text",
    [
        *(
            "x",
            "Mon",
            "Mon-Fri",
            "Mon 9-17",
            "Mon 09:00-24:00",
            "Mon 09:60-10:00",
            "Mo- 09:00-10:00",
            "Mon, 09:00-10:00",
        ),
        *(
            "Mon-Fri 09:00-17:00 x",
            "Noday 09:00-10:00",
            "Mon 09:00-10:00\nTue",
            "Mon 09:00-10:00\n" * 51,
            "٣٣:00-10:00",
        ),
    ],
)
def test_other_hours_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        HoursField(label="Hours").clean(text)


def channel_of(user: User) -> AlertChannel:
    return AlertChannel.objects.get(owner=user, name="Pager")


def test_delay_hours_and_templates_are_created_and_edited(web: Client, user: User) -> None:
    given: dict[str, Any] = {"url": "https://hooks.example.com/", "template_down_title": "{{ monitor.name }}"}
    assert add(web, "kind=webhook", **TIMING, **given).status_code == 200
    channel = channel_of(user)
    assert (channel.delay_min, channel.hours, channel.time_zone) == (10, HOURS, "Europe/Berlin")
    assert (channel.outside, channel.templates) == ("drop", {"down": {"title": "{{ monitor.name }}"}})
    page = web.get(f"/alert-channels/{channel.public_id}").content.decode()
    for text in ("10 min", "Mon-Fri 09:00-17:00", "Sat, Sun 22:00-06:00", "Europe/Berlin"):
        assert text in page
    edit = f"/alert-channels/{channel.public_id}/edit"
    page = web.get(edit).content.decode()
    assert "Mon-Fri 09:00-17:00\nSat, Sun 22:00-06:00" in page
    changed = FIELDS | {"enabled": "on", "hours": "", "timezone": "UTC", "outside": "hold", "delay_min": "0"}
    assert web.post(edit, changed | {"template_recovered_body": "a\r\nb "}).status_code == 302
    channel.refresh_from_db()
    assert (channel.delay_min, channel.hours, channel.time_zone, channel.outside) == (0, [], "UTC", "hold")
    assert channel.templates == {"recovered": {"body": "a\nb "}}


def test_the_zone_of_a_channel_without_hours_stays(web: Client, user: User) -> None:
    """The page preselects the zone of the user, who did not choose it."""
    channel = ChannelFactory(owner=user, name="Pager")
    edit = f"/alert-channels/{channel.public_id}/edit"
    assert "data-own-zone" in web.get(edit).content.decode()
    web.post(edit, FIELDS | {"enabled": "on", "hours": "", "timezone": "Asia/Tokyo"})
    channel.refresh_from_db()
    assert channel.time_zone == "UTC"
    web.post(edit, FIELDS | {"enabled": "on", "hours": "Mon 09:00-17:00", "timezone": "Asia/Tokyo"})
    channel.refresh_from_db()
    assert channel.time_zone == "Asia/Tokyo"
    assert "data-own-zone" not in web.get(edit).content.decode()


def test_errors_are_beside_their_fields(web: Client, user: User) -> None:
    channel = ChannelFactory(owner=user, name="Pager")
    given = TIMING | {"hours": "always open", "template_down_body": "a\n{{ b"}
    page = web.post(f"/alert-channels/{channel.public_id}/edit", given).content.decode()
    assert "Line 1: write days and times, for example Mon-Fri 09:00-17:00." in page
    given = TIMING | {"template_down_body": "a\n{{ b"}
    page = web.post(f"/alert-channels/{channel.public_id}/edit", given).content.decode()
    assert "Line 2: expected &#x27;}}&#x27;" in page
    assert "<details" in page
    assert "open>" in page


@pytest.mark.parametrize("is_new", [True, False])
def test_a_preview_saves_nothing(web: Client, user: User, is_new: bool) -> None:
    channel = ChannelFactory(owner=user, name="Pager")
    path = "/alert-channels/new?kind=webhook" if is_new else f"/alert-channels/{channel.public_id}/edit"
    before = list(AlertChannel.objects.order_by("pk").values())
    given = TIMING | {
        "preview": "1",
        "template_down_title": "{{ monitor.name | upcase }} <b>",
        "template_recovered_body": "{{ nope | nope }}",
    }
    page = web.post(path, given).content.decode()
    assert "SHOP &lt;b&gt;" in page
    assert "line 1: unknown filter" in page
    assert 'name="delay_min" value="10"' in page, "the form keeps what was entered"
    part = web.post(path, given, headers={"HX-Request": "true"}).content.decode()
    assert "SHOP &lt;b&gt;" in part
    assert "<form" not in part
    assert list(AlertChannel.objects.order_by("pk").values()) == before

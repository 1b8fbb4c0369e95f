"""Hours of the week: what is accepted, and how they are read where the clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ValidationFailed
from core.hours import MAX_HOURS, Hours, is_within, next_start, open_spans, parse_hours, settle_hours
from core.zones import TIME_ZONES, first_moment, steady_spans, wall_time, zone

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia"]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def hours(days: str, start: str, end: str) -> tuple[Hours, ...]:
    return parse_hours(settle_hours([{"days": [int(day) for day in days], "from": start, "to": end}], "hours"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "must be a list"),
        ({}, "must be a list"),
        ([[]], r"\[0\] must be an object"),
        ([{"days": [1], "from": "00:00"}], r"\[0\] must be an object"),
        ([{"days": [1], "from": "00:00", "to": "01:00", "zone": "UTC"}], r"\[0\] must be an object"),
        ([{"days": [], "from": "00:00", "to": "01:00"}], r"\[0\].days"),
        ([{"days": 1, "from": "00:00", "to": "01:00"}], r"\[0\].days"),
        ([{"days": [0], "from": "00:00", "to": "01:00"}], r"\[0\].days"),
        ([{"days": [8], "from": "00:00", "to": "01:00"}], r"\[0\].days"),
        ([{"days": [True], "from": "00:00", "to": "01:00"}], r"\[0\].days"),
        ([{"days": [1.0], "from": "00:00", "to": "01:00"}], r"\[0\].days"),
        ([{"days": [1] * 8, "from": "00:00", "to": "01:00"}], r"\[0\].days"),
        ([{"days": [[]], "from": "00:00", "to": "01:00"}], r"\[0\].days"),
        ([{"days": [1], "from": "00:00", "to": "24:00"}], r"\[0\].to"),
        ([{"days": [1], "from": "9:00", "to": "10:00"}], r"\[0\].from"),
        ([{"days": [1], "from": "09:00\n", "to": "10:00"}], r"\[0\].from"),
        ([{"days": [1], "from": "0\N{ARABIC-INDIC DIGIT ONE}:00", "to": "10:00"}], r"\[0\].from"),
        ([{"days": [1], "from": 540, "to": "10:00"}], r"\[0\].from"),
        ([{"days": [1], "from": "09:00", "to": "10:00"}] * (MAX_HOURS + 1), "at most 50"),
    ],
)
def test_what_is_wrong_is_named(given: Any, words: str) -> None:
    with pytest.raises(ValidationFailed, match=f"layers: .*{words}") as caught:
        settle_hours(given, "layers")
    assert caught.value.field == "layers"


def test_days_are_stored_once_and_in_order() -> None:
    row = {"days": [5, 1, 5], "from": "09:00", "to": "17:00"}
    assert settle_hours([row], "hours") == [{"days": [1, 5], "from": "09:00", "to": "17:00"}]
    assert settle_hours([], "hours") == []


@pytest.mark.parametrize(
    ("days", "start", "end", "inside", "outside"),
    [
        (
            "5",
            "09:00",
            "17:00",
            ["2026-11-27T09:00", "2026-11-27T16:59:59"],
            ["2026-11-27T08:59:59", "2026-11-27T17:00"],
        ),
        ("5", "22:00", "06:00", ["2026-11-27T22:00", "2026-11-28T05:59"], ["2026-11-27T05:59", "2026-11-28T06:00"]),
        ("7", "22:00", "06:00", ["2026-11-29T23:00", "2026-11-30T05:59"], ["2026-11-29T05:59", "2026-11-30T22:00"]),
        ("5", "09:00", "09:00", ["2026-11-27T09:00", "2026-11-28T08:59"], ["2026-11-27T08:59", "2026-11-28T09:00"]),
        ("5", "00:00", "00:00", ["2026-11-27T00:00", "2026-11-27T23:59"], ["2026-11-26T23:59", "2026-11-28T00:00"]),
    ],
)
def test_hours_may_run_past_midnight(days: str, start: str, end: str, inside: list[str], outside: list[str]) -> None:
    week = hours(days, start, end)
    assert all(is_within(week, "UTC", at(text + "+00:00")) for text in inside)
    assert not any(is_within(week, "UTC", at(text + "+00:00")) for text in outside)


def test_without_hours_it_is_always_open() -> None:
    start, end = at("2026-01-01T00:00Z"), at("2026-02-01T00:00Z")
    assert is_within((), "Europe/Berlin", start)
    assert list(open_spans((), "Europe/Berlin", start, end)) == [(start, end)]
    assert list(open_spans((), "Europe/Berlin", start, start)) == []
    assert next_start((), "Europe/Berlin", start) is None
    assert next_start(hours("1234567", "00:00", "00:00"), "Europe/Berlin", start) is None


@pytest.mark.parametrize(
    ("zone_name", "days", "start", "end", "day", "spans"),
    [
        # 02:00 to 03:00 does not exist: the hour is not made up.
        ("Europe/Berlin", "7", "02:00", "03:00", "2026-03-29", []),
        ("Europe/Berlin", "7", "01:30", "02:30", "2026-03-29", [("00:30", "01:00")]),
        ("Europe/Berlin", "7", "02:30", "04:00", "2026-03-29", [("01:00", "02:00")]),
        # 02:00 to 03:00 comes twice.
        ("Europe/Berlin", "7", "02:00", "03:00", "2026-10-25", [("00:00", "02:00")]),
        ("Europe/Berlin", "7", "02:15", "02:45", "2026-10-25", [("00:15", "00:45"), ("01:15", "01:45")]),
        ("Europe/Berlin", "7", "01:00", "02:30", "2026-10-25", [("-1:00", "00:30"), ("01:00", "01:30")]),
        # 01:30 to 02:00 comes twice on Lord Howe, whose clock changes by half an hour.
        ("Australia/Lord_Howe", "7", "01:30", "02:00", "2026-04-05", [("-9:30", "-8:30")]),
        ("Australia/Lord_Howe", "7", "02:00", "03:00", "2026-10-04", [("-8:30", "-8:00")]),
        ("Asia/Kathmandu", "7", "00:00", "00:15", "2026-04-05", [("-5:45", "-5:30")]),
        # Samoa had no December 30, 2011.
        ("Pacific/Apia", "5", "00:00", "00:00", "2011-12-30", []),
        # Monrovia went to 00:44:30 at midnight in 1972. Offsets with seconds keep whole minutes of the wall clock.
        ("Africa/Monrovia", "5", "00:00", "01:00", "1972-01-07", [("00:44:30", "01:00")]),
    ],
)
def test_skipped_minutes_do_not_exist_and_repeated_ones_count_twice(
    zone_name: str, days: str, start: str, end: str, day: str, spans: list[tuple[str, str]]
) -> None:
    def moment(text: str) -> datetime:
        sign = -1 if text.startswith("-") else 1
        parts = [int(part) for part in text.lstrip("-").split(":")]
        return midnight + sign * timedelta(hours=parts[0], minutes=parts[1], seconds=(parts[2:] or [0])[0])

    midnight = at(f"{day}T00:00Z")
    found = open_spans(
        hours(days, start, end), zone_name, midnight - timedelta(hours=30), midnight + timedelta(hours=30)
    )
    assert list(found) == [(moment(first), moment(last)) for first, last in spans]


def test_the_next_start_is_in_the_week_after_a_skipped_one() -> None:
    week = hours("7", "02:00", "03:00")
    assert next_start(week, "Europe/Berlin", at("2026-03-23T00:00Z")) == at("2026-04-05T00:00Z")
    assert next_start(week, "Europe/Berlin", at("2026-04-05T00:00Z")) == at("2026-04-12T00:00Z")
    assert next_start(hours("5", "00:00", "00:00"), "Pacific/Apia", at("2011-12-24T10:00Z")) == at("2012-01-05T10:00Z")


_HOURS = st.builds(
    Hours,
    days=st.frozensets(st.integers(1, 7), min_size=1),
    start=st.integers(0, 1439),
    end=st.integers(0, 1439),
)


@given(
    week=st.lists(_HOURS, min_size=1, max_size=4),
    zone_name=st.sampled_from(ZONES),
    start=st.integers(86_400, 2_208_988_800).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    offsets=st.lists(st.integers(0, 40 * 86_400 - 1), min_size=20, max_size=20),
)
def test_spans_agree_with_the_wall_clock(
    week: list[Hours], zone_name: str, start: datetime, offsets: list[int]
) -> None:
    end = start + timedelta(days=40)
    spans = list(open_spans(week, zone_name, start, end))
    assert all(earlier.ends_at < later.starts_at for earlier, later in pairwise(spans))
    edges = [edge for span in spans for edge in (span.starts_at, span.ends_at - timedelta(microseconds=1))]
    beyond = [edge for span in spans for edge in (span.starts_at - timedelta(microseconds=1), span.ends_at)]
    moments = [start + timedelta(seconds=offset) for offset in offsets]
    for moment in [*edges, *beyond, *moments]:
        if start <= moment < end:
            assert is_within(week, zone_name, moment) == any(first <= moment < last for first, last in spans)
    following = next_start(week, zone_name, start)
    begins = [span.starts_at for span in spans if span.starts_at > start]
    assert following == (begins[0] if begins and begins[0] < start + timedelta(days=35) else None)


def test_changes_of_the_clock_are_found_in_every_zone() -> None:
    """Hourly probes find no change that is not found, in 60 years of all zones with unusual ones and some others."""
    odd = ["Africa/Casablanca", "Africa/El_Aaiun", "Asia/Gaza", "Africa/Cairo", "America/Noronha", "Antarctica/Troll"]
    start, end = at("1970-01-01T00:00Z"), at("2055-01-01T00:00Z")
    for name in [*ZONES, *odd]:
        in_zone = zone(name)
        found = [span.starts_at for span in steady_spans(name, start, end)][1:]
        probes, offset = [], start.astimezone(in_zone).utcoffset()
        for hour in range(6, (end - start) // timedelta(hours=1), 6):
            other = (start + timedelta(hours=hour)).astimezone(in_zone).utcoffset()
            if other != offset:
                probes.append(start + timedelta(hours=hour))
                offset = other
        assert len(found) == len(probes)
        assert all(
            timedelta(0) <= probe - change < timedelta(hours=6) for change, probe in zip(found, probes, strict=True)
        )


@pytest.mark.parametrize(
    ("name", "wall", "moment"),
    [
        ("Europe/Berlin", "2026-03-29T02:30:00.5", "2026-03-29T01:00Z"),
        ("Europe/Berlin", "2026-10-25T02:30:00.5", "2026-10-25T00:30:00.5Z"),
        ("Europe/Berlin", "2026-10-25T03:00", "2026-10-25T02:00Z"),
        ("Pacific/Apia", "2011-12-30T12:00", "2011-12-30T10:00Z"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-03T15:30Z"),
        ("UTC", "2026-10-04T02:15", "2026-10-04T02:15Z"),
    ],
)
def test_a_skipped_time_is_at_the_change_and_a_repeated_one_is_the_first(name: str, wall: str, moment: str) -> None:
    assert first_moment(name, datetime.fromisoformat(wall)) == at(moment)


@given(
    name=st.sampled_from(sorted(TIME_ZONES)),
    wall=st.datetimes(datetime.fromisoformat("1940-01-01"), datetime.fromisoformat("2060-01-01")),
    later=st.timedeltas(timedelta(0), timedelta(days=3)),
)
def test_later_times_of_the_clock_do_not_come_earlier(name: str, wall: datetime, later: timedelta) -> None:
    first = first_moment(name, wall)
    assert first <= first_moment(name, wall + later)
    assert wall_time(name, first) >= wall
    assert wall_time(name, first - timedelta(microseconds=1)) < wall or wall_time(name, first) == wall

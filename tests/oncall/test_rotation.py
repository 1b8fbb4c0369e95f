"""Who is on call: layers, overrides, people who have left, and clocks that change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.clock import to_ms
from core.zones import TIME_ZONES
from oncall.rotation import Layer, Override, Schedule, gaps_between, now, on_call, parse_schedule, shifts

ABC = ("a", "b", "c")
Row = dict[str, Any]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def layer(users: str, count: int, unit: str, start: str, *hours: tuple[str, str, str]) -> Row:
    return {
        "user_ids": list(users),
        "every": {"unit": unit, "count": count},
        "starts_at": to_ms(at(start)),
        "hours": [{"days": [int(day) for day in days], "from": first, "to": last} for days, first, last in hours],
    }


def override(user: str, start: str, end: str) -> Row:
    return {"user_id": user, "starts_at": to_ms(at(start)), "ends_at": to_ms(at(end))}


def shown(schedule: Schedule, start: str, end: str, present: str = "abc") -> list[tuple[str, int | None, str]]:
    """Return (user, layer, beginning in UTC) of each shift, and a dash for each gap."""
    rows: list[tuple[str, int | None, str]] = []
    reached = at(start)
    for shift in shifts(schedule, at(start), at(end), present):
        if shift.starts_at > reached:
            rows.append(("-", None, f"{reached:%m-%d %H:%M}"))
        rows.append((shift.user_id, shift.layer, f"{shift.starts_at:%m-%d %H:%M}"))
        reached = shift.ends_at
    if reached < at(end):
        rows.append(("-", None, f"{reached:%m-%d %H:%M}"))
    return rows


@pytest.mark.parametrize(
    ("zone", "rotation", "start", "end", "expected"),
    [
        # Hand-overs at 09:00 of the wall clock: the shift over the change has 23 or 25 hours.
        (
            "Europe/Berlin",
            layer("abc", 1, "day", "2026-03-27T08:00Z"),
            "2026-03-27T00:00Z",
            "2026-03-30T00:00Z",
            [("-", None, "03-27 00:00"), ("a", 0, "03-27 08:00"), ("b", 0, "03-28 08:00"), ("c", 0, "03-29 07:00")],
        ),
        (
            "Europe/Berlin",
            layer("abc", 1, "day", "2026-10-24T07:00Z"),
            "2026-10-24T07:00Z",
            "2026-10-27T00:00Z",
            [("a", 0, "10-24 07:00"), ("b", 0, "10-25 08:00"), ("c", 0, "10-26 08:00")],
        ),
        ("Europe/Berlin", layer("ab", 1, "week", "2026-03-23T08:00Z"), "2026-03-29T00:00Z", "2026-04-06T10:00Z",
         [("a", 0, "03-29 00:00"), ("b", 0, "03-30 07:00"), ("a", 0, "04-06 07:00")]),
        # Hours are elapsed time.
        ("Europe/Berlin", layer("ab", 12, "hour", "2026-03-28T08:00Z"), "2026-03-29T00:00Z", "2026-03-30T00:00Z",
         [("b", 0, "03-29 00:00"), ("a", 0, "03-29 08:00"), ("b", 0, "03-29 20:00")]),
        # 02:30 is skipped on March 29: at the change, 01:00 in UTC.
        ("Europe/Berlin", layer("ab", 1, "day", "2026-03-28T01:30Z"), "2026-03-28T12:00Z", "2026-03-30T12:00Z",
         [("a", 0, "03-28 12:00"), ("b", 0, "03-29 01:00"), ("a", 0, "03-30 00:30")]),
        # 02:30 comes twice on October 25: at the first.
        ("Europe/Berlin", layer("ab", 1, "day", "2026-10-24T00:30Z"), "2026-10-24T12:00Z", "2026-10-26T12:00Z",
         [("a", 0, "10-24 12:00"), ("b", 0, "10-25 00:30"), ("a", 0, "10-26 01:30")]),
        # It starts in the second pass: the next day at that time of the wall clock.
        ("Europe/Berlin", layer("ab", 1, "day", "2026-10-25T01:30Z"), "2026-10-25T00:00Z", "2026-10-27T00:00Z",
         [("-", None, "10-25 00:00"), ("a", 0, "10-25 01:30"), ("b", 0, "10-26 01:30")]),
        # Half an hour on Lord Howe; 02:15 is skipped on October 4 and 01:45 comes twice on April 5.
        ("Australia/Lord_Howe", layer("ab", 1, "day", "2026-10-02T15:45Z"), "2026-10-03T00:00Z", "2026-10-05T00:00Z",
         [("a", 0, "10-03 00:00"), ("b", 0, "10-03 15:30"), ("a", 0, "10-04 15:15")]),
        ("Australia/Lord_Howe", layer("ab", 1, "day", "2026-04-03T14:45Z"), "2026-04-04T00:00Z", "2026-04-06T00:00Z",
         [("a", 0, "04-04 00:00"), ("b", 0, "04-04 14:45"), ("a", 0, "04-05 15:15")]),
        ("Asia/Kathmandu", layer("ab", 1, "day", "2026-04-03T18:15Z"), "2026-04-04T00:00Z", "2026-04-05T00:00Z",
         [("a", 0, "04-04 00:00"), ("b", 0, "04-04 18:15")]),
        # Kathmandu changed from UTC+05:30 to +05:45 in 1986, Samoa skipped December 30, 2011.
        ("Asia/Kathmandu", layer("ab", 1, "day", "1985-12-30T18:30Z"), "1985-12-31T00:00Z", "1986-01-02T00:00Z",
         [("a", 0, "12-31 00:00"), ("b", 0, "12-31 18:30"), ("a", 0, "01-01 18:15")]),
        # Noon of that day is at the change.
        ("Pacific/Apia", layer("abc", 1, "day", "2011-12-28T22:00Z"), "2011-12-29T00:00Z", "2012-01-01T00:00Z",
         [("a", 0, "12-29 00:00"), ("b", 0, "12-29 22:00"), ("c", 0, "12-30 10:00"), ("a", 0, "12-30 22:00"),
          ("b", 0, "12-31 22:00")]),
    ],
)  # fmt: skip
def test_hand_overs(zone: str, rotation: Row, start: str, end: str, expected: list[Any]) -> None:
    assert shown(parse_schedule(zone, [rotation]), start, end) == expected


def test_later_layers_win_where_they_have_somebody_and_overrides_win_over_all() -> None:
    schedule = parse_schedule(
        "UTC",
        [
            layer("a", 1, "week", "2026-01-01T00:00Z"),
            layer("b", 1, "week", "2026-01-01T00:00Z", ("12345", "09:00", "17:00")),
            layer("x", 1, "week", "2026-01-01T00:00Z"),
        ],
        [
            override("c", "2026-01-05T10:00Z", "2026-01-05T12:00Z"),
            override("a", "2026-01-05T11:00Z", "2026-01-05T11:30Z"),
            override("x", "2026-01-05T10:00Z", "2026-01-05T20:00Z"),
            override("c", "2025-01-05T10:00Z", "2025-01-05T20:00Z"),
        ],
    )
    assert shown(schedule, "2026-01-04T00:00Z", "2026-01-06T00:00Z") == [
        ("a", 0, "01-04 00:00"),
        ("b", 1, "01-05 09:00"),
        ("c", None, "01-05 10:00"),
        ("a", None, "01-05 11:00"),
        ("c", None, "01-05 11:30"),
        ("b", 1, "01-05 12:00"),
        ("a", 0, "01-05 17:00"),
    ]
    # Neighbours of one user are one shift, with the layer of its beginning.
    assert shown(schedule, "2026-01-04T00:00Z", "2026-01-06T00:00Z", "a") == [("a", 0, "01-04 00:00")]
    assert shown(schedule, "2026-01-05T11:15Z", "2026-01-06T00:00Z", "a") == [("a", None, "01-05 11:15")]


def test_the_turn_of_one_who_left_goes_to_the_next_and_the_others_do_not_move() -> None:
    schedule = parse_schedule("UTC", [layer("abcd", 1, "day", "2026-01-01T00:00Z")])

    def turns(present: str) -> str:
        return "".join(on_call(schedule, at(f"2026-01-0{day}T12:00Z"), present) or "-" for day in range(1, 9))

    assert turns("abcd") == "abcdabcd"
    assert turns("acd") == "accdaccd"
    assert turns("ad") == "adddaddd"
    assert turns("bd") == "bbddbbdd"
    assert turns("xyz") == "--------"


@pytest.mark.parametrize("start", ["2006-07-01T07:30:00.123Z", "2027-07-01T07:30:00.123Z"])
def test_layers_that_start_in_the_future_or_20_years_ago(start: str) -> None:
    schedule = parse_schedule("America/New_York", [layer("abcaa", 1, "day", start)])
    begins = at(start)
    assert on_call(schedule, begins - timedelta(milliseconds=1), "abc") is None
    assert on_call(schedule, begins, "abc") == "a"
    assert on_call(schedule, at("2046-07-02T07:30:00.122Z"), "abc") != on_call(
        schedule, at("2046-07-02T07:30:00.123Z"), "abc"
    )
    found = shifts(schedule, begins - timedelta(days=2), begins + timedelta(days=3), "abc")
    assert [(shift.user_id, shift.starts_at - begins) for shift in found] == [
        ("a", timedelta(0)),
        ("b", timedelta(days=1)),
        ("c", timedelta(days=2)),
    ]


def test_now_names_who_is_on_call_and_who_is_next() -> None:
    schedule = parse_schedule("UTC", [layer("ab", 1, "day", "2026-01-01T00:00Z", ("5", "09:00", "17:00"))])
    friday = at("2026-01-02T12:00Z")
    assert now(schedule, friday, "ab") == ("b", friday.replace(hour=17), "a", at("2026-01-09T09:00Z"))
    assert now(schedule, friday.replace(hour=17), "ab") == (None, None, "a", at("2026-01-09T09:00Z"))
    assert now(schedule, friday, "x") == (None, None, None, None)


def test_now_looks_366_days_ahead() -> None:
    start = at("2026-01-01T00:00Z")
    alone = parse_schedule("UTC", [layer("a", 1, "day", "2026-01-01T00:00Z")])
    assert now(alone, start, "a") == ("a", start + timedelta(days=366), None, None)
    later = parse_schedule("UTC", [layer("a", 1, "day", "2027-01-01T00:00Z")])
    assert now(later, start, "a") == (None, None, "a", at("2027-01-01T00:00Z"))
    assert now(later, at("2025-12-01T00:00Z"), "a") == (None, None, None, None)


def test_gaps_are_what_shifts_leave_out() -> None:
    schedule = parse_schedule("UTC", [layer("ab", 1, "day", "2026-01-01T00:00Z", ("1234567", "09:00", "17:00"))])
    start, end = at("2026-01-01T12:00Z"), at("2026-01-02T12:00Z")
    assert gaps_between(schedule, start, end, "ab") == [(at("2026-01-01T17:00Z"), at("2026-01-02T09:00Z"))]
    assert gaps_between(schedule, start, end, "x") == [(start, end)]
    assert shifts(schedule, end, start, "ab") == []


def test_a_zone_that_tzdata_dropped_is_read_as_utc() -> None:
    assert parse_schedule("Mars/Olympus", []).zone == "UTC"


MOMENTS = st.integers(to_ms(at("1975-01-01T00:00Z")), to_ms(at("2040-01-01T00:00Z")))
USERS = st.sampled_from(ABC)
HOURS = st.builds(
    lambda days, start, end: {"days": days, "from": f"{start // 60:02}:{start % 60:02}", "to": f"{end:02}:00"},
    st.lists(st.integers(1, 7), min_size=1, max_size=7, unique=True),
    st.integers(0, 1439),
    st.integers(0, 23),
)


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, datetime]:
    """Return a schedule, and a moment near which it has layers and overrides."""
    moment = draw(MOMENTS)
    near = st.integers(moment - 40 * 86_400_000, moment + 40 * 86_400_000)
    layers = st.builds(
        lambda user_ids, unit, count, starts_at, hours: {
            "user_ids": user_ids,
            "every": {"unit": unit, "count": count},
            "starts_at": starts_at,
            "hours": hours,
        },
        st.lists(USERS, min_size=1, max_size=5),
        st.sampled_from(["hour", "day", "week"]),
        st.integers(1, 30),
        st.one_of(near, MOMENTS),
        st.lists(HOURS, max_size=3),
    )
    overrides = st.builds(
        lambda user_id, starts_at, length: {"user_id": user_id, "starts_at": starts_at, "ends_at": starts_at + length},
        USERS,
        near,
        st.integers(1, 20 * 86_400_000),
    )
    zone = draw(st.sampled_from(sorted(TIME_ZONES)))
    parsed = parse_schedule(zone, draw(st.lists(layers, min_size=1, max_size=4)), draw(st.lists(overrides, max_size=6)))
    return parsed, at("1970-01-01T00:00Z") + timedelta(milliseconds=moment)


@given(
    drawn=schedules(),
    present=st.frozensets(USERS),
    seconds=st.lists(st.integers(0, 40 * 86_400 - 1), min_size=30, max_size=30),
)
def test_shifts_agree_with_who_is_on_call(
    drawn: tuple[Schedule, datetime], present: frozenset[str], seconds: list[int]
) -> None:
    schedule, start = drawn
    end = start + timedelta(days=40)
    found = shifts(schedule, start, end, present)
    assert all(start <= shift.starts_at < shift.ends_at <= end for shift in found)
    for earlier, later in pairwise(found):
        assert earlier.ends_at <= later.starts_at
        assert earlier.ends_at < later.starts_at or earlier.user_id != later.user_id
    least = timedelta(microseconds=1)
    edges = [edge for shift in found for edge in (shift.starts_at, shift.ends_at)]
    moments = [*edges, *(edge - least for edge in edges), *(start + timedelta(seconds=second) for second in seconds)]
    for moment in moments:
        if start <= moment < end:
            expected = next((each.user_id for each in found if each.starts_at <= moment < each.ends_at), None)
            assert on_call(schedule, moment, present) == expected
    for shift in found:
        if shift.layer is not None:
            assert shift.user_id in schedule.layers[shift.layer].user_ids
    current, until, following, next_at = now(schedule, start, present)
    assert current == on_call(schedule, start, present)
    if current is not None and found[0].ends_at < end:
        assert until == found[0].ends_at
    if upcoming := found[1:] if current else found:
        assert (following, next_at) == (upcoming[0].user_id, upcoming[0].starts_at)


@given(
    zone=st.sampled_from(sorted(TIME_ZONES)),
    starts_at=MOMENTS,
    days=st.integers(1, 30),
    turn=st.integers(1, 4000),
    offset=st.timedeltas(timedelta(hours=-30), timedelta(hours=30)),
)
def test_hand_overs_are_at_the_wall_clock_time_of_the_start(
    zone: str, starts_at: int, days: int, turn: int, offset: timedelta
) -> None:
    """The turn at a moment is the number of hand-overs before it, each found by walking the clock."""
    begins = at("1970-01-01T00:00Z") + timedelta(milliseconds=starts_at)
    users = tuple(str(number) for number in range(50))
    schedule = Schedule(zone, (Layer(users, timedelta(days=days), True, begins),))
    moment = begins + turn * timedelta(days=days) + offset
    if moment < begins:
        assert on_call(schedule, moment, users) is None
        return
    found = shifts(schedule, begins, moment + timedelta(microseconds=1), users)
    assert found[-1].user_id == on_call(schedule, moment, users)
    assert found[0].user_id == "0"


@given(user=USERS, starts=st.lists(MOMENTS, min_size=1, max_size=30), length=st.integers(1, 10**10))
def test_the_last_override_wins(user: str, starts: list[int], length: int) -> None:
    base = at("1970-01-01T00:00Z")
    overrides = tuple(
        Override(ABC[number % 3], base + timedelta(milliseconds=start), base + timedelta(milliseconds=start + length))
        for number, start in enumerate(starts)
    )
    schedule = Schedule("UTC", (), overrides)
    moment = overrides[0].ends_at - timedelta(microseconds=1)
    covering = [each.user_id for each in overrides if each.starts_at <= moment < each.ends_at and each.user_id != user]
    assert on_call(schedule, moment, set(ABC) - {user}) == (covering[-1] if covering else None)

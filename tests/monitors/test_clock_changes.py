"""Schedules around all clock changes of all zones: the times equal the reference, and the loops end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.zones import TIME_ZONES
from monitors.cron import Schedule
from tests.expressions import expressions
from tests.helpers import examples
from tests.monitors.cron_walk import DAY, MINUTE, walk, zone_of
from tests.steps import MAX_STEPS, limited_steps

ZONES = sorted(TIME_ZONES)
FIRST, LAST = datetime(1990, 1, 1, tzinfo=UTC), datetime(2041, 1, 1, tzinfo=UTC)


@cache
def clock_changes(zone: str) -> tuple[datetime, ...]:
    """Return the times at which the offset of a zone changed, to the minute."""
    changes, low = [], FIRST
    local = zone_of(zone)
    while low < LAST:
        high = low + DAY
        if low.astimezone(local).utcoffset() != high.astimezone(local).utcoffset():
            before, after = low, high
            while after - before > MINUTE:
                middle = before + (after - before) // (2 * MINUTE) * MINUTE
                is_same = middle.astimezone(local).utcoffset() == before.astimezone(local).utcoffset()
                before, after = (middle, after) if is_same else (before, middle)
            changes.append(after)
        low = high
    return tuple(changes)


def computed(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    return list(takewhile(lambda at: at <= end, Schedule(expression, zone).times_after(start)))


ENDLESS = [
    ("45 */2 * * *", "America/St_Johns", datetime.fromtimestamp(1_289_025_060, UTC)),
    ("15 */2 * * *", "Asia/Colombo", datetime(1996, 5, 24, 12, tzinfo=UTC)),
    ("45 */2 * * *", "Asia/Colombo", datetime(1996, 10, 25, 12, tzinfo=UTC)),
    ("15 */2 * * *", "Asia/Colombo", datetime(2006, 4, 14, 12, tzinfo=UTC)),
    ("50-59 */3 * * *", "Australia/Lord_Howe", datetime(2026, 4, 4, 5, tzinfo=UTC)),
    ("*/58,*/45 3/15 * * SUN", "Pacific/Chatham", datetime(2026, 4, 4, 5, tzinfo=UTC)),
]


@pytest.mark.parametrize(("expression", "zone", "start"), ENDLESS)
def test_schedules_for_which_cronsim_never_ends(expression: str, zone: str, start: datetime) -> None:
    with limited_steps():
        times = Schedule(expression, zone).upcoming(start, 50)
    assert times == walk(expression, zone, start, times[-1])
    assert len(times) == 50


ODD_CHANGES = [
    pytest.param("Australia/Lord_Howe", "2026-04-04T15:00Z", id="half an hour back"),
    pytest.param("Australia/Lord_Howe", "2026-10-03T15:30Z", id="half an hour forth"),
    pytest.param("America/St_Johns", "2010-11-07T02:31Z", id="at one minute past midnight"),
    pytest.param("Pacific/Chatham", "2026-04-04T14:00Z", id="at a quarter to four"),
    pytest.param("Antarctica/Troll", "2026-03-29T01:00Z", id="two hours forth"),
    pytest.param("Antarctica/Troll", "2026-10-25T01:00Z", id="two hours back"),
    pytest.param("Pacific/Apia", "2011-12-30T10:00Z", id="no 30 December"),
    pytest.param("Pacific/Kwajalein", "1993-08-21T12:00Z", id="no 21 August"),
    pytest.param("Africa/Casablanca", "2026-02-15T02:00Z", id="winter time in spring"),
    pytest.param("Asia/Kathmandu", "1985-12-31T18:30Z", id="a quarter of an hour forth"),
    pytest.param("Asia/Pyongyang", "2015-08-14T15:00Z", id="half an hour back at midnight"),
    pytest.param("America/Caracas", "2007-12-09T07:00Z", id="half an hour back at night"),
    pytest.param("Antarctica/Casey", "2020-10-03T16:01Z", id="three hours forth, at one minute past midnight"),
    pytest.param("America/Havana", "2026-03-08T05:00Z", id="no midnight"),
]
NIGHTLY = (
    *("*/15 * * * *", "20 * * * *", "5 */2 * * *", "* * * * *", "*/40 0-4 * * *", "59 * 30,31 12 *"),
    *("30 2 * * *", "0,30 0-3 * * *", "45 1 * * *", "0 0 * * *", "15 0,1,23 * * *", "0-59/7 0-23/5 * * *"),
)


@pytest.mark.parametrize("expression", NIGHTLY)
@pytest.mark.parametrize(("zone", "change"), ODD_CHANGES)
def test_odd_changes_of_clocks(zone: str, change: str, expression: str) -> None:
    moment = datetime.fromisoformat(change)
    local = zone_of(zone)
    assert moment.astimezone(local).utcoffset() != (moment - MINUTE).astimezone(local).utcoffset()
    for hours in (-30, -3, -1, 0, 1, 3):
        start = moment + timedelta(hours=hours, minutes=7)
        with limited_steps(4 * MAX_STEPS):  # up to 4,680 times
            times = computed(expression, zone, start, moment + 2 * DAY)
        assert times == walk(expression, zone, start, moment + 2 * DAY), hours


@pytest.mark.parametrize("expression", NIGHTLY)
def test_an_offset_of_seconds(expression: str) -> None:
    """Monrovia changed from -0:44:30 to UTC: the last zone whose offset was not in whole minutes."""
    change, half = datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC), timedelta(seconds=30)
    start, end = change - DAY, change + DAY
    times = computed(expression, "Africa/Monrovia", start, end)
    assert times == walk(expression, "Africa/Monrovia", start, end, step=half)


@st.composite
def moments(draw: st.DrawFn, zone: str) -> datetime:
    """Draw any time of these years or, equally often, one near a clock change."""
    changes = clock_changes(zone)
    if draw(st.booleans()) and changes:
        return draw(st.sampled_from(changes)) + MINUTE * draw(st.integers(-1_600, 1_600))
    return FIRST + MINUTE * draw(st.integers(0, (LAST - FIRST) // MINUTE))


@given(st.data(), expressions(), st.sampled_from(ZONES))
@settings(max_examples=examples(150), deadline=None)
def test_the_times_are_those_of_a_walk_from_minute_to_minute(data: st.DataObject, expression: str, zone: str) -> None:
    start = data.draw(moments(zone))
    end = start + data.draw(st.integers(1, 3)) * DAY
    with limited_steps(4 * MAX_STEPS):  # up to 4,320 times
        times = computed(expression, zone, start, end)
    assert times == walk(expression, zone, start, end)


@given(
    st.one_of(expressions(), st.sampled_from(["0 0 29 2 */8", "*/59 * 29 2 */8", "* * * * *", "59 23 31 12 */8"])),
    st.sampled_from(ZONES),
    st.datetimes(datetime(1970, 1, 1), datetime(2200, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001
)
@settings(max_examples=examples(100), deadline=None)
def test_fifty_times_are_found_in_a_bounded_number_of_steps(expression: str, zone: str, start: datetime) -> None:
    with limited_steps():
        times = Schedule(expression, zone).upcoming(start, 50)
    assert len(times) == 50
    assert times == sorted(set(times))

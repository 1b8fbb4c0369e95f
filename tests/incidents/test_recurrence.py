"""Occurrences of windows, against times computed by hand, and against dateutil in local time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from dateutil.tz import resolve_imaginary
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import ValidationFailed
from incidents.recurrence import Schedule, check
from tests.helpers import NOON, examples
from tests.steps import MAX_STEPS, limited_steps


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def schedule(starts_at: str, rrule: str = "", *, hours: float = 1, time_zone: str = "Europe/Berlin") -> Schedule:
    start = utc(starts_at)
    return Schedule(start, start + timedelta(hours=hours), time_zone, rrule)


# (zone, first start in UTC, rule, hours, every occurrence in UTC). Berlin: UTC+1, from 29 March 2026 01:00 UTC on +2,
# from 25 October 2026 01:00 UTC on +1. New York: UTC-5, from 8 March 2026 07:00 UTC on -4, from 1 November 2026
# 06:00 UTC on -5.
TABLE = {
    "Berlin, forward, by day at 12:00": (
        "Europe/Berlin",
        "2026-03-28T11:00",
        "FREQ=DAILY;COUNT=3",
        2,
        [
            ("2026-03-28T11:00", "2026-03-28T13:00"),
            ("2026-03-29T10:00", "2026-03-29T12:00"),
            ("2026-03-30T10:00", "2026-03-30T12:00"),
        ],
    ),
    "Berlin, forward, at 02:30, which that night has not": (
        "Europe/Berlin",
        "2026-03-28T01:30",
        "FREQ=DAILY;COUNT=3",
        1,
        [
            ("2026-03-28T01:30", "2026-03-28T02:30"),
            ("2026-03-29T01:30", "2026-03-29T02:30"),  # 03:30
            ("2026-03-30T00:30", "2026-03-30T01:30"),
        ],
    ),
    "Berlin, forward, from 01:30 over the switch": (
        "Europe/Berlin",
        "2026-03-22T00:30",
        "FREQ=WEEKLY;COUNT=3",
        2,
        [
            ("2026-03-22T00:30", "2026-03-22T02:30"),
            ("2026-03-29T00:30", "2026-03-29T02:30"),  # to 04:30 of the clock
            ("2026-04-04T23:30", "2026-04-05T01:30"),
        ],
    ),
    "Berlin, back, at 02:30, which that night has twice": (
        "Europe/Berlin",
        "2026-10-24T00:30",
        "FREQ=DAILY;COUNT=3",
        1,
        [
            ("2026-10-24T00:30", "2026-10-24T01:30"),
            ("2026-10-25T00:30", "2026-10-25T01:30"),  # the first of the two
            ("2026-10-26T01:30", "2026-10-26T02:30"),
        ],
    ),
    "Berlin, back, begun with the second 02:30": (
        "Europe/Berlin",
        "2026-10-25T01:30",
        "FREQ=DAILY;COUNT=2",
        1,
        [("2026-10-25T01:30", "2026-10-25T02:30"), ("2026-10-26T01:30", "2026-10-26T02:30")],
    ),
    "Berlin, back, Sundays from 01:00 to 05:00 of the first": (
        "Europe/Berlin",
        "2026-10-17T23:00",
        "FREQ=WEEKLY;BYDAY=SU;COUNT=3",
        4,
        [
            ("2026-10-17T23:00", "2026-10-18T03:00"),
            ("2026-10-24T23:00", "2026-10-25T03:00"),  # to 04:00 of the clock
            ("2026-11-01T00:00", "2026-11-01T04:00"),
        ],
    ),
    "New York, forward, at 02:30, which that night has not": (
        "America/New_York",
        "2026-03-07T07:30",
        "FREQ=DAILY;COUNT=3",
        1,
        [
            ("2026-03-07T07:30", "2026-03-07T08:30"),
            ("2026-03-08T07:30", "2026-03-08T08:30"),  # 03:30
            ("2026-03-09T06:30", "2026-03-09T07:30"),
        ],
    ),
    "New York, forward, at 22:00, the day before in UTC is another": (
        "America/New_York",
        "2026-03-07T03:00",
        "FREQ=DAILY;BYDAY=FR,SA,SU;COUNT=3",
        6,
        [
            ("2026-03-07T03:00", "2026-03-07T09:00"),
            ("2026-03-08T03:00", "2026-03-08T09:00"),
            ("2026-03-09T02:00", "2026-03-09T08:00"),
        ],
    ),
    "New York, back, at 01:30, which that night has twice": (
        "America/New_York",
        "2026-10-31T05:30",
        "FREQ=DAILY;UNTIL=20261102",
        1,
        [
            ("2026-10-31T05:30", "2026-10-31T06:30"),
            ("2026-11-01T05:30", "2026-11-01T06:30"),  # the first of the two
            ("2026-11-02T06:30", "2026-11-02T07:30"),
        ],
    ),
    "New York, both switches, the first of a month at midnight": (
        "America/New_York",
        "2026-03-01T05:00",
        "FREQ=MONTHLY;INTERVAL=4;UNTIL=20261201T000000Z",
        24,
        [
            ("2026-03-01T05:00", "2026-03-02T05:00"),
            ("2026-07-01T04:00", "2026-07-02T04:00"),
            ("2026-11-01T04:00", "2026-11-02T04:00"),
        ],
    ),
    "UTC has no switch": (
        "UTC",
        "2026-03-28T02:30",
        "FREQ=DAILY;COUNT=2",
        1,
        [("2026-03-28T02:30", "2026-03-28T03:30"), ("2026-03-29T02:30", "2026-03-29T03:30")],
    ),
}


@pytest.mark.parametrize(("zone", "start", "rule", "hours", "rows"), TABLE.values(), ids=list(TABLE))
def test_over_the_switches(zone: str, start: str, rule: str, hours: float, rows: list[tuple[str, str]]) -> None:
    window = schedule(start, rule, hours=hours, time_zone=zone)
    check(window, now=utc("2026-03-01T00:00"))
    expected = [(utc(begin), utc(end)) for begin, end in rows]
    assert list(window.occurrences()) == expected
    # dateutil agrees in local time, also for times that a clock change skips.
    local = window.starts_at.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
    by_dateutil = rrulestr(rule.replace("UNTIL=20261102", "COUNT=3").replace("Z", ""), dtstart=local)
    resolved = [resolve_imaginary(found.replace(tzinfo=ZoneInfo(zone))) for found in by_dateutil]
    assert [begin.astimezone(UTC) for begin in resolved[1:]] == [begin for begin, _ in expected[1:]]
    # And at every quarter of an hour the current or else the next occurrence is found.
    at = expected[0][0] - timedelta(hours=1)
    while at < expected[-1][1] + timedelta(hours=1):
        assert window.occurrence_at_or_after(at) == next((row for row in expected if at < row[1]), None)
        at += timedelta(minutes=15)


def test_once() -> None:
    window = schedule("2026-03-29T00:30", hours=2)
    start, end = utc("2026-03-29T00:30"), utc("2026-03-29T02:30")
    assert window.occurrence_at_or_after(start - timedelta(days=1)) == (start, end)
    assert window.occurrence_at_or_after(start) == (start, end)
    assert window.occurrence_at_or_after(end - timedelta(milliseconds=1)) == (start, end)
    assert window.occurrence_at_or_after(end) is None


def test_milliseconds_are_kept() -> None:
    start = utc("2026-03-28T11:00") + timedelta(milliseconds=7)
    window = Schedule(start, start + timedelta(minutes=1), "Europe/Berlin", "FREQ=DAILY;COUNT=2")
    check(window, now=start)
    assert [begin for begin, _ in window.occurrences()] == [start, start + timedelta(hours=23)]


@pytest.mark.parametrize(
    ("rule", "starts"),
    [
        ("freq=weekly;byday=mo;count=2", ["2026-03-02", "2026-03-09"]),
        ("FREQ=MONTHLY;BYDAY=1MO;COUNT=3", ["2026-03-02", "2026-04-06", "2026-05-04"]),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=1;COUNT=3", ["2026-03-02", "2026-04-01", "2026-05-01"]),
        ("FREQ=MONTHLY;BYMONTHDAY=2,-1;COUNT=4", ["2026-03-02", "2026-03-31", "2026-04-02", "2026-04-30"]),
        ("FREQ=YEARLY;BYMONTH=3,9;BYDAY=1MO;COUNT=3", ["2026-03-02", "2026-09-07", "2027-03-01"]),
        ("FREQ=WEEKLY;INTERVAL=2;WKST=SU;BYDAY=MO,SU;COUNT=3", ["2026-03-02", "2026-03-15", "2026-03-16"]),
        ("FREQ=WEEKLY;INTERVAL=2;WKST=MO;BYDAY=MO,SU;COUNT=3", ["2026-03-02", "2026-03-08", "2026-03-16"]),
        ("FREQ=DAILY;INTERVAL=10;UNTIL=20260322T090000Z", ["2026-03-02", "2026-03-12", "2026-03-22"]),
        ("FREQ=DAILY;INTERVAL=10;UNTIL=20260322T085959Z", ["2026-03-02", "2026-03-12"]),
        ("FREQ=DAILY;INTERVAL=10;UNTIL=20260322", ["2026-03-02", "2026-03-12", "2026-03-22"]),
    ],
)
def test_rules(rule: str, starts: list[str]) -> None:
    window = schedule("2026-03-02T09:00", rule, time_zone="UTC")
    check(window, now=NOON)
    assert [f"{begin:%Y-%m-%d}" for begin, _ in window.occurrences()] == starts


REFUSED = {
    "FREQ=SECONDLY;COUNT=5": "rrule: FREQ=SECONDLY is not supported",
    "FREQ=MINUTELY;INTERVAL=90;COUNT=5": "rrule: FREQ=MINUTELY is not supported",
    "FREQ=HOURLY;COUNT=5": "rrule: FREQ=HOURLY is not supported",
    "FREQ=WEEKLY;INTERVAL=999": "rrule: does not recur within 10 years",
    "FREQ=YEARLY;BYMONTH=3;BYMONTHDAY=2;BYDAY=MO;INTERVAL=11": "rrule: does not recur within 10 years",
    "FREQ=WEEKLY;UNTIL=20360401": "rrule: UNTIL is more than 10 years",
    "FREQ=WEEKLY;UNTIL=99991231": "rrule: UNTIL=99991231 is not a valid date",
    "FREQ=WEEKLY;UNTIL=99991231T235959Z": "rrule: UNTIL is more than 10 years",
    "FREQ=WEEKLY;COUNT=600": "rrule: lasts more than 10 years",
    "FREQ=YEARLY;COUNT=12": "rrule: lasts more than 10 years",
    "FREQ=WEEKLY;UNTIL=20260301": "rrule: UNTIL is before starts_at",
    "FREQ=WEEKLY;UNTIL=20261301": "rrule: UNTIL=20261301 is not a valid date",
    "FREQ=WEEKLY;UNTIL=20261101T000000": "rrule: the value of UNTIL cannot be read; write 2027",
    "FREQ=WEEKLY;UNTIL=20261101;COUNT=3": "rrule: COUNT and UNTIL cannot be combined",
    "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30;COUNT=3": "rrule: has no occurrence",
    "FREQ=WEEKLY;BYDAY=TU;COUNT=3": "starts_at: does not match rrule, whose first time is 2026-03-03 09:00",
    "FREQ=DAILY;BYHOUR=9,10;COUNT=3": "rrule: BYHOUR is not supported",
    "FREQ=YEARLY;BYWEEKNO=9;COUNT=3": "rrule: BYWEEKNO is not supported",
    "FREQ=YEARLY;BYEASTER=0;COUNT=3": "rrule: BYEASTER is not supported",
    "FREQ=DAILY;INTERVAL=0;COUNT=3": "rrule: the value of INTERVAL cannot be read",
    "FREQ=DAILY;INTERVAL=-1;COUNT=3": "rrule: the value of INTERVAL cannot be read",
    "FREQ=DAILY;COUNT=0": "rrule: the value of COUNT cannot be read",
    "FREQ=DAILY;COUNT=" + "9" * 400: "rrule: the value of COUNT cannot be read",
    "FREQ=DAILY;COUNT=٣": "rrule: the value of COUNT cannot be read",
    "FREQ=DAILY;COUNT=3;COUNT=4": "rrule: COUNT is repeated",
    "FREQ=DAILY;BYMONTH=13;COUNT=3": "rrule: the value of BYMONTH cannot be read",
    "FREQ=DAILY;BYMONTHDAY=0;COUNT=3": "rrule: the value of BYMONTHDAY cannot be read",
    "FREQ=DAILY;BYDAY=XX;COUNT=3": "rrule: the value of BYDAY cannot be read",
    "FREQ=WEEKLY;BYDAY=1MO;COUNT=3": "rrule: numbers in BYDAY cannot be combined with FREQ=WEEKLY",
    "FREQ=MONTHLY;BYDAY=1MO,TU;COUNT=3": "rrule: number all days of BYDAY, or none",
    "FREQ=MONTHLY;BYDAY=53MO;COUNT=3": "rrule: numbers in BYDAY go up to 5",
    "FREQ=YEARLY;BYMONTH=12;BYDAY=-6MO;COUNT=3": "rrule: numbers in BYDAY go up to 5",
    "FREQ=WEEKLY;BYMONTHDAY=2;COUNT=3": "rrule: BYMONTHDAY cannot be combined with FREQ=WEEKLY",
    "FREQ=MONTHLY;BYSETPOS=1;COUNT=3": "rrule: BYSETPOS requires",
    "COUNT=3": "rrule: FREQ is missing",
    "FREQ=DAILY;COUNT=3;": "rrule: something is not supported; write parts such as",
    "nonsense": "rrule: NONSENSE is not supported",
    "RRULE:FREQ=DAILY;COUNT=3": "rrule: RRULE is not supported",
    "DTSTART:20260302T090000Z\nFREQ=DAILY;COUNT=3": "rrule: DTSTART is not supported",
    "FREQ=DAILY;COUNT=3\nEXDATE:20260303T090000Z": "rrule: the value of COUNT cannot be read",
    "FREQ=DAILY;COUNT=3\n": "rrule: the value of COUNT cannot be read",
    "FREQ=DAILY\x00;COUNT=3": "rrule: the value of FREQ cannot be read",
}


@pytest.mark.parametrize("rule", REFUSED, ids=lambda rule: rule[:40])
def test_rules_that_are_refused(rule: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        check(schedule("2026-03-02T09:00", rule, time_zone="UTC"), now=NOON)
    assert str(refused.value).startswith(REFUSED[rule])


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (schedule("2026-03-02T09:00", hours=0), "ends_at: must be after starts_at"),
        (schedule("2026-03-02T09:00", hours=-1), "ends_at: must be after starts_at"),
        (schedule("2026-03-02T09:00", hours=30 * 24 + 0.1), "ends_at: is more than 30 days"),
        (schedule("2026-03-01T10:00"), "ends_at: is in the past"),
        (schedule("2026-02-20T09:00", "FREQ=DAILY;COUNT=9"), "rrule: the last occurrence is over"),
        (schedule("2036-04-01T09:00"), "starts_at: is more than 10 years ahead"),
        (schedule("9999-12-31T09:00", "FREQ=DAILY;COUNT=9"), "starts_at: is more than 10 years ahead"),
        (schedule("1970-01-01T00:00", "FREQ=DAILY;UNTIL=19700202"), "rrule: the last occurrence is over"),
        (schedule("2026-03-02T09:00", "FREQ=DAILY;COUNT=2", hours=24.1), "rrule: the occurrence of 2026-03-03"),
        # A day of 23 hours.
        (schedule("2026-03-27T11:00", "FREQ=DAILY;COUNT=5", hours=24), "rrule: the occurrence of 2026-03-29"),
        (schedule("2026-03-02T09:00", "FREQ=WEEKLY;BYDAY=MO,TU;COUNT=5", hours=25), "rrule: the occurrence of"),
        *(
            (schedule("2026-03-02T09:00", time_zone=zone), "time_zone: is not a name")
            for zone in ("", "Europe", "europe/berlin", "../../etc/passwd", "/etc/passwd", "CEST+1", "a\x00b")
        ),
    ],
)
def test_windows_that_are_refused(window: Schedule, reason: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        check(window, now=NOON)
    assert str(refused.value).startswith(reason)


def test_occurrences_may_touch() -> None:
    window = schedule("2026-03-02T09:00", "FREQ=DAILY;COUNT=2", hours=24, time_zone="UTC")
    check(window, now=NOON)
    assert window.occurrence_at_or_after(utc("2026-03-03T09:00")) == (utc("2026-03-03T09:00"), utc("2026-03-04T09:00"))


def test_the_longest_window_that_is_taken() -> None:
    window = schedule("2026-03-02T09:00", "FREQ=DAILY;UNTIL=20360229")
    check(window, now=NOON)
    assert 3_600 < len(list(window.occurrences())) < 3_660


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]),
    st.integers(1, 9),
    st.lists(
        st.sampled_from(["BYMONTH=3,8", "BYMONTHDAY=2,-1", "BYDAY=MO,SU", "BYSETPOS=-1", "BYSETPOS=2", "WKST=SU"]),
        unique_by=lambda part: part[:6],
        max_size=3,
    ),
    st.sampled_from(["2026-03-02T12:30", "2024-02-29T12:30", "2026-01-31T01:30", "2026-03-29T00:30"]),
    st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "UTC"]),
    st.integers(0, 3_600),
)
def test_a_rule_without_an_end_continues_as_from_its_start(
    frequency: str, interval: int, parts: list[str], start: str, zone: str, days: int
) -> None:
    """A lookup years later finds the same times as expanding the rule from its start."""
    window = schedule(start, ";".join([f"FREQ={frequency}", f"INTERVAL={interval}", *parts]), time_zone=zone)
    try:
        check(window, now=NOON)
    except ValidationFailed:
        return
    at = window.starts_at + timedelta(days=days)
    local = window.starts_at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    clocks = takewhile(lambda clock: clock.year < 2050, rrulestr(window.rrule, dtstart=local))
    instants = (resolve_imaginary(clock.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC) for clock in clocks)
    expected = [begin for begin in instants if at < begin + timedelta(hours=1) and begin <= at + timedelta(days=3_600)]
    found = [begin for begin, _ in window.occurrences(after=at) if begin <= at + timedelta(days=3_600)]
    assert found == expected


@pytest.mark.parametrize("rule", ["FREQ=DAILY", "FREQ=DAILY;UNTIL=20360229", "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=1"])
def test_an_occurrence_is_found_at_the_same_cost_after_any_time(rule: str) -> None:
    window = schedule("2026-03-02T09:00", rule, time_zone="UTC")
    for years in (1, 9) if "UNTIL" in rule else (1, 9, 90, 900):
        with limited_steps(MAX_STEPS // 4):
            found = window.occurrence_at_or_after(NOON.replace(year=2026 + years))
        assert found is not None
        assert found.starts_at.year == 2026 + years


HOSTILE = [
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=1",
    "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=31;BYDAY=MO,TU;UNTIL=20360101",
    "FREQ=DAILY;BYSETPOS=366;BYDAY=MO;COUNT=9999",
    "FREQ=WEEKLY;BYDAY=MO;BYSETPOS=-366;COUNT=9999",
    "FREQ=MONTHLY;BYDAY=5MO;BYMONTH=2;BYMONTHDAY=1;COUNT=9999",
    "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=31,30,-31,-30;BYDAY=MO;COUNT=1",
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=31;BYSETPOS=-366;COUNT=9999",
    "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA;BYSETPOS=366;COUNT=9999",
    "FREQ=YEARLY;INTERVAL=999;BYMONTH=2;BYMONTHDAY=29;BYDAY=SU;COUNT=9999",
]


@pytest.mark.parametrize("rule", HOSTILE)
def test_a_rule_that_never_comes_true_costs_a_bounded_time(rule: str) -> None:
    """dateutil alone searches until the year 9999, which takes up to seven seconds for these rules."""
    with limited_steps(20 * MAX_STEPS), pytest.raises(ValidationFailed, match="has no occurrence"):
        check(schedule("2026-03-02T09:00", rule), now=NOON)


@pytest.mark.parametrize("year", [1970, 1999, 2026, 2060, 2095])
def test_a_rule_has_the_same_days_in_every_century(year: int) -> None:
    first = f"{year}-02-01T09:00"
    window = schedule(first, "FREQ=MONTHLY;BYMONTHDAY=-1,1;BYDAY=MO,TU,WE,TH,FR,SA,SU;COUNT=240", time_zone="UTC")
    expected = [each.replace(tzinfo=UTC) for each in rrulestr(window.rrule, dtstart=datetime(year, 2, 1, 9))]  # noqa: DTZ001
    assert [start for start, _ in window.occurrences()] == expected


RULES = st.builds(
    lambda frequency, interval, parts, count: ";".join(
        [f"FREQ={frequency}", f"INTERVAL={interval}", *parts, f"COUNT={count}"]
    ),
    st.sampled_from(["DAILY", "MONTHLY", "YEARLY", "WEEKLY"]),
    st.integers(1, 9),
    st.lists(
        st.sampled_from(["BYMONTH=3,6,12", "BYMONTHDAY=2,-1", "BYDAY=MO,SU", "BYSETPOS=1", "WKST=SU"]),
        unique=True,
        max_size=4,
    ),
    st.integers(1, 40),
)


@settings(max_examples=examples(150), deadline=None)
@given(RULES, st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]))
def test_what_is_taken_is_what_dateutil_finds(rule: str, zone: str) -> None:
    """For every accepted rule: the same local times, in order, without overlaps."""
    window = schedule("2026-03-02T12:30", rule, time_zone=zone)
    try:
        check(window, now=NOON)
    except ValidationFailed:
        return
    found = list(window.occurrences())
    local = window.starts_at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    clocks = list(rrulestr(rule, dtstart=local))
    instants = [resolve_imaginary(clock.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC) for clock in clocks]
    assert [begin for begin, _ in found] == instants
    assert all(end <= begin for (_, end), (begin, _) in pairwise(found))

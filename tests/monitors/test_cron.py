"""Cron expressions as Debian reads them: what is accepted, and the times around clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.zones import TIME_ZONES
from monitors.cron import MAX_EXPRESSION, BadScheduleError, Schedule
from tests.expressions import expressions

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("expression", "setting", "words"),
    [
        ("", "schedule", "has 0 fields"),
        ("@daily", "schedule", "has 1 field\\."),
        ("0 * * * * *", "schedule", "has 6 fields"),
        ("0 0 L * *", "schedule", "the day of month must be"),
        ("0 0 LW * *", "schedule", "the day of month must be"),
        ("0 0 * * 5L", "schedule", "the day of week must be"),
        ("0 0 * * MON#1", "schedule", "the day of week must be"),
        ("0 0 15W * *", "schedule", "the day of month must be"),
        ("\N{ARABIC-INDIC DIGIT ONE} * * * *", "schedule", "the minute must be"),
        ("0 0 * * FR\N{LATIN SMALL LETTER DOTLESS I}", "schedule", "the day of week must be"),
        ("60 * * * *", "schedule", "the minute is out of range"),
        ("*/0 * * * *", "schedule", "the minute is out of range"),
        ("0 24 * * *", "schedule", "the hour is out of range"),
        ("0 0 * 13 *", "schedule", "the month is out of range"),
        ("0 0 * * FRI-MON", "schedule", "the day of week is out of range"),
        ("0 0 * * MAR", "schedule", "the day of week is out of range"),
        ("0 0 30 2 *", "schedule", "the day of month is out of range or never occurs"),
        ("0 0 31 4,6 */2", "schedule", "the day of month is out of range or never occurs"),
        ("0,1 " * 30, "schedule", f"at most {MAX_EXPRESSION} characters"),
    ],
)
def test_what_is_wrong_is_named_with_an_example(expression: str, setting: str, words: str) -> None:
    with pytest.raises(BadScheduleError, match=words) as caught:
        Schedule(expression)
    assert caught.value.setting == setting
    assert "30 3 * * MON-FRI" in str(caught.value) or str(MAX_EXPRESSION) in str(caught.value)


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "europe/berlin", "../zones", "/etc/passwd", "Europe", "zone.tab"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(BadScheduleError, match="Europe/Berlin") as caught:
        Schedule("0 0 * * *", zone)
    assert caught.value.setting == "timezone"


def test_every_zone_can_be_read() -> None:
    for zone in TIME_ZONES:
        assert Schedule("0 0 * * *", zone).next_after(NEW_YEAR) <= NEW_YEAR + timedelta(days=2)


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-03-29T00:00+01:00", "2026-03-29T03:00+02:00", id="skipped"),
        pytest.param("0,30 2 * * *", "Europe/Berlin", "2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00", id="once"),
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-10-25T00:00+02:00", "2026-10-25T02:30+02:00", id="first"),
        pytest.param(
            "45 2 * * *", "Europe/Berlin", "2026-10-25T02:30+01:00", "2026-10-26T02:45+01:00", id="second pass"
        ),
        pytest.param(
            "*/30 2 * * *", "Europe/Berlin", "2026-10-25T02:30+02:00", "2026-10-25T02:00+01:00", id="real time"
        ),
        pytest.param("0 0 29 2 *", "UTC", "2026-01-01T00:00+00:00", "2028-02-29T00:00+00:00", id="leap day"),
        pytest.param("0 0 * * 7", "UTC", "2026-11-22T00:00+00:00", "2026-11-29T00:00+00:00", id="Sunday is 7 too"),
        pytest.param("0 0 13 * FRI", "UTC", "2026-11-20T00:00+00:00", "2026-11-27T00:00+00:00", id="one of both days"),
        pytest.param("0 0 */2 * FRI", "UTC", "2026-11-20T00:00+00:00", "2026-11-27T00:00+00:00", id="both days"),
        pytest.param("0 0 * * *", "UTC", "2026-11-19T23:59:59.999+00:00", "2026-11-20T00:00+00:00", id="fractions"),
    ],
)
def test_the_next_time(expression: str, zone: str, after: str, expected: str) -> None:
    assert Schedule(expression, zone).next_after(at(after)) == at(expected)


def test_the_calendar_ends() -> None:
    last = datetime(9999, 12, 31, 23, 58, tzinfo=UTC)
    assert Schedule("* * * * *").upcoming(last, 5) == [last + timedelta(minutes=1)]
    assert Schedule("* * * * *", "Asia/Tokyo").upcoming(last, 5) == []


@pytest.mark.parametrize(
    ("expression", "gap"),
    [
        ("* * * * *", timedelta(minutes=1)),
        ("*/50 * * * *", timedelta(minutes=10)),
        ("0,59 0,23 * * *", timedelta(minutes=1)),
        ("0,59 0,23 * * MON", timedelta(minutes=59)),
        ("0 3 * * *", timedelta(days=1)),
        ("0 3 * * MON,THU", timedelta(days=3)),
        ("0,59 0,23 1,31 1,12 *", timedelta(minutes=1)),
        ("0 0 1 1 *", timedelta(days=365)),
    ],
)
def test_the_least_gap(expression: str, gap: timedelta) -> None:
    assert Schedule(expression).least_gap() == gap


@given(expressions(), st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_no_two_runs_are_closer_than_the_least_gap(expression: str, start: datetime) -> None:
    schedule = Schedule(expression)
    times = schedule.upcoming(start, 20)
    assert all(later - earlier >= schedule.least_gap() for earlier, later in pairwise(times))


def test_an_expression_in_words() -> None:
    assert Schedule("30 3 * * MON-FRI").in_words() == "At 03:30 on Monday through Friday"

"""Parsing and formatting durations for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("60", 60_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        (" 1h 30m ", 5_400_000),
        ("1h30m", 5_400_000),
        ("1 hour and 30 minutes", 5_400_000),
        ("1 hour, 30 minutes", 5_400_000),
        ("0.5 s", 500),
        ("0,5s", 500),
        (".5s", 500),
        ("800ms", 800),
        ("1500 ms", 1_500),
        ("1.5 H", 5_400_000),
        ("2 days", 172_800_000),
        ("1w", 604_800_000),
        ("0", 0),
    ],
)
def test_what_is_read(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "often",
        "5x",
        "m",
        "-5m",
        "5m 3",
        "5 5m",
        "1e9",
        "\N{ARABIC-INDIC DIGIT FIVE}m",
        "²",
        "5m!",
        "nan",
        "1..5s",
        "9" * 41,
        "5\x00m",
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (1, "0.001s"),
        (500, "0.5s"),
        (1_500, "1.5s"),
        (60_000, "1m"),
        (90_000, "1m 30s"),
        (3_600_000, "1h"),
        (5_400_000, "1h 30m"),
        (86_400_000, "1d"),
        (100_000, "1m 40s"),
    ],
)
def test_how_it_is_said(ms: int, text: str) -> None:
    assert format_duration(ms) == text


@given(st.integers(min_value=0, max_value=2_147_483_647_000))
def test_what_is_said_is_read_back(ms: int) -> None:
    assert parse_duration(format_duration(ms)) == ms

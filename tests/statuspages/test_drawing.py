"""Drawing of day bars, and its validation."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statuspages import bars, validation

PERCENTS = st.lists(st.one_of(st.none(), st.sampled_from([100.0, 99.99, 95.0, 94.99, 0.0])), min_size=1, max_size=90)
BOX = re.compile(r"M(\d+) (\d+)h(\d+)v(\d+)H(\d+)z")


@given(PERCENTS)
def test_every_day_is_drawn_as_what_it_is(percents: list[float | None]) -> None:
    drawn: dict[str, dict[int, int]] = {}
    for name, path in re.findall(r'class="(\S+)" d="([^"]+)"', bars.svg(percents)):
        for x, y, width, height, back in BOX.findall(path):
            assert x == back
            assert int(y) + int(height) == bars.HEIGHT
            drawn.setdefault(name, {}).update(dict.fromkeys(range(int(x), int(x) + int(width)), int(height)))
    for day, percent in enumerate(percents):
        kinds = {name: days[day] for name, days in drawn.items() if day in days}
        if percent is None:
            assert kinds == {"fill-none": bars.HEIGHT}
        elif percent == 100:
            assert kinds == {"fill-up": bars.HEIGHT}
        elif percent >= bars.BAD:
            assert kinds == {"fill-up": bars.HEIGHT, "fill-down": bars.FOOT}
        else:
            assert kinds == {"fill-down": bars.HEIGHT}


@given(PERCENTS)
def test_the_script_can_identify_each_day(percents: list[float | None]) -> None:
    told: list[float | None] = [100.0] * len(percents)
    for part in bars.bad_days(percents).split():
        place, value = part.split(":")
        start, _, end = place.partition("-")
        for day in range(int(start), int(end or start) + 1):
            told[day] = None if value == "-" else float(value)
    assert told == percents


@given(st.from_regex(r"\A#[0-9a-f]{6}\Z"))
def test_an_accent_is_seen_on_both_themes_and_text_on_it_is_read(colour: str) -> None:
    assert validation.contrast(colour, validation.text_on(colour)) >= 4.5
    try:
        accepted = validation.check_accent(colour.upper())
    except ValueError:
        assert min(validation.contrast(colour, ground) for ground in validation.BACKGROUNDS) < validation.ENOUGH
    else:
        assert accepted == colour
        assert min(validation.contrast(colour, ground) for ground in validation.BACKGROUNDS) >= validation.ENOUGH


def test_contrast_is_that_of_wcag() -> None:
    assert validation.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert validation.contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)

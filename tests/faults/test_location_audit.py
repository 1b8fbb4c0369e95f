"""The audit of `tests.faults.locations`, without playing anything."""

from __future__ import annotations

import pytest

from tests.faults.location_audit import Change, Found, Limits, Outage, audit, percentile

LIMITS = Limits(interval_sec=10, confirmation_sec=15, slack_sec=5)
REAL, SHORT = Outage(100.0, 140.0), Outage(100.0, 110.0)
DOWN, UP = Change(120.0, 121.0, down=True), Change(145.0, 146.0, down=False)
BOTH = ["down", "recovered"]


def found(outages: list[Outage], changes: list[Change], alerts: list[str]) -> Found:
    return audit([1], {1: outages}, {1: changes}, {1: alerts}, limits=LIMITS, end=300.0)


def figures(result: Found) -> dict[str, int]:
    return {name: value for name, value in vars(result).items() if isinstance(value, int) and value}


def test_a_recorded_outage() -> None:
    result = found([REAL], [DOWN, UP], BOTH)
    assert (figures(result), result.errors, result.detection_sec) == ({}, [], [21.0])


def test_a_short_outage_that_left_no_trace() -> None:
    assert figures(found([SHORT], [], [])) == {}


def test_an_outage_that_may_be_too_short_to_be_recorded() -> None:
    assert figures(found([Outage(100.0, 120.0)], [], [])) == {}


def test_outages_one_after_the_other() -> None:
    later = [Change(220.0, 221.0, down=True), Change(245.0, 246.0, down=False)]
    result = found([REAL, Outage(200.0, 240.0)], [DOWN, UP, *later], BOTH * 2)
    assert (figures(result), result.detection_sec) == ({}, [21.0, 21.0])


@pytest.mark.parametrize(
    ("outages", "changes", "alerts", "expected"),
    [
        ([], [DOWN, UP], [], {"false_downs": 1}),
        ([SHORT], [DOWN, UP], BOTH, {"false_downs": 1, "alerts_for_short_outages": 1}),
        ([], [], BOTH, {"false_alerts": 1}),
        ([REAL], [Change(146.0, 147.0, down=True), Change(150.0, 151.0, down=False)], [], {"false_downs": 1}),
        ([REAL], [], [], {"lost_changes": 1}),
        ([REAL], [DOWN], BOTH, {"lost_changes": 1}),
        ([REAL, Outage(200.0, 240.0)], [DOWN, UP], BOTH, {"lost_changes": 1}),
        ([REAL], [DOWN, Change(130.0, 130.5, down=False), UP], BOTH, {"false_ups": 1}),
        ([REAL], [DOWN, UP], ["recovered"], {"lost_alerts": 1}),
        ([REAL], [DOWN, UP], [*BOTH, "down"], {"false_alerts": 1}),
    ],
)
def test_what_does_not_fit(
    outages: list[Outage], changes: list[Change], alerts: list[str], expected: dict[str, int]
) -> None:
    result = found(outages, changes, alerts)
    if "lost_changes" in expected or "false_downs" in expected:
        assert figures(result).items() >= expected.items()
    else:
        assert figures(result) == expected
    assert result.errors


def test_an_outage_that_goes_on_at_the_end() -> None:
    assert figures(found([Outage(200.0)], [], [])) == {"lost_changes": 1}


def test_percentiles() -> None:
    assert percentile([], 0.95) is None
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([float(number) for number in range(1, 101)], 0.95) == 95.0

"""The plays and their limits, without playing them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.faults.plays import all_plays, broken
from tests.metrics.prometheus import FOLDER

GOOD: dict[str, Any] = {
    "false_downs": 0,
    "missed": 0,
    "false_missed": 0,
    "reported_s": {"readyz": 1.0, "rule": 40.0, "system_health": 1.0},
    "coverage": {"before": 1.0, "during": 0.5, "after": 1.0, "dropped_s": 20.0},
}


def test_nothing_is_broken() -> None:
    assert broken(GOOD, stops=True) == []


@pytest.mark.parametrize("name", ["false_downs", "missed", "false_missed"])
def test_a_false_or_missed_change_breaks_a_limit(name: str) -> None:
    assert broken(GOOD | {name: 1}, stops=True) == [name]


def test_a_silent_reporter_breaks_a_limit() -> None:
    assert broken(GOOD | {"reported_s": GOOD["reported_s"] | {"rule": None}}, stops=True) == ["reported by rule"]


@pytest.mark.parametrize(("stops", "expected"), [(True, ["coverage falls"]), (False, [])])
def test_coverage_has_to_fall_where_checks_stop(stops: bool, expected: list[str]) -> None:
    assert broken(GOOD | {"coverage": GOOD["coverage"] | {"dropped_s": None}}, stops=stops) == expected


def test_coverage_has_to_be_complete_around_a_play() -> None:
    coverage = GOOD["coverage"] | {"before": 0.9, "after": None}
    assert broken(GOOD | {"coverage": coverage}, stops=True) == ["coverage before", "coverage after"]


def test_the_rules_of_plays_exist() -> None:
    [group] = yaml.safe_load((FOLDER / "pulsekeeper.rules.yml").read_text())["groups"]
    rules = {rule["alert"] for rule in group["rules"] if "alert" in rule}
    assert {name for play in all_plays().values() for name in play.rule.split("|")} <= rules

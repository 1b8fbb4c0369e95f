"""The history in a database of its own: readers and steps are those of one database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings

from tests.checks import test_erasure, test_packing, test_rollups
from tests.helpers import examples


@pytest.fixture(autouse=True, scope="module")
def _two(second_database: None) -> None:
    """Tests of the base classes too."""


@pytest.mark.django_db(databases="__all__")
@hypothesis_settings(max_examples=examples(2), deadline=None, phases=[Phase.reuse, Phase.generate])
@test_packing.any_history
def test_readers_see_no_difference(**example: int) -> None:
    test_packing.compare_readers(**example)


@pytest.fixture
def hours(restored_partitions: None) -> Iterator[None]:
    with test_packing.hours_of_results():
        yield


class TestSteps(test_packing.TestSteps):
    pass


class TestHours(test_rollups.TestHours):
    pass


class TestParts(test_rollups.TestParts):
    pass


class TestBesideEachOther(test_rollups.TestBesideEachOther):
    pass


@pytest.mark.django_db(databases="__all__")
def test_all_that_is_left_of_a_monitor_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    test_erasure.test_all_that_is_left_of_a_monitor_goes(monkeypatch)


@pytest.mark.usefixtures("restored_partitions")
@pytest.mark.django_db(transaction=True, databases="__all__")
def test_two_at_once_beside_roll_ups() -> None:
    test_erasure.test_two_at_once_beside_roll_ups()

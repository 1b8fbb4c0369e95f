"""The history in a database of its own: readers and steps are those of one database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings

from checks.results.models import CheckResult
from checks.results.packing import pack
from checks.results.store import NewResult, store_results, stored_claims
from checks.spec import Verdict
from tests.checks import test_erasure, test_packing, test_rollups
from tests.databases import refused_history
from tests.helpers import examples, outcome


@pytest.fixture(autouse=True, scope="class")
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


@pytest.mark.usefixtures("hours")
@pytest.mark.django_db(transaction=True, databases="__all__")
def test_a_result_that_is_repeated_while_the_history_is_away_is_packed_once() -> None:
    at = test_packing.HOURS[0][0] + timedelta(minutes=5)
    test_packing.store(at, claim=7, down=True)
    test_packing.roll_all_up(test_packing.PACKABLE)
    pack(test_packing.PACKABLE)
    again = NewResult(3, 7, outcome(Verdict.DOWN, at=at))
    assert stored_claims([again]) == {(3, 7)}
    with refused_history():
        assert stored_claims([again]) == set()
        store_results([again])
    pack(test_packing.PACKABLE)
    assert test_packing.claims() == [7]
    assert test_packing.counted() == 1
    assert not CheckResult.objects.exists()

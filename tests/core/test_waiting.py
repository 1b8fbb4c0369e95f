"""Places for requests that wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from core import waiting
from core.errors import TooManyRequests
from core.waiting import HELD, PRESENT, PRESENT_IN_PROCESS, waiting_place
from tests.processes.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SEC = 30


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SEC", 0.01)


@pytest.mark.usefixtures("impatient")
def test_an_account_holds_few_places_and_others_are_let_in() -> None:
    with ExitStack() as held:
        for _ in range(HELD):
            held.enter_context(waiting_place("attacker"))
        with pytest.raises(TooManyRequests) as refused, waiting_place("attacker"):
            pass
        assert refused.value.wait
        with waiting_place("neighbour"):
            pass
    with waiting_place("attacker"):
        pass
    assert not waiting._held
    assert not waiting._present


@pytest.mark.usefixtures("impatient")
def test_all_accounts_together_hold_fewer_places_than_there_are_threads() -> None:
    with ExitStack() as held:
        for number in range(PRESENT_IN_PROCESS):
            held.enter_context(waiting_place(f"account {number}"))
        with pytest.raises(TooManyRequests), waiting_place("one more"):
            pass


def test_a_burst_waits_for_its_turn_and_what_is_beyond_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SEC", PATIENCE_SEC)
    go = threading.Event()

    def wait() -> str:
        with waiting_place("account"):
            assert go.wait(PATIENCE_SEC)
            return "served"

    with ThreadPoolExecutor(PRESENT) as pool:
        served = [pool.submit(wait) for _ in range(PRESENT)]
        try:
            until(lambda: waiting._present["account"] == PRESENT, PATIENCE_SEC, "the burst is there")
            assert waiting._held["account"] == HELD
            with pytest.raises(TooManyRequests), waiting_place("account"):
                pass
        finally:
            go.set()
        assert {one.result(PATIENCE_SEC) for one in served} == {"served"}


@pytest.mark.usefixtures("impatient")
def test_an_error_gives_the_place_back() -> None:
    for _ in range(2 * HELD):
        with pytest.raises(ValueError, match="broke"), waiting_place("account"):
            raise ValueError("broke")
    assert not waiting._present

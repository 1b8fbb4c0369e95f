"""Places for requests that wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from core import waiting
from core.errors import TooManyRequests
from core.waiting import MAX_ACTIVE, MAX_IN_PROCESS, MAX_PRESENT, limit_waiting
from tests.processes.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE_SEC = 30


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SEC", 0.01)


@pytest.mark.usefixtures("impatient")
def test_an_account_holds_few_places_and_others_are_let_in() -> None:
    with ExitStack() as held:
        for _ in range(MAX_ACTIVE):
            held.enter_context(limit_waiting("attacker"))
        with pytest.raises(TooManyRequests) as refused, limit_waiting("attacker"):
            pass
        assert refused.value.wait
        with limit_waiting("neighbour"):
            pass
    with limit_waiting("attacker"):
        pass
    assert not waiting._active
    assert not waiting._present


@pytest.mark.usefixtures("impatient")
def test_all_accounts_together_hold_fewer_places_than_there_are_threads() -> None:
    with ExitStack() as held:
        for number in range(MAX_IN_PROCESS):
            held.enter_context(limit_waiting(f"account {number}"))
        with pytest.raises(TooManyRequests), limit_waiting("one more"):
            pass


def test_a_burst_waits_for_its_turn_and_what_is_beyond_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SEC", PATIENCE_SEC)
    go = threading.Event()

    def wait() -> str:
        with limit_waiting("account"):
            assert go.wait(PATIENCE_SEC)
            return "served"

    with ThreadPoolExecutor(MAX_PRESENT) as pool:
        served = [pool.submit(wait) for _ in range(MAX_PRESENT)]
        try:
            until(lambda: waiting._present["account"] == MAX_PRESENT, PATIENCE_SEC, "the burst is there")
            assert waiting._active["account"] == MAX_ACTIVE
            with pytest.raises(TooManyRequests), limit_waiting("account"):
                pass
        finally:
            go.set()
        assert {one.result(PATIENCE_SEC) for one in served} == {"served"}


@pytest.mark.usefixtures("impatient")
def test_a_block_may_run_once_for_each_account() -> None:
    with ExitStack() as held:
        for account in ("attacker", "neighbour"):
            held.enter_context(limit_waiting(account, most=1))
        with pytest.raises(TooManyRequests), limit_waiting("attacker", most=1):
            pass


@pytest.mark.usefixtures("impatient")
def test_an_error_gives_the_place_back() -> None:
    for _ in range(2 * MAX_ACTIVE):
        with pytest.raises(ValueError, match="broke"), limit_waiting("account"):
            raise ValueError("broke")
    assert not waiting._present

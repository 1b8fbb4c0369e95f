"""Password guessing from many addresses at once, and its effect on other people who sign in."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from tests.attacks.conftest import Stage
from tests.processes.client import PASSWORD
from tests.processes.waiting import until

PATIENCE_SEC = 60
ADDRESSES = 10
AT_A_TIME = 8
"""Requests of each address. Together as many as an address may send in a minute, or fewer."""
ATTEMPTS = 2


def sign_in(stage: Stage, email: str, password: str, *, address: str) -> requests.Response:
    """Sign in from another address of the loopback network."""
    with requests.Session() as session:
        session.mount("http://", From(address))
        body = {"email": email, "password": password}
        return session.post(f"{stage.address}/v1/sessions", json=body, timeout=PATIENCE_SEC)


class From(requests.adapters.HTTPAdapter):
    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, source_address=(self._address, 0))


def test_ten_addresses_delay_a_sign_in_by_little_and_refuse_none(stage: Stage) -> None:
    """The attempts are for the account of the victim, and for none."""
    statuses: Counter[int] = Counter()
    counting = threading.Lock()
    begun = threading.Barrier(ADDRESSES * AT_A_TIME + 1)

    def attack(number: int) -> None:
        begun.wait(PATIENCE_SEC)
        for attempt in range(ATTEMPTS):
            email = "neighbour@example.com" if attempt else f"{number}@example.com"
            answer = sign_in(stage, email, "wrong", address=f"127.0.0.{100 + number % ADDRESSES}")
            with counting:
                statuses[answer.status_code] += 1

    with ThreadPoolExecutor(ADDRESSES * AT_A_TIME) as pool:
        attacks = [pool.submit(attack, number) for number in range(ADDRESSES * AT_A_TIME)]
        begun.wait(PATIENCE_SEC)
        until(lambda: statuses[401] >= ADDRESSES, PATIENCE_SEC, "the attack has started")
        before = statuses[401]
        answer = sign_in(stage, "neighbour@example.com", PASSWORD, address="127.0.0.50")
        meanwhile = statuses[401] - before
        for one in attacks:
            one.result(PATIENCE_SEC)
    assert answer.status_code == 201, answer.text
    assert meanwhile <= ADDRESSES * AT_A_TIME // 4, "it did not wait for all of them"
    assert set(statuses) == {401, 429}
    assert requests.get(f"{stage.address}/readyz", timeout=PATIENCE_SEC).status_code == 200

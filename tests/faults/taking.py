"""Plays the receiver of the alerts: slow now and then, and not always willing."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass

from tests.alerts.receiver import Call

REFUSED = 0.2
SLOWEST_SEC = 1.0


@dataclass(frozen=True)
class Try:
    """A message as it came, by the clock of this machine. `status` None: the sender was hung up on."""

    at: float
    call: Call
    status: int | None

    @property
    def taken(self) -> bool:
        return self.status == 200


class Taker:
    """Decides about each call, which it keeps in `tries`. Takes all of them once it is `willing`."""

    def __init__(self, seed: int) -> None:
        self.tries: list[Try] = []
        self.willing = False
        self._dice = random.Random(seed)
        self._lock = threading.Lock()

    def __str__(self) -> str:
        times = Counter(each.call.key for each in self.tries if each.taken)
        again = sum(count > 1 for count in times.values())
        refused = sum(not each.taken for each in self.tries)
        return f"{len(times)} messages taken, {again} of them again, and {refused} tries refused"

    def __call__(self, call: Call) -> int | None:
        with self._lock:
            refused = self._dice.random() < REFUSED and not self.willing
            status = self._dice.choice([500, None]) if refused else 200
            delay = self._dice.uniform(0, SLOWEST_SEC)
            self.tries.append(Try(time.time(), call, status))
        # What it will answer is settled: a sender that is killed while it waits must come again with the same key.
        time.sleep(delay)
        return status

"""The receiver of alerts: sometimes slow, and it sometimes refuses."""

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
class ReceivedAlert:
    """A message as received, by the clock of this machine. `status` is None if the connection was closed."""

    at: float
    call: Call
    status: int | None

    @property
    def accepted(self) -> bool:
        return self.status == 200


class AlertConsumer:
    """Accept or refuse each call and keep it in `received`. Accept every call once `accept_all` is set."""

    def __init__(self, seed: int) -> None:
        self.received: list[ReceivedAlert] = []
        self.accept_all = False
        self._dice = random.Random(seed)
        self._lock = threading.Lock()

    def __str__(self) -> str:
        times = Counter(each.call.key for each in self.received if each.accepted)
        again = sum(count > 1 for count in times.values())
        refused = sum(not each.accepted for each in self.received)
        return f"{len(times)} messages accepted, {again} of them repeated, {refused} attempts refused"

    def __call__(self, call: Call) -> int | None:
        with self._lock:
            refused = self._dice.random() < REFUSED and not self.accept_all
            status = self._dice.choice([500, None]) if refused else 200
            delay = self._dice.uniform(0, SLOWEST_SEC)
            self.received.append(ReceivedAlert(time.time(), call, status))
        # The answer is fixed by now: a sender that is killed while it waits must retry with the same key.
        time.sleep(delay)
        return status

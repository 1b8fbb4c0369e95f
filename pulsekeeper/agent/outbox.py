"""Results that wait to be sent."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from checks.agent_protocol import MAX_EVIDENCE_BYTES, MAX_RESULTS, MAX_RESULTS_BYTES, Found, found
from checks.spec import CheckOutcome
from core.text import counted

logger = logging.getLogger(__name__)

MOST_WAITING = 10_000
LINGER_SEC = 0.2  # results this close together are sent together, as each request costs CPU
_MAX_MS = 2_147_483_647
_START, _END = b'{"results":[', b"]}"


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The outcome of a check whose lease came at `taken_at`, and which ended at `ended_at` of the monotonic clock."""

    lease: str = field(repr=False)
    outcome: CheckOutcome
    taken_at: float
    ended_at: float


class Outbox:
    """A queue for one reader. The oldest results leave it first if too many wait."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.closing = threading.Event()
        self._most = most
        self._waiting: deque[Result] = deque()
        self._lost = 0
        self._changed = threading.Condition()

    def put(self, result: Result) -> None:
        with self._changed:
            self._waiting.append(result)
            self._trim()
            self._changed.notify()

    def put_back(self, results: Sequence[Result]) -> None:
        """Return results that `take` returned, before those that came since."""
        with self._changed:
            self._waiting.extendleft(reversed(results))
            self._trim()

    def take(self) -> list[Result]:
        """Wait for results, and remove and return the oldest: none only after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.closing.is_set())
        if len(self) < MAX_RESULTS:
            self.closing.wait(LINGER_SEC)
        with self._changed:
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_RESULTS))]

    def close(self) -> None:
        """Let `take` return at once from now on."""
        self.closing.set()
        with self._changed:
            self._changed.notify()

    def __len__(self) -> int:
        return len(self._waiting)

    def _trim(self) -> None:
        while len(self._waiting) > self._most:
            self._waiting.popleft()
            self._lost += 1
            if self._lost.bit_count() == 1:  # the first, and whenever their number has doubled
                logger.error("%s dropped: too many wait to be sent", counted(self._lost, "result"))


def request_of(results: Sequence[Result], *, now: float) -> tuple[bytes, int]:
    """Return the body of a request at this time of the monotonic clock, and how many of the results it has."""
    parts: list[bytes] = []
    size = len(_START) + len(_END)
    for result in results:
        part = _encoded(result, now)
        size += len(part) + 1
        if parts and size > MAX_RESULTS_BYTES:
            break
        parts.append(part)
    return _START + b",".join(parts) + _END, len(parts)


def _encoded(result: Result, now: float) -> bytes:
    """Return one result as JSON, without what is too large to be sent."""
    age_ms, took_ms = (min(int((now - since) * 1000), _MAX_MS) for since in (result.ended_at, result.taken_at))
    whole = found(result.lease, result.outcome, age_ms=age_ms, took_ms=took_ms)
    try:
        if len(msgspec.json.encode(whole.evidence)) > MAX_EVIDENCE_BYTES:
            whole.evidence = None
        encoded = msgspec.json.encode(whole)
        if len(_START) + len(encoded) + len(_END) <= MAX_RESULTS_BYTES:
            return encoded
    except UnicodeEncodeError:  # a text of the target that is no Unicode
        pass
    reason = "Pulsekeeper could not run this check: its result cannot be sent."
    return msgspec.json.encode(Found(result.lease, age_ms, took_ms, detail=reason))

"""Distinguish failures of this process's own network from those of targets, by servers that should always answer."""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from checks.spec import CheckOutcome
from checks.verdict import failed, own_fault
from core.egress import Network, literal_address

logger = logging.getLogger(__name__)

ANSWER_SEC = 2.0
"""Timeout of connecting to a server."""
NO_SEC = 5.0
"""How long a negative answer is cached."""
_APART_SEC = 1.0
"""Minimum time from a positive answer to the next test, regardless of how many checks fail."""

RETRY_SEC = 8.0
"""When a check that failed by our own network is repeated."""
_NO_NETWORK = own_fault("its own network is down")

Then = Callable[[], object]
_Question = tuple[float, Then, Then]


class OwnNetwork:
    """Test whether any of these servers (host, port) accepts a connection. For use in any thread.

    Failures are not suppressed until a server has answered once: a firewall may block them all.
    """

    def __init__(self, servers: Sequence[tuple[str, int]]) -> None:
        self.servers = servers
        self.is_down = False
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._back_at = 0.0
        self._have_answered: set[tuple[str, int]] = set()
        self._connecting: set[tuple[str, int]] = set()
        if servers:
            # The same threads all the time: one that cannot be started would stop all decisions.
            self._pool = ThreadPoolExecutor(len(servers), thread_name_prefix="own-network")

    def is_silent(self, server: tuple[str, int]) -> bool:
        """Return whether the server has never answered."""
        return server not in self._have_answered

    def judge(self, began_at: float, *, ours: Then, theirs: Then, asks: bool) -> None:
        """Call `ours` if a check failed by our own network, else `theirs`: at once, or soon in another thread.

        The check began at this time of the monotonic clock and has just ended. If not `asks`, what is known decides.
        """
        if self._is_ours(began_at):
            ours()
        elif asks and self._have_answered:
            self._questions.put((began_at, ours, theirs))
        else:
            theirs()

    def _is_ours(self, began_at: float) -> bool:
        return self.is_down or began_at < self._back_at

    def close(self) -> None:
        """Ask no more. Checks that wait are never decided."""
        self._closing.set()
        self._questions.put(None)

    def run(self) -> None:
        """Answer questions until `close`, in a separate thread."""
        waiting: list[_Question] = []
        while self.servers:
            self._note(is_up=self._ask())
            for began_at, ours, theirs in waiting:
                # A check that failed while the network was asked has waited until it was back.
                (ours if self._is_ours(began_at) else theirs)()
            waiting = self._wait()
            if self._closing.is_set():
                self._pool.shutdown(wait=False)
                return

    def _wait(self) -> list[_Question]:
        """Return who waits for an answer, when it is time to ask. Later ones wait for the next."""
        # Also if none has answered yet: the network may come up after this process, and fail later.
        is_no = self.is_down or not self._have_answered
        asks_at = time.monotonic() + (NO_SEC if is_no else _APART_SEC)
        waiting = [] if is_no else [self._questions.get()]
        self._closing.wait(asks_at - time.monotonic())
        while not self._questions.empty():
            waiting.append(self._questions.get())
        return [each for each in waiting if each is not None]

    def _ask(self) -> bool:
        """Return whether a server accepts a connection."""
        # Without those whose names are still being looked up.
        asked = [server for server in self.servers if server not in self._connecting]
        self._connecting.update(asked)
        attempts = [self._pool.submit(self._connects, server) for server in asked]
        try:
            return any(attempt.result() for attempt in as_completed(attempts, timeout=ANSWER_SEC))
        except TimeoutError:
            return False

    def _connects(self, server: tuple[str, int]) -> bool:
        try:
            socket.create_connection(server, timeout=ANSWER_SEC).close()
        except OSError:
            return False
        else:
            self._have_answered.add(server)
            return True
        finally:
            self._connecting.discard(server)

    def _note(self, *, is_up: bool) -> None:
        if is_up and self.is_down:
            self._back_at = time.monotonic()
            logger.warning("our own network is back")
        elif not is_up and not self.is_down and self._have_answered:
            logger.error(
                "our own network is down: until one of CONNECTIVITY_TARGETS answers, no network failure counts"
            )
        self.is_down = not is_up and bool(self._have_answered)


def is_within(outcome: CheckOutcome, networks: Iterable[Network]) -> bool:
    """Return whether the target is in one of these networks, which our uplink does not lead to."""
    shown = None if outcome.evidence is None else outcome.evidence.address
    address = None if shown is None else literal_address(shown) or literal_address(shown.rpartition(":")[0].strip("[]"))
    return address is not None and any(address in network for network in networks)


def dropped(outcome: CheckOutcome, *, fires: bool) -> CheckOutcome:
    """Return that a check was not made, as our own network was down. `fires`: it is a trigger.

    A trigger that may have been sent must not be repeated.
    """
    found = failed(_NO_NETWORK, now=outcome.checked_at)
    found.postponed = None if fires and outcome.connect_ms is not None else RETRY_SEC
    return found

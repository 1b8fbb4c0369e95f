"""Distinguish failures of this process's own network from those of targets, by servers that should always answer."""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

from checks.probes.target import join_host_port
from core.metrics import Level

logger = logging.getLogger(__name__)

ANSWER_SEC = 2.0
"""Timeout of connecting to a server."""
NO_SEC = 5.0
"""How long a negative answer is cached."""
_APART_SEC = 1.0
"""Minimum time from a positive answer to the next test, regardless of how many checks fail."""

DOWN = Level("pulsekeeper_own_network_down", "Processes that check and whose own network is down.")
_SILENT = "own_network_silent,"

Then = Callable[[], object]
_Question = tuple[float, Then, Then]


class OwnNetwork:
    """Test whether any of these servers (host, port) accepts a connection. For use in any thread.

    Failures are not suppressed until a server has answered once: a firewall may block them all.
    """

    def __init__(self, servers: Sequence[tuple[str, int]]) -> None:
        self._servers = servers
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._is_down = False
        self._back_at = 0.0
        self._have_answered: set[tuple[str, int]] = set()
        self._connecting: set[tuple[str, int]] = set()
        if servers:
            DOWN.follow(lambda: self._is_down)
            for server in servers:
                silent = Level(_SILENT + join_host_port(*server), "")
                silent.follow(partial(lambda server: server not in self._have_answered, server))
            # The same threads all the time: one that cannot be started would stop all decisions.
            self._pool = ThreadPoolExecutor(len(servers), thread_name_prefix="own-network")

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
        return self._is_down or began_at < self._back_at

    def close(self) -> None:
        """Ask no more. Checks that wait are never decided."""
        self._closing.set()
        self._questions.put(None)

    def run(self) -> None:
        """Answer questions until `close`, in a separate thread."""
        waiting: list[_Question] = []
        while self._servers:
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
        is_no = self._is_down or not self._have_answered
        asks_at = time.monotonic() + (NO_SEC if is_no else _APART_SEC)
        waiting = [] if is_no else [self._questions.get()]
        self._closing.wait(asks_at - time.monotonic())
        while not self._questions.empty():
            waiting.append(self._questions.get())
        return [each for each in waiting if each is not None]

    def _ask(self) -> bool:
        """Return whether a server accepts a connection."""
        # Without those whose names are still being looked up.
        asked = [server for server in self._servers if server not in self._connecting]
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
        if is_up and self._is_down:
            self._back_at = time.monotonic()
            logger.warning("our own network is back")
        elif not is_up and not self._is_down and self._have_answered:
            logger.error(
                "our own network is down: until one of CONNECTIVITY_TARGETS answers, no network failure counts"
            )
        self._is_down = not is_up and bool(self._have_answered)


def silent_servers(levels: Mapping[str, float]) -> list[str]:
    """Return the servers that have never answered some process, out of what `core.metrics.read_levels` returned."""
    return sorted(name.removeprefix(_SILENT) for name, count in levels.items() if count and name.startswith(_SILENT))

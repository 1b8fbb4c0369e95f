"""Names to addresses, off the loop: in threads of our own, each name once, remembered for a short while.

libcurl's threaded resolver would do, but for two things: it looks up at most 20 names of a multi handle at a
time, so that 20 names whose servers hang would delay everybody else's check; and closing the handle waits for
lookups that nobody wants any more. pycurl 7.49 passes on neither option that would change this.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_REMEMBER_SECONDS = 30.0  # shorter than the shortest interval: every check may see a change of address
_MAX_REMEMBERED = 10_000
_MAX_THREADS = 256


@dataclass(frozen=True, slots=True)
class Answer:
    """`addresses` in libcurl's spelling, comma separated, in the order to try them; or `error`, a sentence."""

    addresses: str = ""
    error: str | None = None


def _look_up(host: str) -> Answer:
    try:
        # As bytes: Python's IDNA codec has opinions on names that are ASCII already.
        found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            return Answer(error=f"The name servers gave no answer for {host}; check its DNS.")
        return Answer(error=f"The name {host} has no address; check its spelling and its DNS.")
    except (OSError, ValueError):
        return Answer(error=f"The name {host} could not be resolved.")
    addresses = dict.fromkeys(
        # A scoped address is link-local, which no guard permits and libcurl's list cannot spell.
        (f"[{sockaddr[0]}]" if family == socket.AF_INET6 else str(sockaddr[0]))
        for family, _, _, _, sockaddr in found
        if "%" not in str(sockaddr[0])
    )
    if not addresses:
        return Answer(error=f"The name {host} has no address that can be used.")
    return Answer(addresses=",".join(addresses))


class Resolver:
    """Thread-safe; one for all loops of an engine. Its threads are daemons: a hung lookup holds up no exit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Answer]] = {}
        self._waiting: dict[str, list[Callable[[Answer], None]]] = {}
        self._backlog: deque[str] = deque()
        self._threads = 0

    def recall(self, host: str) -> Answer | None:
        """What is known of `host`, without waiting."""
        known = self._known.get(host)
        return known[1] if known is not None and known[0] > time.monotonic() else None

    def resolve(self, host: str, on_answer: Callable[[Answer], None]) -> None:
        """Looks `host` up; `on_answer` is called in another thread and must be quick and not raise."""
        with self._lock:
            waiting = self._waiting.get(host)
            if waiting is not None:
                waiting.append(on_answer)
                return
            self._waiting[host] = [on_answer]
            if self._threads >= _MAX_THREADS:
                self._backlog.append(host)
                return
            self._threads += 1
        try:
            threading.Thread(target=self._work, args=(host,), name="probe-resolver", daemon=True).start()
        except RuntimeError:  # the system has no thread left
            with self._lock:
                self._threads -= 1
                unanswered = self._waiting.pop(host)
            for call in unanswered:
                call(Answer(error=f"The name {host} could not be looked up; Pulsekeeper is out of threads."))

    def _work(self, host: str) -> None:
        while True:
            answer = _look_up(host)
            with self._lock:
                self._remember(host, answer)
                waiting = self._waiting.pop(host)
                following = self._backlog.popleft() if self._backlog else None
                if following is None:
                    self._threads -= 1
            for on_answer in waiting:
                on_answer(answer)
            if following is None:
                return
            host = following

    def _remember(self, host: str, answer: Answer) -> None:
        # A failure is not remembered: the next check asks anew, and an outage ends when it ends.
        if answer.error is not None:
            self._known.pop(host, None)
            return
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        self._known[host] = (time.monotonic() + _REMEMBER_SECONDS, answer)

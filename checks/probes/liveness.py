"""Find out whether our name servers answer at all, so that their silence is not mistaken for that of a zone.

A lookup without an answer after the first attempt causes a control query to all our name servers. Results of lookups
are not proof that a server is alive: c-ares may have one half of an answer in its cache.
"""

from __future__ import annotations

import math
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue

TRY_SECONDS = 0.25
"""The first try of a lookup."""
# The shortest timeout of a check is 1 s; its control query begins by TRY_SECONDS + _PAUSE_SECONDS.
_PAUSE_SECONDS = 0.1  # between two control queries, however many names have no answer
_REPEAT_SECONDS = 0.2
_TURNS = 5
_SILENT_TURNS = 2  # without an answer: one may be a lost packet
# The name servers of the root: every resolver knows them, and no tenant can make them silent.
_QUERY = struct.pack("!HHHHHBHH", 0x0100, 1, 0, 0, 0, 0, 2, 1)  # after the id: RD, one question, root, NS, IN
_MESSAGE_BYTES = 512
_NEVER = -math.inf


@dataclass(slots=True, eq=False)
class Wait:
    """A wait for an answer of our name servers, in monotonic seconds. `ended` is infinite while it lasts."""

    started: float = field(default_factory=time.monotonic)
    ended: float = math.inf

    @property
    def lasts(self) -> bool:
        return self.ended == math.inf

    def end(self) -> None:
        self.ended = min(self.ended, time.monotonic())


class Liveness:
    """Watches waits, with at most one control query at a time. Its thread does not delay the exit of the process."""

    def __init__(self, servers: Callable[[], Iterable[tuple[str, int]]]) -> None:
        """`servers` returns the addresses and ports to ask."""
        self._servers = servers
        self._waits: SimpleQueue[Wait] = SimpleQueue()
        # Written by the thread alone. The last silence, replaced as a whole: when it began, and until when it lasted.
        self._answered_at = _NEVER
        self._silence = (_NEVER, _NEVER)
        threading.Thread(target=self._watch, name="probe-liveness", daemon=True).start()

    def watch(self, wait: Wait) -> Wait:
        """Find out whether our name servers answer if this wait outlasts the first try. Return the wait."""
        self._waits.put(wait)
        return wait

    def was_silent(self, wait: Wait) -> bool:
        """Return whether our name servers were silent during a part of the wait, which says nothing about the name."""
        began, until = self._silence
        return wait.started < until and began < wait.ended

    def _watch(self) -> None:
        while True:
            wait = self._waits.get()
            due = wait.started + TRY_SECONDS
            if wait.lasts and self._answered_at < due:
                time.sleep(max(0.0, max(due, self._answered_at + _PAUSE_SECONDS) - time.monotonic()))
            if wait.lasts and self._answered_at < due:
                self._ask()

    def _ask(self) -> None:
        """Repeat the control query until a server answers. Any datagram is an answer, an ICMP message is none."""
        began = time.monotonic()
        query = os.urandom(2) + _QUERY
        with self._connected() as sockets:
            for turn in range(1, _TURNS + 1):
                for one in sockets:
                    with suppress(OSError):
                        one.send(query)
                answered = _await_datagram(sockets, began + turn * _REPEAT_SECONDS)
                now = time.monotonic()
                if turn - answered >= _SILENT_TURNS:  # not by the clock: this process may be the slow one
                    self._silence = (began, now)
                if answered:
                    self._answered_at = now
                    return

    @contextmanager
    def _connected(self) -> Iterator[list[socket.socket]]:
        """Open a socket for each server. One that cannot be reached by its family, or for lack of sockets, has none."""
        with ExitStack() as opened:
            sockets = []
            for address, port in self._servers():
                with suppress(OSError):
                    family = socket.AF_INET6 if ":" in address else socket.AF_INET
                    one = opened.enter_context(socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
                    one.connect((address, port))
                    sockets.append(one)
            yield sockets


def _await_datagram(sockets: Iterable[socket.socket], until: float) -> bool:
    """Return whether a datagram came before `until`, in monotonic seconds."""
    poll = select.poll()  # needs no descriptor
    for one in sockets:
        poll.register(one, select.POLLIN)
    while True:
        left = until - time.monotonic()
        ready = {fd for fd, _ in poll.poll(max(0.0, left) * 1000)}
        for one in sockets:
            if one.fileno() in ready:
                with suppress(OSError):  # refused, or a wrong checksum
                    one.recv(_MESSAGE_BYTES)
                    return True
        if left <= 0:
            return False

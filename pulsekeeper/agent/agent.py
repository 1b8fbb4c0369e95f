"""An agent: threads that lease checks, make them, and send what they found."""

from __future__ import annotations

import logging
import queue
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence

from checks.agent_protocol import LEASES, MAX_LEASES, MAX_VERSION, OFFLINE_SEC, POLL_SEC, RESULTS, Leases, Poll, Stored
from checks.own_network import OwnNetwork
from checks.probes.engine import ProbeEngine
from core.egress import Network
from core.text import counted
from core.version import product_version
from pulsekeeper.agent.outbox import Outbox, request_of
from pulsekeeper.agent.prober import Prober
from pulsekeeper.agent.server import Interrupted, Refused, Server, Trouble

logger = logging.getLogger(__name__)

GRACE_SEC = 2.5
"""How long running checks may go on after a signal."""
_DOWN_POLL_SEC = 1.0  # while our network is down
_ROOM_SEC, _ROOM_TRIES, _ANY_ROOM_TRIES = 0.05, 20, 2
"""How often a prober that is nearly full is asked for room: requests for a few leases each cost the server more."""
_ANSWER_SEC = 20.0
"""Time for an answer, with a new connection over a slow link, on which a round trip takes seconds."""
_LAST_SEND_SEC = 5.0
_FIRST_PAUSE_SEC, _MAX_PAUSE_SEC = 1.0, 30.0

Connect = Callable[[Callable[[], bool]], Server]
"""Returns a connection whose requests end when the function returns True."""


class Contact:
    """What happened to the requests of one thread: logs when they begin to fail, and when they are accepted again.

    A server that says when to send the request again is busy. That is logged only if the next one fails as well.
    """

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self._pause_sec = _FIRST_PAUSE_SEC
        self._failures = 0
        self._is_logged = False

    def accepted(self) -> None:
        if self._is_logged:
            logger.warning("the server accepts %s again", self._purpose)
        self._failures, self._is_logged, self._pause_sec = 0, False, _FIRST_PAUSE_SEC

    def failed(self, trouble: Trouble) -> float:
        """Return how long to wait before the next request."""
        self._failures += 1
        if not self._is_logged and (self._failures > 1 or not trouble.wait_sec):
            logger.error("the server accepts no %s: %s", self._purpose, trouble)
            self._is_logged = True
        pause_sec = self._pause_sec * random.uniform(0.75, 1.25)  # noqa: S311
        self._pause_sec = min(2 * self._pause_sec, _MAX_PAUSE_SEC)
        return max(trouble.wait_sec, pause_sec)


class Agent:
    """Serves a location until a signal comes. `connect` is called once for each thread."""

    def __init__(
        self, engine: ProbeEngine, network: OwnNetwork, allowed: Sequence[Network], *, connect: Connect
    ) -> None:
        self._network = network
        self._outbox = Outbox()
        self._prober = Prober(engine, network, allowed, is_online=self._is_online, done=self._outbox.put)
        self._stopping = threading.Event()
        self._accepted_at = time.monotonic()
        self._leases = connect(self._stopping.is_set)
        self._results = connect(lambda: False)
        # A signal handler may put into it at any time, unlike into an Event.
        self._ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run(self) -> None:
        """Return after SIGTERM or SIGINT. Raises what ended one of the threads, such as Revoked."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._ends.put(None))
        self._start(self._network.run)
        loop = self._start(self._prober.run)
        poller = self._start(self._poll)
        sender = self._start(self._send)
        if (end := self._ends.get()) is not None:
            raise end
        deadline = time.monotonic() + GRACE_SEC
        self._stopping.set()
        self._prober.close()
        loop.join(GRACE_SEC)
        poller.join(max(0.0, deadline - time.monotonic()))
        self._network.close()
        self._prober.give_back()
        self._outbox.close()
        sender.join(_LAST_SEND_SEC)
        if left := len(self._outbox):
            logger.error("%s could not be sent", counted(left, "result"))

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 (the main thread raises it)
                self._ends.put(error)

        thread = threading.Thread(target=run, name=work.__qualname__, daemon=True)
        thread.start()
        return thread

    def _is_online(self) -> bool:
        return time.monotonic() - self._accepted_at <= OFFLINE_SEC

    def _poll(self) -> None:
        contact = Contact("requests for checks")
        while not self._stopping.is_set():
            room, is_down = self._room(), self._network.is_down
            wait_sec = _DOWN_POLL_SEC if is_down else POLL_SEC if room else 0.0
            poll = Poll(room, product_version()[:MAX_VERSION], network_down=is_down, wait_sec=wait_sec)
            try:
                leased = self._leases.post(LEASES, poll, Leases, timeout_sec=wait_sec + _ANSWER_SEC)
            except Interrupted:
                continue
            except Trouble as trouble:
                self._stopping.wait(contact.failed(trouble))
                continue
            self._accepted_at = time.monotonic()
            contact.accepted()
            self._prober.take(leased.leases)

    def _room(self) -> int:
        """Return the room for leases. Wait 0.1 s if it is small, and 1 s if there is none.

        Results that wait to be sent use room too: leases must not come faster than results go.
        """
        for number in range(_ROOM_TRIES):
            room = max(0, self._prober.room - len(self._outbox))
            if room >= MAX_LEASES or (room and number >= _ANY_ROOM_TRIES):
                return room
            self._stopping.wait(_ROOM_SEC)
        return 0

    def _send(self) -> None:
        contact = Contact("results")
        while taken := self._outbox.take():
            body, count = request_of(taken, now=time.monotonic())
            self._outbox.put_back(taken[count:])
            is_last = self._outbox.closing.is_set()
            try:
                self._results.post(RESULTS, body, Stored, timeout_sec=_ANSWER_SEC)
            except Refused as refusal:
                logger.warning("%s dropped: %s", counted(count, "result"), refusal)
            except Trouble as trouble:
                self._outbox.put_back(taken[:count])
                if is_last:
                    return
                self._outbox.closing.wait(contact.failed(trouble))
            else:
                self._accepted_at = time.monotonic()
                contact.accepted()

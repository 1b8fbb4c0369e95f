"""Jobs that ping their heartbeats, one thread each, and retry until they get 200."""

from __future__ import annotations

import http.client
import random
import threading
import time
from dataclasses import dataclass, field

from tests.faults.script import PING_SEC, Part

TIMEOUT_SEC = 5.0
RETRY_SEC = 0.2


@dataclass(frozen=True)
class Attempt:
    """A ping, by the clock of this machine. If not `ok` (status 200), it may or may not have counted."""

    sent: float
    done: float
    ok: bool


@dataclass
class Job:
    """Ping while its part of the script is up, using `webs` (host:port) in turn."""

    part: Part
    path: str
    webs: tuple[str, ...]  # host:port
    start: float | None = None
    attempts: list[Attempt] = field(default_factory=list)

    def run(self, leaving: threading.Event) -> None:
        pause = random.Random(self.part.number).uniform(0, PING_SEC)
        while not leaving.wait(pause):
            pause = PING_SEC
            while self._is_up() and not self._ping() and not leaving.wait(RETRY_SEC):
                pass

    def _is_up(self) -> bool:
        return self.part.is_up(0.0 if self.start is None else time.time() - self.start)

    def _ping(self) -> bool:
        sent = time.time()
        web = self.webs[(self.part.number + len(self.attempts)) % len(self.webs)]
        connection = http.client.HTTPConnection(web, timeout=TIMEOUT_SEC)
        try:
            connection.request("POST", self.path)
            ok = connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            ok = False  # the web process is down, or died during the request
        finally:
            connection.close()
        self.attempts.append(Attempt(sent, time.time(), ok))
        return ok


class Jobs:
    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self._leaving = threading.Event()
        self._threads = [threading.Thread(target=job.run, args=(self._leaving,)) for job in jobs]

    def go(self) -> None:
        for thread in self._threads:
            thread.start()

    def begin(self, start: float) -> None:
        """Set the start of the run. Until then every job is in its first state."""
        for job in self.jobs:
            job.start = start

    def stop(self) -> None:
        self._leaving.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

"""Jobs that signal to their heartbeats, one thread each, and retry until they get 200."""

from __future__ import annotations

import http.client
import random
import threading
import time
import uuid
from dataclasses import dataclass, field

from tests.faults.script import PING_SEC, Part

TIMEOUT_SEC = 5.0
RETRY_SEC = 0.2
MAX_BODY_BYTES = 10_000


@dataclass(frozen=True)
class Attempt:
    """A signal, by the clock of this machine. If not `ok` (status 200), it may or may not have counted.

    `word` is the end of its path, and `name` its User-Agent, which no other attempt has.
    """

    sent: float
    done: float
    ok: bool
    word: str = ""
    rid: str | None = None
    body: str = ""
    name: str = ""

    @property
    def kind(self) -> str:
        if self.word in {"start", "log"}:
            return self.word
        return "success" if self.word in {"", "0"} else "fail"


@dataclass
class Job:
    """Signal runs while its part of the script is up, using `webs` (host:port) in turn."""

    part: Part
    path: str
    webs: tuple[str, ...]  # host:port
    start: float | None = None
    attempts: list[Attempt] = field(default_factory=list)

    def run(self, leaving: threading.Event) -> None:
        dice = random.Random(self.part.number)
        pause = dice.uniform(0, PING_SEC)
        was_up = False
        while not leaving.wait(pause):
            pause = PING_SEC
            if self._is_up():
                was_up = True
                self._run_once(dice, leaving)
            elif was_up and self.part.reports:
                was_up = False
                self._signal(dice.choice(["fail", "7"]), leaving, body="out of disk" * 1_000, while_up=False)

    def _run_once(self, dice: random.Random, leaving: threading.Event) -> None:
        """Signal a run: only its success, or also its start, an id, or logs."""
        shape = dice.choice(["ping", "ping", "start", "rid", "log", "body"])
        rid = str(uuid.UUID(int=dice.getrandbits(128))) if shape == "rid" else None
        if shape in {"start", "rid"}:
            self._signal("start", leaving, rid=rid)
            leaving.wait(dice.uniform(0.0, 0.5))
        if shape == "log":
            self._signal("log", leaving, body="line\n" * dice.randrange(1, 500))
        word = dice.choice(["", "0"])
        self._signal(word, leaving, rid=rid, body="é" * dice.randrange(1, 9_000) if shape == "body" else "")

    def _signal(
        self, word: str, leaving: threading.Event, *, rid: str | None = None, body: str = "", while_up: bool = True
    ) -> None:
        """Repeat the signal until it is answered, as long as the job is in this state."""
        while self._is_up() is while_up and not self._attempt(word, rid, body) and not leaving.wait(RETRY_SEC):
            pass

    def _is_up(self) -> bool:
        return self.part.is_up(0.0 if self.start is None else time.time() - self.start)

    def _attempt(self, word: str, rid: str | None, body: str) -> bool:
        sent = time.time()
        web = self.webs[(self.part.number + len(self.attempts)) % len(self.webs)]
        name = f"job-{self.part.number}-{len(self.attempts)}"
        path = self.path + (f"/{word}" if word else "") + (f"?rid={rid}" if rid else "")
        connection = http.client.HTTPConnection(web, timeout=TIMEOUT_SEC)
        try:
            connection.request("POST", path, body=body.encode(), headers={"User-Agent": name})
            ok = connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            ok = False  # the web process is down, or died during the request
        finally:
            connection.close()
        self.attempts.append(Attempt(sent, time.time(), ok, word, rid, body, name))
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

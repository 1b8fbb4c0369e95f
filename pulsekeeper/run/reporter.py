"""Signals to a heartbeat: the start of a run, and its end. Nothing here raises or delays the run.

A ping URL is a secret: no message contains it.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from urllib.parse import urlsplit
from uuid import uuid4

ATTEMPT_SEC = 10.0
MAX_PAUSE_SEC = 10.0


class Reporter(threading.Thread):
    """Sends the start of a run in the background, and then its end. Both have one rid."""

    def __init__(self, ping_url: str, *, patience_sec: float) -> None:
        super().__init__(name="reporter", daemon=True)  # a resolver that hangs cannot be interrupted
        self.problem: str | None = "the server does not answer in time"
        """Why the end was not delivered, or None."""
        self._url = ping_url
        self._rid = uuid4()
        self._patience_sec = patience_sec
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._hurried = threading.Event()
        self._exit_status = 0
        self._output = b""

    def run(self) -> None:
        if self._begun.is_set():
            self._deliver("start", b"", until=self._ended)
        # A start that arrives after its end would begin another run, so one thread sends both.
        self._ended.wait()
        self.problem = self._deliver(str(self._exit_status), self._output, until=self._hurried)

    def begin(self) -> None:
        """Send the start of the run, in the background."""
        self._begun.set()
        with suppress(RuntimeError):  # no thread can be started; finish() tries again
            self.start()

    def finish(self, exit_status: int, output: bytes) -> None:
        """Send the end of the run. Return when it was delivered or given up."""
        self._exit_status, self._output = exit_status, output
        self._ended.set()
        if self.ident is None:
            try:
                self.start()
            except RuntimeError:  # no thread can be started
                self.run()
                return
        self.join(self._patience_sec + 2 * ATTEMPT_SEC)

    def hurry(self) -> None:
        """Give up after the current attempt."""
        self._hurried.set()

    def _deliver(self, signal: str, body: bytes, *, until: threading.Event) -> str | None:
        """Send a signal until the server accepts it. Return the last problem after the patience or `until`."""
        from pulsekeeper.run.sending import send  # slow to import; the command runs meanwhile

        deadline = time.monotonic() + self._patience_sec
        pause = 1.0
        while True:
            sent = send(f"{self._url}/{signal}?rid={self._rid}", body, timeout_sec=ATTEMPT_SEC)
            left = deadline - time.monotonic()
            if not sent.retry or left <= 0 or until.wait(min(max(pause, sent.wait_sec), left)):
                return sent.problem
            pause = min(2 * pause, MAX_PAUSE_SEC)


def checked_ping_url(text: str) -> str:
    """Return a ping URL without a trailing slash. Raises ValueError, without the URL, if it is invalid."""
    url = text.rstrip("/")
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.port != 0 and parts.path.endswith("/ping")
        (parts.hostname or ".").encode("idna")
    except ValueError:
        valid = False
    if not (valid and url.isascii() and url.isprintable() and not set(url) & set(' @?#"<>\\')):
        raise ValueError("the ping URL must look like https://pulsekeeper.example.com/v1/heartbeats/…/ping")
    return url

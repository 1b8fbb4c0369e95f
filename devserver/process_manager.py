"""Runs the process types of a Procfile on honcho: prefixed output, and (added here) restarts.

honcho reads the Procfile, prints, and stops everything when one process ends for good. Each process has a
small watcher of its own (honcho's `Process`, forked); ours starts a dead child again, cleans up what a child
leaves behind, and follows when the parent is killed. circus would add an event loop and control sockets
(tornado, zmq), supervisor a daemon whose children outlive its own death and whose output has no names.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from honcho.manager import Manager
from honcho.process import Process

GRACE_SECONDS = 4  # for a child to end after SIGTERM; honcho's own last resort comes after 5
# A child that dies this often in this time will not get better by another start.
DEATHS_ALLOWED, DEATHS_WINDOW_SECONDS = 5, 60
PR_SET_PDEATHSIG = 1


class Restarting(Process):  # type: ignore[misc]
    """Watches one child from a process of its own; `run` is that process."""

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:  # noqa: FBT001, FBT002
        self._events = events
        self._stopping = threading.Event()
        parent = os.getppid()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGALRM, self._kill)
        # A terminal's Ctrl-C goes to the whole group, the manager included, which tells us by SIGTERM. A
        # handler, since an ignored signal would stay ignored in the child.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: None)
        _die_with_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, MANAGED_SIGNALS)
        if os.getppid() != parent:
            return
        code = self._keep_running()
        if os.getppid() == parent:
            self._send_message({"returncode": code}, type="stop")
        else:
            events.cancel_join_thread()  # nobody reads what we wrote; do not wait for it

    def _keep_running(self) -> int:
        deaths: list[float] = []
        while True:
            code = self._run_once()
            if self._stopping.is_set():
                return code
            now = time.monotonic()
            deaths = [death for death in deaths if now - death < DEATHS_WINDOW_SECONDS] + [now]
            if len(deaths) > DEATHS_ALLOWED:
                self._send_message(f"ended {len(deaths)} times in {DEATHS_WINDOW_SECONDS} s: giving up\n")
                return code or 1
            delay = 0.5 * 2 ** (len(deaths) - 1)
            self._send_message(f"ended unasked ({code}): starting it again in {delay:g} s\n")
            if self._stopping.wait(delay):
                return code

    def _run_once(self) -> int:
        self._child = self._child_ctor(self.cmd, env=self.env, cwd=self.cwd, preexec_fn=_die_with_parent)
        if self._stopping.is_set():  # asked between the fork and the line above
            self._signal_group(signal.SIGTERM)
        reader = threading.Thread(target=self._pass_output_on)
        # Threads (the first message starts one, too) must not take signals: of two that come together the
        # kernel may give one to a thread, and the main thread, waiting below, would not wake for it.
        signal.pthread_sigmask(signal.SIG_BLOCK, MANAGED_SIGNALS)
        self._send_message({"pid": self._child.pid}, type="start")
        reader.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, MANAGED_SIGNALS)
        # What the child started may outlive it and keep its port or its output open. Its group is named after
        # it, so it must not be reaped before the group is gone.
        os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        self._signal_group(signal.SIGKILL)
        code: int = self._child.wait()
        signal.alarm(0)
        reader.join()
        return code

    def _pass_output_on(self) -> None:
        with self._child.stdout as output:
            for line in iter(output.readline, b""):
                self._send_message(line)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping.set()
        self._signal_group(signal.SIGTERM)
        signal.alarm(GRACE_SECONDS)

    def _kill(self, _number: int, _frame: FrameType | None) -> None:
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: int) -> None:
        # returncode is set once the child is reaped: its pid may be anybody's then.
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


class Supervisor(Manager):  # type: ignore[misc]
    """Runs `commands` until a signal, a failure, or a child that keeps dying.

    `watch` runs in a thread once all are started; it calls `fail` to end everything, and returns or looks at
    `ending` from time to time.
    """

    def __init__(self, commands: Mapping[str, str], *, watch: Callable[[Supervisor], None]) -> None:
        super().__init__()
        self._process_ctor = Restarting
        self._watch = watch
        self.ending = threading.Event()
        self.failure: str | None = None
        self._watcher: threading.Thread | None = None
        for name, command in commands.items():
            self.add_process(name, command, env={**os.environ, "PYTHONUNBUFFERED": "1"})

    def run(self) -> str | None:
        """Returns what went wrong, or None after a stop that was asked for."""
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        try:
            self.loop()
        finally:
            self.ending.set()
            if self._watcher is not None:
                self._watcher.join(timeout=GRACE_SECONDS)
            self._killall(force=True)  # whoever is left after an exception; multiprocessing would wait for it
        gave_up = [name for name, entry in self._processes.items() if entry.get("gave_up")]
        if self.failure is None and gave_up:
            self.failure = f"{' and '.join(gave_up)} kept ending: see its last lines above"
        return self.failure

    def fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        os.kill(os.getpid(), signal.SIGTERM)

    def check_watchers(self) -> None:
        """A watcher that was killed sends no message, and honcho would wait for one for ever."""
        for name, entry in self._processes.items():
            if not entry["process"].is_alive() and "returncode" not in entry and not self.ending.is_set():
                entry["returncode"] = -signal.SIGKILL
                self.fail(f"the watcher of {name} was killed")

    def _start(self) -> None:
        # A signal must find the children with their own handlers, not with the ones they inherit from us.
        signal.pthread_sigmask(signal.SIG_BLOCK, MANAGED_SIGNALS)
        super()._start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, MANAGED_SIGNALS)
        # Threads come last: a fork copies locks that other threads hold.
        self._watcher = threading.Thread(target=self._watch_or_fail, daemon=True)
        self._watcher.start()

    def _watch_or_fail(self) -> None:
        try:
            self._watch(self)
        except Exception as error:  # noqa: BLE001 - whatever it is, going on unwatched would hide the next one
            self.fail(f"watching failed: {error!r}")

    def _any_stopped(self) -> bool:
        stopped: bool = super()._any_stopped()
        if stopped and not self._terminating:
            for entry in self._processes.values():
                entry["gave_up"] = entry.get("returncode") is not None
        return stopped

    def terminate(self) -> None:
        self.ending.set()
        super().terminate()

    def _killall(self, force: bool = False) -> None:  # noqa: FBT001, FBT002
        """As honcho's, but to the watchers, which exist from the start and know about their children."""
        for entry in self._processes.values():
            watcher = entry.get("process")
            if watcher is None or not watcher.is_alive():
                continue
            if not force:
                watcher.terminate()
                continue
            watcher.kill()
            with contextlib.suppress(KeyError, ProcessLookupError):
                os.killpg(entry["pid"], signal.SIGKILL)
            entry.setdefault("pid", watcher.pid)
            entry.setdefault("returncode", -signal.SIGKILL)


MANAGED_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM}
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    """Linux: have the kernel send us SIGTERM when our parent is killed. Elsewhere the children stay."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

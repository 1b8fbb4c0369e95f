"""Run the processes of a Procfile with honcho, and restart those that end.

honcho parses the Procfile, prefixes output and stops everything when one process ends for good. Each process has its
own watcher (honcho's forked `Process`). Ours also restarts a child, kills its remaining descendants, and ends when the
parent is killed. circus would add an event loop and control sockets, and supervisor is a daemon whose children outlive
it.
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
# A child that ends this many times in this period is not restarted again.
DEATHS_ALLOWED, DEATHS_WINDOW_SECONDS = 5, 60
PR_SET_PDEATHSIG = 1


class RestartingProcess(Process):  # type: ignore[misc]
    """Watch one child from a separate process, which runs `run`."""

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:  # noqa: FBT001, FBT002
        self._events = events
        self._stopping = threading.Event()
        parent = os.getppid()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGALRM, self._kill)
        # Ctrl-C goes to the whole group, including the manager, which then sends SIGTERM. Use a handler, as
        # the child would inherit an ignored signal.
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
            events.cancel_join_thread()  # the reader is gone, so do not wait for it

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
            self._send_message(f"ended unexpectedly ({code}): restarting in {delay:g} s\n")
            if self._stopping.wait(delay):
                return code

    def _run_once(self) -> int:
        self._child = self._child_ctor(self.cmd, env=self.env, cwd=self.cwd, preexec_fn=_die_with_parent)
        if self._stopping.is_set():  # requested between the fork and the line above
            self._signal_group(signal.SIGTERM)
        reader = threading.Thread(target=self._forward_output)
        # Threads must not receive signals (the first message starts one too): the main thread, which waits
        # below, would not wake up.
        signal.pthread_sigmask(signal.SIG_BLOCK, MANAGED_SIGNALS)
        self._send_message({"pid": self._child.pid}, type="start")
        reader.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, MANAGED_SIGNALS)
        # Descendants may outlive the child and keep its port or output open. The group has its pid, so kill the
        # group before reaping the child.
        os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        self._signal_group(signal.SIGKILL)
        code: int = self._child.wait()
        signal.alarm(0)
        reader.join()
        return code

    def _forward_output(self) -> None:
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
        # Once returncode is set, the child is reaped and its pid may be reused.
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


class ProcessManager(Manager):  # type: ignore[misc]
    """Run `commands` until a signal, a failure, or a child that keeps ending.

    `watch` runs in a thread after the start. It calls `fail` to end everything and must check `ending` regularly.
    """

    def __init__(self, commands: Mapping[str, str], *, watch: Callable[[ProcessManager], None]) -> None:
        super().__init__()
        self._process_ctor = RestartingProcess
        self._watch = watch
        self.ending = threading.Event()
        self.failure: str | None = None
        self._watcher: threading.Thread | None = None
        for name, command in commands.items():
            self.add_process(name, command, env={**os.environ, "PYTHONUNBUFFERED": "1"})

    def run(self) -> str | None:
        """Run until the end. Return the reason of a failure, or None after a requested stop."""
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        try:
            self.loop()
        finally:
            self.ending.set()
            if self._watcher is not None:
                self._watcher.join(timeout=GRACE_SECONDS)
            self._killall(force=True)  # after an exception; multiprocessing would wait for children
        gave_up = [name for name, entry in self._processes.items() if entry.get("gave_up")]
        if self.failure is None and gave_up:
            self.failure = f"{' and '.join(gave_up)} kept ending: see the last lines above"
        return self.failure

    def fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        os.kill(os.getpid(), signal.SIGTERM)

    def check_watchers(self) -> None:
        """Fail if a watcher was killed: honcho would wait for its message for ever."""
        for name, entry in self._processes.items():
            if not entry["process"].is_alive() and "returncode" not in entry and not self.ending.is_set():
                entry["returncode"] = -signal.SIGKILL
                self.fail(f"the watcher of {name} was killed")

    def _start(self) -> None:
        # Block signals until the children have replaced the handlers that they inherit.
        signal.pthread_sigmask(signal.SIG_BLOCK, MANAGED_SIGNALS)
        super()._start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, MANAGED_SIGNALS)
        # Start threads last, as a fork copies locks of other threads.
        self._watcher = threading.Thread(target=self._watch_or_fail, daemon=True)
        self._watcher.start()

    def _watch_or_fail(self) -> None:
        try:
            self._watch(self)
        except Exception as error:  # noqa: BLE001 - any error must end the run, as nothing watches it any more
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
        """Signal the watchers, not the children as honcho does, since watchers exist from the start."""
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
    """On Linux, receive SIGTERM when the parent is killed. On other systems the children stay."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

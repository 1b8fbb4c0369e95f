"""Run the processes of a Procfile, and restart those that end.

honcho parses the Procfile and prints the output. Its own manager would stop everything when one process ends, circus
would add an event loop and control sockets, and supervisor is a daemon whose children outlive it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import IO

from honcho.colour import get_colours
from honcho.printer import Message, Printer

from core.parent_death import die_with_parent

GRACE_SECONDS = 4  # for a child to end after SIGTERM
# A child that ends this many times in this period is not restarted again.
DEATHS_ALLOWED, DEATHS_WINDOW_SECONDS = 5, 60
LOOK_SECONDS = 0.5


class ProcessManager:
    """Run `commands` until a signal, a failure, or a child that keeps ending.

    A thread for each command restarts it. `watch` runs in another thread. It calls `fail` to end everything and must
    check `ending` regularly.
    """

    def __init__(self, commands: Mapping[str, str], *, watch: Callable[[ProcessManager], None]) -> None:
        self._watch = watch
        self._commands = commands
        self._printer = Printer(width=max(map(len, [*commands, "system"])))
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        # Locked while a child starts, is signalled or is reaped: after that its pid may be reused.
        self._lock = threading.Lock()
        self._printing = threading.Lock()
        self._restarting: set[str] = set()
        self._ends: SimpleQueue[str | int] = SimpleQueue()  # signals and failures; handlers may write to it at any time
        self.ending = threading.Event()

    def run(self) -> str | None:
        """Run until the end. Return the reason of a failure, or None after a requested stop."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._ends.put(number))
        threads = [
            threading.Thread(target=self._keep_running, args=(name, command, colour))
            for (name, command), colour in zip(self._commands.items(), get_colours(), strict=False)
        ]
        watcher = threading.Thread(target=self._watch_or_fail, daemon=True)
        for thread in (*threads, watcher):
            thread.start()
        end = self._wait_for_end()
        self.ending.set()
        if not isinstance(end, str):
            self._print(f"{signal.Signals(end).name} received")
        self._signal_all(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        for thread in (*threads, watcher):
            thread.join(max(0, deadline - time.monotonic()))
        self._signal_all(signal.SIGKILL)
        for thread in threads:
            thread.join()
        return end if isinstance(end, str) else None

    def fail(self, reason: str) -> None:
        self._ends.put(reason)

    def restart(self, *names: str) -> None:
        """End these children, which start again at once with the current environment."""
        with self._lock:
            for name in self._children.keys() & set(names):
                self._restarting.add(name)
                self._signal(name, signal.SIGTERM)

    def _wait_for_end(self) -> str | int:
        while True:
            # Outside Linux another thread may receive a signal. Its handler runs when this thread wakes up.
            with contextlib.suppress(Empty):
                return self._ends.get(timeout=LOOK_SECONDS)

    def _watch_or_fail(self) -> None:
        try:
            self._watch(self)
        except Exception as error:  # noqa: BLE001 - any error must end the run, as the watch has stopped
            self.fail(f"watching failed: {error!r}")

    def _keep_running(self, name: str, command: str, colour: str) -> None:
        try:
            self._restart(name, command, colour)
        except Exception as error:  # noqa: BLE001 - any error must end the run, as the child can no longer be restarted
            self.fail(f"{name} cannot be run: {error!r}")

    def _restart(self, name: str, command: str, colour: str) -> None:
        deaths: list[float] = []
        while (code := self._run_once(name, command, colour)) is not None:
            if self.ending.is_set():
                self._print(f"{name} stopped (rc={code})")
                break
            with self._lock:
                is_wanted = name in self._restarting
                self._restarting.discard(name)
            if is_wanted:
                self._print(f"{name} stopped (rc={code}): restarting")
                continue
            now = time.monotonic()
            deaths = [death for death in deaths if now - death < DEATHS_WINDOW_SECONDS] + [now]
            if len(deaths) > DEATHS_ALLOWED:
                self._print(f"{name} ended {len(deaths)} times in {DEATHS_WINDOW_SECONDS} s: giving up")
                self.fail(f"{name} kept ending: see the last lines above")
                break
            delay = 0.5 * 2 ** (len(deaths) - 1)
            self._print(f"{name} ended unexpectedly ({code}): restarting in {delay:g} s")
            self.ending.wait(delay)

    def _run_once(self, name: str, command: str, colour: str) -> int | None:
        """Run the child until it ends. Return its exit code, or None if it must no longer start."""
        with self._lock:
            if self.ending.is_set():
                return None
            child = self._children[name] = subprocess.Popen(  # noqa: S602 - our own Procfile
                command,
                shell=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        assert child.stdout is not None
        self._print(f"{name} started (pid={child.pid})")
        reader = threading.Thread(target=self._forward, args=(child.stdout, name, colour), daemon=True)
        reader.start()
        # Descendants may outlive the child and keep its port or output open. Their group has its pid, so kill the group
        # before reaping the child.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._signal(name, signal.SIGKILL)
            code = child.wait()
            del self._children[name]
        reader.join(GRACE_SECONDS)  # a descendant in another session may still have the output open
        return code

    def _forward(self, output: IO[bytes], name: str, colour: str) -> None:
        with output:
            for line in output:
                self._print(line, name, colour)

    def _signal_all(self, number: signal.Signals) -> None:
        with self._lock:
            for name, child in self._children.items():
                self._print(f"sending {number.name} to {name} (pid {child.pid})")
                self._signal(name, number)

    def _signal(self, name: str, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._children[name].pid, number)

    def _print(self, text: str | bytes, name: str = "system", colour: str | None = None) -> None:
        """Print a line. A closed terminal or pipe ends the run, as Ctrl-C does."""
        try:
            with self._printing:
                self._printer.write(Message("line", text, datetime.now().astimezone(), name, colour))
        except OSError as error:
            self.fail(f"the output is closed: {error}")

"""A command that runs with our standard input, whose output is copied, and that receives the signals sent to us.

The command stays in our process group, so that it can read from the terminal. This needs Linux.
"""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from fcntl import ioctl
from select import select
from termios import FIONREAD
from typing import Any

KEPT_BYTES = 10_000
"""The server keeps as many of a signal's body."""
CHUNK_BYTES = 65_536
DRAIN_SEC = 1.0

_PASSED_ON = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2})
_BLOCKED = _PASSED_ON | {signal.SIGCHLD}
_SI_KERNEL = 0x80  # Ctrl-C: the terminal has sent it to the whole process group
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Process:
    """A running command. Create it before any thread. Raises OSError if the command cannot be started."""

    def __init__(self, command: list[str]) -> None:
        _open_standard_streams()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an inherited SIG_IGN would discard the exit status
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        stdout, stdout_writer = os.pipe()
        stderr, stderr_writer = os.pipe()
        self._copier = _Copier({stdout: 1, stderr: 2})
        outputs = {stdout_writer: 1, stderr_writer: 2}
        try:
            self._copier.start()
        except RuntimeError:  # no thread can be started: the command has our outputs, and nothing is kept
            outputs = {}
        try:
            self._pid = _spawn(command, outputs, self._mask)
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            raise
        finally:
            os.close(stdout_writer)
            os.close(stderr_writer)

    def wait(self) -> int:
        """Return the exit status, or 128 plus the number of the signal that killed the command, as shells do."""
        while (ended := os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG)) is None:
            received = signal.sigwaitinfo(_BLOCKED)
            if received.si_signo != signal.SIGCHLD and received.si_code != _SI_KERNEL:
                with suppress(PermissionError):  # the command runs as another user
                    os.kill(self._pid, received.si_signo)
        return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status

    def output(self, *, on_stop: Callable[[], None]) -> bytes:
        """Copy the rest of the ended command's output, and return the end of all of it.

        A process that the command left in the background does not delay this, and a stuck reader of our output only
        until we receive a signal. From now on signals call `on_stop`.
        """

        def stop(*_: object) -> None:
            self._copier.settled.set()
            on_stop()

        for number in _PASSED_ON:
            signal.signal(number, stop)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if self._copier.ident is not None:
            self._copier.finish()
        return self._copier.kept


def _open_standard_streams() -> None:
    """Open those of 0, 1 and 2 that are closed. Otherwise our pipes would get these numbers."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)


def _spawn(command: list[str], outputs: Mapping[int, int], mask: Iterable[int]) -> int:
    """Start the command and return its pid. Raises OSError."""
    copies = [(os.POSIX_SPAWN_DUP2, writer, output) for writer, output in outputs.items()]
    options: Any = {"file_actions": copies, "setsigmask": mask, "setsigdef": _IGNORED_BY_PYTHON}
    try:
        return os.posix_spawnp(command[0], command, os.environ, **options)
    except OSError as error:
        script = shutil.which(command[0])
        if error.errno != errno.ENOEXEC or script is None:
            raise
        # A script without `#!`, as execvp(3) starts it.
        return os.posix_spawnp("/bin/sh", ["sh", script, *command[1:]], os.environ, **options)


class _Copier(threading.Thread):
    """Copies each pipe to its output and keeps the last bytes."""

    def __init__(self, outputs: dict[int, int]) -> None:
        super().__init__(name="copier", daemon=True)
        self.kept = b""
        self.settled = threading.Event()
        self._outputs = outputs
        self._ended, self._ending = os.pipe()

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for pipe in (self._ended, *self._outputs):
                selector.register(pipe, selectors.EVENT_READ)
            ended = False
            while self._outputs and not ended:
                for key, _ in selector.select():
                    if key.fd == self._ended:
                        ended = True
                    elif not self._copy(key.fd, CHUNK_BYTES):
                        selector.unregister(key.fd)
                        os.close(key.fd)
                        del self._outputs[key.fd]
        for pipe in self._outputs:
            # Only what is there now: a process in the background may write forever.
            size = int.from_bytes(ioctl(pipe, FIONREAD, bytes(4)), "little")
            while size > 0 and (copied := self._copy(pipe, size)):
                size -= copied
        self.settled.set()

    def finish(self) -> None:
        """Copy what the pipes contain now, and nothing later."""
        os.close(self._ending)
        self.settled.wait()
        self.join(DRAIN_SEC)

    def _copy(self, pipe: int, size: int) -> int:
        """Copy up to `size` bytes. Return their number, or 0 if no writer is left or our output fails.

        The caller then closes the pipe, so that the command's writes fail as they would without us.
        """
        data = os.read(pipe, size)
        self.kept = (self.kept + data)[-KEPT_BYTES:]
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._outputs[pipe], rest) :]
                except BlockingIOError:
                    select([], [self._outputs[pipe]], [])
        except OSError:
            return 0
        return len(data)

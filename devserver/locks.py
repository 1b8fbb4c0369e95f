"""File locks of the kernel, which releases them when their process ends for any reason."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Self

POLL_SECONDS = 0.05


class EmbeddedError(Exception):
    """The private servers cannot be used. `str()` is one line to show the user."""


class FileLock:
    """A shared or exclusive flock on `path`. Leaving the `with` block or closing releases it.

    flock belongs to the open file, not to the process: two FileLocks of one process exclude each other. Programs that
    this process starts do not inherit the lock, as Python's files are closed on exec.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise EmbeddedError(f"cannot write to {path.parent}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def share(self, *, wait: float = 0) -> bool:
        return self._take(fcntl.LOCK_SH, wait)

    def exclude(self, *, wait: float = 0) -> bool:
        """Lock exclusively. A shared lock is released first, even if this fails."""
        return self._take(fcntl.LOCK_EX, wait)

    def _take(self, kind: int, wait: float) -> bool:
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(POLL_SECONDS)
            else:
                return True

    def write(self, text: str) -> None:
        """Write a note, for processes that cannot get the lock."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text.encode(), 0)

    def read(self) -> str:
        return os.pread(self._fd, 4096, 0).decode()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

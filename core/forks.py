"""Work in a fork of this process, whose memory ends with it."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

PATIENCE_SEC = 60.0


def in_fork(work: Callable[[], bytes]) -> bytes | None:
    """Return what `work` returns in a fork, or None if it raises an error, or sends nothing for PATIENCE_SEC.

    The fork has no other thread of this process. It must not use connections, nor anything that another thread may
    have locked.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(work())
            status = 0
        finally:
            os._exit(status)  # without what this process does at its end
    os.close(writing)
    found, has_ended = bytearray(), False
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while not has_ended and select.select([pipe], [], [], PATIENCE_SEC)[0]:
            part = pipe.read(1 << 16)
            has_ended = not part
            found += part
    if not has_ended:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return bytes(found) if status == 0 else None

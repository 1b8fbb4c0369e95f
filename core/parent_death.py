"""End a process when its parent ends, also by SIGKILL.

SIGTERM is not enough: a worker that stops may wait for a database that was stopped too. The parent was killed, so this
is a crash, after which leases expire as after any other.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with_parent(parent: int) -> None:
    """On Linux, be killed when the thread of process `parent` that started this one ends. Elsewhere do nothing.

    Safe in a child before `exec`, which keeps the setting.
    """
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the call
            os.kill(os.getpid(), signal.SIGKILL)

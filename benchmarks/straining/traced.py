"""The RSGI application of the web server, with two more paths that measure the memory of the request between them.

/-/begin?trace=0|1 frees what earlier requests left, and starts to count; /-/end answers JSON: the bytes that Python
allocated at the peak (0 without tracing), and by how much the process grew. Tracing makes requests slow, so CPU is
measured without it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

from config.rsgi import application as gateway
from core import replies
from monitors.checking import interactive

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_C = ctypes.CDLL(None)


def _kib(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


class Traced:
    def __init__(self) -> None:
        self._before = self._rss = 0

    def __getattr__(self, name: str) -> Any:  # __rsgi_init__ and __rsgi_del__
        return getattr(gateway, name)

    async def __rsgi__(self, scope: Any, exchange: Any) -> None:
        if not scope.path.startswith("/-/"):
            await gateway.__rsgi__(scope, exchange)
            return
        answer = self._begin(trace="1" in scope.query_string) if scope.path == "/-/begin" else self._end()
        exchange.response_bytes(200, [("Content-Type", "application/json")], json.dumps(answer).encode())

    def _begin(self, *, trace: bool) -> dict[str, int]:
        gc.collect()
        _C.malloc_trim(0)
        if trace:
            tracemalloc.start()
            self._before = tracemalloc.get_traced_memory()[0]
        _CLEAR.write_text("5")  # VmHWM starts from here
        self._rss = _kib("VmRSS")
        return {}

    def _end(self) -> dict[str, int]:
        grown = max(0, _kib("VmHWM") - self._rss) * 1024
        peak = 0
        if tracemalloc.is_tracing():
            peak = tracemalloc.get_traced_memory()[1] - self._before
            tracemalloc.stop()
        return {"traced": peak, "grown": grown}


def _no_answer(*_: Any, **__: Any) -> None:
    """Time out requests that wait for a worker at once, because none runs."""


replies.wait = interactive.await_first_check = _no_answer
application = Traced()

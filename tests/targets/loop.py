"""An event loop in a separate thread, for servers that tests start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
PATIENCE_SEC = 60


class ServerLoop:
    """A context manager. On exit it closes `servers` and `closing` and aborts all connections."""

    def __init__(self, name: str) -> None:
        self.servers: list[asyncio.Server] = []
        self.closing = ExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SEC)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that runs in the loop. Called from other threads."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SEC)

    async def _stop(self) -> None:
        # Python 3.11 forgets a connection whose server is closed between accept() and the first step of its task.
        for server in self.servers:
            for listening in server.sockets:
                self._loop.remove_reader(listening)
        for _ in range(
            3
        ):  # connections accepted until now get their transport, their protocol and a task that has begun
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        self.closing.close()
        # Closing a connection is not enough: it waits until the client has read everything and has ended TLS.
        # Python 3.13 has Server.abort_clients() for this.
        for transport in list(self._loop._transports.values()):  # type: ignore[attr-defined]
            if transport.get_extra_info("socket").fileno() >= 0:  # otherwise it is closed, and cannot be aborted
                transport.abort()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the aborted transports close their sockets

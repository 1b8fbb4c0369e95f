"""The web server in this process: granian and the gateway, on a loopback port, with the test's database."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from tests.processes.waiting import until

PATIENCE_SEC = 30


@contextmanager
def serving(application: Any, *, address: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Yield the port at which `application` answers. Settings changed by a test apply here too."""
    # Granian sets SO_REUSEPORT too. This socket reserves the port, and gets no connections as it does not listen.
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((address, port))
        with _serving(application, address, reserved.getsockname()[1]) as port:
            yield port


@contextmanager
def _serving(application: Any, address: str, port: int) -> Iterator[int]:
    loop = asyncio.new_event_loop()
    # As in the Procfile.
    server = Server(
        application,
        address=address,
        port=port,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(header_read_timeout=10_000, max_buffer_size=16_384),
        backpressure=65_536,
        websockets=False,
        log_enabled=False,
    )

    async def serve() -> None:
        server.main_loop_interrupt = asyncio.Event()  # type: ignore[assignment]  # of this loop
        await server.serve()

    def answers() -> bool:
        try:
            socket.create_connection((address, port), timeout=PATIENCE_SEC).close()
        except ConnectionRefusedError:
            return False
        return True

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="granian")
    thread.start()
    try:
        until(answers, PATIENCE_SEC, "the web server listens")
        yield port
    finally:
        loop.call_soon_threadsafe(server.stop)
        thread.join(PATIENCE_SEC)
        application.__rsgi_del__(loop)
        loop.close()
    assert not thread.is_alive()

"""A receiver of webhooks that stores its requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Call:
    path: str
    key: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128


class Receiver:
    """Answer 200, or the status that `answer` returns for a call; hang up if it is None.

    `calls` are in order of arrival.
    """

    def __init__(self, answer: Callable[[Call], int | None] = lambda _: 200, *, address: str = "127.0.0.1") -> None:
        self.calls: list[Call] = []
        calls = self.calls

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = dict(self.headers.items())
                call = Call(self.path, headers["Pulsekeeper-Delivery"], headers, body)
                calls.append(call)
                status = answer(call)
                if status is None:
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """Quiet."""

        self._server = _Server((address, 0), Handler)
        self.url = f"http://{address}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

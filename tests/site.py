"""A plain web server that can be switched off and on, for tests of the layers above the probe."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Handler(BaseHTTPRequestHandler):
    """/ok, /status/<code>, /echo (the request as JSON), /hang (accepts and never answers)."""

    server: Site._Server

    def _answer(self) -> None:
        self.server.site.count_request()
        kind, _, argument = self.path.strip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if kind == "hang":
            self.server.site.hung += 1
            self.server.site.closing.wait(timeout=60)
            return
        status, text = (int(argument), "") if kind == "status" else (200, "ok")
        if kind == "echo":
            text = json.dumps(
                {"method": self.command, "headers": dict(self.headers), "body": json.loads(body or b"null")}
            )
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    do_HEAD = do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


class Site:
    """Keep the port across `stop` and `start`."""

    class _Server(ThreadingHTTPServer):
        site: Site
        # Many checks may connect at once, and a refused connection is retried a second later.
        request_queue_size = 128

    def __init__(self, *, address: str = "127.0.0.1") -> None:
        self._address = address
        self._server: Site._Server | None = None
        self._lock = threading.Lock()
        self._port = 0
        self.requests = 0
        self.hung = 0
        self.closing = threading.Event()

    def __enter__(self) -> Site:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.closing.clear()
        self._server = Site._Server((self._address, self._port), _Handler)
        self._server.site = self
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self.closing.set()
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def count_request(self) -> None:
        with self._lock:
            self.requests += 1

    def url(self, path: str) -> str:
        return f"http://{self._address}:{self._port}{path}"

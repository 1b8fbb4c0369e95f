"""A local HTTP receiver of Sentry envelopes and OpenTelemetry spans."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Receiver:
    """Raw requests, by path."""

    def __init__(self, port: int) -> None:
        self.host = f"127.0.0.1:{port}"
        self.bodies: list[tuple[str, bytes]] = []

    @property
    def text(self) -> str:
        """Return everything that was received."""
        return b"\n".join(body for _, body in self.bodies).decode(errors="replace")

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Parse envelopes: a line of headers, then a line of headers and a line of content for each item."""
        found = []
        for path, body in self.bodies:
            if path == "/api/1/envelope/":
                lines = body.splitlines()[1:]
                for header, content in zip(lines[::2], lines[1::2], strict=True):
                    if json.loads(header)["type"] == kind:
                        found.append(json.loads(content))
        return found

    def spans(self) -> list[tuple[str, Span]]:
        """Return the spans with the name of their service."""
        found = []
        for path, body in self.bodies:
            if path == "/v1/traces":
                for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                    names = {each.key: each.value.string_value for each in group.resource.attributes}
                    found += [(names["service.name"], span) for scope in group.scope_spans for span in scope.spans]
        return found


@contextmanager
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            received.bodies.append((self.path, gzip.decompress(body) if packed else body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received = Receiver(server.server_port)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()

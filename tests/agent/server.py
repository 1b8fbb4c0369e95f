"""A server of one location, as docs/operate/agents.md describes it, on loopback."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from checks.agent_protocol import (
    JOIN,
    LEASES,
    MAX_LEASES,
    MAX_RESULTS_BYTES,
    RESULTS,
    Found,
    Join,
    Joined,
    Lease,
    Leases,
    Poll,
    Results,
    Stored,
)
from checks.spec import CheckSpec

TOKEN = "pkj_jointoken"
CREDENTIAL = "pka_credential"

Reply = tuple[int, bytes, dict[str, str]]


def error(status: int, code: str, reason: str = "") -> Reply:
    return status, msgspec.json.encode({"error": code, "reason": reason}), {}


class LocationServer:
    """What agents sent, and what they get. `faults` are replies instead of the next ones of a path."""

    def __init__(self) -> None:
        self.tokens = {TOKEN}
        self.joins: list[Join] = []
        self.polls: list[Poll] = []
        self.requests: list[list[Found]] = []
        self.faults: dict[str, deque[Reply | None]] = defaultdict(deque)
        self.faults_seen: list[str] = []
        self.away = False
        self._released = 0
        self._queued: deque[Lease] = deque()
        self._changed = threading.Condition()
        handler = type("Handler", (_Handler,), {"location": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.release()
        self._http.shutdown()
        self._http.server_close()

    @property
    def results(self) -> list[Found]:
        return [result for request in self.requests for result in request]

    def lease(self, lease: str, spec: CheckSpec, **fields: Any) -> None:
        self.lease_raw(lease, type(spec).__name__, msgspec.json.encode(spec), **fields)

    def lease_raw(self, lease: str, kind: str, spec: bytes, **fields: Any) -> None:
        with self._changed:
            self._queued.append(Lease(lease, kind, msgspec.Raw(spec), **fields))
            self._changed.notify_all()

    def fail(self, path: str, *replies: Reply | None) -> None:
        """Give these replies to the next requests of the path, None for a connection that is closed."""
        self.faults[path].extend(replies)
        self.release()

    def release(self) -> None:
        """Answer the requests for leases that are held open."""
        with self._changed:
            self._released += 1
            self._changed.notify_all()

    def reply(self, path: str, credential: str | None, body: bytes) -> Reply | None:
        if self.away:
            return None
        if self.faults[path]:
            self.faults_seen.append(path)
            return self.faults[path].popleft()
        if path == JOIN:
            return self._join(msgspec.json.decode(body, type=Join))
        if credential != f"Bearer {CREDENTIAL}":
            return error(401, "unauthorized", "This agent was revoked.")
        if path == LEASES:
            return self._leases(msgspec.json.decode(body, type=Poll))
        assert path == RESULTS
        assert len(body) <= MAX_RESULTS_BYTES
        self.requests.append(list(msgspec.json.decode(body, type=Results).results))
        return 200, msgspec.json.encode(Stored()), {}

    def _join(self, join: Join) -> Reply:
        if join.token not in self.tokens:
            return error(403, "join_token_invalid", "It was used already.")
        self.tokens.remove(join.token)
        self.joins.append(join)
        return 201, msgspec.json.encode(Joined("agt_1", CREDENTIAL, "loc_1", "Frankfurt")), {}

    def _leases(self, poll: Poll) -> Reply | None:
        self.polls.append(poll)
        most = 0 if poll.network_down else min(MAX_LEASES, poll.room)

        released = self._released

        def is_answered() -> bool:
            return bool(self._queued and most) or self._released > released

        with self._changed:
            self._changed.wait_for(is_answered, timeout=poll.wait_sec)
            leases = [self._queued.popleft() for _ in range(min(most, len(self._queued)))]
        return 200, msgspec.json.encode(Leases(leases)), {}


class _Handler(BaseHTTPRequestHandler):
    location: LocationServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        reply = self.location.reply(self.path, self.headers.get("Authorization"), body)
        if reply is None:
            self.close_connection = True
            return
        status, content, headers = reply
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def handle(self) -> None:
        with suppress(ConnectionError):  # the agent ended its request
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

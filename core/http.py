"""Requests to addresses that users name, other than checks: RDAP, webhooks, connectors. Plain Python.

A `GuardedSession` is a `requests.Session` with limits: the egress guard, the total time with all redirects, and the
size of the body. Every error is a `requests.RequestException`; the three below are those of the limits.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from http.cookiejar import DefaultCookiePolicy
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.ssl_ import create_urllib3_context

from core.deadlines import calling_after
from core.egress import EgressGuard
from core.version import product_version

MAX_BODY = 1024 * 1024
MAX_REDIRECTS = 5
MAX_LOCATION = 2_048
TOTAL_SEC = 20.0
_CHUNK = 16 * 1024


class ForbiddenTarget(requests.ConnectionError):
    """The egress guard refuses every address of the host."""


class UnencryptedTarget(ForbiddenTarget):
    """Like ForbiddenTarget, by a guard that refuses public addresses because plain text must not be sent to them."""


class BodyTooLarge(requests.RequestException):
    """The body, decompressed, is longer than the session reads. None of it is returned."""


class DeadlineExceeded(requests.Timeout):
    """The request, with its redirects, took too long."""


class GuardedSession(requests.Session):
    """Thread-safe: it keeps no cookies and no connections, and nothing comes from the environment.

    `ca_file` has the authorities to trust in PEM form; None uses those of `requests`. A scheme that is not in
    `schemes` raises `requests.exceptions.InvalidSchema`, also in a redirect. Answers are read completely, at most
    `max_body` bytes: `stream=True` changes nothing. `timeout` is the total in seconds, by default `total_sec`, except
    that resolving a name takes as long as the system's resolver.
    """

    def __init__(
        self,
        guard: EgressGuard,
        *,
        ca_file: str | None = None,
        schemes: frozenset[str] = frozenset({"http", "https"}),
        total_sec: float = TOTAL_SEC,
        max_body: int = MAX_BODY,
    ) -> None:
        super().__init__()
        self._guard = guard
        self._schemes = schemes
        self._total_sec = total_sec
        self._max_body = max_body
        self.trust_env = False
        self.max_redirects = MAX_REDIRECTS
        self.verify = ca_file or True
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.headers["User-Agent"] = f"Pulsekeeper/{product_version()}"
        self.headers["Accept-Encoding"] = "gzip, deflate"

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        # Redirects also call this, with the `timeout` of the first request: one deadline for all.
        timeout = kwargs.get("timeout")
        if not isinstance(timeout, _Deadline):
            kwargs["timeout"] = _Deadline(time.monotonic() + (self._total_sec if timeout is None else timeout))
        return super().send(request, **kwargs)

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return the Location. Raises InvalidURL if it is too long: parsing a host takes quadratic time."""
        target = super().get_redirect_target(resp)
        if target is not None and len(target) > MAX_LOCATION:
            raise requests.exceptions.InvalidURL(f"the redirect is longer than {MAX_LOCATION} characters")
        return target

    def get_adapter(self, url: str | bytes) -> HTTPAdapter:
        """Return a new adapter for each hop, so that no connection is kept and no state shared."""
        text = url.decode() if isinstance(url, bytes) else url
        if urlsplit(text).scheme.lower() not in self._schemes:
            raise requests.exceptions.InvalidSchema(f"only {' and '.join(sorted(self._schemes))} is allowed")
        return _Hop(self._guard, max_body=self._max_body)


class _Deadline(float):
    """A monotonic time, which ends all hops of a request."""

    @property
    def remaining(self) -> float:
        """Return the seconds left. Raises DeadlineExceeded if none are."""
        remaining = self - time.monotonic()
        if remaining <= 0:
            raise DeadlineExceeded("the request took too long")
        return remaining

    @property
    def over(self) -> bool:
        return time.monotonic() >= self


class _RefusedError(Exception):
    """Not an OSError, which urllib3 would handle; `_Hop` turns it into ForbiddenTarget."""


class _Door:
    """Opens the sockets of one hop, and shuts them down at the deadline.

    A socket's timeout limits each read, not their sum: a server could send single bytes forever. So another thread
    shuts the socket down during the read.
    """

    def __init__(self, guard: EgressGuard) -> None:
        self._guard = guard
        self.refusal = ForbiddenTarget if guard.public else UnencryptedTarget
        self._lock = threading.Lock()
        self._watched: list[socket.socket] = []
        self._deadline = _Deadline(0)
        self._shut_down = False

    @contextmanager
    def open_until(self, deadline: _Deadline) -> Iterator[None]:
        self._deadline = deadline
        try:
            with calling_after(deadline.remaining, self._shut):
                yield
        finally:
            with self._lock:
                for watched in self._watched:
                    watched.close()
                self._watched.clear()

    def _shut(self) -> None:
        with self._lock:
            self._shut_down = True
            for watched in self._watched:
                try:
                    watched.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # no longer connected

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect to the first address of `host` that is permitted and answers."""
        failure: OSError | None = None
        refused = False
        for family, kind, protocol, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            if not self._guard.permits(ip_address(where[0])):
                refused = True
                continue
            opened = socket.socket(family, kind, protocol)
            try:
                opened.settimeout(self._deadline.remaining)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                opened.connect(where)
            except OSError as error:
                opened.close()
                failure = error
                continue
            self._watch(opened)
            return opened
        if failure is None and refused:
            raise _RefusedError(f"{host} is a private or reserved address")
        raise failure or OSError(f"{host} has no address")

    def _watch(self, opened: socket.socket) -> None:
        # A duplicate, because TLS takes the descriptor away from the socket it wraps.
        with self._lock:
            self._watched.append(opened.dup())
            if self._shut_down:
                opened.shutdown(socket.SHUT_RDWR)


class _Hop(HTTPAdapter):
    """Sends one request and reads its answer."""

    def __init__(self, guard: EgressGuard, *, max_body: int) -> None:
        self._door = _Door(guard)
        self._max_body = max_body
        super().__init__(pool_connections=1, pool_maxsize=1)

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = partial(_guarded, pool.ConnectionCls, self._door)
        return pool

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Use a shared context: to read the authorities takes 1 MiB and some milliseconds for each connection."""
        super().cert_verify(conn, url, verify, cert)  # type: ignore[no-untyped-call]
        if conn.scheme == "https" and conn.ca_certs:
            conn.conn_kw["ssl_context"] = _context(conn.ca_certs, Path(conn.ca_certs).stat().st_mtime_ns)
            conn.ca_certs = None

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        deadline: _Deadline = kwargs["timeout"]
        request.headers.pop("Cookie", None)  # set by an earlier hop
        with self._door.open_until(deadline):
            try:
                kwargs |= {"stream": True, "timeout": deadline.remaining, "proxies": None}
                response = super().send(request, *args, **kwargs)
                self._read(response)
            except _RefusedError as error:
                raise self._door.refusal(str(error), request=request) from None
            except requests.RequestException:
                if not deadline.over:
                    raise
                raise DeadlineExceeded("the request took too long", request=request) from None
            finally:
                self.close()
        if deadline.over:  # an answer without a length looks complete when it is shut down
            raise DeadlineExceeded("the request took too long", request=request)
        return response

    def _read(self, response: requests.Response) -> None:
        body = bytearray()
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > self._max_body:
                response.close()
                raise BodyTooLarge(f"the answer is longer than {self._max_body} bytes", response=response)
        response._content = bytes(body)  # where `requests` itself stores it
        # Not the declared charset, which Python may decode in quadratic time, or a guessed one: answers are JSON.
        response.encoding = "utf-8-sig"

    def build_response(self, req: requests.PreparedRequest, resp: Any) -> requests.Response:
        # No cookie is kept, and `http.cookiejar` would parse them in quadratic time.
        for name in ("Set-Cookie", "Set-Cookie2"):
            del resp._original_response.msg[name]
        return super().build_response(req, resp)


@lru_cache(maxsize=4)
def _context(ca_file: str, changed_at: int) -> ssl.SSLContext:
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    context.check_hostname = True
    context.load_verify_locations(ca_file)
    return context


def _guarded(cls: type[HTTPConnection], door: _Door, **kwargs: Any) -> HTTPConnection:
    """Return a connection whose socket the door opens."""
    connection = cls(**kwargs)
    connection._new_conn = partial(_connect, connection, door)  # type: ignore[method-assign]
    return connection


def _connect(connection: HTTPConnection, door: _Door) -> socket.socket:
    """Open the socket. Raises the errors of urllib3's own method."""
    host = connection.host
    try:
        return door.connect(connection._dns_host.strip("[]"), connection.port)
    except socket.gaierror as error:
        raise NameResolutionError(host, connection, error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(connection, f"Connecting to {host} took too long") from error
    except OSError as error:
        raise NewConnectionError(connection, f"Connecting to {host} failed: {error}") from error

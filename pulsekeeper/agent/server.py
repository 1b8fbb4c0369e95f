"""Requests of an agent to its server. No message contains a token or a credential."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from ipaddress import ip_address
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import pycurl

from core.cli import EXIT_USAGE, CommandFailed, UnreachableError, UsageError
from core.text import one_line
from core.version import product_version

T = TypeVar("T")

EXIT_REVOKED, EXIT_OUTDATED = 3, 5
MAX_ANSWER_BYTES = 32 * 1024 * 1024
MAX_WAIT_SEC = 300.0
_CONNECT_SEC = 20
_REASON_CHARS = 300
_UNREADABLE = (ValueError, RecursionError)  # msgspec's errors are ValueErrors


class Trouble(UnreachableError):
    """No answer, or none that helps: repeat the request, `wait_sec` from now at the earliest."""

    def __init__(self, message: str, *, wait_sec: float = 0.0) -> None:
        super().__init__(message)
        self.wait_sec = wait_sec


class Refused(Trouble):
    """The server refuses what the request says. The same request would be refused again."""

    code = EXIT_USAGE


class Revoked(CommandFailed):
    code = EXIT_REVOKED


class Outdated(CommandFailed):
    code = EXIT_OUTDATED


class Interrupted(Exception):
    """The request was ended by us."""


class _Error(msgspec.Struct):
    error: str
    reason: str = ""


def checked_server(url: str) -> str:
    """Return the address without a trailing slash. Raises UsageError, as for plain http to another machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        fits = parts.scheme in ("http", "https") and bool(host) and parts.port != 0
    except ValueError:
        fits, host = False, ""
    if not (fits and url.isascii() and url.isprintable() and not set(url) & set(' @?#"<>\\')):
        raise UsageError("--server is not a valid address. Example: https://status.example.com")
    if parts.scheme == "http" and not _is_loopback(host):
        raise UsageError("--server must be https; http is for this machine only, such as http://127.0.0.1:8000")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Server:
    """One persistent connection, for one thread. `is_over` is asked about once a second, and may end a request."""

    def __init__(
        self,
        url: str,
        *,
        ca_file: str | None,
        credential: str | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.url = url
        headers = ["Content-Type: application/json", "Accept: application/json", "Expect:"]
        if credential is not None:
            headers.append(f"Authorization: Bearer {credential}")
        self._curl = curl = pycurl.Curl()
        curl.setopt(pycurl.HTTPHEADER, headers)
        curl.setopt(pycurl.USERAGENT, f"Pulsekeeper/{product_version()}")
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        curl.setopt(pycurl.CONNECTTIMEOUT, _CONNECT_SEC)
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.TCP_KEEPALIVE, 1)
        curl.setopt(pycurl.NOPROGRESS, 0)
        curl.setopt(pycurl.XFERINFOFUNCTION, lambda *_: is_over())
        if ca_file is not None:
            curl.setopt(pycurl.CAINFO, ca_file)
        if url.startswith("http:"):
            curl.setopt(pycurl.PROXY, "")  # it would read what must not leave this machine

    def post(self, path: str, body: msgspec.Struct | bytes, answer: type[T], *, timeout_sec: float) -> T:
        """Send a request, and return its answer.

        Raises Trouble, Refused, Revoked, Outdated, and Interrupted if `is_over` became true.
        """
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        content = self._perform(path, data, timeout_sec)
        status = self._curl.getinfo(pycurl.RESPONSE_CODE)
        if status in (200, 201):
            try:
                return msgspec.json.decode(content, type=answer)
            except _UNREADABLE:
                raise Trouble(f"{self.url} does not answer as Pulsekeeper does") from None
        try:
            error = msgspec.json.decode(content, type=_Error)
        except _UNREADABLE:  # of a proxy
            error = None
        reason = "" if error is None else one_line(error.reason or error.error, limit=_REASON_CHARS)
        if error is not None and status == 401:
            raise Revoked(f"this agent was revoked; join with a new token to serve the location again: {reason}")
        if error is not None and status == 409 and error.error == "agent_outdated":
            raise Outdated(f"{self.url} does not accept agents of version {product_version()}: {reason}")
        text = f"{self.url} answers with status {status}" + (f": {reason}" if reason else "")
        if error is not None and status in (403, 413, 422):
            raise Refused(text)
        wait_sec = min(float(self._curl.getinfo(pycurl.RETRY_AFTER)), MAX_WAIT_SEC) if status in (429, 503) else 0.0
        raise Trouble(text, wait_sec=wait_sec)

    def _perform(self, path: str, data: bytes, timeout_sec: float) -> bytes:
        received = BytesIO()

        def receive(part: bytes) -> int:
            # Any other number than that of the bytes ends the request.
            return received.write(part) if received.tell() + len(part) <= MAX_ANSWER_BYTES else 0

        self._curl.setopt(pycurl.URL, self.url + path)
        self._curl.setopt(pycurl.POSTFIELDS, data)
        self._curl.setopt(pycurl.TIMEOUT_MS, int(timeout_sec * 1000))
        self._curl.setopt(pycurl.WRITEFUNCTION, receive)
        try:
            self._curl.perform()
        except pycurl.error as error:
            code, message = error.args[0], str(error.args[-1])
            if code == pycurl.E_ABORTED_BY_CALLBACK:
                raise Interrupted from None
            if code == pycurl.E_WRITE_ERROR:
                message = f"its answer is larger than {MAX_ANSWER_BYTES:,} bytes"
            raise Trouble(f"{self.url} cannot be reached: {one_line(message, limit=_REASON_CHARS)}") from None
        finally:
            self._curl.setopt(pycurl.POSTFIELDS, b"")
        return received.getvalue()

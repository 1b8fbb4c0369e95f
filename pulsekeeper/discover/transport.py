"""GET requests to the APIs of platforms: over TCP, TLS with a client's certificate, or a Unix socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from ssl import SSLContext, SSLError
from typing import Any
from urllib.parse import urlencode

from core.cli import UnreachableError
from core.text import sentence
from core.version import product_version

TIMEOUT_SEC = 60.0
MAX_ANSWER = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where an API is. `name` names it in messages; `token` is a secret."""

    name: str
    host: str = "localhost"
    port: int = 80
    socket_path: str = ""
    base: str = ""
    tls: SSLContext | None = None
    server_name: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r})"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: Any
    """The decoded JSON, or None."""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), "")


class _Connection(HTTPConnection):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint.host, endpoint.port, timeout=TIMEOUT_SEC)
        self._endpoint = endpoint

    def connect(self) -> None:
        if self._endpoint.socket_path:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(TIMEOUT_SEC)
            self.sock.connect(self._endpoint.socket_path)
            return
        super().connect()
        if self._endpoint.tls is not None:
            name = self._endpoint.server_name or self._endpoint.host
            self.sock = self._endpoint.tls.wrap_socket(self.sock, server_hostname=name)


def get(endpoint: Endpoint, path: str, parameters: Mapping[str, str] | None = None) -> Reply:
    """Return the answer; redirects are not followed. Raises UnreachableError, also if the answer is cut short."""
    query = f"?{urlencode(parameters)}" if parameters else ""
    headers = {"Accept": "application/json", "User-Agent": f"Pulsekeeper/{product_version()}", "Connection": "close"}
    if endpoint.token:
        headers["Authorization"] = f"Bearer {endpoint.token}"
    connection = _Connection(endpoint)
    try:
        connection.request("GET", endpoint.base + path + query, headers=headers)
        answer = connection.getresponse()
        data = answer.read(MAX_ANSWER + 1)
    except SSLError:
        raise UnreachableError(f"{endpoint.name}: its certificate is not trusted, or TLS fails") from None
    except TimeoutError:
        raise UnreachableError(f"{endpoint.name} does not answer in time") from None
    except PermissionError:
        raise UnreachableError(f"{endpoint.name}: this user may not connect to it") from None
    except (OSError, HTTPException, ValueError):
        raise UnreachableError(f"{endpoint.name} cannot be reached, or closed the connection") from None
    finally:
        connection.close()
    if len(data) > MAX_ANSWER:
        raise UnreachableError(f"{endpoint.name} answers with more than {MAX_ANSWER // 2**20} MiB")
    length = answer.getheader("Content-Length")
    if length is not None and length.isdecimal() and int(length) != len(data):
        raise UnreachableError(f"{endpoint.name} closed the connection before its answer was complete")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    return Reply(answer.status, dict(answer.headers), body)


def refused(endpoint: Endpoint, path: str, reply: Reply) -> UnreachableError:
    """Return the error for an answer that is not expected."""
    said = reply.body.get("message") if isinstance(reply.body, dict) else None
    why = f": {sentence(said)}" if isinstance(said, str) else ""
    return UnreachableError(f"{endpoint.name} answers {path} with status {reply.status}{why}")

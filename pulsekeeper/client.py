"""Requests of commands to a Pulsekeeper server, with a token. The standard library is enough, and starts quickly.

Proxies and certificate authorities are those of this machine: SSL_CERT_FILE and SSL_CERT_DIR name others.
"""

from __future__ import annotations

import json
import os
import re
import time
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from socket import gaierror
from ssl import SSLError
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from core.cli import UnreachableError, UsageError
from core.version import product_version

URL, TOKEN, TOKEN_FILE = "PULSEKEEPER_URL", "PULSEKEEPER_TOKEN", "PULSEKEEPER_TOKEN_FILE"
MAX_WAIT_SEC = 60.0


class AnswerLostError(UnreachableError):
    """The request was sent, and no complete answer came: the server may have executed it."""


def new_opener() -> OpenerDirector:
    """Return an opener without redirects: the token, or a URL that is a secret, must not reach another server.

    Its `open` raises ValueError if the address of a proxy is invalid.
    """
    opener = OpenerDirector()
    for handler in (ProxyHandler, HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor):
        opener.add_handler(handler())
    return opener


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the decoded body, or None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def error(self) -> str | None:
        """Return the code of an error response, or None."""
        return self._text("error")

    @property
    def reason(self) -> str | None:
        return self._text("reason")

    @property
    def wait_sec(self) -> float:
        return retry_after(self.headers.get("Retry-After"))

    @property
    def asks_to_wait(self) -> bool:
        return self.status == 429 or (self.status == 503 and "Retry-After" in self.headers)

    def _text(self, name: str) -> str | None:
        body = self.json()
        found = body.get(name) if isinstance(body, dict) else None
        return found if isinstance(found, str) else None


class Server:
    """A Pulsekeeper server as a token sees it. Raises UsageError for an invalid address or token."""

    def __init__(self, url: str, *, token: str, token_source: str = TOKEN) -> None:
        self.url = checked_address(url)
        token = token.strip()
        if not token.isascii() or not token.isprintable() or not token:
            raise UsageError(f"{token_source} contains no token")
        self._token_source = token_source
        self._opener = new_opener()
        self._headers = {
            "Authorization": f"Bearer {token}",
            "User-Agent": f"Pulsekeeper/{product_version()}",
            "Accept": "application/json",
        }

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout_sec: float,
        patience_sec: float = MAX_WAIT_SEC,
        max_bytes: int | None = None,
    ) -> Answer:
        """Return the answer. One that asks to wait is repeated for up to `patience_sec`, and returned after that.

        `timeout_sec` limits each wait for the network. Raises UnreachableError, AnswerLostError if the request may have
        been executed, and UsageError if its body is larger than `max_bytes`: a server that refuses it early closes the
        connection, and its answer is lost.
        """
        data = None if body is None else json.dumps(body).encode()
        if data is not None and max_bytes is not None and len(data) > max_bytes:
            raise UsageError(f"the request would have {len(data):,} bytes, and a server accepts {max_bytes:,}")
        deadline = time.monotonic() + patience_sec
        while True:
            answer = self._send(method, path, data, timeout_sec=timeout_sec)
            wait_sec = max(1.0, answer.wait_sec)
            if not answer.asks_to_wait or time.monotonic() + wait_sec > deadline:
                return answer
            time.sleep(wait_sec)

    def failure(self, answer: Answer) -> UsageError | UnreachableError:
        """Return the error for an answer that the command does not expect."""
        if answer.status == 401:
            return UsageError(f"{self.url} does not know the token in {self._token_source}, or it has expired")
        if 300 <= answer.status < 400:
            where = answer.headers.get("Location", "another address")
            return UsageError(f"{self.url} redirects to {where}; give that address")
        said = ", ".join(filter(None, [f"status {answer.status}", answer.error]))
        text = f"{self.url} answers with {said}" + (f": {answer.reason}" if answer.reason else "")
        return UsageError(text) if answer.status in (403, 404, 413, 422) and answer.error else UnreachableError(text)

    def no_pulsekeeper(self) -> UnreachableError:
        return UnreachableError(f"{self.url} does not answer as Pulsekeeper does")

    def _send(self, method: str, path: str, data: bytes | None, *, timeout_sec: float) -> Answer:
        headers = self._headers if data is None else {**self._headers, "Content-Type": "application/json"}
        request = Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310 (http or https)
        try:
            try:
                answered = self._opener.open(request, timeout=timeout_sec)
            except HTTPError as error:
                answered = error
            with answered:
                return Answer(answered.status or 0, answered.headers, answered.read())
        except URLError as error:  # before the request was complete
            raise UnreachableError(f"{self.url} cannot be reached: {_reason(error)}") from None
        except TimeoutError:
            raise AnswerLostError(f"{self.url} does not answer in time") from None
        except (OSError, HTTPException):
            raise AnswerLostError(f"{self.url} closed the connection before it answered") from None
        except ValueError:
            raise UsageError("the address of the proxy in the environment is invalid") from None


def add_server_arguments(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument("--url", metavar="BASE_URL", help=f"address of the server; default: {URL} in the environment")
    group.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help=f"file with a token; default: ${TOKEN}, or the file ${TOKEN_FILE}",
    )


def server_of(options: Mapping[str, Any]) -> Server:
    """Return the server that the options and the environment name. Raises UsageError."""
    url = options["url"] or os.environ.get(URL)
    if not url:
        raise UsageError(f"give --url, or {URL} in the environment")
    token, source = find_token(options.get("token_file"))
    return Server(url, token=token, token_source=source)


def find_token(file: Path | None) -> tuple[str, str]:
    """Return the token and the name of its source. No option has it, because others can see arguments."""
    if file is None and (token := os.environ.get(TOKEN)):
        return token, TOKEN
    named = file or os.environ.get(TOKEN_FILE)
    if not named:
        raise UsageError(f"a token is needed in the environment: {TOKEN}, or {TOKEN_FILE} with the name of a file")
    try:
        return Path(named).read_text("ascii", errors="replace"), str(named)
    except OSError as error:
        raise UsageError(f"{named}: {error.strerror}") from None


def checked_address(url: str) -> str:
    """Return the address without a trailing slash. Raises UsageError if it is invalid."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isascii() and url.isprintable()
        fits = fits and not {"?", "#", " "} & set(url) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise UsageError("--url is not a valid address. Example: https://status.example.com")
    if "@" in parts.netloc:
        raise UsageError(f"--url contains a user name or password; set the token in {TOKEN}")
    return url.rstrip("/")


def retry_after(text: str | None) -> float:
    """Return the seconds that a header Retry-After asks for, or 0 if it is missing or a date."""
    return float(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0.0


def _reason(error: URLError) -> str:
    if isinstance(error.reason, TimeoutError):
        return "connecting took too long"
    if isinstance(error.reason, SSLError):
        return "its certificate is not trusted, or TLS fails"
    if isinstance(error.reason, gaierror):
        return "the name of the server, or of the proxy, cannot be resolved"
    if refused := re.match(r"Tunnel connection failed: (\d{3})", str(error.reason)):
        return f"the proxy refuses with status {refused[1]}"
    return "nothing answers there"

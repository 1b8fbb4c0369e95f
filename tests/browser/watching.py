"""Faults that no page may have, recorded on every page of a browser context."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Request, Route, WebError


class Watch:
    """`faults`: console errors, including violations of the Content-Security-Policy, uncaught exceptions, and requests
    to other hosts, which are blocked."""

    def __init__(self, context: BrowserContext, *, address: str) -> None:
        self.faults: list[str] = []
        self._host = urlsplit(address).netloc
        self._context = context
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.route(self._is_foreign, self._refuse)
        context.route_web_socket("**/*", lambda socket: self.faults.append(f"a web socket to {socket.url}"))

    def close(self) -> None:
        """Requests that are still pending do not belong to a test."""
        self._context.unroute_all(behavior="ignoreErrors")
        self._context.close()

    def _is_foreign(self, url: str) -> bool:
        parts = urlsplit(url)
        return parts.scheme not in ("data", "blob") and parts.netloc != self._host

    def _refuse(self, route: Route, request: Request) -> None:
        self.faults.append(f"a request to another host: {request.method} {request.url}")
        route.abort()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text} ({message.location.get('url')})")

    def _error(self, error: WebError) -> None:
        self.faults.append(f"uncaught: {error.error}")


def without(faults: list[str], allowed: list[str]) -> list[str]:
    """Return the faults that are not allowed, and the allowed ones that did not happen."""
    is_allowed: Callable[[str], bool] = lambda fault: any(text in fault for text in allowed)  # noqa: E731
    never = [f"allowed, and never happened: {text}" for text in allowed if not any(text in f for f in faults)]
    return [fault for fault in faults if not is_allowed(fault)] + never

"""Check monitors through the REST API, for pipelines that have only a token.

The API waits for the worker's check, so one request is one check; several run in parallel. A throttled request (429)
is retried after its delay. The threads are daemons, so that an interrupted pipeline does not wait for them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Sequence
from urllib.parse import urlsplit

import requests

from core.version import product_version
from monitors.pipelines.findings import (
    Finding,
    FindingStatus,
    Target,
    UnreachableError,
    UsageError,
    from_check,
    to_target,
)

AT_ONCE = 8
CONNECT_SEC = 10.0
LIST_SEC = 60.0
PATIENCE_SEC = 15.0  # for the API, in addition to a check's timeout

_Answer = Finding | UsageError | UnreachableError


class _SilentError(UnreachableError):
    """The API was reached but did not answer in time."""


class Bearer(requests.auth.AuthBase):
    """Bearer authentication. A plain header would not do: `requests` replaces it with credentials from `.netrc`."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class ApiSource:
    """The monitors that a token can see at a Pulsekeeper address. Raises UsageError for an invalid address or token."""

    def __init__(self, base_url: str, *, token: str, project: str | None) -> None:
        self._base = checked_address(base_url)
        if not token.isascii() or not token.isprintable() or not token.strip():
            raise UsageError("PULSEKEEPER_TOKEN holds no token")
        self._auth = Bearer(token.strip())
        self._project = project

    def targets(self) -> list[Target]:
        answer = self._send("GET", "/v1/monitors", seconds=LIST_SEC)
        if answer.status_code != 200:
            raise self._failure(answer)
        try:
            targets = [to_target(monitor) for monitor in answer.json()]
        except (ValueError, KeyError, TypeError):
            raise UnreachableError(f"{self._base} does not answer as Pulsekeeper does") from None
        if self._project is not None:
            targets = [target for target in targets if target.project_id == self._project]
        return sorted(targets, key=lambda target: (target.name, target.id))

    def run(self, targets: Sequence[Target], *, timeout_sec: float) -> Generator[Finding]:
        deadline = time.monotonic() + timeout_sec
        open_: queue.SimpleQueue[Target] = queue.SimpleQueue()
        answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        for target in targets:
            open_.put(target)
        for _ in range(min(AT_ONCE, len(targets))):
            threading.Thread(target=self._work, args=(open_, answers, deadline), daemon=True).start()
        pending = {target.id: target for target in targets}
        while pending:
            try:
                answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if not isinstance(answer, Finding):
                raise answer
            del pending[answer.target.id]
            yield answer
        for target in pending.values():
            yield _not_checked(target, "It was not checked in time.")

    def _work(self, open_: queue.SimpleQueue[Target], answers: queue.SimpleQueue[_Answer], deadline: float) -> None:
        while time.monotonic() < deadline:
            try:
                target = open_.get_nowait()
            except queue.Empty:
                return
            try:
                answers.put(self._check(target, deadline))
            except (UsageError, UnreachableError) as error:
                answers.put(error)
                return

    def _check(self, target: Target, deadline: float) -> Finding:
        while True:
            seconds = min(target.timeout_ms / 1000 + PATIENCE_SEC, deadline - time.monotonic())
            if seconds <= 0:
                return _not_checked(target, "It was not checked in time.")
            try:
                answer = self._send("POST", f"/v1/monitors/{target.id}/checks", seconds=seconds)
            except _SilentError:
                return _not_checked(target, "The API did not answer in time.")
            if answer.status_code == 429:
                time.sleep(max(0.1, min(_retry_after(answer), deadline - time.monotonic())))
                continue
            return self._found(target, answer)

    def _found(self, target: Target, answer: requests.Response) -> Finding:
        code = _error_of(answer)
        if answer.status_code == 201:
            try:
                return from_check(target, answer.json())
            except (ValueError, KeyError, TypeError):
                raise UnreachableError(f"{self._base} does not answer as Pulsekeeper does") from None
        if code == "monitor_paused":
            return Finding(target, FindingStatus.PAUSED, detail="It was paused meanwhile.")
        if code == "no_worker":
            return _not_checked(target, "No worker made the check in time.")
        if code == "not_found":
            return _not_checked(target, "It was deleted meanwhile, or this Pulsekeeper is an older one.")
        if answer.status_code >= 500:
            return _not_checked(target, f"The API answered with status {answer.status_code}.")
        raise self._failure(answer)

    def _send(self, method: str, path: str, *, seconds: float) -> requests.Response:
        try:
            return requests.request(
                method,
                self._base + path,
                auth=self._auth,
                headers={"User-Agent": f"Pulsekeeper/{product_version()}", "Accept": "application/json"},
                timeout=(min(CONNECT_SEC, seconds), seconds),
                allow_redirects=False,  # never send the token to another address
            )
        except requests.ReadTimeout:
            raise _SilentError(f"{self._base} does not answer in time") from None
        except requests.RequestException as error:
            raise UnreachableError(f"{self._base} cannot be reached: {_reason(error)}") from None

    def _failure(self, answer: requests.Response) -> UsageError | UnreachableError:
        status, code = answer.status_code, _error_of(answer)
        if status == 401:
            return UsageError(f"{self._base} does not know the token in PULSEKEEPER_TOKEN, or it has expired")
        if 300 <= status < 400:
            where = answer.headers.get("Location", "another address")
            return UsageError(f"{self._base} redirects to {where}; give that address")
        text = f"status {status}" + (f", {code}" if code else "")
        return UnreachableError(f"{self._base} answers with {text}")


def checked_address(base_url: str) -> str:
    """Return the address without a trailing slash. Raises UsageError if it is invalid."""
    try:
        parts = urlsplit(base_url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname)
        fits = fits and not parts.query and not parts.fragment and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise UsageError("--url is no address like https://status.example.com")
    if "@" in parts.netloc:
        raise UsageError("--url holds a user name or password; the token is given in PULSEKEEPER_TOKEN")
    return base_url.rstrip("/")


def _not_checked(target: Target, why: str) -> Finding:
    return Finding(target, FindingStatus.NOT_CHECKED, detail=why)


def _error_of(answer: requests.Response) -> str | None:
    """Return the code of an error response, or None."""
    try:
        body = answer.json()
    except ValueError:
        return None
    code = body.get("error") if isinstance(body, dict) else None
    return code if isinstance(code, str) else None


def _retry_after(answer: requests.Response) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 1.0


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return "it takes too long to connect"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted, or TLS fails"
    return "nothing answers there" if isinstance(error, requests.ConnectionError) else "the request failed"

"""Check monitors through the REST API, for pipelines that have only a token.

The API waits for the worker's check, so one request is one check; several run in parallel. A throttled request (429)
is retried after its delay. The threads are daemons, so that an interrupted pipeline does not wait for them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Sequence

import msgspec

from core.cli import CommandFailed
from pulsekeeper.check.findings import Finding, FindingStatus, Target, from_check
from pulsekeeper.client import Answer, AnswerLostError, Server

AT_ONCE = 8
LIST_SEC = 60.0
PATIENCE_SEC = 15.0  # for the API, in addition to a check's timeout


class ApiSource:
    """The monitors that a token can see at a server."""

    def __init__(self, server: Server, *, project: str | None) -> None:
        self._server = server
        self._project = project

    def targets(self) -> list[Target]:
        answer = self._server.request("GET", "/v1/monitors", timeout_sec=LIST_SEC)
        if answer.status != 200:
            raise self._server.failure(answer)
        try:
            targets = msgspec.convert(answer.json(), list[Target])
        except ValueError:
            raise self._server.no_pulsekeeper() from None
        if self._project is not None:
            targets = [target for target in targets if target.project_id == self._project]
        return sorted(targets, key=lambda target: (target.name, target.id))

    def run(self, targets: Sequence[Target], *, timeout_sec: float) -> Generator[Finding]:
        deadline = time.monotonic() + timeout_sec
        waiting: queue.SimpleQueue[Target] = queue.SimpleQueue()
        answers: queue.SimpleQueue[Finding | CommandFailed] = queue.SimpleQueue()
        for target in targets:
            waiting.put(target)

        def work() -> None:
            while (remaining := deadline - time.monotonic()) > 0:
                try:
                    answers.put(self._check(waiting.get_nowait(), remaining))
                except queue.Empty:
                    return
                except CommandFailed as error:
                    answers.put(error)
                    return

        for _ in range(min(AT_ONCE, len(targets))):
            threading.Thread(target=work, daemon=True).start()
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

    def _check(self, target: Target, remaining: float) -> Finding:
        seconds = min(target.timeout_ms / 1000 + PATIENCE_SEC, remaining)
        path = f"/v1/monitors/{target.id}/checks"
        try:
            answer = self._server.request("POST", path, timeout_sec=seconds, patience_sec=remaining)
        except AnswerLostError:
            return _not_checked(target, "The API did not answer in time.")
        return self._found(target, answer)

    def _found(self, target: Target, answer: Answer) -> Finding:
        if answer.status == 201:
            try:
                return from_check(target, answer.json())
            except (ValueError, TypeError):
                raise self._server.no_pulsekeeper() from None
        if answer.error == "monitor_paused":
            return Finding(target, FindingStatus.PAUSED, detail="It was paused during the check.")
        if answer.error == "no_worker":
            return _not_checked(target, answer.reason or "No worker ran the check in time.")
        if answer.error == "not_found":
            return _not_checked(target, "It was deleted during the check, or this Pulsekeeper is too old.")
        if answer.status == 429:
            return _not_checked(target, "It was not checked in time.")
        if answer.status >= 500:
            return _not_checked(target, f"The API answered with status {answer.status}.")
        raise self._server.failure(answer)


def _not_checked(target: Target, why: str) -> Finding:
    return Finding(target, FindingStatus.NOT_CHECKED, detail=why)

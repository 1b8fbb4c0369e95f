"""Commands on an account at a server, through its API. Plain Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import msgspec

from checks.addresses import UntestedError, tls_question
from core.cli import UsageError
from pulsekeeper.client import Answer, AnswerLostError, add_server_arguments, server_of
from pulsekeeper.importers.mapped import Imported, MappedFile
from pulsekeeper.manifest.changes import MAX_BODY, Change, Report
from pulsekeeper.manifest.commands import Backend, NoRoomError
from pulsekeeper.manifest.problems import Document, InvalidManifest, Problem, parse_path
from pulsekeeper.manifest.secrets import variables_in

TIMEOUT_SEC = 120.0


class RemoteBackend(Backend):
    example = "--url https://pulsekeeper.example.com"
    private_networks = "the operator of the server can allow them."
    add_arguments = staticmethod(add_server_arguments)

    def __init__(self, options: Mapping[str, Any], *, environment: Mapping[str, str] = os.environ) -> None:
        self._server = server_of(options)
        self._environment = environment

    def apply(self, document: Document, *, prune: bool, dry_run: bool) -> Report:
        if not isinstance(document.root, dict):
            raise InvalidManifest([document.problem((), "the file must be a map.")])
        variables = variables_in(document.root, self._environment)
        body = {"manifest": document.root, "variables": variables, "prune": prune, "dry_run": dry_run}
        lost = "the file was applied completely or not at all: apply it again"
        answer = self._send("PUT", "/v1/manifest", body, lost=lost)
        found = answer.json()
        try:
            if answer.status == 422 and "problems" in found:
                raise InvalidManifest([_problem(document, problem) for problem in found["problems"]])
            if answer.status != 200:
                raise self._server.failure(answer)
            return Report(
                [
                    change if change.path is None else replace(change, line=document.line(parse_path(change.path)))
                    for change in msgspec.convert(found["changes"], list[Change])
                ],
                [_problem(document, note) for note in found["notes"]],
                int(found["unmentioned"]),
                int(found["first_checks"]),
                applied=not dry_run,
            )
        except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError):
            raise self._server.no_pulsekeeper() from None

    def export(self, *, project_id: str | None, with_ids: bool) -> dict[str, Any]:
        params = ({} if project_id is None else {"project_id": project_id}) | ({"ids": "true"} if with_ids else {})
        answer = self._server.request("GET", f"/v1/manifest?{urlencode(params)}", timeout_sec=TIMEOUT_SEC)
        if answer.status == 422 and project_id is not None and answer.error == "validation_error":
            raise UsageError(f"project {project_id} not found in this account")
        if answer.status != 200:
            raise self._server.failure(answer)
        found = answer.json()
        if not isinstance(found, dict):
            raise self._server.no_pulsekeeper()
        return found

    def import_monitors(self, mapped: MappedFile, *, project_id: str | None, dry_run: bool) -> list[Imported]:
        known = {each.key for each in mapped.channels}
        monitors = [
            {"name": each.name, "body": each.body, "enabled": each.enabled}
            | ({"group": each.group} if each.group and project_id is None else {})
            | ({"channels": keys} if (keys := [key for key in each.channels if key in known]) else {})
            for each in mapped.monitors
        ]
        channels = [
            {"key": each.key, "name": each.name, "body": each.body, "enabled": each.enabled} for each in mapped.channels
        ]
        body = {"monitors": monitors, "dry_run": dry_run} | ({} if project_id is None else {"project_id": project_id})
        body |= {"channels": channels} if channels else {}
        answer = self._send("POST", "/v1/imports", body, lost="all or none were created: import the file again")
        found = answer.json()
        if answer.error == "monitor_limit":
            raise NoRoomError(found.get("limit"))
        if answer.status != 200:
            raise self._server.failure(answer)
        try:
            imported = msgspec.convert(found, list[Imported])
        except msgspec.ValidationError:
            raise self._server.no_pulsekeeper() from None
        if len(imported) != len(mapped.items):
            raise self._server.no_pulsekeeper()
        return imported

    def begins_tls(self, host: str, port: int) -> bool:
        try:
            answer = self._server.request(
                "POST", "/v1/monitors/test", tls_question(host, port), timeout_sec=TIMEOUT_SEC
            )
        except AnswerLostError:
            raise UntestedError from None
        except ValueError:
            return True  # no valid name: the completed address is refused
        if answer.status == 422:
            return True
        found = answer.json()
        if answer.status != 200 or not isinstance(found, dict):
            raise UntestedError
        return found.get("status") != "down"

    def _send(self, method: str, path: str, body: Any, *, lost: str) -> Answer:
        """Return the answer. `lost` says what to do if it is lost, also by a proxy that did not wait for it."""
        try:
            answer = self._server.request(method, path, body, timeout_sec=TIMEOUT_SEC, max_bytes=MAX_BODY)
        except AnswerLostError as error:
            raise AnswerLostError(f"{error}; {lost}") from None
        if answer.status in (502, 504) and answer.error is None:
            raise AnswerLostError(f"{self._server.failure(answer)}; {lost}")
        return answer


def _problem(document: Document, found: Mapping[str, Any]) -> Problem:
    """Return the problem with its position in the file, which the server does not know."""
    path = str(found["path"])
    problem = document.problem(parse_path(path), str(found["message"]), at_key=found.get("at_key") is True)
    return replace(problem, path=path)

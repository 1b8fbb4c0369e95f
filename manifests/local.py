"""Commands on an account in the database."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from accounts.models import User
from core.cli import UnreachableError, UsageError
from core.clock import utc_now
from core.errors import MonitorLimit, TooManyRequests, ValidationFailed
from manifests.applying import apply
from manifests.exporting import export
from manifests.importing import import_monitors
from manifests.parsing import Manifest
from monitors.checking import interactive
from projects.access import Caller
from pulsekeeper.importers.mapped import Imported, MappedFile
from pulsekeeper.manifest.changes import Report
from pulsekeeper.manifest.commands import Backend, NoRoomError
from pulsekeeper.manifest.problems import Document


class LocalBackend(Backend):
    example = "--account me@example.com"
    private_networks = "ALLOWED_PRIVATE_NETWORKS allows them."

    def __init__(self, options: Mapping[str, Any]) -> None:
        email = options["account"]
        user = User.objects.select_related("plan").filter(email=email.strip().lower()).first()
        if user is None:
            raise UsageError(f"account {email} not found")
        self._caller = Caller(user)

    @staticmethod
    def add_arguments(parser: ArgumentParser) -> None:
        parser.add_argument("--account", required=True, metavar="EMAIL", help="the account")

    def apply(self, document: Document, *, prune: bool, dry_run: bool) -> Report:
        try:
            return apply(Manifest(document, os.environ), self._caller, prune=prune, dry_run=dry_run, now=utc_now())
        except TooManyRequests as error:
            raise UnreachableError(str(error)) from None

    def export(self, *, project_id: str | None, with_ids: bool) -> dict[str, Any]:
        try:
            return export(self._caller, project_id=project_id, with_ids=with_ids, now=utc_now())
        except ValidationFailed:
            raise UsageError(f"project {project_id} not found in this account.") from None

    def import_monitors(self, mapped: MappedFile, *, project_id: str | None, dry_run: bool) -> list[Imported]:
        place = {} if project_id is None else {"project_id": project_id}
        try:
            return import_monitors(self._caller, mapped, place=place, now=utc_now(), dry_run=dry_run).outcomes
        except ValidationFailed:  # unknown project; errors of single monitors are notes
            raise UsageError(f"{self._caller.user.email} has no project {project_id}") from None
        except MonitorLimit as error:
            raise NoRoomError(error.limit) from None
        except TooManyRequests as error:
            raise UnreachableError(str(error)) from None

    def begins_tls(self, host: str, port: int) -> bool:
        return interactive.begins_tls(self._caller, host, port)

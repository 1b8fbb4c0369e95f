"""Export an account as a manifest. Applying the export changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from core.errors import ValidationFailed
from manifests.account import ProjectRef, open_account
from manifests.naming import ExportNames
from manifests.parsing import VERSION
from manifests.resources import RESOURCES
from manifests.resources.base import Resource
from projects.access import Caller

Entries = list[dict[str, Any]]


class Export:
    """A manifest of the whole account, or of one project: a project token exports its own.

    `head` has the keys before the sections. Entries have ids if names are ambiguous, or `with_ids`. They are sorted by
    project and name, so that exports diff well. Raises ValidationFailed for an unknown project.
    """

    def __init__(self, caller: Caller, *, project_id: str | None, with_ids: bool, now: datetime) -> None:
        if project_id is None and caller.project is not None:
            project_id = caller.project.public_id
        self._account, self._with_ids = open_account(caller), with_ids
        for resource in RESOURCES:
            self._account.existing[resource.section] = resource.read(self._account, now=now)
        project_refs = sorted(self._account.project_refs.values(), key=lambda one: (one.name, one.id))
        if project_id is not None:
            project_refs = [project_ref for project_ref in project_refs if project_ref.id == project_id]
            if not project_refs:
                raise ValidationFailed("project not found.", field="project_id")
        shown: list[ProjectRef | None] = [*project_refs] if project_id is not None else [None, *project_refs]
        self._order = {project_ref: number for number, project_ref in enumerate(shown)}
        self._names = ExportNames(self._account, project_refs)
        self.head: dict[str, Any] = {"version": VERSION}
        if project_id is None:
            self.head["ungrouped"] = True
        self.head["projects"] = [self._names.project_entry(one, with_id=with_ids) for one in project_refs]

    def sections(self) -> Iterator[tuple[str, Iterator[Entries]]]:
        """Yield the name of each section and its entries, a few at a time. Read each before the next one."""
        for resource in RESOURCES:
            yield resource.section, self._entries(resource)

    def _entries(self, resource: Resource) -> Iterator[Entries]:
        existing = self._account.existing[resource.section]
        there = [one for one in existing if one.project_ref in self._order and not one.is_over]
        there.sort(key=lambda one: (self._order[one.project_ref], one.name, one.id))
        twice = Counter((one.project_ref, one.name) for one in existing)
        for start in range(0, len(there), resource.at_once):
            loaded = [replace(one) for one in there[start : start + resource.at_once]]  # the account keeps no values
            resource.load(self._account, loaded)
            entries = []
            for one in loaded:
                if not one.values:  # deleted since
                    continue
                entry: dict[str, Any] = {}
                if self._with_ids or twice[one.project_ref, one.name] > 1:
                    entry["id"] = one.shown_id(self._account.caller)
                entry |= {name: one.values[name] for name in ("slug", "name") if name in one.values}
                entry |= {} if one.project_ref is None else {"project": self._names.project(one.project_ref)}
                entries.append(entry | resource.exported(one, self._names))
            yield entries


def export(caller: Caller, *, project_id: str | None, with_ids: bool, now: datetime) -> dict[str, Any]:
    """Return an Export as one document."""
    found = Export(caller, project_id=project_id, with_ids=with_ids, now=now)
    sections = {name: [entry for part in parts for entry in part] for name, parts in found.sections()}
    return found.head | sections

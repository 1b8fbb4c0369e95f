"""Export an account as a manifest. Applying the export changes nothing."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from core.errors import ValidationFailed
from manifests.account import ProjectRef, open_account
from manifests.naming import ExportNames
from manifests.parsing import VERSION
from manifests.resources import RESOURCES
from projects.access import Caller


def export(caller: Caller, *, project_id: str | None, with_ids: bool, now: datetime) -> dict[str, Any]:
    """Export the whole account, or one project: a project token exports its own. Entries have ids if names are
    ambiguous, or `with_ids`.

    Entries are sorted by project and name, so that exports diff well. Raises ValidationFailed for an unknown project.
    """
    if project_id is None and caller.project is not None:
        project_id = caller.project.public_id
    account = open_account(caller)
    for resource in RESOURCES:
        account.existing[resource.section] = resource.read(account, now=now)
    project_refs = sorted(account.project_refs.values(), key=lambda project_ref: (project_ref.name, project_ref.id))
    if project_id is not None:
        project_refs = [project_ref for project_ref in project_refs if project_ref.id == project_id]
        if not project_refs:
            raise ValidationFailed("you have no such project.", field="project_id")
    shown: list[ProjectRef | None] = [*project_refs] if project_id is not None else [None, *project_refs]
    names = ExportNames(account, project_refs)
    document: dict[str, Any] = {"version": VERSION}
    if project_id is None:
        document["ungrouped"] = True
    document["projects"] = [names.project_entry(project_ref, with_id=with_ids) for project_ref in project_refs]
    for resource in RESOURCES:
        existing = account.existing[resource.section]
        there = [one for one in existing if one.project_ref in shown and not one.is_over]
        there.sort(key=lambda one: (shown.index(one.project_ref), one.name, one.id))
        twice = Counter((one.project_ref, one.name) for one in existing)
        document[resource.section] = entries = []
        for one in there:
            entry: dict[str, Any] = {"id": one.id} if with_ids or twice[one.project_ref, one.name] > 1 else {}
            entry |= {name: one.values[name] for name in ("slug", "name") if name in one.values}
            entry |= {} if one.project_ref is None else {"project": names.project(one.project_ref)}
            entries.append(entry | resource.exported(one, names))
    return document

"""Export an account as a manifest. Applying the export changes nothing."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from accounts.models import User
from core.errors import NotFound
from manifests.account import Account, open_account
from manifests.entries import Existing, MonitorRef, ProjectRef
from manifests.parsing import VERSION
from manifests.resources import all_resources
from manifests.resources.base import ExportContext
from manifests.secrets import Variables


def export(user: User, *, project_id: str | None, with_ids: bool, now: datetime) -> dict[str, Any]:
    """Export the whole account, or one project. Entries have ids if names are ambiguous, or `with_ids`.

    Entries are sorted by project and name, so that exports diff well. Raises NotFound for an unknown project.
    """
    account = open_account(user)
    resources = all_resources(user)
    for resource in resources:
        account.existing[resource.section] = resource.read(account, now=now)
    project_refs = sorted(account.project_refs.values(), key=lambda project_ref: (project_ref.name, project_ref.id))
    if project_id is not None:
        project_refs = [project_ref for project_ref in project_refs if project_ref.id == project_id]
        if not project_refs:
            raise NotFound(f"no project {project_id} in this account.")
    shown: list[ProjectRef | None] = [*project_refs] if project_id is not None else [None, *project_refs]
    naming = _Naming(account, project_refs)
    document: dict[str, Any] = {"version": VERSION}
    if project_id is None:
        document["ungrouped"] = True
    document["projects"] = [naming.project(project_ref, with_id=with_ids) for project_ref in project_refs]
    context = ExportContext(naming.project_ref, naming.monitor, Variables())
    for resource in resources:
        there = [one for one in account.existing[resource.section] if one.project_ref in shown and not one.is_over]
        there.sort(key=lambda one: (shown.index(one.project_ref), one.name, one.id))
        twice = Counter((one.project_ref, one.name) for one in account.existing[resource.section])
        document[resource.section] = []
        for one in there:
            written = resource.write(one, context)
            if with_ids or twice[one.project_ref, one.name] > 1:
                written = {"id": one.id, **written}
            document[resource.section].append(written)
    return document


class _Naming:
    """Name projects and monitors by their names if these are unique, else by id."""

    def __init__(self, account: Account, project_refs: list[ProjectRef]) -> None:
        self.account = account
        self.project_names = Counter(project_ref.name for project_ref in account.project_refs.values())
        self.project_refs = project_refs
        monitors = account.existing["monitors"]
        self.monitors: dict[str, Existing] = {one.id: one for one in monitors}
        self.monitor_names = Counter((one.project_ref, one.name) for one in monitors)

    def project(self, project_ref: ProjectRef, *, with_id: bool) -> dict[str, Any]:
        needed = with_id or self.project_names[project_ref.name] > 1
        return {"id": project_ref.id, "name": project_ref.name} if needed else {"name": project_ref.name}

    def project_ref(self, project_ref: ProjectRef | None) -> str | None:
        if project_ref is None:
            return None
        return project_ref.name if self.project_names[project_ref.name] == 1 else project_ref.id

    def monitor(self, monitor_ref: MonitorRef, home: ProjectRef | None) -> Any:
        found = self.monitors[monitor_ref.key]
        # Only listed projects can be named.
        listed = found.project_ref is None or found.project_ref in self.project_refs
        if self.monitor_names[found.project_ref, found.name] > 1 or not listed:
            return {"id": found.id}
        if found.project_ref is home:
            return found.name
        return {"project": self.project_ref(found.project_ref), "name": found.name}

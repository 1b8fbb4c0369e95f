"""An account as a file: what `apply` would find nothing to change in."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from accounts.models import User
from core.errors import NotFound
from manifests.account import Account, open_account
from manifests.entries import Handle, Place, Present
from manifests.parsing import VERSION
from manifests.resources import all_kinds
from manifests.resources.base import Writing
from manifests.secrets import Variables


def export(user: User, *, project_id: str | None, with_ids: bool, now: datetime) -> dict[str, Any]:
    """The whole account, or one project of it. Things have ids where their names would not do, or all `with_ids`.

    Sorted by project and name, so that two exports differ in nothing but what is different. Raises NotFound for a
    project that is none of the account's.
    """
    account = open_account(user)
    kinds = all_kinds(user)
    for kind in kinds:
        account.present[kind.section] = kind.read(account, now=now)
    places = sorted(account.places.values(), key=lambda place: (place.name, place.id))
    if project_id is not None:
        places = [place for place in places if place.id == project_id]
        if not places:
            raise NotFound(f"there is no project {project_id} in this account.")
    shown: list[Place | None] = [*places] if project_id is not None else [None, *places]
    naming = _Naming(account, places)
    document: dict[str, Any] = {"version": VERSION}
    if project_id is None:
        document["ungrouped"] = True
    document["projects"] = [naming.project(place, with_id=with_ids) for place in places]
    writing = Writing(naming.place, naming.monitor, Variables())
    for kind in kinds:
        there = [one for one in account.present[kind.section] if one.place in shown and not one.is_over]
        there.sort(key=lambda one: (shown.index(one.place), one.name, one.id))
        twice = Counter((one.place, one.name) for one in account.present[kind.section])
        document[kind.section] = []
        for one in there:
            written = kind.write(one, writing)
            if with_ids or twice[one.place, one.name] > 1:
                written = {"id": one.id, **written}
            document[kind.section].append(written)
    return document


class _Naming:
    """How a file names projects and monitors: by name, where one alone has it."""

    def __init__(self, account: Account, places: list[Place]) -> None:
        self.account = account
        self.project_names = Counter(place.name for place in account.places.values())
        self.places = places
        monitors = account.present["monitors"]
        self.monitors: dict[str, Present] = {one.id: one for one in monitors}
        self.monitor_names = Counter((one.place, one.name) for one in monitors)

    def project(self, place: Place, *, with_id: bool) -> dict[str, Any]:
        needed = with_id or self.project_names[place.name] > 1
        return {"id": place.id, "name": place.name} if needed else {"name": place.name}

    def place(self, place: Place | None) -> str | None:
        if place is None:
            return None
        return place.name if self.project_names[place.name] == 1 else place.id

    def monitor(self, handle: Handle, home: Place | None) -> Any:
        found = self.monitors[handle.key]
        # A project that the file does not list cannot be named in it.
        listed = found.place is None or found.place in self.places
        if self.monitor_names[found.place, found.name] > 1 or not listed:
            return {"id": found.id}
        if found.place is home:
            return found.name
        return {"project": self.place(found.place), "name": found.name}

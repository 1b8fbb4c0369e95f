"""Compare a manifest with the account: new, changed and unmentioned objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from core.errors import ValidationFailed
from manifests.account import Account, Entry, Existing, ProjectRef
from manifests.naming import Key, Names
from manifests.parsing import Manifest
from manifests.problems import EntryError, InvalidReferenceError, Path, Problem, parse_path
from manifests.resources import RESOURCES
from manifests.resources.base import Resource

_FIELDS: Mapping[str | int, str] = {
    "project_id": "project",
    "monitor_id": "monitor",
    "monitor_ids": "monitors",
    "scope_project_id": "monitors",
}
"""The fields of services that have other names in files."""


@dataclass(slots=True)
class Plan:
    """The comparison. `project_refs` and `entries` are those of the file, in its order.

    `unmentioned` are existing objects that --prune deletes, by section.
    """

    account: Account
    manifest: Manifest
    project_refs: list[tuple[Path, ProjectRef]] = field(default_factory=list)
    renamed: dict[ProjectRef, str] = field(default_factory=dict)  # previous names of projects
    entries: list[Entry] = field(default_factory=list)
    unmentioned: dict[str, list[Existing]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def problem(self, path: Path, message: str) -> None:
        self.problems.append(self.manifest.document.problem(path, message))


def plan(manifest: Manifest, account: Account, *, now: datetime) -> Plan:
    """Compare the file with the account. Reads the account's monitors and the sections of the file; writes nothing."""
    return _Planner(manifest, account).plan(now)


class _Planner:
    def __init__(self, manifest: Manifest, account: Account) -> None:
        self.manifest, self.account = manifest, account
        self.found = Plan(account, manifest, problems=list(manifest.problems))
        self.names = Names(manifest, account)

    def plan(self, now: datetime) -> Plan:
        self._match_projects()
        for resource in RESOURCES:
            section = resource.section
            # Monitors are always read, because other entries refer to them.
            if section in self.manifest.sections or section == "monitors":
                self.account.existing[section] = resource.read(self.account, now=now)
            entries = self._match(resource)
            if section == "monitors":
                self.names.add_monitors(entries)
            for entry in entries:
                self._resolve(resource, entry)
            self.found.entries += entries
        self.found.project_refs = sorted(self.names.project_refs, key=lambda pair: pair[0][1])
        self._find_unmentioned()
        return self.found

    def _match_projects(self) -> None:
        """Match the projects, those with ids first: a renamed project no longer matches its old name."""
        taken: dict[ProjectRef, Path] = {}
        for entry in sorted(self.manifest.sections.get("projects", []), key=lambda entry: entry.id is None):
            field_ = "id" if entry.id is not None else "name"
            found = [one for one in self.account.project_refs.values() if getattr(one, field_) == entry.given[field_]]
            if entry.id is not None and not found:
                self._refuse(entry, "id", "you have no such project; without an id it is found by name, or created.")
                continue
            if not found and self.account.caller.project is not None:
                self._refuse(entry, "name", "a project token cannot create projects, and works in its own only.")
                continue
            if len(found) > 1:
                self._refuse(entry, "name", f"you have {len(found)} projects with this name; set id.")
                continue
            project_ref = found[0] if found else ProjectRef(entry.name, self.account.caller.user)
            twins = [one for one in taken if one is project_ref or (not found and one.name == entry.name)]
            if twins:
                self.found.problem(entry.path, f"is already {self.manifest.document.place(taken[twins[0]])}.")
                continue
            taken[project_ref] = entry.path
            self.names.add_project(entry.path, project_ref, entry.name)
            if project_ref.name != entry.name:
                self.found.renamed[project_ref], project_ref.name = project_ref.name, entry.name

    def _match(self, resource: Resource) -> list[Entry]:
        """Set `existing` of the entries of a section: found by id, else by name within the project.

        Return the valid entries. Ids match first, so that a name does not match the same object.
        """
        existing = self.account.existing.get(resource.section, [])
        by_id = {one.id: one for one in existing}
        by_name: dict[Key, list[Existing]] = defaultdict(list)
        for one in existing:
            by_name[_key(resource, one)].append(one)
        claimed: dict[Existing, Path] = {}
        named: dict[Key, Path] = {}
        refused = set()
        entries = [entry for entry in self.manifest.sections.get(resource.section, []) if self._place(entry)]
        for entry in sorted(entries, key=lambda entry: entry.id is None):
            entry.existing = entry.values = entry.config = None  # of a plan that a concurrent change made outdated
            key = _key(resource, entry)
            problem = None
            if entry.id is not None:
                entry.existing = by_id.get(entry.id)
                if entry.existing is None:
                    problem = f"you have no such {resource.noun}; without an id it is found by name, or created."
                elif entry.existing in claimed:
                    problem = f"is already {self.manifest.document.place(claimed[entry.existing])}."
                else:
                    claimed[entry.existing] = entry.path
            else:
                found = [one for one in by_name[key] if one not in claimed]
                if key in named:
                    problem = (
                        f"{entry.name!r} is already {self.manifest.document.place(named[key])}; "
                        f"give each {resource.noun} of a project its own {resource.identity}, or set id."
                    )
                elif len(found) > 1:
                    problem = f"you have {len(found)} with this name here; set id."
                elif found:
                    entry.existing = found[0]
                named.setdefault(key, entry.path)
            if problem is not None:
                self._refuse(entry, resource.identity if entry.id is None else "id", problem)
                refused.add(entry)
        return [entry for entry in entries if entry not in refused]

    def _place(self, entry: Entry) -> bool:
        """Set the project of an entry. Return whether it is valid."""
        try:
            entry.project_ref = self.names.project(entry.given.get("project"), (*entry.path, "project"))
        except (EntryError, InvalidReferenceError) as error:
            self._reject(entry, error)
            return False
        if entry.project_ref is None and self.account.caller.project is not None:
            self._reject(entry, EntryError(entry.path, "set project: a project token works in its own project only."))
            return False
        return True

    def _resolve(self, resource: Resource, entry: Entry) -> None:
        try:
            entry.values = resource.desired(entry, self.names)
        except (EntryError, InvalidReferenceError) as error:
            self._reject(entry, error)
            return
        except ValidationFailed as error:
            self._reject(entry, EntryError(*locate_error(entry.path, error)))
            return
        asked = entry.given.get("interval_sec") if entry.section == "monitors" else None
        if asked is not None and asked < entry.values["interval_sec"]:
            said = f"{asked} is raised to {entry.values['interval_sec']}, the shortest interval of the plan."
            self.found.notes.append(self.manifest.document.problem((*entry.path, "interval_sec"), said))

    def _refuse(self, entry: Entry, name: str, message: str) -> None:
        self._reject(entry, EntryError((*entry.path, name), message))

    def _reject(self, entry: Entry, error: EntryError | InvalidReferenceError) -> None:
        """Report the error, unless it is about an invalid reference, which is already reported."""
        if isinstance(error, EntryError):
            self.found.problem(error.path, error.message)
        self.names.reject(entry.path, entry.given)

    def _find_unmentioned(self) -> None:
        """Find existing objects in the file's scope that it does not list.

        The scope is the file's sections in its projects, and with `ungrouped: true` also outside of projects.
        """
        managed: set[ProjectRef | None] = {project_ref for _, project_ref in self.found.project_refs}
        if self.manifest.ungrouped:
            managed.add(None)
        named = {entry.existing for entry in self.found.entries}
        for section, existing in self.account.existing.items():
            if section in self.manifest.sections:
                self.found.unmentioned[section] = [
                    one for one in existing if one.project_ref in managed and one not in named and not one.is_over
                ]


def _key(resource: Resource, one: Entry | Existing) -> Key:
    """Return the key that identifies an entry or object. Slugs are unique across projects."""
    return (None if resource.identity == "slug" else one.project_ref, one.name)


def locate_error(path: Path, error: ValidationFailed) -> tuple[Path, str]:
    """Return the path in the file and the message for an error of a service."""
    if error.field is None:
        return path, str(error)
    steps = [_FIELDS.get(step, step) for step in parse_path(error.field)]
    return (*path, *steps), str(error).removeprefix(f"{error.field}: ")

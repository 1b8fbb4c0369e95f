"""Compare a manifest with the account: new, changed and unmentioned objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.errors import ValidationFailed
from manifests.account import Account
from manifests.entries import Entry, Existing, ProjectRef, Values
from manifests.matching import Matching, Pair
from manifests.naming import InvalidEntries, Monitors, Projects
from manifests.parsing import Item, Manifest
from manifests.problems import Path, Problem, parse_path
from manifests.resources.base import EntryError, InvalidReferenceError, Resolver, Resource


@dataclass(slots=True)
class Plan:
    """The comparison. `project_refs` and `entries` are those of the file, in its order.

    `unmentioned` are existing objects that --prune deletes.
    """

    account: Account
    manifest: Manifest
    project_refs: list[tuple[Path, ProjectRef]] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)  # previous names of projects, by id
    entries: list[Entry] = field(default_factory=list)
    unmentioned: list[Existing] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def problem(self, path: Path, message: str) -> None:
        self.problems.append(self.manifest.document.problem(path, message))


def changed_fields(entry: Entry) -> list[str]:
    """Return the fields that differ between the existing object and the file."""
    if entry.existing is None or entry.values is None:
        return []
    before, after = entry.existing.values, entry.values
    return [name for name in after if before[name] != after[name]]


def plan(manifest: Manifest, account: Account, resources: Sequence[Resource], *, now: datetime) -> Plan:
    """Compare the file with the account. Reads the account's monitors and the sections of the file; writes nothing."""
    return _Planner(manifest, account, resources, now=now).plan()


class _Planner:
    def __init__(self, manifest: Manifest, account: Account, resources: Sequence[Resource], *, now: datetime) -> None:
        self.manifest, self.account, self.resources, self.now = manifest, account, resources, now
        self.found = Plan(account, manifest, problems=list(manifest.problems))
        self.invalid = InvalidEntries(manifest)
        self.projects = Projects(account, self.invalid, report=self.found.problem)

    def plan(self) -> Plan:
        self.projects.add(self.manifest.sections.get("projects", []), self._line)
        self.found.project_refs, self.found.renamed = self.projects.project_refs, self.projects.renamed
        matched = [(resource, self._match(resource)) for resource in self.resources]
        entries = {resource.section: [entry for _, entry in pairs] for resource, pairs in matched}
        monitors = Monitors(entries["monitors"], self.account.existing["monitors"], self.projects, self.invalid)
        names = Resolver(self.projects.find, monitors.find)
        for resource, pairs in matched:
            for item, entry in pairs:
                self._resolve(resource, item, entry, names)
            self.found.entries += [entry for _, entry in pairs]
        self._find_unmentioned()
        return self.found

    def _match(self, resource: Resource) -> list[Pair]:
        """Match the entries of a section. Monitors are always read, because other entries refer to them."""
        if resource.section in self.manifest.sections or resource.section == "monitors":
            self.account.existing[resource.section] = resource.read(self.account, now=self.now)
        pairs = []
        for item in self.manifest.sections.get(resource.section, []):
            try:
                project_ref = self.projects.find(item.take("project"), (*item.path, "project"))
            except (EntryError, InvalidReferenceError) as error:
                self._reject(resource, item, error)
                continue
            name = item.given[resource.identity]
            entry = Entry(resource.section, item.path, name, project_ref, item.given, item.take("id"))
            pairs.append((item, entry))
        existing = self.account.existing.get(resource.section, [])
        return Matching(resource, existing, self.invalid, report=self.found.problem, line=self._line).match(pairs)

    def _resolve(self, resource: Resource, item: Item, entry: Entry, names: Resolver) -> None:
        try:
            entry.values = resource.desired(item, entry, names)
        except (EntryError, InvalidReferenceError) as error:
            self._reject(resource, item, error)
        except ValidationFailed as error:
            self._reject(resource, item, EntryError(*locate_error(resource, item.path, error)))
        else:
            self._note_raised(item, entry.values)

    def _reject(self, resource: Resource, item: Item, error: EntryError | InvalidReferenceError) -> None:
        """Report the error, unless it is about an invalid reference, which is already reported."""
        if isinstance(error, EntryError):
            self.found.problem(error.path, error.message)
        self.invalid.add(item.path, *item.words(resource.identity))

    def _line(self, path: Path) -> int:
        return self.manifest.document.mark(path).line

    def _note_raised(self, item: Item, values: Values) -> None:
        asked = item.given.get("interval_sec") if item.section == "monitors" else None
        if asked is not None and asked < values["interval_sec"]:
            said = f"{asked} is raised to {values['interval_sec']}, the shortest interval of the plan."
            self.found.notes.append(self.manifest.document.problem((*item.path, "interval_sec"), said))

    def _find_unmentioned(self) -> None:
        """Return existing objects in the file's scope that it does not list.

        The scope is the file's sections in its projects, and with `ungrouped: true` also outside of projects.
        """
        managed: set[ProjectRef | None] = {project_ref for _, project_ref in self.found.project_refs}
        if self.manifest.ungrouped:
            managed.add(None)
        named = {entry.existing for entry in self.found.entries if entry.existing is not None}
        for section in self.manifest.sections:
            for one in self.account.existing.get(section, []):
                if one.project_ref in managed and one not in named and not one.is_over:
                    self.found.unmentioned.append(one)


def locate_error(resource: Resource, path: Path, error: ValidationFailed) -> tuple[Path, str]:
    """Return the path in the file and the message for an error of a service."""
    if error.field is None:
        return path, str(error)
    steps = [resource.fields.get(step, step) if isinstance(step, str) else step for step in parse_path(error.field)]
    return (*path, *steps), str(error).removeprefix(f"{error.field}: ")

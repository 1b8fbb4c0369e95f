"""Compare a manifest with the account: new, changed and unmentioned objects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from core.errors import NotFound, ValidationFailed
from manifests.account import Account, Entry, Existing, ProjectRef, Values
from manifests.naming import Key, Names
from manifests.parsing import Manifest
from manifests.resources import RESOURCES
from manifests.resources.base import Resource
from monitors.models import Monitor
from pulsekeeper.manifest.problems import EntryError, InvalidReferenceError, Path, Problem, parse_path

POLICY, POLICIES, SCHEDULES = "escalation_policy", "escalation_policies", "on_call_schedules"
PolicyRef = Existing | Entry | str
_FIELDS: Mapping[str | int, str] = {
    "project_id": "project",
    "escalation_policy_id": "escalation_policy",
    "user_ids": "people",
    "user_id": "person",
    "monitor_id": "monitor",
    "monitor_ids": "monitors",
    "scope_project_id": "monitors",
}
"""The fields of services that have other names in files."""


class Plan:
    """A file compared with the account. Reads the account's monitors and the sections of the file; writes nothing.

    `project_refs` and `entries` are those of the file, in its order. `unmentioned` are existing objects that --prune
    deletes, by section.
    """

    def __init__(self, manifest: Manifest, account: Account, *, now: datetime) -> None:
        self.manifest, self.account = manifest, account
        self.problems, self.notes = list(manifest.problems), list[Problem]()
        self.renamed: dict[ProjectRef, str] = {}  # previous names of projects
        self.entries: list[Entry] = []
        self.names = Names(manifest, account)
        self._invalid: set[Entry] = set()
        self.policies: dict[ProjectRef, PolicyRef | None] = {}  # of projects whose policy changes
        self._match_projects()
        referenced = {"monitors", POLICIES} | ({"channels", SCHEDULES} if POLICIES in self.manifest.sections else set())
        for resource in RESOURCES:
            if resource.section in referenced | set(self.manifest.sections):
                self.account.existing[resource.section] = resource.read(self.account, now=now)
        for resource in RESOURCES:
            section = resource.section
            entries = self._match(resource)
            self._load(resource, entries)
            if section == "monitors":
                self.names.add_monitors(entries)
            elif section in (POLICIES, SCHEDULES, "channels"):
                self.names.add(section, entries)
            for entry in entries:
                with self._reporting(entry):
                    entry.values = resource.desired(entry, self.names)
                    self._note_interval(entry, entry.values)
            for entry in entries:
                if entry.values is not None:
                    with self._reporting(entry):
                        resource.resolve(entry, self.names)
            self.entries += entries
        self._resolve_policies()
        self.project_refs = sorted(self.names.project_refs, key=lambda pair: pair[0][1])
        self.unmentioned = self._find_unmentioned()

    def problem(self, path: Path, message: str) -> None:
        self.problems.append(self.manifest.document.problem(path, message))

    @contextmanager
    def _reporting(self, entry: Entry) -> Iterator[None]:
        """Report why an entry is invalid, unless it refers to an invalid one, whose problem is already reported."""
        try:
            yield
        except InvalidReferenceError:
            pass
        except EntryError as error:
            self.problem(error.path, error.message)
        except ValidationFailed as error:
            self.problem(*locate_error(entry.path, error))
        else:
            return
        self._invalid.add(entry)
        self.names.reject(entry.path, entry.given)

    def _resolve_policies(self) -> None:
        """Set the policies of monitors and projects, which refer to a later section."""
        for entry in self.entries:
            if entry.section == "monitors" and entry.values is not None:
                stored = entry.existing and entry.existing.values[POLICY]
                with self._reporting(entry):
                    entry.values[POLICY] = self._policy(entry, entry.project_ref, stored)
        refs = dict(self.names.project_refs)
        for entry in self.manifest.sections.get("projects", []):
            project_ref = refs.get(entry.path)
            if project_ref is not None and POLICY in entry.given:
                stored = project_ref.policy_id and self.account.policy_ref(project_ref.policy_id)
                with self._reporting(entry):
                    found = self._policy(entry, project_ref, stored)
                    if found != stored:
                        self.policies[project_ref] = found

    def _policy(self, entry: Entry, home: ProjectRef | None, stored: PolicyRef | None) -> PolicyRef | None:
        """Return the policy that an entry names. The stored one may be the caller's to keep, but not to see."""
        reference, path = entry.given.get(POLICY), (*entry.path, POLICY)
        if reference is None:
            return None
        is_moved = entry.existing is not None and entry.existing.project_ref is not home
        if isinstance(stored, str) and reference == {"id": stored} and not is_moved:
            return stored
        found = self.names.found(POLICIES, reference, home, path)
        owner_id = found.row.owner_id if isinstance(found, Existing) else self.account.caller.user.pk
        is_owner_s = found.project_ref is None and owner_id == self.account.owner_of(home).pk
        if found.project_ref is not home and not is_owner_s:
            raise EntryError(path, "is of another project, or of a person who does not own this one.")
        return found

    def _match_projects(self) -> None:
        """Match the projects, those with ids first: a renamed project no longer matches its old name."""
        for entry in sorted(self.manifest.sections.get("projects", []), key=lambda entry: entry.id is None):
            with self._reporting(entry):
                self._match_project(entry)

    def _match_project(self, entry: Entry) -> None:
        name = "id" if entry.id is not None else "name"
        path = (*entry.path, name)
        found = [one for one in self.account.project_refs.values() if getattr(one, name) == entry.given[name]]
        # Anyone may add a person to a project, and name it like a project of that person.
        found = [one for one in found if one.owner == self.account.caller.user] or found
        if entry.id is not None and not found:
            raise EntryError(path, "project not found; without an id it is found by name, or created.")
        if not found and self.account.caller.project is not None:
            raise EntryError(path, "a project token cannot create projects, and works in its own only.")
        if len(found) > 1:
            raise EntryError(path, f"you have {len(found)} projects with this name; set id.")
        project_ref = found[0] if found else ProjectRef(entry.name, self.account.caller.user)
        for twin, one in self.names.project_refs:
            if one is project_ref or (not found and one.name == entry.name):
                self.problem(entry.path, f"is already {self.manifest.document.place(twin)}.")
                return
        if project_ref.name != entry.name:
            self.renamed[project_ref], project_ref.name = project_ref.name, entry.name
        self.names.add_project(entry.path, project_ref)

    def _match(self, resource: Resource) -> list[Entry]:
        """Set `existing` of the entries of a section: found by id, else by name within the project.

        Return the valid entries. Ids match first, so that a name does not match the same object.
        """
        existing = self.account.existing.get(resource.section, [])
        by_id = {one.id: one for one in existing}
        # An export for readers has other ids of heartbeats.
        by_id |= {one.row.reading_id: one for one in existing if isinstance(one.row, Monitor)}
        by_name: dict[Key, list[Existing]] = defaultdict(list)
        for one in existing:
            by_name[_key(resource, one)].append(one)
        claimed: dict[Existing, Path] = {}
        named: dict[Key, Path] = {}
        place = self.manifest.document.place
        entries = self.manifest.sections.get(resource.section, [])
        for entry in entries:
            entry.existing = entry.values = entry.config = None  # of a plan that a concurrent change made outdated
            with self._reporting(entry):
                entry.project_ref = self.names.project(entry.given.get("project"), (*entry.path, "project"))
                if entry.project_ref is None and self.account.caller.project is not None:
                    raise EntryError(entry.path, "set project: a project token works only in its own project.")
        entries = [entry for entry in entries if entry not in self._invalid]
        for entry in sorted(entries, key=lambda entry: entry.id is None):
            path = (*entry.path, resource.identity if entry.id is None else "id")
            with self._reporting(entry):
                if entry.id is not None:
                    entry.existing = by_id.get(entry.id)
                    if entry.existing is None:
                        said = f"{resource.noun} not found; without an id it is found by name, or created."
                        raise EntryError(path, said)
                    if entry.existing in claimed:
                        raise EntryError(path, f"is already {place(claimed[entry.existing])}.")
                    claimed[entry.existing] = entry.path
                    continue
                key = _key(resource, entry)
                if (first := named.setdefault(key, entry.path)) != entry.path:
                    said = f"give each {resource.noun} of a project its own {resource.identity}, or set id."
                    raise EntryError(path, f"{entry.name!r} is already {place(first)}; {said}")
                found = [one for one in by_name[key] if one not in claimed]
                if len(found) > 1:
                    raise EntryError(path, f"you have {len(found)} with this name here; set id.")
                entry.existing = found[0] if found else None
        return [entry for entry in entries if entry not in self._invalid]

    def _load(self, resource: Resource, entries: Sequence[Entry]) -> None:
        """Read the values of the objects that the file mentions."""
        found = [entry.existing for entry in entries if entry.existing is not None]
        resource.load(self.account, found)
        if not all(one.values for one in found):
            raise NotFound  # deleted since; `apply` plans again

    def _note_interval(self, entry: Entry, values: Values) -> None:
        asked = entry.given.get("interval_sec") if entry.section == "monitors" else None
        if asked is not None and asked < values["interval_sec"]:
            said = f"{asked} is raised to {values['interval_sec']}, the shortest interval of the plan."
            self.notes.append(self.manifest.document.problem((*entry.path, "interval_sec"), said))

    def _find_unmentioned(self) -> dict[str, list[Existing]]:
        """Return existing objects in the file's scope that it does not list.

        The scope is the file's sections in its projects, and with `ungrouped: true` also outside of projects.
        """
        managed = {project_ref for _, project_ref in self.project_refs} | ({None} if self.manifest.ungrouped else set())
        named = {entry.existing for entry in self.entries}
        return {
            section: [one for one in existing if one.project_ref in managed and one not in named and not one.is_over]
            for section, existing in self.account.existing.items()
            if section in self.manifest.sections
        }


def _key(resource: Resource, one: Entry | Existing) -> Key:
    """Return the key that identifies an entry or object. Slugs are unique across projects."""
    return (None if resource.identity == "slug" else one.project_ref, one.name)


def locate_error(path: Path, error: ValidationFailed) -> tuple[Path, str]:
    """Return the path in the file and the message for an error of a service."""
    if error.field is None:
        return path, str(error)
    steps = [_FIELDS.get(step, step) for step in parse_path(error.field)]
    return (*path, *steps), str(error).removeprefix(f"{error.field}: ")

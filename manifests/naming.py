"""Resolve names in a file: of projects, and of monitors that other entries refer to.

A problem with a name is reported once, where the name is defined. Entries that refer to it become invalid without
another problem.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from manifests.account import Account, intervals_of
from manifests.entries import Entry, Existing, MonitorRef, ProjectRef, Reference
from manifests.parsing import Item, Manifest
from manifests.problems import Path, did_you_mean
from manifests.resources.base import EntryError, InvalidReferenceError

Report_ = Callable[[Path, str], None]
Key = tuple[ProjectRef | None, str]
"""A name, and the project that it belongs to."""


class InvalidEntries:
    """Invalid items, by path and by the names that others may use to refer to them."""

    def __init__(self, manifest: Manifest) -> None:
        self._paths: set[Path] = set()
        self._words: set[tuple[str, str]] = set()
        for path, data in manifest.invalid:
            words = [data.get(name) for name in ("name", "slug", "id")] if isinstance(data, dict) else []
            self.add(path, *(word for word in words if isinstance(word, str)))

    def add(self, path: Path, *words: str) -> None:
        self._paths.add(path)
        self._words |= {(str(path[0]), word) for word in words}

    def has(self, path: Path) -> bool:
        return path in self._paths

    def means(self, section: str, word: str) -> bool:
        return (section, word) in self._words


class Projects:
    """The projects of the file, existing and new ones. `renamed` has the previous names by id."""

    def __init__(self, account: Account, invalid: InvalidEntries, *, report: Report_) -> None:
        self.account, self.invalid, self.report = account, invalid, report
        self.project_refs: list[tuple[Path, ProjectRef]] = []
        self.renamed: dict[str, str] = {}
        self._by_name: dict[str, list[ProjectRef]] = defaultdict(list)

    def add(self, items: Sequence[Item], line: Callable[[Path], int]) -> None:
        """Add the projects, those with ids first: a renamed project no longer matches its old name."""
        user = self.account.caller.user
        taken: dict[ProjectRef, Path] = {}
        for item in sorted(items, key=lambda item: item.take("id") is None):
            name = item.given["name"]
            found = self._match(item)
            if found is None:
                self.invalid.add(item.path, name, *filter(None, [item.take("id")]))
                continue
            project_ref = found[0] if found else ProjectRef(name, user.pk, intervals_of(user))
            twin = next(
                (one for one in taken if one is project_ref or (project_ref.id is None and one.name == name)),
                None,
            )
            if twin is not None:
                self.report(item.path, f"is already in line {line(taken[twin])}.")
                continue
            taken[project_ref] = item.path
            self.project_refs.append((item.path, project_ref))
            self._by_name[name].append(project_ref)
            if project_ref.id is not None and project_ref.name != name:
                self.renamed[project_ref.id], project_ref.name = project_ref.name, name
        self.project_refs.sort(key=lambda pair: pair[0][1])

    def _match(self, item: Item) -> list[ProjectRef] | None:
        """Return a list with the existing project, an empty list, or None if it is ambiguous."""
        desired, project_refs = item.take("id"), self.account.project_refs.values()
        if desired is not None:
            found = [one for one in project_refs if one.id == desired]
            if found:
                return found
            said = "you have no such project; without an id it is found by name, or created."
            self.report((*item.path, "id"), said)
            return None
        found = [one for one in project_refs if one.name == item.given["name"]]
        if len(found) <= 1:
            return found
        said = f"you have {len(found)} projects with this name; set id."
        self.report((*item.path, "name"), said)
        return None

    def find(self, word: str | None, path: Path) -> ProjectRef | None:
        """Find a project by name, else by id. Raises EntryError or InvalidReferenceError."""
        if word is None:
            return None
        if self.invalid.means("projects", word):
            raise InvalidReferenceError
        found = self._by_name.get(word) or [one for _, one in self.project_refs if one.id == word]
        if len(found) == 1:
            return found[0]
        if found:
            raise EntryError(path, f"{len(found)} projects of this file have the name {word!r}; set id.")
        near = did_you_mean(word, self._by_name)
        raise EntryError(path, f"the file has no project {word!r}; list it under projects.{near}")


class Monitors:
    """The monitors of the file, and the others of the account."""

    def __init__(
        self,
        entries: Sequence[Entry],
        existing: Sequence[Existing],
        projects: Projects,
        invalid: InvalidEntries,
    ) -> None:
        self.projects, self.invalid = projects, invalid
        self._named: dict[Key, list[Entry]] = defaultdict(list)
        self._by_id = {one.id: one for one in existing}
        self._identified = {entry.existing.id: entry for entry in entries if entry.existing is not None}
        for entry in entries:
            self._named[entry.project_ref, entry.name].append(entry)
        # Monitors that the file renames or moves no longer match their old name.
        self._others: dict[Key, list[Existing]] = defaultdict(list)
        for one in existing:
            if one.id not in self._identified:
                self._others[one.project_ref, one.name].append(one)

    def find(self, reference: Reference, home: ProjectRef | None, path: Path) -> MonitorRef:
        """Find a monitor. A name without project is looked up in `home`. Raises EntryError or InvalidReferenceError."""
        if reference.id is not None:
            return self._identify(reference.id, path)
        name = reference.name or ""
        project_ref = self.projects.find(reference.project, path) if reference.elsewhere else home
        entries, others = self._named.get((project_ref, name), []), self._others.get((project_ref, name), [])
        if len(entries) + len(others) > 1:
            raise EntryError(path, f"there are several monitors {name!r} here; use {{id: …}}.")
        if entries:
            return _valid(entries[0])
        if self.invalid.means("monitors", name):
            raise InvalidReferenceError
        if others:
            return MonitorRef(others[0].id, name)
        where = f"in project {project_ref}" if project_ref else "outside of projects"
        near = did_you_mean(name, [known for at, known in self._named if at is project_ref])
        raise EntryError(path, f"no monitor {name!r} {where}.{near}")

    def _identify(self, public_id: str, path: Path) -> MonitorRef:
        if self.invalid.means("monitors", public_id):
            raise InvalidReferenceError
        if public_id in self._identified:
            return _valid(self._identified[public_id])
        if public_id not in self._by_id:
            raise EntryError(path, "you have no such monitor.")
        return MonitorRef(public_id, self._by_id[public_id].name)


def _valid(monitor: Entry) -> MonitorRef:
    """Return the reference. Raises InvalidReferenceError. Monitors are resolved before entries that refer to them."""
    if monitor.values is None:
        raise InvalidReferenceError
    return monitor.monitor_ref

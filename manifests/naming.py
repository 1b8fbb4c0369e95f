"""Names of projects and monitors: resolve those of a file, and choose those of an export.

A problem with a name is reported once, where the name is defined. Entries that refer to it become invalid without
another problem.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from manifests.account import Account, Entry, Existing, MonitorRef, ProjectRef
from manifests.parsing import Manifest
from pulsekeeper.manifest.problems import EntryError, Hints, InvalidReferenceError, Path
from pulsekeeper.manifest.secrets import Variables

Key = tuple[ProjectRef | None, str]
"""A name, and the project that it belongs to."""


class Names:
    """The projects of a file, its monitors, and the other monitors of the account. Planning adds them."""

    def __init__(self, manifest: Manifest, account: Account) -> None:
        self.account = account
        self.hints = Hints()
        self.project_refs: list[tuple[Path, ProjectRef]] = []
        self._invalid: set[tuple[str, str]] = set()  # sections and names
        self._projects: dict[str, list[ProjectRef]] = defaultdict(list)
        self._entries: dict[Key, list[Entry]] = defaultdict(list)
        self._others: dict[Key, list[Existing]] = defaultdict(list)
        self._by_id: dict[str, Entry | Existing] = {}
        self._named: dict[tuple[str, Key], list[Entry | Existing]] = defaultdict(list)
        """Those of other sections, which policies and monitors refer to."""
        for path, data in manifest.invalid:
            self.reject(path, data if isinstance(data, dict) else {})

    def reject(self, path: Path, given: Mapping[str, Any]) -> None:
        """Make references to an invalid entry invalid."""
        words = [given.get(name) for name in ("name", "slug", "id")]
        self._invalid |= {(str(path[0]), word) for word in words if isinstance(word, str)}

    def add_project(self, path: Path, project_ref: ProjectRef) -> None:
        self.project_refs.append((path, project_ref))
        self._projects[project_ref.name].append(project_ref)

    def add_monitors(self, entries: Sequence[Entry]) -> None:
        """Add the file's monitors. Those that it renames or moves no longer match, nor show, their old name."""
        identified = {entry.existing: entry for entry in entries if entry.existing is not None}
        for entry in entries:
            self._entries[entry.project_ref, entry.name].append(entry)
            if entry.existing is not None:
                entry.existing.name = entry.name
        for one in self.account.existing["monitors"]:
            for public_id in {one.id, one.row.reading_id}:
                self._by_id[public_id] = identified.get(one, one)
            if one not in identified:
                self._others[one.project_ref, one.name].append(one)

    def add(self, section: str, entries: Sequence[Entry]) -> None:
        """Add what the file and the account have of a section, as `add_monitors` does."""
        identified = {entry.existing: entry for entry in entries if entry.existing is not None}
        for entry in entries:
            self._named[section, (entry.project_ref, entry.name)].append(entry)
            if entry.existing is not None:
                entry.existing.name = entry.name
        for one in self.account.existing.get(section, ()):
            self._by_id[one.id] = identified.get(one, one)
            if one not in identified:
                self._named[section, (one.project_ref, one.name)].append(one)

    def found(
        self, section: str, reference: str | Mapping[str, str], home: ProjectRef | None, path: Path
    ) -> Existing | Entry:
        """Find a channel, schedule or policy by its name in the project, or else outside of projects, or by {id}.

        Raises EntryError or InvalidReferenceError.
        """
        word = reference if isinstance(reference, str) else reference["id"]
        if isinstance(reference, str):
            found = self._named.get((section, (home, word))) or self._named.get((section, (None, word)), [])
        else:
            found = [self._by_id[word]] if word in self._by_id else []
        if len(found) > 1:
            raise EntryError(path, f"there are several {word!r} here; use {{id: …}}.")
        if not found and (section, word) not in self._invalid:
            near = self.hints.did_you_mean(word, (name for at, (_, name) in self._named if at == section))
            raise EntryError(path, f"{word!r} not found in {section} of this project or without one.{near}")
        if not found or (isinstance(found[0], Entry) and found[0].values is None):
            raise InvalidReferenceError
        one = found[0]
        return one.existing or one if isinstance(one, Entry) else one

    def project(self, word: str | None, path: Path) -> ProjectRef | None:
        """Find a project by name, else by id. Raises EntryError or InvalidReferenceError."""
        if word is None:
            return None
        if ("projects", word) in self._invalid:
            raise InvalidReferenceError
        found = self._projects.get(word) or [one for _, one in self.project_refs if one.id == word]
        if len(found) == 1:
            return found[0]
        if found:
            raise EntryError(path, f"{len(found)} projects of this file have the name {word!r}; set id.")
        near = self.hints.did_you_mean(word, self._projects)
        raise EntryError(path, f"the file has no project {word!r}; list it under projects.{near}")

    def monitor(self, reference: str | Mapping[str, Any], home: ProjectRef | None, path: Path) -> MonitorRef:
        """Find a monitor, given a value of ReferenceField. A name without project is looked up in `home`.

        Raises EntryError or InvalidReferenceError.
        """
        if isinstance(reference, str):
            reference = {"name": reference}
        word: str = reference["id"] if "id" in reference else reference["name"]
        project_ref = self.project(reference["project"], path) if "project" in reference else home
        if "id" in reference:
            found = [self._by_id[word]] if word in self._by_id else []
        else:
            found = [*self._entries.get((project_ref, word), []), *self._others.get((project_ref, word), [])]
        if len(found) > 1:
            raise EntryError(path, f"there are several monitors {word!r} here; use {{id: …}}.")
        monitor = found[0] if found else None
        if isinstance(monitor, Entry):
            if monitor.values is None:  # monitors are resolved before entries that refer to them
                raise InvalidReferenceError
            return monitor.existing or monitor
        if ("monitors", word) in self._invalid:
            raise InvalidReferenceError
        if monitor is not None:
            return monitor
        if "id" in reference:
            raise EntryError(path, "monitor not found.")
        where = f"in project {project_ref}" if project_ref else "outside of projects"
        near = self.hints.did_you_mean(word, (known for at, known in self._entries if at is project_ref))
        raise EntryError(path, f"no monitor {word!r} {where}.{near}")


class ExportNames:
    """Name projects and monitors of an export by their names if these are unique, else by id."""

    def __init__(self, account: Account, project_refs: Sequence[ProjectRef]) -> None:
        self.account = account
        self._listed = {None, *project_refs}
        self.variables = Variables()
        self._projects = Counter(project_ref.name for project_ref in account.project_refs.values())
        self._names = Counter((one.project_ref, one.name) for one in account.existing["monitors"])

    def project_entry(self, project_ref: ProjectRef, *, with_id: bool) -> dict[str, Any]:
        needed = with_id or self._projects[project_ref.name] > 1
        entry: dict[str, Any] = {"id": project_ref.id} if needed else {}
        entry["name"] = project_ref.name
        if project_ref.policy_id is not None:
            policy = self.account.policy_ref(project_ref.policy_id)
            entry["escalation_policy"] = self.found("escalation_policies", policy, project_ref)
        return entry

    def found(self, section: str, ref: Existing | Entry | str, home: ProjectRef | None) -> Any:
        """Return how to refer to a channel, schedule or policy: by name, or by id if the name is not clear."""
        if isinstance(ref, str):
            return {"id": ref}
        if section == "channels" and isinstance(ref, Existing) and self.account.caller.views(ref.row):
            return {"id": ref.id}  # a name may contain the address
        places = [one.project_ref for one in self.account.existing.get(section, ()) if one.name == ref.name]
        at_home = places.count(home)
        is_clear = at_home == 1 if ref.project_ref is home else not at_home and places.count(None) == 1
        return ref.name if is_clear and ref.project_ref in self._listed else {"id": ref.id}

    def project(self, project_ref: ProjectRef | None) -> str | None:
        if project_ref is None:
            return None
        return project_ref.name if self._projects[project_ref.name] == 1 else project_ref.id

    def monitor(self, found: MonitorRef, home: ProjectRef | None) -> Any:
        # Only listed projects can be named.
        if self._names[found.project_ref, found.name] > 1 or found.project_ref not in self._listed:
            return {"id": found.shown_id(self.account.caller) if isinstance(found, Existing) else found.id}
        if found.project_ref is home:
            return found.name
        return {"project": self.project(found.project_ref), "name": found.name}

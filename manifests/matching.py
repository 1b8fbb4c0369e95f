"""Match entries of a file with existing objects: by id, else by name within the project."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from manifests.entries import Entry, Existing
from manifests.naming import InvalidEntries, Key, Report_
from manifests.parsing import Item
from manifests.problems import Path
from manifests.resources.base import Resource

Pair = tuple[Item, Entry]


class Matching:
    """Set `existing` of the entries of one section. Ambiguous entries become `invalid`."""

    def __init__(
        self,
        resource: Resource,
        existing: Sequence[Existing],
        invalid: InvalidEntries,
        *,
        report: Report_,
        line: Callable[[Path], int],
    ) -> None:
        self.resource, self.existing, self.invalid = resource, existing, invalid
        self.report, self.line = report, line
        self.there = {one.id: one for one in existing}
        self.claimed: dict[str, Path] = {}

    def match(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Return the valid pairs. Ids match first, so that a name does not match the same object."""
        for item, entry in pairs:
            if entry.id is not None:
                self._by_id(item, entry)
        self._by_name([pair for pair in pairs if pair[1].id is None])
        return [(item, entry) for item, entry in pairs if not self.invalid.has(item.path)]

    def _by_id(self, item: Item, entry: Entry) -> None:
        entry.existing = self.there.get(entry.id or "")
        if entry.existing is None:
            said = f"you have no such {self.resource.noun}; without an id it is found by name, or created."
            self._refuse(item, "id", said)
        elif entry.existing.id in self.claimed:
            line = self.line(self.claimed[entry.existing.id])
            self._refuse(item, "id", f"is already in line {line}.")
        else:
            self.claimed[entry.existing.id] = item.path

    def _by_name(self, pairs: Sequence[Pair]) -> None:
        there: dict[Key, list[Existing]] = defaultdict(list)
        for one in self.existing:
            if one.id not in self.claimed:
                there[self._key(one)].append(one)
        seen: dict[Key, Path] = {}
        for item, entry in pairs:
            key = self._key(entry)
            found = there.get(key, [])
            if key in seen:
                said = (
                    f"{entry.name!r} is already in line {self.line(seen[key])}; "
                    f"give each {self.resource.noun} of a project its own {self.resource.identity}, or set id."
                )
                self._refuse(item, self.resource.identity, said)
            elif len(found) > 1:
                said = f"you have {len(found)} with this name here; set id."
                self._refuse(item, self.resource.identity, said)
            elif found:
                entry.existing = found[0]
            seen.setdefault(key, item.path)

    def _key(self, one: Entry | Existing) -> Key:
        """Return the key that identifies an entry or object. Slugs are unique across projects."""
        return (None if self.resource.identity == "slug" else one.project_ref, one.name)

    def _refuse(self, item: Item, field: str, message: str) -> None:
        self.report((*item.path, field), message)
        self.invalid.add(item.path, *item.words(self.resource.identity))

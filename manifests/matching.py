"""Which entry of a file is which thing of the account: by its id, else by its name in its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from manifests.entries import Entry, Present
from manifests.naming import Broken, Spot, Tell
from manifests.parsing import Item
from manifests.problems import Path
from manifests.resources.base import Kind

Pair = tuple[Item, Entry]


class Matching:
    """Gives each entry of one section what is there of it, if anything; those that it cannot tell are `broken`."""

    def __init__(
        self,
        kind: Kind,
        present: Sequence[Present],
        broken: Broken,
        *,
        tell: Tell,
        line: Callable[[Path], int],
    ) -> None:
        self.kind, self.present, self.broken = kind, present, broken
        self.tell, self.line = tell, line
        self.there = {one.id: one for one in present}
        self.claimed: dict[str, Path] = {}

    def match(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Those about which nothing is wrong. Ids first: who has an id is not to be found by a name too."""
        for item, entry in pairs:
            if entry.id is not None:
                self._by_id(item, entry)
        self._by_name([pair for pair in pairs if pair[1].id is None])
        return [(item, entry) for item, entry in pairs if not self.broken.has(item.path)]

    def _by_id(self, item: Item, entry: Entry) -> None:
        entry.present = self.there.get(entry.id or "")
        if entry.present is None:
            said = f"you have no such {self.kind.noun}; without id it is found by name, or made."
            self._refuse(item, "id", said)
        elif entry.present.id in self.claimed:
            line = self.line(self.claimed[entry.present.id])
            self._refuse(item, "id", f"is there already, in line {line}.")
        else:
            self.claimed[entry.present.id] = item.path

    def _by_name(self, pairs: Sequence[Pair]) -> None:
        there: dict[Spot, list[Present]] = defaultdict(list)
        for one in self.present:
            if one.id not in self.claimed:
                there[self._spot(one)].append(one)
        seen: dict[Spot, Path] = {}
        for item, entry in pairs:
            spot = self._spot(entry)
            found = there.get(spot, [])
            if spot in seen:
                said = (
                    f"{entry.name!r} is there already, in line {self.line(seen[spot])}; "
                    f"give each {self.kind.noun} of a project its own {self.kind.identity}, or say the id."
                )
                self._refuse(item, self.kind.identity, said)
            elif len(found) > 1:
                said = f"you have {len(found)} of this name here; say by id which is meant."
                self._refuse(item, self.kind.identity, said)
            elif found:
                entry.present = found[0]
            seen.setdefault(spot, item.path)

    def _spot(self, one: Entry | Present) -> Spot:
        """A slug is one of all there are, wherever its page is."""
        return (None if self.kind.identity == "slug" else one.place, one.name)

    def _refuse(self, item: Item, field: str, message: str) -> None:
        self.tell((*item.path, field), message)
        self.broken.add(item.path, *item.words(self.kind.identity))

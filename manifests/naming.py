"""How the names in a file are understood: of projects, and of monitors that something refers to.

What is wrong about a name is said where it stands first. Whoever refers to it is broken too, and not told so again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from manifests.account import Account, pace_of
from manifests.entries import Entry, Handle, Place, Present, Reference
from manifests.parsing import Declaration, Item
from manifests.problems import Path, did_you_mean
from manifests.resources.base import BrokenError, WrongError

Tell = Callable[[Path, str], None]
Spot = tuple[Place | None, str]
"""A name in its place."""


class Broken:
    """Items about which something is wrong, by where they are and by the words that others may refer to them with."""

    def __init__(self, declaration: Declaration) -> None:
        self._paths: set[Path] = set()
        self._words: set[tuple[str, str]] = set()
        for path, data in declaration.broken:
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
    """Those of the file, each a place: one that is there, by id or by name, or one that is to be made.

    `renamed` has the names until now of those that get another, by their ids.
    """

    def __init__(self, account: Account, broken: Broken, *, tell: Tell) -> None:
        self.account, self.broken, self.tell = account, broken, tell
        self.places: list[tuple[Path, Place]] = []
        self.renamed: dict[str, str] = {}
        self._by_name: dict[str, list[Place]] = defaultdict(list)

    def add(self, items: Sequence[Item], line: Callable[[Path], int]) -> None:
        """Those with ids first: one that gets another name is no longer meant by the one before."""
        user = self.account.caller.user
        taken: dict[Place, Path] = {}
        for item in sorted(items, key=lambda item: item.take("id") is None):
            name = item.given["name"]
            found = self._there(item)
            if found is None:
                self.broken.add(item.path, name, *filter(None, [item.take("id")]))
                continue
            place = found[0] if found else Place(name, user.pk, pace_of(user))
            twin = next(
                (one for one in taken if one is place or (place.id is None and one.name == name)), None
            )
            if twin is not None:
                self.tell(item.path, f"is there already, in line {line(taken[twin])}.")
                continue
            taken[place] = item.path
            self.places.append((item.path, place))
            self._by_name[name].append(place)
            if place.id is not None and place.name != name:
                self.renamed[place.id], place.name = place.name, name
        self.places.sort(key=lambda pair: pair[0][1])

    def _there(self, item: Item) -> list[Place] | None:
        """The one that is there, or none; None where that cannot be told."""
        wanted, places = item.take("id"), self.account.places.values()
        if wanted is not None:
            found = [one for one in places if one.id == wanted]
            if found:
                return found
            said = "you have no such project; without id one is found by its name, or made."
            self.tell((*item.path, "id"), said)
            return None
        found = [one for one in places if one.name == item.given["name"]]
        if len(found) <= 1:
            return found
        said = f"you have {len(found)} projects of this name; say by id which is meant."
        self.tell((*item.path, "name"), said)
        return None

    def find(self, word: str | None, path: Path) -> Place | None:
        """By name, else by id; None for no project. Raises WrongError, BrokenError."""
        if word is None:
            return None
        if self.broken.means("projects", word):
            raise BrokenError
        found = self._by_name.get(word) or [one for _, one in self.places if one.id == word]
        if len(found) == 1:
            return found[0]
        if found:
            raise WrongError(path, f"{len(found)} projects of this file have the name {word!r}; say the id.")
        near = did_you_mean(word, self._by_name)
        raise WrongError(path, f"the file has no project {word!r}; list it under projects.{near}")


class Monitors:
    """Those of the file, and those that the account has beside them."""

    def __init__(
        self, entries: Sequence[Entry], present: Sequence[Present], projects: Projects, broken: Broken
    ) -> None:
        self.projects, self.broken = projects, broken
        self._named: dict[Spot, list[Entry]] = defaultdict(list)
        self._by_id = {one.id: one for one in present}
        self._identified = {entry.present.id: entry for entry in entries if entry.present is not None}
        for entry in entries:
            self._named[entry.place, entry.name].append(entry)
        # What the file renames or moves is no longer where it was.
        self._others: dict[Spot, list[Present]] = defaultdict(list)
        for one in present:
            if one.id not in self._identified:
                self._others[one.place, one.name].append(one)

    def find(self, reference: Reference, home: Place | None, path: Path) -> Handle:
        """Raises WrongError, BrokenError. `home` is where a name without a project is looked for."""
        if reference.id is not None:
            return self._identify(reference.id, path)
        name = reference.name or ""
        place = self.projects.find(reference.project, path) if reference.elsewhere else home
        entries, others = self._named.get((place, name), []), self._others.get((place, name), [])
        if len(entries) + len(others) > 1:
            raise WrongError(path, f"there are several monitors {name!r} here; say {{id: …}}.")
        if entries:
            return _whole(entries[0])
        if self.broken.means("monitors", name):
            raise BrokenError
        if others:
            return Handle(others[0].id, name)
        where = f"in project {place}" if place else "outside of projects"
        near = did_you_mean(name, [known for at, known in self._named if at is place])
        raise WrongError(path, f"there is no monitor {name!r} {where}.{near}")

    def _identify(self, public_id: str, path: Path) -> Handle:
        if self.broken.means("monitors", public_id):
            raise BrokenError
        if public_id in self._identified:
            return _whole(self._identified[public_id])
        if public_id not in self._by_id:
            raise WrongError(path, "you have no such monitor.")
        return Handle(public_id, self._by_id[public_id].name)


def _whole(monitor: Entry) -> Handle:
    """Monitors are looked at before what refers to them: by now it is known whether something is wrong with one."""
    if monitor.shape is None:
        raise BrokenError
    return monitor.handle

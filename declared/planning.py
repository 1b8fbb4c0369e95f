"""What a file asks for, held against what there is: which is which, what is new, what differs, what is left over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.errors import ValidationFailed
from declared.account import Account
from declared.kinds.base import BrokenError, Kind, Names, WrongError
from declared.parsing import Declaration, Item
from declared.problems import Path, Problem, did_you_mean, parsed
from declared.things import Entry, Handle, Place, Present, Reference, Shape


@dataclass(slots=True)
class Plan:
    """`places` are those of the file, in its order, those to be made without an id. `entries` are all that the file
    names, `unmentioned` what is in the file's charge and not in it."""

    account: Account
    declaration: Declaration
    places: list[tuple[Path, Place]] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)  # the id of a project, and its name until now
    entries: list[Entry] = field(default_factory=list)
    unmentioned: list[Present] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def problem(self, path: Path, message: str) -> None:
        self.problems.append(self.declaration.document.problem(path, message))


def differing(entry: Entry) -> list[str]:
    """The fields in which something there is not as the file says."""
    if entry.present is None or entry.shape is None:
        return []
    before, after = entry.present.shape, entry.shape
    return [name for name in after if before[name] != after[name]]


def plan(declaration: Declaration, account: Account, kinds: Sequence[Kind], *, now: datetime) -> Plan:
    """Reads what the account has of the sections of the file, and of monitors. Writes nothing."""
    return _Planner(declaration, account, kinds, now=now).plan()


class _Planner:
    def __init__(
        self, declaration: Declaration, account: Account, kinds: Sequence[Kind], *, now: datetime
    ) -> None:
        self.declaration, self.account, self.kinds, self.now = declaration, account, kinds, now
        self.found = Plan(account, declaration, problems=list(declaration.problems))
        self.by_name: dict[str, list[Place]] = defaultdict(list)
        self.by_id: dict[str, Place] = {}
        self.named: dict[tuple[Place | None, str], list[Entry]] = defaultdict(list)
        self.monitors_by_name: dict[tuple[Place | None, str], list[Present]] = defaultdict(list)
        self.identified: dict[str, Entry] = {}
        # By name and id, what the file names and gets wrong: whoever refers to it is not told so again.
        self.broken = {
            (path[0], value)
            for path, data in declaration.broken
            if isinstance(data, dict)
            for value in (data.get("name"), data.get("slug"), data.get("id"))
            if isinstance(value, str)
        }

    def plan(self) -> Plan:
        self._place_projects(self.declaration.sections.get("projects", []))
        pairs: list[tuple[Kind, Item, Entry]] = []
        for kind in self.kinds:
            if kind.section in self.declaration.sections or kind.section == "monitors":
                self.account.present[kind.section] = kind.read(self.account, now=self.now)
            pairs += self._match(kind, self.declaration.sections.get(kind.section, []))
        names = Names(self._find_place, self._find_monitor)
        for kind, item, entry in pairs:
            self._want(kind, item, entry, names)
        self.found.entries = [entry for _, _, entry in pairs]
        self._leave_over()
        return self.found

    def _place_projects(self, items: Sequence[Item]) -> None:
        """Each project of the file becomes a place: one that is there, by id or by name, or a new one."""
        there = self.account.places.values()
        user = self.account.caller.user
        taken: dict[Place, Path] = {}
        for item in items:
            wanted_id, name = item.take("id"), item.given["name"]
            found = [one for one in there if (one.id == wanted_id if wanted_id else one.name == name)]
            if wanted_id and not found:
                self.found.problem(
                    (*item.path, "id"),
                    "you have no such project; without id one is found by its name, or made.",
                )
                self.broken |= {("projects", name), ("projects", wanted_id)}
                continue
            if len(found) > 1:
                self.found.problem(
                    (*item.path, "name"),
                    f"you have {len(found)} projects of this name; say by id which is meant.",
                )
                self.broken.add(("projects", name))
                continue
            place = found[0] if found else Place(name, user.pk, user.plan.min_interval_sec)
            same = [
                one
                for one in taken
                if one is place or (not wanted_id and one.name == name and one.id is None)
            ]
            if same:
                before = self.declaration.document.mark(taken[same[0]]).line
                self.found.problem(item.path, f"is there already, in line {before}.")
                continue
            taken[place] = item.path
            self.found.places.append((item.path, place))
            self.by_name[name].append(place)
            if place.id is not None:
                self.by_id[place.id] = place
                if place.name != name:
                    self.found.renamed[place.id] = place.name
                    place.name = name

    def _find_place(self, word: str | None, path: Path) -> Place | None:
        if word is None:
            return None
        if ("projects", word) in self.broken:
            raise BrokenError
        named = self.by_name.get(word, [])
        if len(named) == 1:
            return named[0]
        if named:
            raise WrongError(path, f"{len(named)} projects of this file have the name {word!r}; say the id.")
        if word in self.by_id:
            return self.by_id[word]
        raise WrongError(
            path,
            f"the file has no project {word!r}; list it under projects.{did_you_mean(word, self.by_name)}",
        )

    def _match(self, kind: Kind, items: Sequence[Item]) -> list[tuple[Kind, Item, Entry]]:
        """Entries, each with what is there of it: by its id, else by its name in its place."""
        present = self.account.present.get(kind.section, [])
        by_id = {one.id: one for one in present}
        by_name: dict[tuple[Place | None, str], list[Present]] = defaultdict(list)
        by_slug = kind.identity == "slug"  # which is one of all there are, wherever its page is
        for one in present:
            by_name[None if by_slug else one.place, one.name].append(one)
        if kind.section == "monitors":
            self.monitors_by_name = by_name
        entries = []
        for item in items:
            try:
                place = self._find_place(item.take("project"), (*item.path, "project"))
            except WrongError as error:
                self.found.problem(error.path, error.message)
                self._break(kind, item)
                continue
            except BrokenError:
                self._break(kind, item)
                continue
            name = item.given[kind.identity]
            entries.append(
                (kind, item, Entry(kind.section, item.path, name, place, item.given, item.take("id")))
            )
        claimed: dict[str, Path] = {}
        for _, item, entry in entries:
            if entry.id is not None:
                entry.present = by_id.get(entry.id)
                if entry.present is None:
                    self._refuse(
                        kind,
                        item,
                        "id",
                        f"you have no such {kind.noun}; without id it is found by name, or made.",
                    )
                elif entry.id in claimed:
                    self._refuse(
                        kind, item, "id", f"is there already, in line {self._line(claimed[entry.id])}."
                    )
                claimed.setdefault(entry.id, item.path)
        seen: dict[tuple[Place | None, str], Path] = {}
        for _, item, entry in entries:
            if entry.id is not None:
                continue
            key = (None if by_slug else entry.place, entry.name)
            if key in seen:
                self._refuse(
                    kind, item, kind.identity,
                    f"{entry.name!r} is there already, in line {self._line(seen[key])}; "
                    f"give each {kind.noun} of a project its own {kind.identity}, or say the id.",
                )  # fmt: skip
                continue
            seen[key] = item.path
            free = [one for one in by_name[key] if one.id not in claimed]
            if len(free) > 1:
                self._refuse(
                    kind, item, kind.identity,
                    f"you have {len(free)} of this name here; say by id which is meant.",
                )  # fmt: skip
            elif free:
                entry.present = free[0]
                claimed[free[0].id] = item.path
        good = [triple for triple in entries if (kind.section, str(triple[1].path)) not in self.broken]
        if kind.section == "monitors":
            for _, _, entry in good:
                self.named[entry.place, entry.name].append(entry)
                if entry.present is not None:
                    self.identified[entry.present.id] = entry
        return good

    def _line(self, path: Path) -> int:
        return self.declaration.document.mark(path).line

    def _refuse(self, kind: Kind, item: Item, field_: str, message: str) -> None:
        self.found.problem((*item.path, field_), message)
        self._break(kind, item)

    def _break(self, kind: Kind, item: Item) -> None:
        self.broken |= {(kind.section, str(item.path)), (kind.section, item.given[kind.identity])}
        if item.take("id"):
            self.broken.add((kind.section, item.given["id"]))

    def _find_monitor(self, reference: Reference, home: Place | None, path: Path) -> Handle:
        """A monitor of the file, or else one that the account has."""
        present = self.account.present["monitors"]
        if reference.id is not None:
            if ("monitors", reference.id) in self.broken:
                raise BrokenError
            if reference.id in self.identified:
                return _whole(self.identified[reference.id])
            found = next((one for one in present if one.id == reference.id), None)
            if found is None:
                raise WrongError(path, "you have no such monitor.")
            return Handle(found.id, found.name)
        name = reference.name or ""
        place = self._find_place(reference.project, path) if reference.elsewhere else home
        entries = self.named.get((place, name), [])
        # What the file has renamed or moved away is no longer here under its old name.
        others = [
            one for one in self.monitors_by_name.get((place, name), []) if one.id not in self.identified
        ]
        if len(entries) + len(others) > 1:
            raise WrongError(path, f"there are several monitors {name!r} here; say {{id: …}}.")
        if entries:
            return _whole(entries[0])
        if ("monitors", name) in self.broken:
            raise BrokenError
        if others:
            return Handle(others[0].id, others[0].name)
        where = f"in project {place}" if place else "outside of projects"
        known = [known for at, known in self.named if at is place]
        raise WrongError(path, f"there is no monitor {name!r} {where}.{did_you_mean(name, known)}")

    def _want(self, kind: Kind, item: Item, entry: Entry, names: Names) -> None:
        try:
            entry.shape = kind.want(item, entry, names)
        except WrongError as error:
            self.found.problem(error.path, error.message)
        except BrokenError:
            return
        except ValidationFailed as error:
            self.found.problem(*blamed(kind, item.path, error))
        else:
            self._note_raised(item, entry.shape)
            return
        self._break(kind, item)

    def _note_raised(self, item: Item, shape: Shape) -> None:
        asked = item.given.get("interval_sec") if item.section == "monitors" else None
        if asked is not None and asked < shape["interval_sec"]:
            said = f"{asked} is raised to {shape['interval_sec']}, the shortest of the plan."
            self.found.notes.append(self.declaration.document.problem((*item.path, "interval_sec"), said))

    def _leave_over(self) -> None:
        """What the file is in charge of: things of a section that it has, in projects that it lists, or in none where
        it says `ungrouped: true`."""
        charge: set[Place | None] = {place for _, place in self.found.places}
        if self.declaration.ungrouped:
            charge.add(None)
        named = {entry.present for entry in self.found.entries if entry.present is not None}
        for section in self.declaration.sections:
            for one in self.account.present.get(section, []):
                if one.place in charge and one not in named and not one.is_over:
                    self.found.unmentioned.append(one)


def _whole(monitor: Entry) -> Handle:
    """Monitors are looked at before what refers to them: by now it is known whether something is wrong with one."""
    if monitor.shape is None:
        raise BrokenError
    return monitor.handle


def blamed(kind: Kind, path: Path, error: ValidationFailed) -> tuple[Path, str]:
    """Where a file says what a service objects to, and the objection."""
    if error.field is None:
        return path, str(error)
    steps = [kind.fields.get(step, step) if isinstance(step, str) else step for step in parsed(error.field)]
    return (*path, *steps), str(error).removeprefix(f"{error.field}: ")

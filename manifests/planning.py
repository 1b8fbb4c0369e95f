"""What a file asks for, held against what there is: which is which, what is new, what differs, what is left over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.errors import ValidationFailed
from manifests.account import Account
from manifests.entries import Entry, Place, Present, Shape
from manifests.matching import Matching, Pair
from manifests.naming import Broken, Monitors, Projects
from manifests.parsing import Declaration, Item
from manifests.problems import Path, Problem, parsed
from manifests.resources.base import BrokenError, Kind, Names, WrongError


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
        self.broken = Broken(declaration)
        self.projects = Projects(account, self.broken, tell=self.found.problem)

    def plan(self) -> Plan:
        self.projects.add(self.declaration.sections.get("projects", []), self._line)
        self.found.places, self.found.renamed = self.projects.places, self.projects.renamed
        matched = [(kind, self._match(kind)) for kind in self.kinds]
        entries = {kind.section: [entry for _, entry in pairs] for kind, pairs in matched}
        monitors = Monitors(entries["monitors"], self.account.present["monitors"], self.projects, self.broken)
        names = Names(self.projects.find, monitors.find)
        for kind, pairs in matched:
            for item, entry in pairs:
                self._want(kind, item, entry, names)
            self.found.entries += [entry for _, entry in pairs]
        self._leave_over()
        return self.found

    def _match(self, kind: Kind) -> list[Pair]:
        """Monitors are read for what refers to them too, the others where the file has a section of them."""
        if kind.section in self.declaration.sections or kind.section == "monitors":
            self.account.present[kind.section] = kind.read(self.account, now=self.now)
        pairs = []
        for item in self.declaration.sections.get(kind.section, []):
            try:
                place = self.projects.find(item.take("project"), (*item.path, "project"))
            except (WrongError, BrokenError) as error:
                self._break(kind, item, error)
                continue
            name = item.given[kind.identity]
            entry = Entry(kind.section, item.path, name, place, item.given, item.take("id"))
            pairs.append((item, entry))
        present = self.account.present.get(kind.section, [])
        return Matching(kind, present, self.broken, tell=self.found.problem, line=self._line).match(pairs)

    def _want(self, kind: Kind, item: Item, entry: Entry, names: Names) -> None:
        try:
            entry.shape = kind.want(item, entry, names)
        except (WrongError, BrokenError) as error:
            self._break(kind, item, error)
        except ValidationFailed as error:
            self._break(kind, item, WrongError(*blamed(kind, item.path, error)))
        else:
            self._note_raised(item, entry.shape)

    def _break(self, kind: Kind, item: Item, error: WrongError | BrokenError) -> None:
        """What is wrong is said here, unless it has been said already, of what this refers to."""
        if isinstance(error, WrongError):
            self.found.problem(error.path, error.message)
        self.broken.add(item.path, *item.words(kind.identity))

    def _line(self, path: Path) -> int:
        return self.declaration.document.mark(path).line

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


def blamed(kind: Kind, path: Path, error: ValidationFailed) -> tuple[Path, str]:
    """Where a file says what a service objects to, and the objection."""
    if error.field is None:
        return path, str(error)
    steps = [kind.fields.get(step, step) if isinstance(step, str) else step for step in parsed(error.field)]
    return (*path, *steps), str(error).removeprefix(f"{error.field}: ")

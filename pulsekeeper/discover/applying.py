"""Make the monitors of a source match what was discovered. The tag `discovered:SOURCE` marks what it created."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from core.cli import UsageError
from core.text import counted
from pulsekeeper.discover.labels import TAG, Complaint, Discovered, Found
from pulsekeeper.manifest.changes import Change, Report
from pulsekeeper.manifest.problems import Document, InvalidManifest, Problem, parse_path
from pulsekeeper.manifest.remote import TIMEOUT_SEC, RemoteBackend

MAX_ENTRIES, MAX_CHUNK = 1_000, 700 * 1024
ROUNDS = 20
_T = TypeVar("_T")


class Existing(msgspec.Struct, frozen=True):
    """The fields of a monitor that matching needs, as in the API."""

    id: str
    name: str
    url: str
    project_id: str | None
    tags: list[str]


class _Project(msgspec.Struct, frozen=True):
    id: str
    name: str


class Account(RemoteBackend):
    """The account at the server, and its monitors in one project. Names of projects are unique there, or ids are given.

    No variable of the environment is sent: labels come from others.
    """

    def __init__(self, options: Mapping[str, Any], *, project: str | None) -> None:
        if project is not None and project.startswith("prj_"):
            raise UsageError("--project takes the name of a project, not its id")
        super().__init__(options, environment={})
        self.project = project

    def monitors(self) -> list[Existing]:
        """Return the monitors of the project, which may not exist yet, or those without a project."""
        answer = self._server.request("GET", "/v1/projects", timeout_sec=TIMEOUT_SEC)
        project_id: str | None = "none"
        if answer.status == 403:  # a project token, which sees its own project only
            if self.project is None:
                raise UsageError("a project token needs --project, the name of its project")
            project_id = None
        elif answer.status != 200:
            raise self._server.failure(answer)
        elif self.project is not None:
            found = [one for one in self._convert(answer.json(), list[_Project]) if self.project == one.name]
            if len(found) > 1:
                raise UsageError(f"you have {len(found)} projects named {self.project!r}; rename one")
            if not found:
                return []
            project_id = found[0].id
        query = "" if project_id is None else f"?{urlencode({'project_id': project_id})}"
        listed = self._server.request("GET", f"/v1/monitors{query}", timeout_sec=TIMEOUT_SEC)
        if listed.status != 200:
            raise self._server.failure(listed)
        return self._convert(listed.json(), list[Existing])

    def delete(self, monitor: Existing) -> bool:
        """Delete a monitor. Return whether it was there."""
        answer = self._server.request("DELETE", f"/v1/monitors/{quote(monitor.id, safe='')}", timeout_sec=TIMEOUT_SEC)
        if answer.status not in (200, 404):
            raise self._server.failure(answer)
        return answer.status == 200

    def put(self, entries: Sequence[Mapping[str, Any]], *, dry_run: bool) -> Report:
        """Apply entries of monitors, all or none. Raises InvalidManifest."""
        place = {} if self.project is None else {"project": self.project}
        root: dict[str, Any] = {"version": 1, "monitors": [{**entry, **place} for entry in entries]}
        if self.project is not None:
            root["projects"] = [{"name": self.project}]
        return self.apply(Document(root), prune=False, dry_run=dry_run)

    def _convert(self, found: Any, kind: type[_T]) -> _T:
        try:
            return msgspec.convert(found, kind)
        except msgspec.ValidationError:
            raise self._server.no_pulsekeeper() from None


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the manifest, and the object that it comes from."""

    found: Found
    values: dict[str, Any]


@dataclass(slots=True)
class Matched:
    """`missing` are monitors of this source that nothing in the listing explains."""

    entries: list[Entry] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)
    missing: list[Existing] = field(default_factory=list)


def match(discovered: Discovered, existing: Sequence[Existing], *, source: str) -> Matched:
    """Match monitors by name, and by address if only the name changed. Never touch those that lack the tag. Pure."""
    mark = f"{TAG}{source}"
    own: dict[str, list[Existing]] = defaultdict(list)
    others: set[str] = set()
    for one in existing:
        if mark in (tag.casefold() for tag in one.tags):
            own[one.name].append(one)
        else:
            others.add(one.name)
    result = Matched()
    unmatched: list[Found] = []
    ids: dict[int, str] = {}
    kept = set(discovered.urls)
    for found in discovered.monitors:
        name = found.entry["name"]
        if own[name]:
            ids[id(found)] = own[name].pop(0).id
        elif name not in others:
            unmatched.append(found)
    left = [one for found in own.values() for one in found]
    by_url: dict[tuple[str, str], list[Existing]] = defaultdict(list)
    for one in left:
        for key in () if one.name in discovered.names else _keys(one):
            by_url[key].append(one)
    for found in unmatched:
        same = by_url.pop((found.namespace, found.entry["url"]), [])
        if len(same) == 1:
            ids[id(found)] = same[0].id
    for found in discovered.monitors:
        name, number = found.entry["name"], ids.get(id(found))
        if number is None and name in others:
            said = f"a monitor named {name!r} is there that discovery {source} did not create. Set another name, "
            said += f"or hand it over by the tag {mark}."
            result.complaints.append(Complaint(found.place, found.label, said))
            kept.add((found.namespace, found.entry["url"]))
            continue
        own_id = {} if number is None else {"id": number}
        result.entries.append(Entry(found, {**own_id, **found.entry, "tags": [*found.entry["tags"], mark]}))
    used = set(ids.values())
    result.missing = [
        one for one in left if one.id not in used and one.name not in discovered.names and not _keys(one) & kept
    ]
    return result


def _keys(one: Existing) -> set[tuple[str, str]]:
    """Return the address of a monitor with each namespace that it may be of: none, or that which begins its name."""
    return {("", one.url), (one.name.partition("/")[0], one.url)}


@dataclass(frozen=True, slots=True)
class Outcome:
    """`complaints` are about entries that the server refuses, `notes` about those that it changes."""

    report: Report
    complaints: Sequence[Complaint]
    notes: Sequence[str]


class Applying:
    def __init__(self, account: Account, matched: Matched, *, removed: Sequence[Existing], dry_run: bool) -> None:
        self._account, self._matched = account, matched
        self._removed, self._dry_run = removed, dry_run
        self._complaints = list(matched.complaints)

    def run(self) -> Outcome:
        """Try the entries, leave out what the server refuses, remove, and apply. Raises InvalidManifest.

        Monitors are removed first: their places in the plan may be needed.
        """
        tried = [self._try(chunk) for chunk in _chunks(self._matched.entries)]
        gone = list(self._removed)
        if not self._dry_run:
            gone = [one for one in gone if self._account.delete(one)]
            tried = self._put_all([chunk for chunk, _ in tried if chunk], removed=len(gone))
        changes = [change for _, report in tried for change in report.changes]
        if self._dry_run:  # each part would create the project
            made = [change for change in changes if change.kind == "project"]
            changes = made[:1] + [change for change in changes if change.kind != "project"]
        changes += [Change("delete", "monitor", one.name, self._account.project) for one in gone]
        notes = []
        for chunk, report in tried:
            for note in report.notes:
                complaint = _complaint(note, chunk)
                notes.append(note.message if complaint is None else str(complaint[1]))
        missing, first = len(self._matched.missing) - len(self._removed), sum(one.first_checks for _, one in tried)
        report = Report(changes, (), missing, first, applied=not self._dry_run)
        return Outcome(report, self._complaints, notes)

    def _put_all(self, chunks: Sequence[list[Entry]], *, removed: int) -> list[tuple[list[Entry], Report]]:
        """Apply all parts. Raises InvalidManifest if nothing was changed, and UsageError if something was."""
        done: list[tuple[list[Entry], Report]] = []
        for chunk in chunks:
            try:
                done.append((chunk, self._put(chunk, dry_run=False)))
            except InvalidManifest as error:
                if not removed and not done:
                    raise
                applied = sum(len(each) for each, _ in done)
                counts = f"{counted(removed, 'monitor')} removed and {applied} applied, but the others not"
                raise UsageError(f"{counts}: {error.problems[0].message}") from None
        return done

    def _put(self, chunk: Sequence[Entry], *, dry_run: bool) -> Report:
        return self._account.put([entry.values for entry in chunk], dry_run=dry_run)

    def _try(self, chunk: Sequence[Entry]) -> tuple[list[Entry], Report]:
        """Return the entries that the server accepts, and what they would change. Report the others."""
        left = list(chunk)
        for _ in range(ROUNDS):
            if not left:
                break
            try:
                return left, self._put(left, dry_run=True)
            except InvalidManifest as error:
                refused: dict[int, Complaint] = {}
                for problem in error.problems:
                    if located := _complaint(problem, left):
                        refused.setdefault(*located)
                if not refused and self._removed and not self._dry_run:
                    return left, Report([])  # there may be room as soon as others are removed
                if not refused:
                    raise
                self._complaints += refused.values()
                left = [entry for index, entry in enumerate(left) if index not in refused]
        if left:
            raise UsageError("the server keeps refusing monitors; nothing was changed")
        return [], Report([])


def _complaint(problem: Problem, chunk: Sequence[Entry]) -> tuple[int, Complaint] | None:
    """Return the index of the entry that a problem is about, and the problem, or None if it is about none."""
    match parse_path(problem.path):
        case ("monitors", int(index), *steps) if index < len(chunk):
            found = chunk[index].found
            about = ".".join(str(step) for step in steps)
            message = f"{about}: {problem.message}" if about else problem.message
            return index, Complaint(found.place, found.label, message)
    return None


def _chunks(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Yield the entries in parts that fit into one request each."""
    chunk: list[Entry] = []
    size = 0
    for entry in entries:
        length = len(json.dumps(entry.values))
        if chunk and (len(chunk) == MAX_ENTRIES or size + length > MAX_CHUNK):
            yield chunk
            chunk, size = [], 0
        chunk.append(entry)
        size += length
    if chunk:
        yield chunk

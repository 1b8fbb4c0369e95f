"""Which monitors a channel or a window is for: `all`, a set of them, or those of a project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from manifests.entries import Handle, Place, Reference
from manifests.problems import Path
from manifests.resources.base import BrokenError, Names, Writing, WrongError


@dataclass(frozen=True, slots=True)
class OfProject:
    """None: a project that is deleted."""

    place: Place | None

    def __str__(self) -> str:
        return "those of no project any more" if self.place is None else f"those of {self.place}"


@dataclass(frozen=True, slots=True)
class Chosen:
    handles: frozenset[Handle]

    def parts(self) -> dict[str, str]:
        return {handle.label: "chosen" for handle in sorted(self.handles, key=str)}

    def __str__(self) -> str:
        return ", ".join(sorted(handle.label for handle in self.handles)) or "none"


Scope = str | OfProject | Chosen


def wanted(value: Any, place: Place | None, path: Path, names: Names) -> Scope:
    """Of what ScopeField took; all problems of a list are raised as one, the first of them."""
    if isinstance(value, dict):
        return OfProject(None if value["project"] is None else names.place(value["project"], path))
    if isinstance(value, list):
        return Chosen(handles(value, place, path, names))
    return "all"


def handles(references: list[Reference], place: Place | None, path: Path, names: Names) -> frozenset[Handle]:
    found = []
    broken: BrokenError | None = None
    for index, reference in enumerate(references):
        try:
            found.append(names.monitor(reference, place, (*path, index)))
        except BrokenError as error:
            broken = error
    if broken is not None:
        raise broken
    if len(set(found)) < len(found):
        twice = next(one for index, one in enumerate(found) if one in found[:index])
        raise WrongError(path, f"{twice.label} is named twice.")
    return frozenset(found)


def written(scope: Scope, place: Place | None, writing: Writing) -> Any:
    if isinstance(scope, OfProject):
        return {"project": writing.place(scope.place)}
    if isinstance(scope, Chosen):
        there = sorted(scope.handles, key=lambda handle: (handle.label, handle.key))
        return [writing.monitor(handle, place) for handle in there]
    return scope

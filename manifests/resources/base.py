"""What each kind of thing is to files: how it is read, wanted, written down, made and changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from manifests.account import Account
from manifests.entries import Entry, Handle, Place, Present, Reference, Shape
from manifests.parsing import Item
from manifests.problems import Path
from manifests.secrets import Keep, Secret, Variables


class WrongError(Exception):
    """Something about an entry does not hold: where in it, and why."""

    def __init__(self, path: Path, message: str) -> None:
        self.path, self.message = path, message
        super().__init__(message)


class BrokenError(Exception):
    """An entry refers to one about which something is wrong, which has been said there."""


@dataclass(frozen=True, slots=True)
class Names:
    """How the names in a file are understood. Both raise WrongError or BrokenError."""

    place: Callable[[str | None, Path], Place | None]
    monitor: Callable[[Reference, Place | None, Path], Handle]


@dataclass(frozen=True, slots=True)
class Writing:
    """How what there is gets its names in a file that is written."""

    place: Callable[[Place | None], str | None]
    monitor: Callable[[Handle, Place | None], Any]
    variables: Variables


@dataclass(frozen=True, slots=True)
class Making:
    """What making and changing needs: ids of places and monitors that may have been made a moment ago."""

    account: Account
    monitor_ids: Mapping[str, str]
    now: datetime

    def monitor_id(self, handle: Handle) -> str:
        return self.monitor_ids.get(handle.key, handle.key)

    def project_id(self, place: Place | None) -> str | None:
        return None if place is None else place.id


class Kind(ABC):
    """`fields` is what a service calls a field, where a file calls it otherwise."""

    section: ClassVar[str]
    noun: ClassVar[str]
    identity: ClassVar[str] = "name"
    fields: ClassVar[Mapping[str, str]] = {"project_id": "project"}

    @abstractmethod
    def read(self, account: Account, *, now: datetime) -> list[Present]:
        """All that the account has of it."""

    @abstractmethod
    def want(self, item: Item, entry: Entry, names: Names) -> Shape:
        """The whole shape that the file asks for. Raises WrongError, BrokenError, or ValidationFailed as a service."""

    @abstractmethod
    def write(self, present: Present, writing: Writing) -> dict[str, Any]:
        """The same for a file, defaults left out, in the order in which people read it."""


class Single(Kind):
    """One that is made and changed one at a time, by the service that the API calls."""

    @abstractmethod
    def create(self, making: Making, shape: Shape) -> None: ...

    @abstractmethod
    def update(self, making: Making, present: Present, shape: Shape, changed: set[str]) -> None:
        """Have the fields `changed` be as in `shape`."""

    @abstractmethod
    def delete(self, making: Making, present: Present) -> None: ...


def kept(keep: Keep, there: Any, path: Path) -> Any:
    """What is stored, in place of the placeholder that says so."""
    if there is None:
        raise WrongError(path, f"there is nothing to keep yet; set {keep.variable} in the environment.")
    return there


def secret_of(item: Item, name: str, there: Any) -> Any:
    """A secret field as it is to be: a Secret, what is stored, or None."""
    path = (*item.path, name)
    if path in item.keeps:
        return kept(item.keeps[path], there, path)
    value = item.take(name)
    return None if value is None else Secret(value)


def without(shape: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """In the order of `defaults`, what differs from them."""
    return {name: shape[name] for name, default in defaults.items() if shape[name] != default}

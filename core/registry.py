"""Registries: a name stands for one definition. In a plain dict the last one would silently replace the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar


class NameTakenError(Exception):
    """Two definitions have one name."""


class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class Registry(dict[str, T]):
    """Definitions by name, in the order of their registration. Raises NameTakenError for a name that is taken."""

    def __init__(self, entries: Iterable[T]) -> None:
        super().__init__()
        for entry in entries:
            self[entry.name] = entry

    def __setitem__(self, name: str, entry: T) -> None:
        if name in self and self[name] is not entry:
            raise NameTakenError(f"{_shown(entry)} and {_shown(self[name])} both have the name {name!r}.")
        self.check(entry)
        super().__setitem__(name, entry)

    def check(self, entry: T) -> None:
        """Raise NameTakenError if something in the new entry is not compatible with the others."""


def union(**parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return one dict of all parts. Raises NameTakenError for a key in two of them."""
    found: dict[str, Any] = {}
    for part in parts.values():
        if taken := found.keys() & part.keys():
            whose = [name for name, other in parts.items() if taken & other.keys()]
            raise NameTakenError(f"{' and '.join(whose)} both have the name {min(taken)!r}.")
        found |= part
    return found


def _shown(entry: object) -> str:
    definition = entry if isinstance(entry, type) else type(entry)
    return f"{definition.__module__}.{definition.__qualname__}"

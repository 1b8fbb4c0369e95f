"""Registries: a name stands for one definition. In a plain dict the last one would silently replace the others."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar


class NameTakenError(Exception):
    """Two definitions have one name."""


class IncompleteError(Exception):
    """A definition lacks something that its base class requires."""


class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class Registry(dict[str, T]):
    """Definitions by name, in the order of their registration.

    Raises NameTakenError for a name that is taken, and IncompleteError.
    """

    def __init__(self, entries: Iterable[T]) -> None:
        super().__init__()
        for entry in entries:
            require_complete(entry)  # it may have no name
            self[entry.name] = entry

    def __setitem__(self, name: str, entry: T) -> None:
        require_complete(entry)
        if name in self and self[name] is not entry:
            raise NameTakenError(f"{_shown(entry)} and {_shown(self[name])} both have the name {name!r}.")
        self.check(entry)
        super().__setitem__(name, entry)

    def check(self, entry: T) -> None:
        """Raise NameTakenError if something in the new entry is not compatible with the others."""


def require_complete(*definitions: object) -> None:
    """Raise IncompleteError for a class, or the class of an instance, without an abstract method or a class variable.

    Otherwise a misspelt one would be noticed at its first use, or never.
    """
    for definition in definitions:
        kind = definition if isinstance(definition, type) else type(definition)
        hints = [hint for base in kind.__mro__ for hint in inspect.get_annotations(base).items()]
        lacking = {name for name, hint in hints if str(hint).startswith("ClassVar") and not hasattr(kind, name)}
        lacking |= getattr(kind, "__abstractmethods__", frozenset())
        if lacking:
            raise IncompleteError(f"{_shown(kind)} does not define {', '.join(sorted(lacking))}.")


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

"""Variables of the environment as fields of a dataclass: what each means, and how its text is read. Plain Python.

Every process reads them, beat too, so this imports next to nothing (ADR 23).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from ipaddress import IPv4Network, IPv6Network
from typing import Any, TypeVar
from urllib.parse import urlsplit

from config.secret_files import secret_of
from core.egress import parse_networks

T = TypeVar("T")


class InvalidEnvironment(ValueError):
    """All that is wrong, each with the variable's name."""


def variable(
    default: Any, description: str, *, read: Callable[[str], Any] = str, from_file: bool = False
) -> Any:
    """A field. `read` makes its value of the text, or raises ValueError saying why not.

    With `from_file` the variable `<NAME>_FILE` may name a file that has the text: so a secret stays out of the
    environment, which every child of a process inherits.
    """
    return field(default=default, metadata={"description": description, "read": read, "from_file": from_file})


def read_variables(cls: type[T], environment: Mapping[str, str]) -> T:
    """One that is empty is one that is not given. Raises InvalidEnvironment."""
    values, wrong = {}, []
    for each in variables(cls):
        name = each.name.upper()
        try:
            secret = secret_of(name, environment) if each.metadata["from_file"] else None
        except ValueError as error:  # it names the file
            wrong.append(str(error))
            continue
        text = secret or environment.get(name)
        try:
            if text:
                values[each.name] = each.metadata["read"](text)
        except ValueError as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise InvalidEnvironment("; ".join(wrong))
    return cls(**values)


def variables(cls: type[Any]) -> tuple[Field[Any], ...]:
    return fields(cls)


def boolean(text: str) -> bool:
    word = text.lower()
    if word in ("1", "true", "t", "yes", "y", "on"):
        return True
    if word in ("0", "false", "f", "no", "n", "off"):
        return False
    raise ValueError("must be true or false")


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    def read(text: str) -> int:
        found = int(text) if text.strip().isascii() and text.strip().lstrip("-").isdecimal() else None
        if found is None or found < least or (most is not None and found > most):
            raise ValueError(f"must be a whole number, {_range(least, most)}")
        return found

    return read


def decimal(least: float, most: float | None = None) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = least - 1
        if not least <= found < float("inf") or (most is not None and found > most):
            raise ValueError(f"must be a number, {_range(least, most)}")
        return found

    return read


def one_of(*words: str) -> Callable[[str], str]:
    """In the spelling given here, however it was typed."""

    def read(text: str) -> str:
        for word in words:
            if word.lower() == text.lower():
                return word
        raise ValueError(f"must be one of {', '.join(words)}")

    return read


def comma_separated(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return parse_networks(text)


def http_address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be an http:// or https:// address")
    return text


def _range(least: float, most: float | None) -> str:
    return f"{least} at least" if most is None else f"{least} to {most}"

"""Environment variables as fields of a dataclass, with descriptions and parsers.

Every process reads them, including beat, so this module imports little.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")


class InvalidEnvironment(ValueError):
    """All invalid variables, each with its name."""


def variable(default: Any, description: str, *, read: Callable[[str], Any] = str, from_file: bool = False) -> Any:
    """Define a field. `read` parses the text, or raises ValueError with the reason.

    With `from_file` the variable `<NAME>_FILE` may name a file with the text. This keeps a secret out of the
    environment, which child processes inherit.
    """
    return field(default=default, metadata={"description": description, "read": read, "from_file": from_file})


def read_variables(cls: type[T], environment: Mapping[str, str]) -> T:
    """Read all variables. An empty one counts as not set. Raises InvalidEnvironment."""
    values, errors = {}, []
    for each in variables(cls):
        name = each.name.upper()
        try:
            secret = _read_secret_file(name, environment) if each.metadata["from_file"] else None
        except ValueError as error:  # names the file
            errors.append(str(error))
            continue
        text = secret or environment.get(name)
        try:
            if text:
                values[each.name] = each.metadata["read"](text)
        except ValueError as error:
            errors.append(f"{name}: {error}")
    if errors:
        raise InvalidEnvironment("; ".join(errors))
    return cls(**values)


def variables(cls: type[Any]) -> tuple[Field[Any], ...]:
    return fields(cls)


def is_set(name: str) -> bool:
    """Return whether the environment has the variable `name`, or a file for it (`<NAME>_FILE`)."""
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


def _read_secret_file(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the content of the file that `<NAME>_FILE` names, without trailing newlines. Return None if it is not set.

    Raises ValueError if the file cannot be read or is empty, or if `name` is set as well.
    """
    path = environment.get(f"{name}_FILE")
    if not path:
        return None
    if environment.get(name):
        raise ValueError(f"{name} and {name}_FILE are both set: remove one of them")
    try:
        value = Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise ValueError(f"{name}_FILE: {path}: {reason}") from None
    if not value:
        raise ValueError(f"{name}_FILE: {path}: is empty")
    return value


def boolean(text: str) -> bool:
    word = text.lower()
    if word in ("1", "true", "t", "yes", "y", "on"):
        return True
    if word in ("0", "false", "f", "no", "n", "off"):
        return False
    raise ValueError("must be true or false")


def whole(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text) if text.strip().isascii() and text.strip().lstrip("-").isdecimal() else None
        if value is None or value < minimum or (maximum is not None and value > maximum):
            raise ValueError(f"must be a whole number, {_range(minimum, maximum)}")
        return value

    return read


def decimal(minimum: float, maximum: float | None = None) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = minimum - 1
        if not minimum <= value < float("inf") or (maximum is not None and value > maximum):
            raise ValueError(f"must be a number, {_range(minimum, maximum)}")
        return value

    return read


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser that accepts any of `words`, in any case, and returns it in the case given here."""

    def read(text: str) -> str:
        for word in words:
            if word.lower() == text.lower():
                return word
        raise ValueError(f"must be one of {', '.join(words)}")

    return read


def comma_separated(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def http_address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be an http:// or https:// address")
    return text


def _range(minimum: float, maximum: float | None) -> str:
    return f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"

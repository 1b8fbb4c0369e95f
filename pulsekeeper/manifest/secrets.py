"""Secrets and placeholders in manifests. Pure.

`${PK_NAME}` is replaced by an environment variable. `${keep:PK_NAME}`, which must be the whole value, is replaced too
if that variable is set, and otherwise keeps the stored value. `$${` is a literal `${`.

Names begin with PK_, so that an untrusted file cannot send other environment variables, such as keys, to a receiver of
its choice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_VARIABLES = 1_000
MAX_FILLED = 64 * 1024  # longer than any field: a short text can name a long variable many times
_NAME = re.compile(r"PK_[A-Z0-9_]{1,120}")
_HOLE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_KEEP = "keep:"


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that is compared and stored, but never displayed."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return "(secret)"


@dataclass(frozen=True, slots=True)
class Keep:
    """A placeholder that keeps the stored value, unless the environment variable `variable` is set."""

    variable: str


def fill(text: str, environment: Mapping[str, str]) -> Secret | Keep:
    """Replace the placeholders. Raises ValueError with the reason if one cannot be replaced."""
    whole = _HOLE.fullmatch(text)
    if whole is not None and (whole.group(1) or "").startswith(_KEEP) and text.endswith("}"):
        variable = _variable_name(whole.group(1).removeprefix(_KEEP))
        return Secret(environment[variable]) if variable in environment else Keep(variable)

    room = MAX_FILLED - len(text)

    def replacement(hole: re.Match[str]) -> str:
        nonlocal room
        if hole.group(1) is None:
            return "${"
        if not hole.group().endswith("}"):
            raise ValueError("has ${ without }; write $${ for a literal ${.")
        if hole.group(1).startswith(_KEEP):
            raise ValueError("${keep:…} must be the whole value.")
        variable = _variable_name(hole.group(1))
        if variable not in environment:
            raise ValueError(f"{variable} is not in the environment.")
        room -= len(environment[variable])
        if room < 0:
            raise ValueError(f"is longer than {MAX_FILLED} characters, with its placeholders replaced.")
        return environment[variable]

    return Secret(_HOLE.sub(replacement, text))


def variables_in(value: Any, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the environment that placeholders in a document name."""
    if isinstance(value, str):
        names = {hole.removeprefix(_KEEP) for hole in _HOLE.findall(value)}
        return {name: environment[name] for name in names if _NAME.fullmatch(name) and name in environment}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {name: text for one in inner for name, text in variables_in(one, environment).items()}


def _variable_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"${{{name[:60]}}} is not a placeholder: names are PK_ and capital letters, digits and _, "
            "as in ${PK_TOKEN}; write $${ for a literal ${."
        )
    return name


class Variables:
    """Names for the placeholders of one export: readable, unique, and the same in each export."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}  # by name: the last number that was added to it

    def keep(self, *words: str) -> str:
        """Return a placeholder, like `${keep:PK_CHANNEL_ON_CALL_URL}` for the parts channel, On call and url."""
        parts = [re.sub(r"[^A-Z0-9]+", "_", word.upper()).strip("_")[:50] for word in words]
        name = stem = "PK_" + "_".join(filter(None, parts))
        number = self._used.get(stem, 1)
        while name in self._used:
            number += 1
            name = f"{stem}_{number}"
        self._used[stem] = number
        self._used.setdefault(name, 1)
        return f"${{{_KEEP}{name}}}"

"""What stands in a file in place of a secret. Pure.

`${PK_NAME}` is filled from the environment of `apply`, also within a text: `Bearer ${PK_TOKEN}`. `$${` is `${`.
`${keep:PK_NAME}`, which has to be the whole value, is what the environment says, and without that what is stored
already. `export` writes it, so that its file changes nothing where it came from, and asks for the value elsewhere.

Names begin with PK_. A file often comes from more people than those who run `apply`, and must not be able to send
Pulsekeeper's own keys, or whatever else a pipeline has in its environment, to a receiver that it names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_NAME = re.compile(r"PK_[A-Z0-9_]{1,120}")
_HOLE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_KEEP = "keep:"


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that is compared, stored and never shown."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return "(secret)"


@dataclass(frozen=True, slots=True)
class Keep:
    """What is stored stays. `variable` would give it another value."""

    variable: str


def fill(text: str, environment: Mapping[str, str]) -> Secret | Keep:
    """Raises ValueError, saying why, for a placeholder that cannot be filled."""
    whole = _HOLE.fullmatch(text)
    if whole is not None and (whole.group(1) or "").startswith(_KEEP) and text.endswith("}"):
        variable = _checked(whole.group(1).removeprefix(_KEEP))
        return Secret(environment[variable]) if variable in environment else Keep(variable)

    def filled(hole: re.Match[str]) -> str:
        if hole.group(1) is None:
            return "${"
        if not hole.group().endswith("}"):
            raise ValueError("has a ${ without its }; write $${ for the two characters themselves.")
        if hole.group(1).startswith(_KEEP):
            raise ValueError("${keep:…} has to be the whole value.")
        variable = _checked(hole.group(1))
        if variable not in environment:
            raise ValueError(f"{variable} is not in the environment.")
        return environment[variable]

    return Secret(_HOLE.sub(filled, text))


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"${{{name[:60]}}} is no placeholder: names are PK_ and capital letters, digits and _, "
            "as in ${PK_TOKEN}; write $${ for the two characters themselves."
        )
    return name


class Variables:
    """Names for the placeholders of one export: readable, each given once, the same every time."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def keep(self, *words: str) -> str:
        """`${keep:PK_CHANNEL_ON_CALL_URL}` of the words channel, On call and url."""
        parts = [re.sub(r"[^A-Z0-9]+", "_", word.upper()).strip("_")[:50] for word in words]
        name = stem = "PK_" + "_".join(filter(None, parts))
        number = 1
        while name in self._given:
            number += 1
            name = f"{stem}_{number}"
        self._given.add(name)
        return f"${{{_KEEP}{name}}}"

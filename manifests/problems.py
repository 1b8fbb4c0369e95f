"""Problems of a file, each with its line. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

Path = tuple[str | int, ...]
"""The path of a value in a file: `("monitors", 12, "interval_sec")`."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A position in the text, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    mark: Mark
    path: str
    message: str

    def format(self, file: str) -> str:
        """Return a line in the format that editors and pipelines display as a link."""
        where = f"{self.path}: " if self.path else ""
        return printable(f"{file}:{self.mark.line}:{self.mark.column}: {where}{self.message}")

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self.mark), "path": self.path, "message": self.message}


class InvalidManifest(Exception):
    """The file cannot be applied. Contains all problems in the order of lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda one: (one.mark, one.path, one.message))
        super().__init__(f"{len(self.problems)} problems")


class EntryError(Exception):
    """An entry is invalid, with its path and the reason."""

    def __init__(self, path: Path, message: str) -> None:
        self.path, self.message = path, message
        super().__init__(message)


class InvalidReferenceError(Exception):
    """An entry refers to an invalid entry, whose problem is already reported."""


def printable(text: str) -> str:
    """Return the text in one line without control characters, because files may come from untrusted sources."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def format_path(path: Path) -> str:
    """Return a path like `monitors[12].interval_sec`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def parse_path(text: str) -> Path:
    """Parse the path of a field as services name it, like `content_rules[0].path`."""
    steps = text.replace("]", "").replace("[", ".").split(".")
    return tuple(int(step) if step.isdecimal() else step for step in steps if step)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence to append to a message, or an empty string."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""

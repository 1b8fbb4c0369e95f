"""The values of a file, and its problems, each with its line. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Any

MAX_HINTS, MAX_CANDIDATES = 100, 500
MAX_PROBLEMS = 1_000

Path = tuple[str | int, ...]
"""The path of a value in a file: `("monitors", 12, "interval_sec")`."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A position in the text, counted from 1."""

    line: int
    column: int


START = Mark(1, 1)


@dataclass(slots=True)
class Document:
    """The values of a file. `marks` and `keys` have the positions of values and of their keys."""

    root: Any
    marks: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)

    def mark(self, path: Path) -> Mark:
        """Return the position of a value, or of its nearest parent in the file."""
        while path not in self.marks and path:
            path = path[:-1]
        return self.marks.get(path, START)

    def line(self, path: Path) -> int:
        return self.mark(path).line

    def place(self, path: Path) -> str:
        """Return where an entry is, for a message about another one: its line, or its path if lines are unknown."""
        return f"in line {self.line(path)}" if self.marks else f"there as {format_path(path)}"

    def problem(self, path: Path, message: str, *, at_key: bool = False) -> Problem:
        mark = self.keys.get(path) if at_key else None
        return Problem(mark or self.mark(path), format_path(path), message, at_key)


@dataclass(frozen=True, slots=True)
class Problem:
    """`at_key`: the key is wrong, not its value."""

    mark: Mark
    path: str
    message: str
    at_key: bool = False

    def format(self, file: str) -> str:
        """Return a line in the format that editors and pipelines display as a link."""
        where = f"{self.path}: " if self.path else ""
        return printable(f"{file}:{self.mark.line}:{self.mark.column}: {where}{self.message}")

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self.mark), "path": self.path, "message": self.message}


class InvalidManifest(Exception):
    """The file cannot be applied. Contains the problems in the order of lines, at most MAX_PROBLEMS."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda one: (one.mark, one.path, one.message))
        if len(self.problems) > MAX_PROBLEMS:
            last = self.problems[MAX_PROBLEMS - 1]
            self.problems[MAX_PROBLEMS - 1 :] = [Problem(last.mark, "", "there are more problems than these.")]
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


class Hints:
    """Suggestions for misspelled words. Their number is limited, because comparing words is slow and files are not."""

    def __init__(self) -> None:
        self._left = MAX_HINTS

    def did_you_mean(self, word: str, known: Iterable[str]) -> str:
        """Return a sentence to append to a message, or an empty string."""
        self._left -= 1
        candidates = list(islice(known, MAX_CANDIDATES)) if self._left >= 0 else []
        near = get_close_matches(word, candidates, n=1, cutoff=0.6)
        return f" Did you mean {near[0]!r}?" if near else ""

"""What is wrong with a file, and where: every problem of a run, each with its line. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

Path = tuple[str | int, ...]
"""Of a value in a file: `("monitors", 12, "interval_sec")`."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a text; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    mark: Mark
    path: str
    message: str

    def told(self, file: str) -> str:
        """For a person, in the form that editors and pipelines make a link of."""
        where = f"{self.path}: " if self.path else ""
        return printable(f"{file}:{self.mark.line}:{self.mark.column}: {where}{self.message}")

    def as_json(self) -> dict[str, Any]:
        return {
            "line": self.mark.line,
            "column": self.mark.column,
            "path": self.path,
            "message": self.message,
        }


class Refused(Exception):
    """The file cannot be applied: everything that is wrong with it, in the order of its lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda one: (one.mark, one.path, one.message))
        super().__init__(f"{len(self.problems)} problems")


def printable(text: str) -> str:
    """One line without what would move a terminal's cursor: a file may come from anybody."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def spelled(path: Path) -> str:
    """`monitors[12].interval_sec`"""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def parsed(text: str) -> Path:
    """What `spelled` made, as services name a field: `content_rules[0].path`."""
    steps: list[str | int] = []
    for part in text.replace("[", ".[").split("."):
        if part.startswith("["):
            steps.append(int(part.strip("[]")))
        elif part:
            steps.append(part)
    return tuple(steps)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence to add to a message, or nothing."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""

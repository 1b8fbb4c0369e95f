"""Commands in plain Python: `manage.py` runs them in the server, `pulsekeeper` on any machine.

What differs between the two, such as how a command reaches an account, is a parameter of its constructor.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Mapping
from io import TextIOWrapper
from typing import Any, ClassVar, Protocol

EXIT_USAGE, EXIT_UNREACHABLE, EXIT_BUG, EXIT_INTERRUPTED = 2, 4, 70, 130
"""EXIT_BUG: an exception that no command expects. Python's own code for it, 1, has a meaning in most commands."""


class CommandFailed(Exception):
    """The command ends with a message and an exit code."""

    code: int

    def __init__(self, message: str, *, code: int | None = None) -> None:
        self.code = self.code if code is None else code
        super().__init__(message)


class UsageError(CommandFailed):
    """The request is invalid, and a retry would fail again."""

    code = EXIT_USAGE


class UnreachableError(CommandFailed):
    """The database, the broker or the server cannot be reached."""

    code = EXIT_UNREACHABLE


def use_utf8(stream: object) -> None:
    """Write UTF-8 wherever the output goes, and escape what it cannot express: no report is lost after a change."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")


class Output(Protocol):
    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...

    def isatty(self) -> bool: ...


class Command(ABC):
    """One command.

    `epilog` is printed unchanged, with `{prog}` replaced: examples, and a table `exit codes:`. docs/use/commands.md has
    the same table; a test compares the two. `usage_code` is the exit code for arguments that argparse refuses.
    `mixes_arguments`: an argument without a name may follow options, although others come before them.
    """

    help: ClassVar[str]
    epilog: ClassVar[str]
    usage_code: ClassVar[int] = EXIT_USAGE
    mixes_arguments: ClassVar[bool] = False

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    @abstractmethod
    def run(self, options: Mapping[str, Any], *, out: Output, err: Output) -> int:
        """Run and return the exit code. Raises CommandFailed."""

    def explain(self, message: str) -> str:
        """Return the text to print for the message of a failure."""
        return message

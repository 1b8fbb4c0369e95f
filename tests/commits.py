"""Check commit messages: the hook commit-msg and `make check` run this.

    python -m tests.commits [MESSAGE_FILE]

With a file, check the message in it and the files that are staged; without one, all commits after the one that added
this module. Merges are not checked. Exits 1 after printing each fault.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_FILES, LONGEST_SUBJECT = 40, 72


class Commit(NamedTuple):
    """`message` is without comments of the editor; `files` is the number of changed files."""

    name: str
    message: str
    files: int


def faults_of(commit: Commit) -> list[str]:
    subject, _, body = commit.message.strip().partition("\n")
    faults = []
    if len(subject) > LONGEST_SUBJECT:
        faults.append(f"the subject has {len(subject)} characters, more than {LONGEST_SUBJECT}")
    if commit.files > MOST_FILES and not body.strip():
        faults.append(f"{commit.files} files change, more than {MOST_FILES}, and no body says why")
    return [f"{commit.name}: {fault}" for fault in faults]


def git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), check=True, capture_output=True, text=True).stdout


def staged(message: Path) -> Commit:
    lines = [line for line in message.read_text().splitlines() if not line.startswith("#")]
    return Commit("this commit", "\n".join(lines), len(git("diff", "--cached", "--name-only").splitlines()))


def committed() -> Iterator[Commit]:
    """Return no commits where the history is unknown: in an archive, or in a clone without the first one."""
    module = Path(__file__).relative_to(Path.cwd())
    try:
        first = git("log", "--diff-filter=A", "--format=%H", "--", str(module)).split()
    except (OSError, subprocess.CalledProcessError):
        return
    if first:
        log = git("log", "--no-merges", "--name-only", "--format=%x01%h%x02%B%x02", f"{first[-1]}..HEAD")
        for text in log.split("\x01")[1:]:
            name, message, files = text.split("\x02")
            yield Commit(name, message, sum(map(bool, files.splitlines())))


def main() -> int:
    commits = [staged(Path(sys.argv[1]))] if sys.argv[1:] else committed()
    faults = [fault for commit in commits for fault in faults_of(commit)]
    print("\n".join(faults), end="\n" if faults else "")  # noqa: T201
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

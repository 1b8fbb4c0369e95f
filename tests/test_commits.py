"""Which commit messages are refused: as the hook, and among all commits since the check exists."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import commits
from tests.commits import Commit, faults_of

LONG = "tests: " + "x" * 66


@pytest.mark.parametrize(
    ("message", "files", "faults"),
    [
        (LONG[:72], 40, []),
        (LONG, 1, ["c: the subject has 73 characters, more than 72"]),
        ("many: files\n\nBecause.", 41, []),
        ("many: files\n\n", 41, ["c: 41 files change, more than 40, and no body says why"]),
    ],
)
def test_a_commit_says_what_and_why(message: str, files: int, faults: list[str]) -> None:
    assert faults_of(Commit("c", message, files)) == faults


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose second commit adds the check, after one with a long subject."""
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    commit(LONG)
    (tmp_path / "tests").mkdir()
    shutil.copy(commits.__file__, tmp_path / "tests")
    git("add", ".")
    commit("tests: Check commits")
    return tmp_path


def git(*arguments: str) -> None:
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com")
    subprocess.run(("git", *who, *arguments), check=True, capture_output=True)


def commit(message: str) -> None:
    git("commit", "--allow-empty", "--message", message)


def check(*arguments: str) -> tuple[int, str]:
    done = subprocess.run((sys.executable, "tests/commits.py", *arguments), check=False, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_only_commits_since_the_check_are_checked(repository: Path) -> None:
    commit("many: files")
    assert check() == (0, "")
    commit(LONG)
    code, output = check()
    assert code == 1
    assert output.endswith(": the subject has 73 characters, more than 72\n")


def test_the_hook_reads_the_message_and_counts_staged_files(repository: Path) -> None:
    for number in range(41):
        (repository / f"{number} of many").touch()
    git("add", ".")
    message = repository / "message"
    message.write_text("many: files\n# Please enter the commit message\n")
    assert check("message") == (1, "this commit: 41 files change, more than 40, and no body says why\n")
    message.write_text("many: files\n\nBecause.\n")
    assert check("message") == (0, "")


def test_an_archive_without_history_passes(repository: Path) -> None:
    shutil.rmtree(repository / ".git")
    assert check() == (0, "")

"""Each guide in docs/develop works as written: a copy of the project gets its files, and runs its commands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[1]
DEVELOP = ROOT / "docs" / "develop"
# A block of code: its language, the file that it is about, and its text. It may be part of a list.
BLOCK = re.compile(r'^( *)```(\w+)(?: title="([^"]+)")?\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)
Run = Callable[[str], None]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return the folder of a copy of the project."""
    folder = tmp_path / "pulsekeeper"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "screenshots", "site")
    shutil.copytree(ROOT, folder, ignore=left_out)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture
def run(copy: Path, clean_environment: dict[str, str]) -> Run:
    """Return a function that runs commands of a shell in the copy. The first one that fails ends them."""

    def run(commands: str) -> None:
        done = subprocess.run(
            ["bash", "-euc", commands],
            cwd=copy,
            env=clean_environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}"

    return run


def write(file: Path, language: str, text: str) -> None:
    """Write a new file, or make the changes of a diff. Its hunks have lines of `@@` between them."""
    if language != "diff":
        assert not file.exists()
        file.write_text(text)
        return
    for hunk in re.split(r"^@@.*\n", text, flags=re.MULTILINE):
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line[0] != sign) for sign in "+-")
        found = file.read_text()
        assert found.count(before) == 1, f"{file.name}\n{hunk}"
        file.write_text(found.replace(before, after))


@pytest.mark.parametrize("guide", sorted(DEVELOP.glob("adding-*.md")), ids=lambda guide: guide.stem)
def test_a_guide_works_as_written(guide: Path, copy: Path, run: Run) -> None:
    blocks = BLOCK.findall(guide.read_text())
    assert len(blocks) == guide.read_text().count("```") / 2
    for _, language, path, text in blocks:
        if language == "sh":
            run(text)
        else:
            write(copy / path, language, dedent(text))
    run(".venv/bin/ruff check . && .venv/bin/ruff format --check .")


def test_the_command_for_generated_files_writes_all_of_them(copy: Path, run: Run) -> None:
    section = (DEVELOP / "development.md").read_text().partition("## Generated files\n")[2].partition("\n## ")[0]
    files = [copy / path for path in re.findall(r"^\| `(docs/\S+?)`", section, re.MULTILINE)]
    assert len(files) == 5
    before = {path: path.read_bytes() for file in files for path in (file.rglob("*") if file.is_dir() else [file])}
    for path in before:
        path.write_bytes(re.sub(rb"(?s)(<!-- (?:catalogue|services) -->).*(?=<!-- /)", rb"\1", before[path]))
        if path.suffix != ".md":
            path.unlink()
    run(BLOCK.findall(section)[0][3])
    assert {path: path.read_bytes() for path in before} == before

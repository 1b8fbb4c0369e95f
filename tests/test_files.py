"""Files are complete or absent."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.files import replaced


def test_what_was_there_stays_until_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "monitors.yaml"
    path.write_text("before")
    path.chmod(0o640)
    with replaced(path) as file:
        file.write("after")
        file.flush()
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["monitors.yaml"]


def test_what_breaks_off_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "monitors.yaml"
    path.write_text("before")

    def pieces() -> Iterator[str]:
        yield "aft"
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"), replaced(path) as file:
        file.writelines(pieces())
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["monitors.yaml"]


def test_a_new_file_has_the_mode_that_was_wanted(tmp_path: Path) -> None:
    with replaced(tmp_path / "account.json", mode=0o600) as file:
        file.write("{}")
    assert stat.S_IMODE((tmp_path / "account.json").stat().st_mode) == 0o600


def test_a_link_still_leads_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(tmp_path / "monitors.yaml")
    with replaced(tmp_path / "current") as file:
        file.write("after")
    assert (tmp_path / "current").is_symlink()
    assert (tmp_path / "monitors.yaml").read_text() == "after"


def test_a_pipe_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    with replaced(path) as file:
        file.write("through")
    reader.join(10)
    assert read == ["through"]
    assert path.is_fifo()


@pytest.mark.parametrize(("where", "error"), [("none/monitors.yaml", FileNotFoundError), (".", IsADirectoryError)])
def test_what_cannot_be_written(tmp_path: Path, where: str, error: type[OSError]) -> None:
    with pytest.raises(error), replaced(tmp_path / where):
        pytest.fail("there is nothing to write to")


def test_what_came_meanwhile_is_not_written_over_unasked(tmp_path: Path) -> None:
    path = tmp_path / "account.json"

    def pieces() -> Iterator[str]:
        yield "ours"
        path.write_text("theirs")

    with pytest.raises(FileExistsError), replaced(path, overwrite=False) as file:
        file.writelines(pieces())
    assert path.read_text() == "theirs"
    assert [one.name for one in tmp_path.iterdir()] == ["account.json"]
    path.unlink()
    with replaced(path, mode=0o600, overwrite=False) as file:
        file.write("ours")
    assert path.read_text() == "ours"
    assert [one.name for one in tmp_path.iterdir()] == ["account.json"]

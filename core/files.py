"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from core.ids import random_text


@contextmanager
def replaced(path: Path, *, mode: int = 0o666, overwrite: bool = True) -> Iterator[TextIO]:
    """Write what becomes the file at `path` when all of it is on disk; until then there is what there was.

    `mode` is that of a new file, less the umask; one that there is keeps its own. Links are followed, and what is no
    file, like `/dev/stdout` or a pipe, is written to as it is. Who is killed half-way leaves a hidden draft beside it.
    Without `overwrite` of two at once only one has its file there. Raises OSError, FileExistsError among them.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        with target.open("w", encoding="utf-8") as file:
            yield file
        return
    draft = target.with_name(f".{target.name}.{random_text(6)}")
    try:
        draft.touch(mode, exist_ok=False)
        with draft.open("w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not overwrite:
            target.hardlink_to(draft)
            return
        if target.exists():
            draft.chmod(target.stat().st_mode & 0o7777)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)

"""Write files completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from core.ids import random_text


@contextmanager
def replaced(path: Path, *, mode: int = 0o666, overwrite: bool = True) -> Iterator[TextIO]:
    """Replace the file at `path` with what is written, once all of it is on disk.

    `mode` is that of a new file, less the umask; an existing one keeps its mode. Links are followed. `/dev/stdout` and
    pipes are written directly. A killed process leaves a hidden draft beside the file. Without `overwrite`, raises
    FileExistsError if the file exists; raises other OSErrors.
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

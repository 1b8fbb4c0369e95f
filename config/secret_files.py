"""Secrets out of files, as orchestrators mount them: `<NAME>_FILE` names the file that has the value of `<NAME>`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def given(name: str) -> bool:
    """Whether the environment has the variable `name`, or a file for it."""
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


def secret_of(name: str, environment: Mapping[str, str]) -> str | None:
    """What the file for `name` holds, but for line ends after it; None where there is none.

    Raises ValueError where it cannot be read, holds nothing, or the value is given as well.
    """
    path = environment.get(f"{name}_FILE")
    if not path:
        return None
    if environment.get(name):
        raise ValueError(f"{name} and {name}_FILE are both given: which of them counts?")
    try:
        value = Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise ValueError(f"{name}_FILE: {path}: {reason}") from None
    if not value:
        raise ValueError(f"{name}_FILE: {path}: is empty")
    return value

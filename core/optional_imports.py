"""Block optional imports while a library loads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def blocked(module: str) -> Iterator[None]:
    """Make importing `module` fail inside the block, unless it is loaded already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # Python's own mark for "not installed"
    try:
        yield
    finally:
        del sys.modules[module]

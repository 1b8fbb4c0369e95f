"""Libraries that take along whatever else is installed, and how to have them not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hidden(module: str) -> Iterator[None]:
    """Within the block importing `module` fails, as if it were not installed; not where it is loaded already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # what Python itself takes for "there is none"
    try:
        yield
    finally:
        del sys.modules[module]

"""A limit on executed lines of Python, as a bound on cost that does not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

MAX_STEPS = 100_000
"""About 10 ms."""


class TooManySteps(Exception):
    pass


@contextmanager
def limited_steps(limit: int = MAX_STEPS) -> Iterator[list[int]]:
    """Count executed lines, and raise TooManySteps at the limit. So an infinite loop fails instead of hanging."""
    steps = [0]

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        steps[0] += event == "line"
        if steps[0] > limit:
            raise TooManySteps
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield steps
    finally:
        sys.settrace(before)

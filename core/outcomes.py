"""What came of something that was to be done to many rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """`done`: the rows that it was done to. `left`: why others were left as they are, and how many of them."""

    done: Sequence[T]
    left: Mapping[str, int] = field(default_factory=dict)

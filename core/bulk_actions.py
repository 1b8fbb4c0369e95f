"""The result of an action on many rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BulkResult(Generic[T]):
    """`done`: the changed rows. `left`: why others were not changed, and how many of them."""

    done: Sequence[T]
    left: Mapping[str, int] = field(default_factory=dict)

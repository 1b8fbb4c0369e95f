"""Pages of long lists. The URL of a further page has the position of the last row that the page before shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from django.db.models import Model, QuerySet

from core.clock import EPOCH, MAX_MS

M = TypeVar("M", bound=Model)


def first_page(rows: QuerySet[M] | Sequence[M], size: int) -> tuple[list[M], M | None]:
    """Return the first `size` rows, and the last of them if more rows follow."""
    found = list(rows[: size + 1])
    return found[:size], found[size - 1] if len(found) > size else None


class Position(NamedTuple):
    """The position of a row in a list by time. Its text form is in the URL of the page that follows the row."""

    at: datetime
    number: int

    @classmethod
    def read(cls, text: str) -> Position | None:
        """Return None for the first page, and for invalid text."""
        found = re.fullmatch(r"([0-9]{1,18})-([0-9]{1,18})", text)
        if found is None or int(found[1]) > MAX_MS * 1000:
            return None
        return cls(EPOCH + timedelta(microseconds=int(found[1])), int(found[2]))

    def __str__(self) -> str:
        return f"{(self.at - EPOCH) // timedelta.resolution}-{self.number}"

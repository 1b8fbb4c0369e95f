"""Reading many rows without holding anything meanwhile: neither all of them, nor a transaction, nor a connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from django.db import connection
from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)

BITE = 500


def bites(queryset: QuerySet[M]) -> Iterator[list[M]]:
    """The rows in the order of their keys, so many at a time; what is added meanwhile may or may not be among them."""
    last: int = 0
    while rows := list(queryset.filter(pk__gt=last).order_by("pk")[:BITE]):
        last = rows[-1].pk
        let_go()
        yield rows


def let_go() -> None:
    """Whoever reads the file may be slow, and the pool is for everybody."""
    if not connection.in_atomic_block:
        connection.close()

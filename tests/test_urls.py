from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.urls import get_resolver


def names(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from names(pattern.url_patterns, route)
        elif pattern.name:
            yield pattern.name, route


def test_no_two_routes_share_a_name() -> None:
    """`reverse` returns the last one: a page would link to an endpoint of the API."""
    own = set(names([one for one in get_resolver().url_patterns if not str(one.pattern).startswith("admin/")]))
    counts = Counter(name for name, _ in own)
    assert {name: count for name, count in counts.items() if count > 1} == {}

"""Print the pattern of every route of `config.urls`, for benchmarks/strangers.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import django

django.setup()

from django.urls import get_resolver  # noqa: E402


def patterns(resolver: Any, prefix: str = "") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        whole = prefix + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from patterns(pattern, whole)
        else:
            yield whole


if __name__ == "__main__":
    print(*patterns(get_resolver()), sep="\n")

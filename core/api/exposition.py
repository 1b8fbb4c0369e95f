"""Metrics in responses: OpenMetrics if the scraper asks for it, else Prometheus' text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from types import SimpleNamespace
from typing import Any

from django.http import HttpRequest, HttpResponse
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

TEXT, OPEN_METRICS = "text/plain", "application/openmetrics-text"
SAMPLES_AT_ONCE = 200
_END = b"# EOF\n"


def expose(request: HttpRequest, families: Iterable[Metric]) -> HttpResponse:
    """Return the metric families in the format that the request accepts."""
    pieces, content_type = exposed(request, families)
    return HttpResponse(b"".join(pieces), content_type=content_type)


def exposed(request: HttpRequest, families: Iterable[Metric]) -> tuple[Iterator[bytes], str]:
    """Return the same in pieces of a few samples, and the content type."""
    # Not the header itself: choose_encoder raises an error if a version is not a number, and repeats any number.
    accepted = f"{OPEN_METRICS}; version=1.0.0" if OPEN_METRICS in request.headers.get("Accept", "") else TEXT
    encode, content_type = choose_encoder(accepted)
    return _pieces(encode, families, end=_END if accepted != TEXT else b""), content_type


def _pieces(encode: Any, families: Iterable[Metric], *, end: bytes) -> Iterator[bytes]:
    """Yield the text of the families. One after another of the same name are parts of one family."""
    name = None
    for family in families:
        for start in range(0, len(family.samples) or 1, SAMPLES_AT_ONCE):
            part = copy(family)
            part.samples = family.samples[start : start + SAMPLES_AT_ONCE]
            text = encode(SimpleNamespace(collect=lambda part=part: [part])).removesuffix(_END)
            yield text.split(b"\n", 2)[2] if family.name == name else text  # HELP and TYPE come once
            name = family.name
    yield end

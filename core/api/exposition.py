"""Metrics in responses: OpenMetrics if the scraper asks for it, else Prometheus' text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest, HttpResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

TEXT, OPEN_METRICS = "text/plain", "application/openmetrics-text"


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def expose(request: HttpRequest, families: Iterable[Metric]) -> HttpResponse:
    """Return the metric families in the format that the request accepts."""
    # Not the header itself: choose_encoder raises an error if a version is not a number, and repeats any number.
    accepted = f"{OPEN_METRICS}; version=1.0.0" if OPEN_METRICS in request.headers.get("Accept", "") else TEXT
    encode, content_type = choose_encoder(accepted)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return HttpResponse(encode(registry), content_type=content_type)

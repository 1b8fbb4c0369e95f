"""Metrics in responses: OpenMetrics if the scraper asks for it, else Prometheus' text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from django.http import HttpRequest, HttpResponse
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

TEXT, OPEN_METRICS = "text/plain", "application/openmetrics-text"


def expose(request: HttpRequest, families: Iterable[Metric]) -> HttpResponse:
    """Return the metric families in the format that the request accepts."""
    # Not the header itself: choose_encoder raises an error if a version is not a number, and repeats any number.
    accepted = f"{OPEN_METRICS}; version=1.0.0" if OPEN_METRICS in request.headers.get("Accept", "") else TEXT
    encode, content_type = choose_encoder(accepted)
    collector: Any = SimpleNamespace(collect=lambda: families)
    return HttpResponse(encode(collector), content_type=content_type)

"""`GET /v1/metrics`: the monitors of an account or project for its own Prometheus. docs/use/metrics.md lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from checks.spec import Verdict
from core.api.exposition import OPEN_METRICS, TEXT, expose
from core.api.viewsets import ServiceViewSet, operation
from core.clock import to_ms
from core.throttles import MetricsThrottle
from monitors.models import Monitor
from monitors.selectors import list_monitors, status_of, uptimes

UNKNOWN, PAUSED = "unknown", "paused"
STATUSES = (*(verdict.value for verdict in Verdict), UNKNOWN, PAUSED)
LABELS: Final = ("id", "name", "project", "type")


def metrics_of(
    monitors: Sequence[Monitor], uptime_24h: Mapping[int, float | None], *, now: datetime
) -> Iterator[Metric]:
    """Yield the metric families of these monitors. A value that is not known has no sample."""
    status = _gauge("status", "1 for the current status, 0 for the others.", "status")
    latency = _gauge("latency_seconds", "Latency of the last check, unless the status is unknown or paused.")
    checked_at = _gauge("last_check_timestamp_seconds", "When the last check ended, in seconds since 1970.")
    uptime = _gauge("uptime_24h_ratio", "Share of the last 24 hours outside outages, 0 to 1.")
    certificate = _gauge(
        "certificate_expiry_timestamp_seconds", "When the TLS certificate expires, in seconds since 1970."
    )
    domain = _gauge(
        "domain_expiry_timestamp_seconds", "When the registration of the domain expires, in seconds since 1970."
    )
    for monitor in monitors:
        state = monitor.state
        project = "" if monitor.project is None else monitor.project.name
        labels = (monitor.public_id, monitor.name, project, monitor.type)
        current = (status_of(monitor, now=now) or UNKNOWN) if monitor.enabled else PAUSED
        for each in STATUSES:
            status.add_metric((*labels, each), each == current)
        if state.last_latency_ms is not None and current not in {UNKNOWN, PAUSED}:
            latency.add_metric(labels, state.last_latency_ms / 1000)
        percent = uptime_24h[monitor.pk]
        if percent is not None:
            uptime.add_metric(labels, percent / 100)
        for family, moment in (
            (checked_at, state.last_checked_at),
            (certificate, state.cert_expires_at),
            (domain, state.domain_expires_at),
        ):
            if moment is not None:
                family.add_metric(labels, to_ms(moment) / 1000)
    yield from (status, latency, checked_at, uptime, certificate, domain)


def _gauge(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pulsekeeper_monitor_{name}", help_text, labels=(*LABELS, *labels))


class MetricsViewSet(ServiceViewSet):
    noun = "metrics"
    is_singleton = True

    @operation(
        id="get_metrics", answer=OpenApiTypes.STR, media_types=(TEXT, OPEN_METRICS), throttles=(MetricsThrottle,)
    )
    def retrieve(self) -> HttpResponse:
        """Read the metrics of all monitors.

        For Prometheus: its text format, or OpenMetrics if the Accept header names it. The monitors are those of GET
        /v1/monitors. A monitor that was not checked yet has the status `unknown`.
        """
        monitors = list(list_monitors(self.caller))
        return expose(self.request, metrics_of(monitors, uptimes(monitors, now=self.now), now=self.now))

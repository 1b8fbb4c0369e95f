"""`GET /v1/metrics`: the monitors of an account or project for its own Prometheus. docs/use/metrics.md lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from checks.spec import Verdict
from core.api.exposition import OPEN_METRICS, TEXT, expose, exposed
from core.api.query import LONG_LISTS, ChoiceParam, stream, take_place
from core.api.viewsets import ServiceViewSet, operation
from core.clock import to_ms
from core.db import chunks
from core.throttles import MetricsThrottle
from monitors.models import Monitor
from monitors.selectors import list_monitors, shown_id, status_of, uptimes
from monitors.stale import load_schedules
from monitors.types.tags import tag_key
from projects.access import Caller

UNKNOWN, PAUSED = "unknown", "paused"
STATUSES = (*(verdict.value for verdict in Verdict), UNKNOWN, PAUSED)
FEW = 100
"""Metrics of up to this number of monitors are not streamed."""
AT_ONCE = 500
"""Monitors that are loaded at the same time."""
LABELS: Final = ("id", "name", "project", "type")


class Row(NamedTuple):
    """What is shown of a monitor: a tenth of the memory of the monitor itself."""

    labels: tuple[str, ...]
    status: str
    latency_sec: float | None
    last_check_at: float | None
    uptime: float | None
    certificate_expires_at: float | None
    domain_expires_at: float | None


_FAMILIES = (
    ("latency_seconds", "Latency of the last check, unless the status is unknown or paused.", "latency_sec"),
    ("last_check_timestamp_seconds", "When the last check ended, in seconds since 1970.", "last_check_at"),
    ("uptime_24h_ratio", "Share of the last 24 hours outside outages, 0 to 1.", "uptime"),
    (
        "certificate_expiry_timestamp_seconds",
        "When the TLS certificate expires, in seconds since 1970.",
        "certificate_expires_at",
    ),
    (
        "domain_expiry_timestamp_seconds",
        "When the registration of the domain expires, in seconds since 1970.",
        "domain_expires_at",
    ),
)


def rows_of(monitors: Sequence[Monitor], *, caller: Caller, now: datetime, with_tags: bool) -> Iterator[Row]:
    load_schedules(monitors)
    uptime_24h = uptimes(monitors, now=now)
    for monitor in monitors:
        state, uptime = monitor.state, uptime_24h[monitor.pk]
        status = (status_of(monitor, now=now) or UNKNOWN) if monitor.enabled else PAUSED
        latency_ms = None if status in {UNKNOWN, PAUSED} else state.last_latency_ms
        yield Row(
            _labels(monitor, caller, with_tags=with_tags),
            status,
            None if latency_ms is None else latency_ms / 1000,
            _seconds(state.last_checked_at),
            None if uptime is None else uptime / 100,
            _seconds(state.cert_expires_at),
            _seconds(state.domain_expires_at),
        )


def metrics_of(rows: Sequence[Row], *, with_tags: bool = False) -> Iterator[Metric]:
    """Yield the metric families of these monitors, each in parts. A value that is not known has no sample.

    All tags of a monitor are one label, so they add no series.
    """
    names = (*LABELS, "tags") if with_tags else LABELS
    for part in _parts(rows):
        status = _gauge("status", "1 for the current status, 0 for the others.", *names, "status")
        for row in part:
            for each in STATUSES:
                status.add_metric((*row.labels, each), each == row.status)
        yield status
    for name, help_text, column in _FAMILIES:
        for part in _parts(rows):
            family = _gauge(name, help_text, *names)
            for row in part:
                if (value := getattr(row, column)) is not None:
                    family.add_metric(row.labels, value)
            yield family


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows) or 1, FEW):
        yield rows[start : start + FEW]


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else to_ms(moment) / 1000


def _gauge(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pulsekeeper_monitor_{name}", help_text, labels=labels)


def _labels(monitor: Monitor, caller: Caller, *, with_tags: bool) -> tuple[str, ...]:
    project = "" if monitor.project is None else monitor.project.name
    found = (shown_id(monitor, caller), monitor.name, project, monitor.type)
    if not with_tags:
        return found
    # In an order that does not change, and with commas around each, so that a regular expression finds whole tags.
    tags = sorted(monitor.tags, key=tag_key)
    return (*found, f",{','.join(tags)}," if tags else "")


class MetricsViewSet(ServiceViewSet):
    noun = "metrics"
    is_singleton = True

    @operation(
        id="get_metrics",
        answer=OpenApiTypes.STR,
        media_types=(TEXT, OPEN_METRICS),
        throttles=(MetricsThrottle,),
        params=(
            ChoiceParam(
                "tags",
                "true: a label `tags` with the tags of the monitor, each between commas: `,production,web,`.",
                ["true", "false"],
            ),
        ),
    )
    def retrieve(self, *, tags: str | None) -> HttpResponseBase:
        """Read the metrics of all monitors.

        For Prometheus: its text format, or OpenMetrics if the Accept header names it. The monitors are those of GET
        /v1/monitors. A monitor that was not checked yet has the status `unknown`.
        """
        given: dict[str, Any] = {"caller": self.caller, "now": self.now, "with_tags": tags == "true"}
        monitors = list_monitors(self.caller).defer("config", "header_values", "url")
        rows = [row for chunk in chunks(monitors, size=AT_ONCE) for row in rows_of(chunk, **given)]
        families = metrics_of(rows, with_tags=tags == "true")
        if len(rows) <= FEW:
            return expose(self.request, families)
        pieces, content_type = exposed(self.request, families)
        with take_place(f"lists {self.caller.account}", most=LONG_LISTS) as place:
            return stream(pieces, place, content_type=content_type)

"""`GET /v1/metrics`: the monitors of an account or project for its own Prometheus. docs/use/metrics.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from checks.spec import Verdict
from core.api.exposition import OPEN_METRICS, TEXT, expose, exposed
from core.api.query import LONG_LISTS, ChoiceParam, stream, take_place
from core.api.viewsets import ServiceViewSet, operation
from core.clock import to_ms
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
LABELS: Final = ("id", "name", "project", "type")


def metrics_of(
    monitors: Sequence[Monitor],
    uptime_24h: Mapping[int, float | None],
    *,
    caller: Caller,
    now: datetime,
    with_tags: bool = False,
) -> Iterator[Metric]:
    """Yield the metric families of these monitors. A value that is not known has no sample.

    All tags of a monitor are one label, so they add no series.
    """
    names = (*LABELS, "tags") if with_tags else LABELS
    labels = {monitor.pk: _labels(monitor, caller, with_tags=with_tags) for monitor in monitors}

    def status_in(monitor: Monitor) -> str:
        return (status_of(monitor, now=now) or UNKNOWN) if monitor.enabled else PAUSED

    def latency_of(monitor: Monitor) -> float | None:
        milliseconds = None if status_in(monitor) in {UNKNOWN, PAUSED} else monitor.state.last_latency_ms
        return None if milliseconds is None else milliseconds / 1000

    def uptime_of(monitor: Monitor) -> float | None:
        percent = uptime_24h[monitor.pk]
        return None if percent is None else percent / 100

    def seconds_of(column: str) -> Callable[[Monitor], float | None]:
        def read(monitor: Monitor) -> float | None:
            moment = getattr(monitor.state, column)
            return None if moment is None else to_ms(moment) / 1000

        return read

    status = _gauge("status", "1 for the current status, 0 for the others.", *names, "status")
    for monitor in monitors:
        current = status_in(monitor)
        for each in STATUSES:
            status.add_metric((*labels[monitor.pk], each), each == current)
    yield status
    for name, help_text, value_of in (
        ("latency_seconds", "Latency of the last check, unless the status is unknown or paused.", latency_of),
        (
            "last_check_timestamp_seconds",
            "When the last check ended, in seconds since 1970.",
            seconds_of("last_checked_at"),
        ),
        ("uptime_24h_ratio", "Share of the last 24 hours outside outages, 0 to 1.", uptime_of),
        (
            "certificate_expiry_timestamp_seconds",
            "When the TLS certificate expires, in seconds since 1970.",
            seconds_of("cert_expires_at"),
        ),
        (
            "domain_expiry_timestamp_seconds",
            "When the registration of the domain expires, in seconds since 1970.",
            seconds_of("domain_expires_at"),
        ),
    ):
        family = _gauge(name, help_text, *names)
        for monitor in monitors:
            if (value := value_of(monitor)) is not None:
                family.add_metric(labels[monitor.pk], value)
        yield family


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
        monitors = list(list_monitors(self.caller).defer("config", "header_values", "url"))
        load_schedules(monitors)
        shares = uptimes(monitors, now=self.now)
        families = metrics_of(monitors, shares, caller=self.caller, now=self.now, with_tags=tags == "true")
        if len(monitors) <= FEW:
            return expose(self.request, families)
        pieces, content_type = exposed(self.request, families)
        with take_place(f"lists {self.caller.account}", most=LONG_LISTS) as place:
            return stream(pieces, place, content_type=content_type)

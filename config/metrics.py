"""`/metrics` for Prometheus: counters of all processes and gauges.

Counters are sums in the broker (`core.metrics`). Gauges are queried from PostgreSQL and the broker during a scrape,
with bounded cost, and at most once in FRESH_SEC.
"""

from __future__ import annotations

import inspect
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

import psycopg
import redis
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from alerts import outbox
from config.health import PATIENCE_SEC, Cached
from config.routing import QUEUES
from core import metrics as counted
from core.addresses import client_address, is_forwarded_by_unknown_proxy
from core.clock import utc_now
from core.db import separate_connection
from core.metrics import Counter, Histogram, Labels, Level
from monitors import metrics as instruments
from monitors.scheduling.backlog import backlog, queued

logger = logging.getLogger(__name__)

FRESH_SEC = 5.0
MOST_DUE = 50_000  # counting stops here


@dataclass(frozen=True, slots=True)
class Gauge:
    """A value that is queried during a scrape."""

    name: str
    help: str
    labels: Labels = ()


LAG = Gauge("pulsekeeper_lag_seconds", "How long the longest overdue monitor has been due; 0 if none is.")
DUE = Gauge("pulsekeeper_due", f"Monitors that are due and not claimed, at most {MOST_DUE:,}.")
TICK_AGE = Gauge("pulsekeeper_tick_age_seconds", "Seconds since the last tick of the scheduler.")
QUEUE_LENGTH = Gauge("pulsekeeper_queue_length", "Messages that no worker has taken yet.", ("queue",))
ALERT_LAG = Gauge(
    "pulsekeeper_alert_lag_seconds",
    "How long the oldest alert that could be sent has waited, else 0. Delays by receivers do not count.",
)
UNREACHABLE = Gauge(
    "pulsekeeper_unreachable", "1 if /metrics could not query this source and omits its values.", ("source",)
)
GAUGES = (LAG, DUE, TICK_AGE, QUEUE_LENGTH, ALERT_LAG, UNREACHABLE)

INSTRUMENTS: tuple[Counter | Histogram | Level, ...] = tuple(
    value
    for module in (instruments, outbox)
    for _, value in inspect.getmembers(module)
    if isinstance(value, Counter | Histogram | Level)
)
COUNTERS = tuple(each for each in INSTRUMENTS if isinstance(each, Counter))
HISTOGRAMS = tuple(each for each in INSTRUMENTS if isinstance(each, Histogram))
LEVELS = tuple(each for each in INSTRUMENTS if isinstance(each, Level))


class PulsekeeperCollector(Collector):
    """Collect the metric families of a scrape, at most once in FRESH_SEC."""

    def __init__(self) -> None:
        self._families = Cached(lambda: list(_collect()), lambda: FRESH_SEC)

    def collect(self) -> Iterator[Metric]:
        yield from self._families()


def _collect() -> Iterator[Metric]:
    unreachable: dict[Labels, float] = {}
    for source, query in {"broker": _broker_metrics, "database": _database_metrics}.items():
        try:
            yield from query()
        except (redis.RedisError, psycopg.Error) as error:
            logger.warning("/metrics: cannot query the %s: %s", source, error)
            unreachable[source,] = 1
        else:
            unreachable[source,] = 0
    yield _gauge(UNREACHABLE, unreachable)


def _gauge(gauge: Gauge, values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _broker_metrics() -> list[Metric]:
    counted.report()
    sums = counted.read_sums()
    levels = counted.read_levels()
    return [
        _gauge(QUEUE_LENGTH, {(queue,): queued(queue) for queue in QUEUES}),
        *(GaugeMetricFamily(each.name, each.help, value=levels.get(each.name, 0)) for each in LEVELS),
        *(_counter(each, sums) for each in COUNTERS),
        *(_histogram(each, sums) for each in HISTOGRAMS),
    ]


def _database_metrics() -> Iterator[Metric]:
    now = utc_now()
    with separate_connection(patience_sec=PATIENCE_SEC) as database:
        waiting = backlog(database, now=now, most=MOST_DUE)
        alert = outbox.oldest_alert(database, now=now)
    yield _gauge(LAG, {(): _seconds(waiting.oldest_due_at, now)})
    yield _gauge(DUE, {(): waiting.due})
    yield _gauge(ALERT_LAG, {(): _seconds(alert, now)})
    if waiting.last_tick_at is not None:
        yield _gauge(TICK_AGE, {(): _seconds(waiting.last_tick_at, now)})


def _seconds(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def _parts(instrument: Counter | Histogram, sums: Mapping[str, float]) -> Iterator[tuple[Labels, dict[str, float]]]:
    """Yield the label values of an instrument with the sums of its parts. Without labels there is always one."""
    found: dict[Labels, dict[str, float]] = defaultdict(dict)
    if not instrument.labels:
        found[()] = {}
    for field, value in sums.items():
        owner, text, part = field.split("|")
        labels = tuple(text.split(",")) if text else ()
        if owner == instrument.name and len(labels) == len(instrument.labels):  # they may have changed since
            found[labels][part] = value
    yield from sorted(found.items())


def _counter(counter: Counter, sums: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(counter.name, counter.help, labels=counter.labels)
    for labels, parts in _parts(counter, sums):
        family.add_metric(labels, parts.get("", 0.0))
    return family


def _histogram(histogram: Histogram, sums: Mapping[str, float]) -> Metric:
    family = HistogramMetricFamily(histogram.name, histogram.help, labels=histogram.labels)
    bounds = [*map(str, histogram.bounds), "+Inf"]
    for labels, parts in _parts(histogram, sums):
        counts = accumulate(parts.get(str(number), 0.0) for number in range(len(bounds)))
        family.add_metric(labels, list(zip(bounds, counts, strict=True)), parts.get("sum", 0.0))
    return family


REGISTRY = CollectorRegistry(auto_describe=False)
REGISTRY.register(PulsekeeperCollector())


def metrics(request: HttpRequest) -> HttpResponse:
    """Serve metrics to METRICS_ALLOWED. Raises Http404 for other clients."""
    address = client_address(request)
    allowed = address is not None and any(address in network for network in settings.METRICS_ALLOWED)
    if not allowed or is_forwarded_by_unknown_proxy(request):
        raise Http404
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(REGISTRY), content_type=content_type)

"""`/metrics` for Prometheus: counters of all processes and gauges.

Counters are sums in the broker (`core.metrics`). Gauges are queried from PostgreSQL and the broker during a scrape,
with bounded cost, and at most once in FRESH_SEC.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter as Count
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

import psycopg
import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from alerts import outbox, templates
from checks.results.database import is_separate
from config import changes, connections, pool, routes, shares
from config.health import OK, Cached, cached_coverage, cached_writes
from config.history import PATIENCE_SEC
from config.locations import count_private_offline, shared_locations
from config.routing import PROCESSES, QUEUES
from core import metrics as counted
from core import waiting
from core.addresses import address_of, is_forwarded_by_unknown_proxy
from core.api.exposition import expose
from core.clock import utc_now
from core.db import separate_connection
from core.metrics import LATE, Counter, Histogram, Labels, Level, ProcessReports, Recent
from core.postgresql import HISTORY
from core.version import product_version
from monitors import metrics as instruments
from monitors.checking import own_network
from monitors.heartbeats.canary import canary_status
from monitors.scheduling.backlog import backlog, queued
from monitors.stale import LABELS, count_stale
from notifications import outbox as messages
from oncall import notices
from statuspages import subscriptions

logger = logging.getLogger(__name__)

PATH = "/metrics"
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
PINGS_MISSING = Gauge(
    "pulsekeeper_pings_missing_seconds",
    "How long pings have not reached Pulsekeeper, by its own requests or reports of web processes; 0 if they do.",
)
CANARY_UP = Gauge(
    "pulsekeeper_canary_up",
    "1 if the last request of Pulsekeeper itself to BASE_URL was answered, else 0; absent if none ever was.",
    ("request",),
)
CANARY_SECONDS = Gauge("pulsekeeper_canary_seconds", "How long that request took.", ("request",))
CANARY_AGE = Gauge("pulsekeeper_canary_age_seconds", "Seconds since the last of these requests.")
PROCESSES_ALIVE = Gauge("pulsekeeper_processes", "Processes that reported in the last 10 s, by kind.", ("process",))
PROCESS_LAST_REPORT = Gauge(
    "pulsekeeper_process_last_report_timestamp_seconds",
    "When a process of this kind last reported, in seconds since 1970; 0 if none has since the broker was flushed.",
    ("process",),
)
PROCESS_HOSTS = Gauge(
    "pulsekeeper_process_hosts",
    "Processes that reported in the last 10 s, by kind, name of their host and version of Pulsekeeper.",
    ("process", "host", "version"),
)
BUILD_INFO = Gauge("pulsekeeper_build_info", "1, with the version of the web process that answers.", ("version",))
STALE = Gauge(
    "pulsekeeper_monitors_stale",
    "Monitors without a check that ended for more than twice their interval: `not_started` (no attempt), `lost` (no "
    "worker returned a result), `own_fault` (a worker could not make the check).",
    ("reason",),
)
COVERAGE = Gauge(
    "pulsekeeper_coverage_ratio",
    "The share of monitors that have a result where interval or schedule says that one is due, 0 to 1; absent if the "
    "query takes too long or finds no space.",
)
WRITES = Gauge("pulsekeeper_database_writes", "1 if PostgreSQL takes writes, 0 if its disk is full or it is read-only.")
OWN_NETWORK_UP = Gauge(
    "pulsekeeper_own_network_up",
    "0 if a process that checks reaches none of `CONNECTIVITY_TARGETS`, although one answered it before, else 1.",
)
LOCATION_AGENTS = Gauge(
    "pulsekeeper_location_agents",
    "Agents that are online, by the id of their shared location; without unused ones that have no agent.",
    ("location",),
)
PRIVATE_OFFLINE = Gauge(
    "pulsekeeper_private_locations_offline", "Private locations with monitors of which no agent is online."
)
CLOCK_AHEAD = Gauge(
    "pulsekeeper_clock_ahead_seconds",
    "By how much the clock of a process's machine is ahead of PostgreSQL's, of each kind the one that differs most.",
    ("process",),
)
QUEUE_LENGTH = Gauge("pulsekeeper_queue_length", "Messages that no worker has taken yet.", ("queue",))
ALERT_LAG = Gauge(
    "pulsekeeper_alert_lag_seconds",
    "How long the oldest alert that could be sent has waited, else 0. Delays by receivers do not count.",
)
ON_CALL_LOOK_AGE = Gauge(
    "pulsekeeper_on_call_look_age_seconds",
    "How long ago gaps of the schedule that waits longest were looked for, and hand-overs; absent without schedules.",
)
HISTORY_AGE = Gauge(
    "pulsekeeper_history_age_seconds",
    "How far results are behind that are rolled up, and packed; absent before the first ones are.",
    ("step",),
)
UNREACHABLE = Gauge(
    "pulsekeeper_unreachable", "1 if /metrics could not query this source and omits its values.", ("source",)
)
GAUGES: tuple[Gauge | Recent, ...] = (
    LATE,
    LAG,
    DUE,
    TICK_AGE,
    PINGS_MISSING,
    CANARY_UP,
    CANARY_SECONDS,
    CANARY_AGE,
    STALE,
    COVERAGE,
    WRITES,
    OWN_NETWORK_UP,
    LOCATION_AGENTS,
    PRIVATE_OFFLINE,
    CLOCK_AHEAD,
    instruments.CLOCK_STEPS,
    PROCESSES_ALIVE,
    PROCESS_LAST_REPORT,
    PROCESS_HOSTS,
    BUILD_INFO,
    QUEUE_LENGTH,
    ALERT_LAG,
    ON_CALL_LOOK_AGE,
    HISTORY_AGE,
    UNREACHABLE,
)

_HISTORY_UNTIL = """
    SELECT step, until
      FROM checks_rollupprogress
     CROSS JOIN LATERAL (VALUES ('roll_up', rolled_until), ('pack', packed_until)) AS steps (step, until)
     WHERE until IS NOT NULL
"""
_MODULES = (
    *(routes, pool, connections, shares, changes, instruments),
    *(outbox, templates, messages, subscriptions, waiting),
)
INSTRUMENTS: tuple[Counter | Histogram | Level, ...] = tuple(
    value
    for module in _MODULES
    for _, value in inspect.getmembers(module)
    if isinstance(value, Counter | Histogram | Level)
)
COUNTERS = tuple(each for each in INSTRUMENTS if isinstance(each, Counter))
HISTOGRAMS = tuple(each for each in INSTRUMENTS if isinstance(each, Histogram))
LEVELS = tuple(each for each in INSTRUMENTS if isinstance(each, Level))


def _collect() -> Iterator[Metric]:
    unreachable: dict[Labels, float] = {}
    sources = {"broker": _broker_metrics, "database": _database_metrics}
    if is_separate():
        sources[HISTORY] = _history_metrics
    for source, query in sources.items():
        try:
            yield from query()
        except (redis.RedisError, psycopg.Error) as error:
            logger.warning("/metrics: cannot query the %s: %s", source, error)
            unreachable[source,] = 1
        else:
            unreachable[source,] = 0
    yield _gauge(UNREACHABLE, unreachable)
    yield _gauge(BUILD_INFO, {(product_version(),): 1})


def _gauge(gauge: Gauge | Recent | Level, values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _broker_metrics() -> list[Metric]:
    counted.report()
    sums = counted.read_sums()
    levels = counted.read_levels()
    reports = processes()
    return [
        _gauge(PROCESSES_ALIVE, {(kind,): found.alive for kind, found in reports.items()}),
        _gauge(PROCESS_LAST_REPORT, {(kind,): found.last_at for kind, found in reports.items()}),
        _gauge(PROCESS_HOSTS, Count((kind, *host) for kind, found in reports.items() for host in found.hosts)),
        _gauge(CLOCK_AHEAD, {(kind,): found.ahead for kind, found in reports.items()}),
        _gauge(OWN_NETWORK_UP, {(): not levels.get(own_network.DOWN.name)}),
        _gauge(instruments.CLOCK_STEPS, instruments.CLOCK_STEPS.read(levels)),
        _gauge(QUEUE_LENGTH, {(queue,): queued(queue) for queue in QUEUES}),
        *(_gauge(each, each.read(levels)) for each in LEVELS),
        _gauge(LATE, LATE.read(levels)),
        *(_counter(each, sums) for each in COUNTERS),
        *(_histogram(each, sums) for each in HISTOGRAMS),
    ]


def processes() -> Mapping[str, ProcessReports]:
    """Return the reports of every kind of process. Raises RedisError."""
    reports = counted.read_processes()
    return {kind: reports.get(kind, ProcessReports()) for kind in PROCESSES}


def _database_metrics() -> Iterator[Metric]:
    now = utc_now()
    with separate_connection(patience_sec=PATIENCE_SEC) as database:
        waiting = backlog(database, now=now, most=MOST_DUE)
        alert = outbox.oldest_alert(database, now=now)
        looked_at = notices.last_look(database)
        canary = canary_status(database)
        stale = dict.fromkeys(LABELS, 0)
        for group in count_stale(database, now=now, most=MOST_DUE):
            stale[group.label] += group.monitors
        places, private_offline = shared_locations(database, now=now), count_private_offline(database)
        until = dict(database.execute(_HISTORY_UNTIL).fetchall())
    yield _gauge(LAG, {(): _seconds(waiting.oldest_due_at, now)})
    yield _gauge(DUE, {(): waiting.due})
    yield _gauge(PINGS_MISSING, {(): _seconds(waiting.pings_missing_since, now)})
    if canary is not None:
        up = {name: kind.is_up for name, kind in canary.kinds.items()}
        yield _gauge(CANARY_UP, {(name,): is_up for name, is_up in up.items() if is_up is not None})
        taken = {name: kind.ms for name, kind in canary.kinds.items() if kind.is_up}
        yield _gauge(CANARY_SECONDS, {(name,): ms / 1_000 for name, ms in taken.items() if ms is not None})
        if any(is_up is not None for is_up in up.values()):
            yield _gauge(CANARY_AGE, {(): _seconds(canary.answered_at, now)})
    yield _gauge(STALE, {(label,): count for label, count in stale.items()})
    if (covered := cached_coverage()) is not None:
        yield _gauge(COVERAGE, {(): covered.share})
    yield _gauge(WRITES, {(): cached_writes() == OK})
    yield _gauge(LOCATION_AGENTS, {(place.id,): place.online for place in places})
    yield _gauge(PRIVATE_OFFLINE, {(): private_offline})
    yield _gauge(ALERT_LAG, {(): _seconds(alert, now)})
    yield _gauge(HISTORY_AGE, {(step,): _seconds(at, now) for step, at in until.items()})
    if looked_at is not None:
        yield _gauge(ON_CALL_LOOK_AGE, {(): _seconds(looked_at, now)})
    if waiting.last_tick_at is not None:
        yield _gauge(TICK_AGE, {(): _seconds(waiting.last_tick_at, now)})


def _history_metrics() -> Iterator[Metric]:
    """Yield nothing. Raises psycopg.Error if the history database does not answer."""
    with separate_connection(patience_sec=PATIENCE_SEC, using=HISTORY):
        yield from ()


def _seconds(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def _counter(counter: Counter, sums: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(counter.name, counter.help, labels=counter.labels)
    for labels, value in counter.read(sums).items():
        family.add_metric(labels, value)
    return family


def _histogram(histogram: Histogram, sums: Mapping[str, float]) -> Metric:
    family = HistogramMetricFamily(histogram.name, histogram.help, labels=histogram.labels)
    bounds = [*map(str, histogram.bounds), "+Inf"]
    for labels, (counts, total) in histogram.read(sums).items():
        family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
    return family


families = Cached(lambda: list(_collect()), lambda: FRESH_SEC)
"""The metric families of a scrape."""


def serve_metrics(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Answer `/metrics` for METRICS_ALLOWED. For other clients it does not exist.

    It runs before the check of the Host header: Prometheus sends the address or the internal name of its target, which
    ALLOWED_HOSTS does not contain.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.path_info != PATH or request.method not in {"GET", "HEAD"} or not _is_allowed(request):
            return get_response(request)
        return expose(request, families())

    return middleware


def _is_allowed(request: HttpRequest) -> bool:
    address = address_of(request.META)
    allowed = address is not None and any(address in network for network in settings.METRICS_ALLOWED)
    return allowed and not is_forwarded_by_unknown_proxy(request)

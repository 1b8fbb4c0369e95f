"""Counters of all processes, for /metrics.

A process adds its sums to a hash in the broker once a second, and when it exits. So a worker needs no port, and one
that has exited is still counted. Values only grow; after a flush of the broker they start at zero, as Prometheus
expects of a restart. While the broker is unreachable, sums wait in the process.

A label value never comes from a user: each new one is kept forever. Counters name the values that they know, which
are shown as 0 before anything is counted: Prometheus sees no increase from a missing series to 1.

Processes also report that they work, by kind (`config.routing.PROCESSES`). This is the one definition of "alive".
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from socket import gethostname
from typing import NamedTuple, cast

import redis
from django.conf import settings

from core.clock import BROKER, DATABASE
from core.ids import random_text
from core.version import product_version

logger = logging.getLogger(__name__)

KEY = "metrics"  # a hash: `name|label values|part` and its sum
LEVELS_KEY = "metrics:levels"  # a hash: `name|process` and `value|epoch seconds`
EVERY_SEC = 1.0
PROCESSES_KEY = "metrics:processes"
"""A hash: `kind|process` and `epoch seconds|seconds its clock is ahead|host|version`."""
LEVEL_KEPT_SEC = 10.0  # a process that has not reported for this long has exited
RECENT_SEC = 60
_PATIENCE_SEC = 0.5

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counter:
    """A sum that grows. Its name ends in `_total`. `known` are the label values that exist from the start."""

    name: str
    help: str
    labels: Labels = ()
    known: Collection[Labels] = ((),)

    def add(self, amount: float = 1, *values: str) -> None:
        """Add to the sum of these label values, in the order of the labels."""
        if amount:
            _sums.add(((f"{self.name}|{','.join(values)}|", amount),))

    def read(self, sums: Mapping[str, float]) -> Mapping[Labels, float]:
        """Return the sums by label values, known or found, out of what `read_sums` has returned."""
        return {labels: parts.get("", 0.0) for labels, parts in _parts(self, sums)}


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution of values. `bounds` are the upper ends of its buckets, before the last, open one."""

    name: str
    help: str
    bounds: tuple[float, ...]
    labels: Labels = ()
    known: Collection[Labels] = ((),)

    def observe(self, found: Sequence[float], *values: str) -> None:
        """Add a group of values, which costs little more than one."""
        buckets: dict[int, int] = defaultdict(int)
        for value in found:
            buckets[bisect_left(self.bounds, value)] += 1
        start = f"{self.name}|{','.join(values)}|"
        _sums.add([(f"{start}{bucket}", count) for bucket, count in buckets.items()] + [(f"{start}sum", sum(found))])

    def read(self, sums: Mapping[str, float]) -> Mapping[Labels, tuple[Sequence[float], float]]:
        """Return the counts of all buckets and the sum of the values, by label values, like `Counter.read`."""
        buckets = range(len(self.bounds) + 1)
        return {
            labels: ([parts.get(str(bucket), 0.0) for bucket in buckets], parts.get("sum", 0.0))
            for labels, parts in _parts(self, sums)
        }


@dataclass(frozen=True, slots=True)
class Level:
    """A gauge: the sum of a current value over all processes. `known` are the label values that it has."""

    name: str
    help: str
    labels: Labels = ()
    known: Collection[Labels] = ((),)

    def follow(self, read: Callable[[], float], *values: str) -> None:
        """Report the value of `read` for this process from now on, with these label values."""
        _sums.follow(_field(self.name, values), read)

    def read(self, levels: Mapping[str, float]) -> Mapping[Labels, float]:
        """Return the sums by label values, out of what `read_levels` has returned."""
        return _of_known(self, levels)


@dataclass(frozen=True, slots=True)
class Recent:
    """A gauge: the events of the last RECENT_SEC in all processes. Those of a process that exits are lost."""

    name: str
    help: str
    labels: Labels
    known: Collection[Labels]

    def add(self, amount: int, *values: str) -> None:
        """Count events that happen now, with these label values."""
        if amount:
            _sums.note(_field(self.name, values), amount)

    def read(self, levels: Mapping[str, float]) -> Mapping[Labels, float]:
        """Return the events by label values, out of what `read_levels` has returned."""
        return _of_known(self, levels)


def _parts(instrument: Counter | Histogram, sums: Mapping[str, float]) -> Iterator[tuple[Labels, dict[str, float]]]:
    """Yield the label values of an instrument, known or found, with the sums of their parts."""
    found: dict[Labels, dict[str, float]] = defaultdict(dict, {labels: {} for labels in instrument.known})
    for field, value in sums.items():
        owner, text, part = field.split("|")
        labels = tuple(text.split(",")) if text else ()
        if owner == instrument.name and len(labels) == len(instrument.labels):  # they may have changed since
            found[labels][part] = value
    yield from sorted(found.items())


def _of_known(gauge: Level | Recent, levels: Mapping[str, float]) -> Mapping[Labels, float]:
    return {values: levels.get(_field(gauge.name, values), 0.0) for values in gauge.known}


def _field(name: str, values: Labels) -> str:
    return ",".join((name, *values))


LATE = Recent(
    "pulsekeeper_recently_late",
    "Events of the last minute that were refused for lack of room, or late: `checks` by over 5 s, `pings` and `pages` "
    "by over 1 s, `alerts` by over 10 s. Delays by targets and receivers do not count.",
    ("what",),
    [("checks",), ("pings",), ("pages",), ("alerts",)],
)
CHECK_SEC, REQUEST_SEC, ALERT_SEC = 5.0, 1.0, 10.0
"""The limits of LATE."""


@dataclass(frozen=True, slots=True)
class ProcessReports:
    """The processes of one kind: how many are alive, and when one last reported (epoch seconds; 0 for never).

    `ahead` is by how many seconds the clock of their machine is ahead of PostgreSQL's, of those alive that of the one
    that differs most. `hosts` are the name of the host and the version of Pulsekeeper of each that is alive.
    """

    alive: int = 0
    last_at: float = 0
    ahead: float = 0
    hosts: Sequence[tuple[str, str]] = ()


def mark_alive(kinds: Iterable[str]) -> None:
    """Report that this process works as these kinds. Its main loop calls this every EVERY_SEC."""
    _sums.mark_alive(kinds)


class _Sums:
    """Sums that this process has not reported yet; a thread reports them."""

    def __init__(self) -> None:
        self._waiting: dict[str, float] = defaultdict(float)
        self._levels: dict[str, Callable[[], float]] = {}
        self._recent: dict[str, deque[tuple[int, int]]] = {}  # (second, events in it), at most RECENT_SEC of each
        self._alive: set[str] = set()
        self._lock = threading.Lock()
        self._reporting = threading.Lock()
        self._process = random_text(5)
        self._thread: threading.Thread | None = None
        self._unreachable = False

    def add(self, amounts: Iterable[tuple[str, float]]) -> None:
        with self._lock:
            for field, amount in amounts:
                self._waiting[field] += amount
            self._start()

    def follow(self, name: str, read: Callable[[], float]) -> None:
        with self._lock:
            self._levels[name] = read
            self._start()

    def note(self, field: str, amount: int) -> None:
        second = int(time.monotonic())
        with self._lock:
            events = self._recent.setdefault(field, deque(maxlen=RECENT_SEC))
            if events and events[-1][0] == second:
                amount += events.pop()[1]
            events.append((second, amount))
            self._levels[field] = lambda: sum(n for at, n in events if at > time.monotonic() - RECENT_SEC)
            self._start()

    def mark_alive(self, kinds: Iterable[str]) -> None:
        with self._lock:
            self._alive |= {f"{kind}|{self._process}" for kind in kinds}
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_reporting, name="metrics", daemon=True)
            self._thread.start()

    def _keep_reporting(self) -> None:
        time.sleep(EVERY_SEC)
        while self is _sums:
            self.report()
            time.sleep(EVERY_SEC)

    def report(self) -> None:
        """Report the sums. If the broker is unreachable, log it once and keep them."""
        if self._thread is None or settings.REDIS_URL is None:  # nothing counted yet, or no broker
            return
        with self._reporting:
            with self._lock:
                reported_sums, self._waiting = self._waiting, defaultdict(float)
                alive, self._alive = self._alive, set()
                levels = {f"{name}|{self._process}": float(read()) for name, read in self._levels.items()}
            try:
                if BROKER.is_outdated:
                    _learn_time()
                now = BROKER.time()
                ahead = DATABASE.machine_ahead()  # unknown in beat, which uses no database
                ahead = BROKER.machine_ahead() if ahead is None else ahead
                with _broker(settings.REDIS_URL).pipeline(transaction=True) as pipe:
                    pipe.hdel(PROCESSES_KEY, "")  # a process that is stopped by an outage has nothing else to write
                    for field, amount in reported_sums.items():
                        pipe.hincrbyfloat(KEY, field, amount)
                    if levels:
                        pipe.hset(LEVELS_KEY, mapping={name: f"{held}|{now}" for name, held in levels.items()})
                    for process in alive:
                        pipe.hset(PROCESSES_KEY, process, f"{now}|{ahead or 0.0}|{gethostname()}|{product_version()}")
                    pipe.execute()
            except redis.RedisError as error:
                self.add(reported_sums.items())
                if not self._unreachable:
                    logger.warning("the broker does not answer: %s", error)
                self._unreachable = True
            else:
                if self._unreachable:
                    logger.info("the broker answers again")
                self._unreachable = False


@cache
def _broker(url: str) -> redis.Redis:
    timeouts = dict.fromkeys(("socket_connect_timeout", "socket_timeout"), _PATIENCE_SEC)
    return redis.Redis.from_url(url, decode_responses=True, encoding_errors="replace", **timeouts)


_sums = _Sums()


def report() -> None:
    """Report now: when the process exits, or metrics are read."""
    _sums.report()


atexit.register(report)


def reset() -> None:
    """Drop all levels and the sums that were not reported: for forked children and tests."""
    global _sums
    _sums = _Sums()


# A child has no thread, and its parent reports the sums.
os.register_at_fork(after_in_child=reset)
os.register_at_fork(after_in_child=_broker.cache_clear)


def _learn_time() -> None:
    """Ask the broker what time it is. Raises RedisError."""
    asked_at = time.monotonic()
    seconds, microseconds = _broker(settings.REDIS_URL).time()
    BROKER.learn(seconds + microseconds / 1_000_000, asked_at=asked_at)


BROKER.follow(_learn_time)


def _oldest_report() -> float:
    """Return when processes that have not reported since have exited. Raises RedisError."""
    if BROKER.is_outdated:
        _learn_time()
    return BROKER.time() - LEVEL_KEPT_SEC


def _hash(key: str) -> dict[str, str]:
    # Text because of decode_responses, which redis-py's types do not express.
    return cast("dict[str, str]", _broker(settings.REDIS_URL).hgetall(key))


def _number(text: str) -> float | None:
    """Return the finite number that the text is, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def read_sums() -> Mapping[str, float]:
    """Return every `name|label values|part` that a process counted, without malformed ones. Raises RedisError."""
    counted = {field: _number(value) for field, value in _hash(KEY).items() if field.count("|") == 2}
    return {field: number for field, number in counted.items() if number is not None}


def read_levels() -> Mapping[str, float]:
    """Return the sums of what living processes report, by name. Raises RedisError."""
    oldest = _oldest_report()
    held: dict[str, float] = defaultdict(float)
    gone: list[str] = []
    for field, reported in _hash(LEVELS_KEY).items():
        value, at = map(_number, (reported.partition("|")[0], reported.partition("|")[2]))
        if value is None or at is None or at < oldest:
            gone.append(field)
        else:
            held[field.partition("|")[0]] += value
    if gone:
        _broker(settings.REDIS_URL).hdel(LEVELS_KEY, *gone)
    return held


class _Report(NamedTuple):
    """The last report of a process."""

    at: float
    ahead: float
    host: str
    version: str


def _report(text: str) -> _Report | None:
    """Return the report that the text is, or None. An earlier version reports neither host nor version."""
    at, ahead, host, version = (*text.split("|"), "", "", "")[:4]
    seconds = _number(at)
    return None if seconds is None else _Report(seconds, _number(ahead) or 0.0, host, version)


def read_processes() -> Mapping[str, ProcessReports]:
    """Return the processes by kind. A kind that has never reported is absent. Raises RedisError."""
    oldest = _oldest_report()
    found: dict[str, dict[str, _Report]] = defaultdict(dict)
    for name, text in _hash(PROCESSES_KEY).items():
        if (reported := _report(text)) is not None:
            found[name.partition("|")[0]][name] = reported
    # The last report of a kind is kept, so that it is known when it was.
    last = {kind: max(report.at for report in reports.values()) for kind, reports in found.items()}
    gone = [
        name for kind, reports in found.items() for name, each in reports.items() if each.at < min(oldest, last[kind])
    ]
    if gone:
        _broker(settings.REDIS_URL).hdel(PROCESSES_KEY, *gone)
    return {
        kind: _summary([each for each in reports.values() if each.at >= oldest], last[kind])
        for kind, reports in found.items()
    }


def _summary(alive: Sequence[_Report], last_at: float) -> ProcessReports:
    ahead = max((each.ahead for each in alive), key=abs, default=0.0)
    return ProcessReports(len(alive), last_at, ahead, [(each.host, each.version) for each in alive])

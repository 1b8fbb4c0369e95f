"""Read the runs of a heartbeat's job, and search its signals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.db.models import Q, QuerySet

from checks.results.selectors import Failure, failed_since
from checks.spec import ReasonCode
from monitors.heartbeats import runs
from monitors.models import Monitor, Ping

SEARCHED = 5_000
"""How many signals a search for text reads at a time, as each may have 10 KB."""

_ENDS = (Ping.Kind.SUCCESS, Ping.Kind.FAIL)


class Ending(StrEnum):
    """How a run ended. Without a ping in time it was missed."""

    SUCCESS = "success"
    FAIL = "fail"
    MISSED = "missed"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Run:
    """A run. `at` is its end, or its start while it is running. `detail` is why it is a failure."""

    ending: Ending
    at: datetime
    duration: timedelta | None = None
    detail: str = ""


def last_runs(monitor: Monitor, *, limit: int, now: datetime) -> list[Run]:
    """Return the last runs of a heartbeat's job, oldest first, in two queries."""
    ends = list(_newest(monitor).filter(kind__in=_ENDS).values_list("kind", "at", "duration_ms")[:limit])
    failures = failed_since(monitor.pk, since=ends[-1][1] if len(ends) == limit else None, limit=limit)
    found = [_run(kind, at, duration_ms, failures) for kind, at, duration_ms in ends]
    ended = {run.at for run in found}
    found += [
        Run(Ending.MISSED, at, detail=failure.detail or "")
        for at, failure in failures.items()
        if failure.reason_code == ReasonCode.HEARTBEAT_MISSED and at not in ended
    ]
    if monitor.enabled:
        starts = runs.starts(monitor.state.runs or {})
        found += [Run(Ending.RUNNING, at, now - at) for at in starts if now <= at + monitor.run_patience]
    return sorted(found, key=lambda run: run.at)[-limit:]


def newest_signal(monitor: Monitor) -> tuple[datetime, int] | None:
    return _newest(monitor).values_list("at", "id").first()


def _run(kind: str, at: datetime, duration_ms: int | None, failures: Mapping[datetime, Failure]) -> Run:
    duration = None if duration_ms is None else timedelta(milliseconds=duration_ms)
    failure = failures.get(at)
    # A success fails too if its run was too short or too long.
    failed = kind == Ping.Kind.FAIL or failure is not None
    return Run(Ending.FAIL if failed else Ending.SUCCESS, at, duration, (failure and failure.detail) or "")


@dataclass(frozen=True, slots=True)
class Found:
    """Signals that match, newest first. `rest` is where to continue, or None; `searched_to` if the search stopped."""

    pings: Sequence[Ping]
    rest: tuple[datetime, int] | None = None
    searched_to: datetime | None = None


def search(
    monitor: Monitor,
    *,
    limit: int,
    kinds: Iterable[str] = (),
    text: str = "",
    before: tuple[datetime, int] | None = None,
) -> Found:
    """Return the newest signals of these kinds, or of all, with the text in their body in any case of letters."""
    pings = _newest(monitor, before)
    if kinds:
        pings = pings.filter(kind__in=list(kinds))
    if not text:
        return _page(monitor, pings, limit)
    if monitor.owned_since is not None:
        pings = pings.filter(at__gte=monitor.owned_since)
    stop = pings.values_list("at", "id")[SEARCHED - 1 : SEARCHED].first()
    if stop is not None:
        pings = pings.filter(at__gte=stop[0])
    found = _page(monitor, pings.filter(body__icontains=text), limit)
    return found if found.rest or stop is None else Found(found.pings, rest=stop, searched_to=stop[0])


def pings_of(monitor: Monitor, *, limit: int, before: tuple[datetime, int] | None = None) -> list[Ping]:
    """Return the newest signals of a heartbeat. `before` is (at, id) of the previous page's last one."""
    return _visible(monitor, _newest(monitor, before)[:limit])


def is_earlier(monitor: Monitor, ping: Ping) -> bool:
    """Return whether the heartbeat had another owner when it received the signal."""
    return monitor.owned_since is not None and ping.at < monitor.owned_since


def _newest(monitor: Monitor, before: tuple[datetime, int] | None = None) -> QuerySet[Ping]:
    pings = Ping.objects.filter(monitor_id=monitor.pk).order_by("-at", "-id")
    if before is None:
        return pings
    at, number = before
    return pings.filter(Q(at__lt=at) | Q(at=at, id__lt=number), at__lte=at)


def _page(monitor: Monitor, pings: QuerySet[Ping], limit: int) -> Found:
    found = _visible(monitor, pings[: limit + 1])
    shown = found[:limit]
    return Found(shown, rest=(shown[-1].at, shown[-1].id) if len(found) > limit else None)


def _visible(monitor: Monitor, pings: QuerySet[Ping]) -> list[Ping]:
    """Return signals as the heartbeat's owner may see them: those of earlier owners without sender and body."""
    found = list(pings)
    for ping in found:
        if is_earlier(monitor, ping):
            ping.remote_addr, ping.user_agent, ping.body = None, "", None
    return found

"""What incidents and alerts a monitor would have had with other thresholds, from the results that are stored."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple

from django.conf import settings

from audit.actions import Action
from audit.models import Entry
from checks.results.history import micros, moment_of
from checks.results.rollups import hour_of_newest
from checks.results.selectors import Past, history_of
from checks.spec import ReasonCode, Verdict
from core.clock import from_ms
from core.errors import NoThresholds, ValidationFailed
from core.text import counted
from core.waiting import limit_waiting
from incidents.counting import Difference, Noticed, alert_times, differences, down_time, slow_alerts
from incidents.flapping import SETTLED_INTERVALS
from monitors import types
from monitors.models import Monitor, StatusChange
from monitors.replay import Event, Outage, Replay, replay
from monitors.selectors import gaps_since, left_out_since
from monitors.stale import stale_since
from monitors.state import Policy, Status
from monitors.uptime.intervals import Span, apart
from projects.access import Caller

LONGEST = timedelta(days=90)
MAX_CHECKS = 150_000
"""90 days of a monitor at 60 s are 129,600. Of more, the newest are read: the most takes about two seconds of CPU."""
MAX_DIFFERENCES = 100
MAX_ENTRIES = 5_000
"""How many entries of the audit log are read, and how many pauses: an account may have made any number."""
WARM_UP = timedelta(days=1)
"""How long before the span the replay begins: consecutive checks and flapping are counted across its start."""
LONGEST_MUTE = timedelta(days=7)
_SECOND = timedelta(seconds=1)
UNANSWERED = (
    "no_checks",
    "too_many_checks",
    "results_deleted",
    "not_confirmed",
    "checks_not_made",
    "timeouts",
    "settings_changed",
    "dependencies",
    "mutes_unknown",
)

Kind = StatusChange.Kind


@dataclass(frozen=True, slots=True)
class Thresholds:
    fail_threshold: int
    recover_threshold: int
    slow_ms: int
    confirmation_sec: int | None

    def replay(self, monitor: Monitor, status: Status) -> Replay:
        has_confirmation = self.confirmation_sec is not None and monitor.kind.polls
        confirmation = timedelta(seconds=self.confirmation_sec or 0) if has_confirmation else None
        return Replay(Policy(self.fail_threshold, self.recover_threshold, None, confirmation), self.slow_ms, status)


THRESHOLDS = tuple(Thresholds.__dataclass_fields__)
_DECISIVE = {"type", "interval_sec", "schedule", "quorum"}.union(
    THRESHOLDS, (name for name, one in types.settings().items() if one.probed)
)
"""Settings that decide about results or their consequences."""


@dataclass(frozen=True, slots=True)
class Side:
    """What the span has with these settings. `slow_alerts`: those about slowness. Delays are in seconds, or None."""

    settings: Thresholds
    noticed: Sequence[Noticed]
    down_sec: int
    slow_alerts: int
    avg_detection_sec: float | None
    max_detection_sec: float | None

    @property
    def outages(self) -> int:
        return len(self.noticed)

    @property
    def alerts(self) -> int:
        return sum(each.alerts for each in self.noticed)


class Unanswered(NamedTuple):
    """What the history cannot answer exactly: a stable word, and a sentence."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Backtest:
    """The span, the times of its first and last stored check, and both sides."""

    start: datetime
    end: datetime
    history_from: datetime | None
    history_to: datetime | None
    checks: int
    stored: Side
    tried: Side
    differences: Sequence[Difference]
    differences_total: int
    unanswered: Sequence[Unanswered]


@dataclass(slots=True)
class _Past:
    """What happened to the monitor in addition to checks, since the first of them."""

    events: list[Event] = field(default_factory=list)
    mutes: list[Span] = field(default_factory=list)
    maintenance: list[Span] = field(default_factory=list)
    unobserved: list[Span] = field(default_factory=list)
    is_changed: bool = False
    """Whether settings of these thresholds, or of what is checked, were edited."""


def run(caller: Caller, monitor: Monitor, given: Mapping[str, Any], *, now: datetime) -> Backtest:
    """Return the backtest, one at a time of each account. Raises TooManyRequests too."""
    with limit_waiting(caller.account, most=1, kind="backtest"):
        return backtest(monitor, given, now=now)


def backtest(monitor: Monitor, given: Mapping[str, Any], *, now: datetime) -> Backtest:
    """Return what the monitor would have had with the thresholds in `given`, beside those with its own.

    `from` and `to` bound the span, by default the last 90 days. Raises ValidationFailed, and NoThresholds for a monitor
    that waits for pings.
    """
    if monitor.kind.waits:
        raise NoThresholds
    own = Thresholds(*(getattr(monitor, name) for name in THRESHOLDS))
    other = Thresholds(*(given.get(name, getattr(own, name)) for name in THRESHOLDS))
    end = min(given.get("to", now), now)
    start = asked = given.get("from", end - LONGEST)
    if start >= end:
        raise ValidationFailed("must be before to, and before now.", field="from")
    if end - start > LONGEST:
        raise ValidationFailed(f"must be at most {LONGEST.days} days before to.", field="from")
    earliest = hour_of_newest(MAX_CHECKS, monitor.pk, start=start, end=end)
    start = max(start, earliest or start)
    history = history_of(monitor.pk, start - WARM_UP, end)
    first = next(history, None)
    began = start if first is None else moment_of(first.checks.at[0])
    past = _past_of(monitor, began, end, now=now)
    status, open_outage = _state_before(monitor, began)
    replays = [each.replay(monitor, status) for each in (own, other)]
    for each in replays:
        if open_outage is not None:
            each.outages, each.is_down = [open_outage], True
    seen = _Seen(start)
    replay(seen.counted(history if first is None else chain([first], history)), past.events, replays)
    stored, tried = (
        _side(each, of, past, Span(start, end), monitor) for each, of in zip(replays, (own, other), strict=True)
    )
    changed = differences(stored.noticed, tried.noticed)
    return Backtest(
        start,
        end,
        seen.first,
        seen.last,
        seen.checks,
        stored,
        tried,
        changed[:MAX_DIFFERENCES],
        len(changed),
        list(_unanswered(monitor, own, other, asked, start, seen, past, now=now)),
    )


@dataclass(slots=True)
class _Seen:
    """Counts the checks of a span that pass through, and those that failed by their timeout."""

    start: datetime
    checks: int = 0
    timeouts: int = 0
    first: datetime | None = None
    last: datetime | None = None

    def counted(self, history: Iterator[Past]) -> Iterator[Past]:
        start, timeout = micros(self.start), ReasonCode.TIMEOUT.value
        for past in history:
            at = past.checks.at
            if count := len(at) - bisect_left(at, start):
                self.first = self.first or moment_of(at[-count])
                self.last = moment_of(at[-1])
                self.checks += count
                reasons = past.reasons.items()
                self.timeouts += sum(moment >= start and each.reason_code == timeout for (moment, _), each in reasons)
            yield past


def _past_of(monitor: Monitor, start: datetime, end: datetime, *, now: datetime) -> _Past:
    past = _Past(maintenance=apart(left_out_since(start, [monitor.pk])[monitor.pk]))
    changes = StatusChange.objects.filter(monitor=monitor, at__gte=start, at__lt=end).exclude(kind=Kind.STATUS)
    stale_at: datetime | None = None
    for kind, at in reversed(changes.order_by("-id").values_list("kind", "at")[:MAX_ENTRIES]):
        if kind in (Kind.PAUSED, Kind.RESUMED):
            past.events.append(Event(at, enabled=kind == Kind.RESUMED))
        elif kind == Kind.STALE:
            stale_at = at
        else:
            past.unobserved.append(Span(stale_at or start, at))
    if (stale := stale_since(monitor, now=now)) is not None and stale < end:
        past.unobserved.append(Span(stale, end))
    past.unobserved = apart([*past.unobserved, *past.maintenance, *gaps_since(start)])
    entries = Entry.objects.filter(monitor_id=monitor.pk, at__gte=start - LONGEST_MUTE, at__lt=end)
    found = entries.order_by("-id").values_list("at", "action", "details")[:MAX_ENTRIES]
    for at, action, details in reversed(found):
        edited = {change["field"]: change.get("after") for change in details.get("changes", ())}
        if action in (Action.MONITOR_MUTED, Action.MONITOR_UNMUTED):
            until = edited.get("muted_until")
            muted_until = None if until is None else from_ms(until)
            past.events.append(Event(at, muted_until=muted_until))
            if past.mutes and past.mutes[-1].end > at:
                past.mutes[-1] = Span(past.mutes[-1].start, at)
            if muted_until is not None:
                past.mutes.append(Span(at, muted_until))
        elif at >= start and action != Action.MONITOR_CREATED and not _DECISIVE.isdisjoint(edited):
            past.is_changed = True
    past.events.sort(key=lambda event: event.at)
    return past


def _state_before(monitor: Monitor, at: datetime) -> tuple[Status, Outage | None]:
    """Return the status before a check, without counts of consecutive checks, and the open outage or None."""
    changes = StatusChange.objects.filter(monitor=monitor, at__lt=at).order_by("-at", "-id")
    last = changes.filter(kind=Kind.STATUS).first()
    if last is None:
        return Status(), None
    switched = changes.filter(kind__in=(Kind.PAUSED, Kind.RESUMED), id__gt=last.pk).exists()
    status = Status(None if last.after is None else Verdict(last.after), last.at, fresh=switched)
    # A first failure that is not confirmed was processed at its own time, and a pause has ended the outage.
    if switched or last.after != Verdict.DOWN or last.processed_at == last.at:
        return status, None
    began = min(last.failing_since or last.at, last.at)
    confirmed = Status(Verdict.DOWN, last.at, fresh=False, failing_since=began)
    return confirmed, Outage(began, last.at, last.reason_code)


def _side(found: Replay, own: Thresholds, past: _Past, span: Span, monitor: Monitor) -> Side:
    alerts = alert_times(
        found.outages, past.maintenance, calm=_calm(monitor), changes=settings.FLAPPING_CHANGES, within=_within()
    )
    noticed = [
        Noticed(outage, sum(span.start <= at < span.end for at in times))
        for outage, times in zip(found.outages, alerts, strict=True)
        if outage.started_at < span.end and (outage.resolved_at is None or outage.resolved_at > span.start)
    ]
    delays = [each.outage.delay / _SECOND for each in noticed if each.outage.confirmed_at >= span.start]
    return Side(
        own,
        noticed,
        down_time([each.outage for each in noticed], past.unobserved, span) // _SECOND,
        slow_alerts(found.slowed, [*past.maintenance, *past.mutes], span, within=_within()),
        round(sum(delays) / len(delays), 1) if delays else None,
        round(max(delays), 1) if delays else None,
    )


def _within() -> timedelta:
    return timedelta(minutes=settings.FLAPPING_MINUTES)


def _calm(monitor: Monitor) -> timedelta:
    """Return how long the status must stay until the monitor has settled, as `incidents.flapping.settled` has it."""
    return max(_within() / 2, SETTLED_INTERVALS * monitor.shortest_interval)


def _unanswered(
    monitor: Monitor,
    own: Thresholds,
    other: Thresholds,
    asked: datetime,
    start: datetime,
    seen: _Seen,
    past: _Past,
    *,
    now: datetime,
) -> Iterator[Unanswered]:
    kept_since = now - timedelta(days=settings.RESULTS_KEPT_DAYS)
    repeats = (own.confirmation_sec, other.confirmation_sec) != (None, None)
    if not seen.checks:
        yield Unanswered("no_checks", "No check of this time is stored.")
    elif start > asked:
        text = f"Only the newest {counted(MAX_CHECKS, 'check')} are replayed. Ask for earlier ones with from and to."
        yield Unanswered("too_many_checks", text)
    if seen.checks and start < kept_since and monitor.created_at < kept_since:
        text = f"Results of checks are kept for {counted(settings.RESULTS_KEPT_DAYS, 'day')}; earlier ones are deleted."
        yield Unanswered("results_deleted", text)
    if other.confirmation_sec != own.confirmation_sec and not monitor.kind.polls:
        yield Unanswered("not_confirmed", f"Outages of a {monitor.type} are not confirmed by checks out of turn.")
    elif repeats and (own.fail_threshold, own.confirmation_sec) != (other.fail_threshold, other.confirmation_sec):
        text = (
            "Failed checks are repeated early for confirmation_sec. With other settings they would have been made at "
            "other times, so outages may be noticed sooner or later, by up to one interval."
        )
        yield Unanswered("checks_not_made", text)
    if seen.timeouts:
        text = f"{counted(seen.timeouts, 'check')} failed by the timeout and may pass with a longer one."
        yield Unanswered("timeouts", text)
    if past.is_changed:
        text = "Settings were changed in this time. Those of now are replayed throughout, so real alerts may differ."
        yield Unanswered("settings_changed", text)
    if monitor.dependencies.exists():
        text = "Alerts that were held because of a monitor on which this one depends are counted as sent."
        yield Unanswered("dependencies", text)
    if seen.checks and start < now - timedelta(days=settings.AUDIT_KEPT_DAYS):
        yield Unanswered("mutes_unknown", "Mutes of this time are no longer known: failures in them count.")

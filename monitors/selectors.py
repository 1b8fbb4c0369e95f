"""Read monitors with their uptime and transitions."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import starmap

from django.db.models import (
    Case,
    CharField,
    Count,
    DateTimeField,
    ExpressionWrapper,
    F,
    Func,
    IntegerField,
    JSONField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, Greatest, Least, Length
from django.db.models.lookups import Exact, In, IsNull, LessThan

from checks.spec import Verdict
from core.db import Derived, get_or_not_found
from core.ids import derived_bits
from monitors import types
from monitors.models import (
    READING_PREFIX,
    DnsChange,
    MaintenanceSpan,
    Monitor,
    MonitorState,
    SchedulerGap,
    SchedulerTick,
    ScheduleSlots,
    StatusChange,
)
from monitors.stale import stale, stale_since
from monitors.uptime.intervals import Span, Tally
from monitors.uptime.sums import Sums, lengths, sums
from projects import access
from projects.access import Caller

logger = logging.getLogger(__name__)

DAY = timedelta(hours=24)
_CHECKED = StatusChange.objects.filter(monitor=OuterRef("pk"), after__isnull=False).order_by("at")
_FIRST_CHECK = {"first_check_at": Subquery(_CHECKED.values("at")[:1])}  # mypy reads the column from Monitor
_GIVEN = Func("config", function="jsonb_strip_nulls", output_field=JSONField())
STORED_BYTES = Length(Cast(_GIVEN, TextField())) + Length("url")
"""How much of a monitor's settings a list reads, in characters. Null settings need no extra memory."""


def monitors_named(public_ids: Collection[str]) -> QuerySet[Monitor]:
    """Return the monitors with these ids, of any tenant: for the operator of the server."""
    return Monitor.objects.select_related("state", "project").filter(public_id__in=public_ids).order_by("name", "pk")


def named(public_ids: Collection[str]) -> Q:
    """Match the monitors with these ids. For heartbeats, the ids for those who only read count too."""
    public_ids = [each for each in public_ids if "\0" not in each]  # no row has one, and PostgreSQL refuses it
    derived = [bits for each in public_ids if (bits := derived_bits(READING_PREFIX, each)) is not None]
    if not derived:
        return Q(public_id__in=public_ids)
    has_derived = Q(In(Derived("public_id"), derived), type__in=types.with_secret_ids())
    return has_derived if len(derived) == len(public_ids) else has_derived | Q(public_id__in=public_ids)


def by_ids(monitors: Iterable[Monitor]) -> dict[str, Monitor]:
    """Return the monitors that `named` matched by each of their ids."""
    return {public_id: one for one in monitors for public_id in (one.public_id, one.reading_id)}


def shown_id(monitor: Monitor, caller: Caller | None) -> str:
    """Return the id of a monitor for its readers: of a heartbeat, those who may not ping it get another one.

    Without a caller, the reader is its owner.
    """
    if caller is None or not monitor.kind.has_secret_id or not caller.only_reads(monitor):
        return monitor.public_id
    return monitor.reading_id


def show_to(caller: Caller, monitor: Monitor) -> None:
    """Give a monitor the id for its readers, for pages, which show the id in many places. Never save it then."""
    monitor.public_id = shown_id(monitor, caller)


def hidden_ids(caller: Caller, public_ids: Collection[str]) -> dict[str, str]:
    """Return the other ids of those heartbeats among these that the caller must not ping, in one query.

    Unlike `shown_id`, also of heartbeats that the caller cannot access: messages outlive roles and moves.
    """
    if not public_ids:
        return {}
    found = Monitor.objects.filter(type__in=types.with_secret_ids(), public_id__in=public_ids)
    if not caller.is_read_only:
        found = found.exclude(pk__in=access.writable(caller, Monitor.objects.all()).values("pk"))
    return {monitor.public_id: monitor.reading_id for monitor in found.only("public_id", "type")}


def list_monitors(caller: Caller) -> QuerySet[Monitor]:
    return access.accessible(caller, Monitor.objects.select_related("state", "project"))


def get_monitor(caller: Caller, public_id: str) -> Monitor:
    return get_or_not_found(list_monitors(caller).filter(named([public_id])))


def get_monitor_with_first_check(caller: Caller, public_id: str, **more: Subquery) -> Monitor:
    """Return a monitor with `first_check_at`, when its observed time began, or None before its first check.

    `more` are further expressions to load.
    """
    return get_or_not_found(list_monitors(caller).filter(named([public_id])).annotate(**_FIRST_CHECK, **more))


def dns_changes_of(monitor: Monitor, *, limit: int, before: tuple[datetime, int] | None = None) -> list[DnsChange]:
    """Return the newest changes of the records that a dns monitor finds. `before` is the previous page's last one."""
    changes = DnsChange.objects.filter(monitor=monitor)
    if before is not None:
        at, pk = before
        changes = changes.filter(Q(at__lt=at) | Q(at=at, pk__lt=pk), at__lte=at)
    return list(changes.order_by("-at", "-pk")[:limit])


def uptimes(
    monitors: Sequence[Monitor], *, now: datetime, gaps: Sequence[Span] | None = None
) -> dict[int, float | None]:
    """Return the uptime of the last 24 hours in percent, or None if nothing was observed, of each monitor by its key.

    It takes two queries for any number of monitors. `gaps` as in `uptime_sums`.
    """
    found = uptime_sums(monitors, [Span(now - DAY, now)], now=now, gaps=gaps)
    return {pk: total.tallies[0].percent for pk, total in found.items()}


def uptime_sums(
    monitors: Sequence[Monitor],
    windows: Sequence[Span],
    *,
    now: datetime,
    left_out: Mapping[int, Sequence[Span]] | None = None,
    by_outage: bool = False,
    gaps: Sequence[Span] | None = None,
) -> dict[int, Sums]:
    """Return the tallies of the windows by monitor, in two queries. `left_out` are periods to exclude by monitor.

    The states must be loaded. Observed time ends where a monitor became stale. `gaps`, if the caller has them, are what
    `gaps_since` returns for the first window or an earlier time.
    """
    gaps = gaps_since(windows[0].start) if gaps is None else gaps
    silent = {monitor.pk: [*gaps, *(left_out or {}).get(monitor.pk, ())] for monitor in monitors}
    stale = ((monitor.pk, stale_since(monitor, now=now), monitor.state.status) for monitor in monitors)
    found = sums(silent, windows, [(pk, at, status) for pk, at, status in stale if at is not None], by_outage=by_outage)

    @cache
    def unchanged(silent: tuple[Span, ...], status: str | None) -> Sums:  # most have no transition in a day
        observed = [timedelta()] * len(windows) if status is None else lengths(windows, silent)
        return Sums([Tally(each, each if status == Verdict.DOWN else timedelta()) for each in observed])

    def of(monitor: Monitor) -> Sums:
        status = monitor.state.status if monitor.enabled else None
        return found.get(monitor.pk) or unchanged(tuple(silent[monitor.pk]), status)

    return {monitor.pk: of(monitor) for monitor in monitors}


def gaps_since(start: datetime) -> list[Span]:
    """Return the periods since `start` in which Pulsekeeper itself was stopped."""
    return list(starmap(Span, SchedulerGap.objects.filter(ended_at__gt=start).values_list("started_at", "ended_at")))


def left_out_since(start: datetime, monitor_ids: Sequence[int]) -> dict[int, list[Span]]:
    """Return the maintenance periods of each monitor since `start`, including planned ends."""
    spans: dict[int, list[Span]] = defaultdict(list)
    found = MaintenanceSpan.objects.filter(monitor__in=monitor_ids, ended_at__gt=start)
    for monitor_id, started_at, ended_at in found.values_list("monitor_id", "started_at", "ended_at"):
        spans[monitor_id].append(Span(started_at, ended_at))
    return spans


def began_at(state: MonitorState) -> datetime | None:
    """Return when the status began. An outage begins with its first failed check, like its incident."""
    return (state.failing_since if state.status == Verdict.DOWN else None) or state.status_since


def failing_since(monitor: Monitor, *, now: datetime) -> datetime | None:
    """Return when the checks of a monitor that is not down began to fail, or None if the last one passed.

    A muted heartbeat is not judged before the mute ends: it fails from its deadline on, or from a later change of its
    schedule.
    """
    state = monitor.state
    if not monitor.enabled or state.status == Verdict.DOWN:
        return None
    if state.failing_since is None and monitor.kind.waits:
        muted = monitor.muted_until is not None and monitor.muted_until > now
        due_at = monitor.ping_due_at(muted=False)
        return due_at if muted and due_at is not None and due_at < now else None
    return state.failing_since


def failing(now: datetime) -> Q:
    """Match the monitors for which `failing_since` returns a time."""
    second = Value(timedelta(seconds=1))
    has_interval = IsNull(KT("config__schedule"), True)  # noqa: FBT003
    grace_sec = Cast(KT("config__grace_sec"), IntegerField())
    by_interval = ExpressionWrapper(F("state__last_ping_at") + F("interval_sec") * second, output_field=DateTimeField())
    stored = ScheduleSlots.objects.filter(pk=OuterRef("pk")).values_list(_first_time_after("state__last_ping_at"))
    ping_due_at = Case(When(has_interval, then=by_interval), default=Subquery(stored)) + grace_sec * second
    run_sec = Coalesce(Cast(KT("config__max_duration_sec"), IntegerField()), grace_sec)
    run_due_at = F("state__run_started_at") + run_sec * second
    deadline = Least(*(ExpressionWrapper(each, output_field=DateTimeField()) for each in (ping_due_at, run_due_at)))
    # LEAST and GREATEST ignore nulls, so without a deadline `armed_at` alone would match.
    is_late = Q(LessThan(Greatest(deadline, F("state__armed_at")), now)) & Q(LessThan(deadline, now))
    overdue = Q(is_late, type__in=types.waiting(), muted_until__gt=now)
    return Q(Q(state__failing_since__isnull=False) | overdue, ~Q(state__status=Verdict.DOWN), enabled=True)


def _first_time_after(column: str) -> Func:
    """Return the first of the times of a row of ScheduleSlots that is after a column of the outer query."""
    return Func(
        F("times"),
        OuterRef(column),
        template="(SELECT min(time) FROM unnest(%(expressions)s)",
        arg_joiner=") AS time WHERE time > ",
        output_field=DateTimeField(),
    )


def is_held_back(monitor: Monitor, *, now: datetime) -> bool:
    """Return whether a heartbeat's deadline moved because its ping may have been lost, or its schedule changed.

    Until the moved deadline or the next ping, it is unknown whether its job runs.
    """
    state = monitor.state
    return state.armed_at is not None and state.armed_at > now and state.status != Verdict.DOWN


def held_back(now: datetime, *, of: str = "") -> Q:
    """Match the monitors for which `is_held_back` returns True. `of` precedes the columns, as in `stale`."""
    return ~Q((f"{of}state__status", Verdict.DOWN)) & Q((f"{of}state__armed_at__gt", now))


def status_of(monitor: Monitor, *, now: datetime) -> str | None:
    """Return the status to show, or None if it is unknown.

    A stale monitor stays down: its outage has not ended as far as anyone knows.
    """
    if monitor.state.status == Verdict.DOWN:
        return Verdict.DOWN
    is_unknown = is_held_back(monitor, now=now) or stale_since(monitor, now=now) is not None
    return None if is_unknown else monitor.state.status


def shown_status(now: datetime, *, of: str = "") -> Case:
    """Return an expression for what `status_of` returns. `of` precedes the columns, as in `stale`."""
    status = f"{of}state__status"
    return Case(
        When(Q((status, Verdict.DOWN)), then=Value(Verdict.DOWN)),
        When(stale(now, of=of) | held_back(now, of=of), then=None),
        default=F(status),
        output_field=CharField(),
    )


def counts_by_status(now: datetime) -> dict[str, Count]:
    """Return annotations of a project: the number of its monitors, in all and by the status to show."""
    status = shown_status(now, of="monitors__")
    return {
        "monitor_count": Count("monitors"),
        **{verdict.value: Count("monitors", filter=Exact(status, Value(verdict))) for verdict in Verdict},
        "unknown": Count("monitors", filter=IsNull(status, True)),  # noqa: FBT003
    }


def last_tick() -> datetime | None:
    """Return when the scheduler last ran, or None."""
    return SchedulerTick.objects.values_list("at", flat=True).first()

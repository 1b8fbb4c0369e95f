"""Notify of gaps in schedules before they begin, of hand-overs, and of policies that reach no one.

The source of a message names the schedule and the beginning of the gap or shift, so each channel gets each one once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import NamedTuple

import psycopg
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from accounts.models import User
from alerts.events import WORDS, EventType, Payload
from alerts.models import AlertChannel, DeliveryItem
from alerts.outbox import OutboxItem, put
from core.clock import to_ms
from core.db import lock_in_turn
from core.isolation import run_isolated
from core.text import one_line
from core.zones import wall_time
from monitors.models import Monitor
from oncall import rotation, selectors
from oncall.models import EscalationPolicy, OnCallSchedule
from oncall.rotation import Shift
from oncall.selectors import People, Row
from projects.models import Project

AHEAD = timedelta(hours=24)
EVERY = timedelta(seconds=60)
LATEST = timedelta(hours=1)
"""Older hand-overs, from a time when nothing ran, are not announced."""
LOOKED_WITHIN = timedelta(minutes=5)
"""Longer ago, the task does not run."""
BATCH = 200
BUDGET_SEC = 20.0
"""How long a look at all schedules takes at most, about. The process sends alerts too."""
_SLACK = timedelta(seconds=10)
_SEARCH = timedelta(days=8)
"""How far ahead the end of a gap or shift is looked for."""
_LEAST = timedelta(milliseconds=1)

_LAST_LOOK = """
    SELECT min(coalesce(schedule.announced_until, schedule.created_at))
      FROM oncall_oncallschedule AS schedule JOIN accounts_user AS owner ON owner.id = schedule.owner_id
     WHERE owner.is_active
"""


class Event(NamedTuple):
    """`receivers`: the people whose own channels get it; None: the channels of the row's project or owner."""

    source: str
    type: EventType
    row: Row
    starts_at: datetime | None
    ends_at: datetime | None
    person: str | None
    detail: str
    receivers: Sequence[User] | None = None


def announce_shifts(now: datetime) -> None:
    """Notify of gaps that begin within AHEAD, and of hand-overs since the last time."""

    def put_off(failed: QuerySet[OnCallSchedule]) -> None:
        failed.update(announced_until=now)

    start = time.monotonic()
    while run_isolated(partial(_announce_some, now), _due(now), most=BATCH, put_off=put_off):
        if time.monotonic() - start > BUDGET_SEC:
            break  # accounts take turns, so those with many schedules wait for the next time


def _due(now: datetime) -> QuerySet[OnCallSchedule]:
    # One in the future is from before the clock was set back.
    is_current = Q(announced_until__gt=now - EVERY + _SLACK, announced_until__lte=now + EVERY)
    return OnCallSchedule.objects.filter(Q(announced_until=None) | ~is_current, owner__is_active=True)


@transaction.atomic
def _announce_some(now: datetime, keys: Collection[int] | None) -> bool:
    """Do it for BATCH schedules, of those with these keys or all, that no other process has locked.

    Return whether more may be due.
    """
    due = _due(now) if keys is None else _due(now).filter(pk__in=keys)
    # Accounts and projects are locked against deletion first: it locks channels before schedules.
    locked, is_full = lock_in_turn(due, account="owner", most=BATCH, parents={"owner": User, "project": Project})
    schedules = list(due.filter(pk__in=locked).select_related("project"))
    names = set(chain.from_iterable(map(selectors.named_in, schedules)))
    people = selectors.people_of(schedules, among=names) if schedules else {}
    put_events(chain.from_iterable(_events_of(row, people[row], now) for row in schedules), now=now)
    OnCallSchedule.objects.filter(pk__in=[row.pk for row in schedules]).update(announced_until=now)
    return is_full and bool(schedules)


def _events_of(row: OnCallSchedule, people: People, now: datetime) -> Iterator[Event]:
    schedule = selectors.parsed(row)
    for gap in rotation.gaps_between(schedule, now, now + AHEAD, people):
        start: datetime | None = gap.starts_at
        end: datetime | None = gap.ends_at
        if start == now:  # it has begun: find out when
            before = rotation.shifts(schedule, now - _SEARCH, now, people)
            start = before[-1].ends_at if before else None
        if end == now + AHEAD:
            after = rotation.shifts(schedule, end, end + _SEARCH, people)
            end = after[0].starts_at if after else None
        times = [
            f"No one is on call from {_local(row, start)}" if start else "No one has been on call for more than a week,"
        ]
        times.append(f"until {_local(row, end)}" if end else "without an end in sight")
        # What lasts is announced every week.
        source = f"gap:{row.pk}:{to_ms(start) if start else week_of(now)}"
        detail = f"{' '.join(times)} ({row.time_zone})."
        yield Event(source, EventType.ON_CALL_GAP, row, start, end, None, detail)
    if row.announced_until is not None:
        yield from _hand_overs(row, schedule, people, max(row.announced_until, now - LATEST), now)


def _hand_overs(
    row: OnCallSchedule, schedule: rotation.Schedule, people: People, since: datetime, now: datetime
) -> Iterator[Event]:
    """Yield the changes of the person after `since`, until `now`."""
    found = rotation.shifts(schedule, since - _LEAST, now + _LEAST, people)
    if len(found) == 1 and found[0].starts_at <= since and found[0].ends_at > now:
        return
    found = rotation.shifts(schedule, since - _LEAST, now + _SEARCH, people)
    before: Shift | None = None
    for shift in found:
        if before is not None and before.ends_at < shift.starts_at:
            yield from _ended(row, before, people, since, now)
            before = None
        if since < shift.starts_at <= now:
            user, other = people[shift.user_id], people[before.user_id] if before else None
            ends = shift.ends_at < now + _SEARCH
            detail = f"Until {_local(row, shift.ends_at)} ({row.time_zone})." if ends else ""
            if other is not None:
                detail = f"{detail} Before: {one_line(other.email)}.".strip()
            yield Event(
                f"call:{row.pk}:{to_ms(shift.starts_at)}",
                EventType.ON_CALL,
                row,
                shift.starts_at,
                shift.ends_at if ends else None,
                user.email,
                detail,
                [user] if other is None else [user, other],
            )
        before = shift
    if before is not None:
        yield from _ended(row, before, people, since, now)


def _ended(row: OnCallSchedule, shift: Shift, people: People, since: datetime, now: datetime) -> Iterator[Event]:
    """Yield the end of a shift after which no one is on call."""
    if since < shift.ends_at <= now:
        user = people[shift.user_id]
        source = f"call:{row.pk}:{to_ms(shift.ends_at)}"
        ended = EventType.ON_CALL_ENDED
        yield Event(source, ended, row, shift.ends_at, None, user.email, "No one is on call now.", [user])


def week_of(now: datetime) -> str:
    year, week, _ = now.isocalendar()
    return f"{year}-{week}"


def _local(row: OnCallSchedule, at: datetime) -> str:
    return f"{wall_time(row.time_zone, at):%a %Y-%m-%d %H:%M}"


def last_look(database: psycopg.Connection) -> datetime | None:
    """Return when gaps and hand-overs of the schedule that waits longest were looked for. Raise psycopg.Error."""
    found: datetime | None
    ((found,),) = database.execute(_LAST_LOOK)
    return found


def announce_unreachable(now: datetime) -> None:
    """Notify of policies in use that reach no one, once a week as long as that lasts."""
    used = _policies_in_use()
    last = 0
    while keys := list(used.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:BATCH]):
        last = keys[-1]
        chosen = used.filter(pk__in=keys)
        run_isolated(partial(_announce_unreachable, now, keys), chosen, most=BATCH, put_off=lambda _: None)


def _policies_in_use() -> QuerySet[EscalationPolicy]:
    of_monitors = Monitor.objects.filter(escalation_policy=OuterRef("pk"), enabled=True)
    of_projects = Project.objects.filter(escalation_policy=OuterRef("pk"))
    return EscalationPolicy.objects.filter(Exists(of_monitors) | Exists(of_projects), owner__is_active=True)


@transaction.atomic
def _announce_unreachable(now: datetime, batch: Collection[int], keys: Collection[int] | None) -> bool:
    """Do it for the policies with these keys, or for the batch."""
    chosen = _policies_in_use().filter(pk__in=batch if keys is None else keys)
    parents = {"owner": User, "project": Project}
    locked, _ = lock_in_turn(chosen, account="owner", most=BATCH, parents=parents)
    policies = list(chosen.filter(pk__in=locked).select_related("project").order_by("pk"))
    found = selectors.unreachable(dict(zip(policies, selectors.targets_of(policies), strict=True)))
    detail = "None of its people and channels can be notified: add a target, or confirm a channel."
    events = [
        Event(f"unreachable:{row.pk}:{week_of(now)}", EventType.POLICY_UNREACHABLE, row, now, None, None, detail)
        for row in policies
        if row in found
    ]
    put_events(events, now=now)
    return False


def put_events(given: Iterable[Event], *, now: datetime) -> None:
    """Write the messages of these events that their channels did not get yet."""
    events = list(given)
    if not events:
        return
    routes = _routes_of({event.row for event in events if event.receivers is None})
    own = _own_channels({user for event in events for user in event.receivers or ()})
    channels = [
        routes[event.row, WORDS[event.type].topic]
        if event.receivers is None
        else {key for user in event.receivers for key in own[user.pk]}
        for event in events
    ]
    named = set[int]().union(*channels)
    got = DeliveryItem.objects.filter(source__in=[event.source for event in events], channel__in=named)
    known = set(got.values_list("source", "channel")) if named else set()
    items = []
    for event, keys in zip(events, channels, strict=True):
        is_policy = isinstance(event.row, EscalationPolicy)
        payload = Payload(
            event_type=event.type,
            at=to_ms(now),
            project=event.row.project.name if event.row.project else None,
            started_at=to_ms(event.starts_at) if event.starts_at else None,
            resolved_at=to_ms(event.ends_at) if event.ends_at else None,
            detail=event.detail,
            by=event.person,
            schedule_id=None if is_policy else event.row.public_id,
            policy_id=event.row.public_id if is_policy else None,
            title=event.row.name,
        )
        new = [key for key in sorted(keys) if (event.source, key) not in known]
        items.append(OutboxItem(event.source, payload, new))
    put(items, now=now)


def _routes_of(rows: Collection[Row]) -> dict[tuple[Row, str | None], set[int]]:
    """Return the channels of the project or owner of each row that have a topic: those that cover everything there."""
    found: dict[tuple[Row, str | None], set[int]] = defaultdict(set)
    owners, projects = {row.owner_id for row in rows}, {row.project_id for row in rows} - {None}
    scope = AlertChannel.Scope
    personal = Q(project=None, owner__in=owners) & (Q(scope=scope.ALL) | Q(scope=scope.PROJECT))
    usable = AlertChannel.objects.filter(personal | Q(project__in=projects), enabled=True, confirmed_at__isnull=False)
    columns = ("pk", "project", "owner", "scope", "scope_project", "topics")
    for key, project, owner, covers, scope_project, topics in usable.values_list(*columns) if rows else ():
        for row in rows:
            if project is None:
                is_covered = owner == row.owner_id and (covers == scope.ALL or scope_project == row.project_id)
            else:
                is_covered = project == row.project_id
            for topic in topics if is_covered else ():
                found[row, topic].add(key)
    return found


def _own_channels(users: Collection[User]) -> dict[int, set[int]]:
    """Return the channels of each person, by key, that notify of hand-overs."""
    found: dict[int, set[int]] = defaultdict(set)
    topic = WORDS[EventType.ON_CALL].topic
    usable = selectors.own_channels(users).filter(enabled=True, confirmed_at__isnull=False, topics__contains=[topic])
    for key, owner in usable.values_list("pk", "owner") if users else ():
        found[owner].add(key)
    return found

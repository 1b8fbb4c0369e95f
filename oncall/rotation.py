"""Who is on call when, by the layers and overrides of a schedule. Pure.

Times are aware datetimes from 1970 to 9998; people are `User.public_id`. `present` are those who can be on call now.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from core.clock import from_ms
from core.hours import Hours, Span, is_within, open_spans, parse_hours
from core.zones import TIME_ZONES, first_moment, wall_time

_HOURS_OF = {"day": 24, "week": 168}
_HORIZONS = [timedelta(days=days) for days in (1, 8, 60, 366)]
"""`now` looks ahead this far, in steps: most turns end soon."""


@dataclass(frozen=True, slots=True)
class Layer:
    """`every` is the length of a turn: of the wall clock if `is_wall_time`, otherwise elapsed."""

    user_ids: tuple[str, ...]
    every: timedelta
    is_wall_time: bool
    starts_at: datetime
    hours: tuple[Hours, ...] = ()


@dataclass(frozen=True, slots=True)
class Override:
    user_id: str
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Schedule:
    """Later layers win over earlier ones, overrides over all layers, and the last override wins."""

    zone: str
    layers: tuple[Layer, ...]
    overrides: tuple[Override, ...] = ()


class Shift(NamedTuple):
    """`layer` is the index of the layer, or None for an override: at its beginning, if neighbours were merged."""

    starts_at: datetime
    ends_at: datetime
    user_id: str
    layer: int | None


class Now(NamedTuple):
    """`user_id` until `until`, both None if no one is on call; then `next_user_id` from `next_at` on.

    They look 366 days ahead: a turn that does not end until then has `until` there and no next.
    """

    user_id: str | None
    until: datetime | None
    next_user_id: str | None
    next_at: datetime | None


def parse_schedule(
    time_zone: str, layers: Iterable[dict[str, Any]], overrides: Iterable[dict[str, Any]] = ()
) -> Schedule:
    """Return a stored schedule: `layers` and `overrides` as in the API, with times in epoch milliseconds."""
    return Schedule(
        # A zone that tzdata has dropped still has to notify people.
        zone=time_zone if time_zone in TIME_ZONES else "UTC",
        layers=tuple(_parse_layer(layer) for layer in layers),
        overrides=tuple(
            Override(row["user_id"], from_ms(row["starts_at"]), from_ms(row["ends_at"])) for row in overrides
        ),
    )


def _parse_layer(layer: dict[str, Any]) -> Layer:
    unit, count = layer["every"]["unit"], layer["every"]["count"]
    return Layer(
        user_ids=tuple(layer["user_ids"]),
        every=timedelta(hours=count * _HOURS_OF.get(unit, 1)),
        is_wall_time=unit in _HOURS_OF,
        starts_at=from_ms(layer["starts_at"]),
        hours=parse_hours(layer["hours"]),
    )


def on_call(schedule: Schedule, at: datetime, present: Collection[str]) -> str | None:
    """Return who is on call at a moment, or None."""
    for override in reversed(schedule.overrides):
        if override.starts_at <= at < override.ends_at and override.user_id in present:
            return override.user_id
    for layer in reversed(schedule.layers):
        if at >= layer.starts_at and is_within(layer.hours, schedule.zone, at):
            user_id = _whose(layer, _turn_at(layer, schedule.zone, at), present)
            if user_id is not None:
                return user_id
    return None


def shifts(schedule: Schedule, start: datetime, end: datetime, present: Collection[str]) -> list[Shift]:
    """Return the shifts from `start` to `end`, cut to it, in order.

    Neighbours of one user are merged. Spans without anyone are left out.
    """
    if start >= end:
        return []
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    present = frozenset(present)
    found: list[Shift] = []
    gaps = [Span(start, end)]
    for override in reversed(schedule.overrides):
        if override.user_id in present and override.starts_at < end and override.ends_at > start:
            gaps = _fill(gaps, override, found)
    for index in reversed(range(len(schedule.layers))):
        ordered = list(_shifts_of(schedule.layers[index], index, schedule.zone, gaps, present))
        gaps = _without(gaps, ordered)
        found += ordered
    return _merge(sorted(found))


def gaps_between(schedule: Schedule, start: datetime, end: datetime, present: Collection[str]) -> list[Span]:
    """Return the spans from `start` to `end` in which no one is on call, in order."""
    return _without([Span(start, end)], shifts(schedule, start, end, present))


def now(schedule: Schedule, at: datetime, present: Collection[str]) -> Now:
    """Return who is on call and who is next."""
    user_id = on_call(schedule, at, present)
    current: Shift | None = None
    for horizon in _HORIZONS:
        ahead = shifts(schedule, at, at + horizon, present)
        current = ahead.pop(0) if user_id is not None else None
        # The last one may be longer than was looked ahead; the start of the next one is certain.
        if ahead:
            break
    following = ahead[0] if ahead else None
    return Now(
        user_id,
        current.ends_at if current else None,
        following.user_id if following else None,
        following.starts_at if following else None,
    )


def _whose(layer: Layer, turn: int, present: Collection[str]) -> str | None:
    """Return whose turn it is: that of one who has left goes to the next on the list who is still there."""
    count = len(layer.user_ids)
    candidates = (layer.user_ids[(turn + skipped) % count] for skipped in range(count))
    return next((user_id for user_id in candidates if user_id in present), None)


def _begin(layer: Layer, zone: str, turn: int) -> datetime:
    """Return when a turn begins, from 0 on."""
    if turn == 0 or not layer.is_wall_time:
        return layer.starts_at + turn * layer.every
    # A schedule that starts in the second pass of an hour has its first hand-over after it.
    return max(first_moment(zone, wall_time(zone, layer.starts_at) + turn * layer.every), layer.starts_at)


def _turn_at(layer: Layer, zone: str, at: datetime) -> int:
    """Return which turn it is, from 0 on. `at` is not before the layer starts."""
    if not layer.is_wall_time:
        return (at - layer.starts_at) // layer.every
    turn = max(0, (wall_time(zone, at) - wall_time(zone, layer.starts_at)) // layer.every)
    # Near a change of the clock, the wall clock is behind a hand-over that was, or ahead of one that was not yet.
    while _begin(layer, zone, turn + 1) <= at:
        turn += 1
    while _begin(layer, zone, turn) > at:
        turn -= 1
    return turn


def _shifts_of(layer: Layer, index: int, zone: str, gaps: Sequence[Span], present: Collection[str]) -> Iterator[Shift]:
    """Yield the shifts of one layer within `gaps`, in order and not merged."""
    whose = [_whose(layer, turn, present) for turn in range(len(layer.user_ids))]
    if whose[0] is None or not gaps or gaps[-1].ends_at <= layer.starts_at:
        return
    start = max(gaps[0].starts_at, layer.starts_at)
    turn = _turn_at(layer, zone, start)
    ends_at = _begin(layer, zone, turn + 1)
    for span in _common(gaps, open_spans(layer.hours, zone, start, gaps[-1].ends_at)):
        reached = span.starts_at
        while reached < span.ends_at:
            while ends_at <= reached:
                turn += 1
                ends_at = _begin(layer, zone, turn + 1)
            user_id = whose[turn % len(whose)]
            assert user_id is not None
            until = min(ends_at, span.ends_at)
            yield Shift(reached, until, user_id, index)
            reached = until


def _common(spans: Sequence[Span], others: Iterable[Span]) -> Iterator[Span]:
    """Yield what is in both, in order."""
    at = 0
    for other in others:
        while at < len(spans) and spans[at].ends_at <= other.starts_at:
            at += 1
        ahead = at
        while ahead < len(spans) and spans[ahead].starts_at < other.ends_at:
            yield Span(max(spans[ahead].starts_at, other.starts_at), min(spans[ahead].ends_at, other.ends_at))
            ahead += 1


def _without(spans: Sequence[Span], taken: Iterable[Shift]) -> list[Span]:
    """Return the rest of `spans` without shifts that lie within them, in order."""
    left = []
    shifts = iter(taken)
    shift = next(shifts, None)
    for span in spans:
        reached = span.starts_at
        while shift is not None and shift.starts_at < span.ends_at:
            if shift.starts_at > reached:
                left.append(Span(reached, shift.starts_at))
            reached = shift.ends_at
            shift = next(shifts, None)
        if reached < span.ends_at:
            left.append(Span(reached, span.ends_at))
    return left


def _fill(gaps: list[Span], override: Override, found: list[Shift]) -> list[Span]:
    """Add the shifts of an override to `found`, where there are gaps. Return the gaps that are left."""
    first = max(0, bisect_right(gaps, override.starts_at, key=lambda gap: gap.starts_at) - 1)
    last = bisect_left(gaps, override.ends_at, key=lambda gap: gap.starts_at)
    among = gaps[first:last]
    wanted = [Span(override.starts_at, override.ends_at)]
    taken = [Shift(*span, override.user_id, None) for span in _common(among, wanted)]
    found += taken
    return [*gaps[:first], *_without(among, taken), *gaps[last:]]


def _merge(ordered: Sequence[Shift]) -> list[Shift]:
    merged: list[Shift] = []
    for shift in ordered:
        if merged and merged[-1].user_id == shift.user_id and merged[-1].ends_at == shift.starts_at:
            merged[-1] = merged[-1]._replace(ends_at=shift.ends_at)
        else:
            merged.append(shift)
    return merged

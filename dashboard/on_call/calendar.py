"""The weeks of a schedule as bands: where its shifts and gaps are, in a time zone. Pure.

Each day has the same width, also days of 23 or 25 hours.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from typing import NamedTuple

from core.clock import to_ms
from core.hours import Span
from core.zones import first_moment, wall_time, zone
from dashboard.on_call.people import Person, Roster
from oncall import rotation
from oncall.rotation import Schedule

DAYS_OF_WEEK = 7
FIRST_DAY, LAST_DAY = date(1970, 1, 12), date(9998, 1, 1)
"""Days that a calendar can show: `oncall.rotation` takes times from 1970 to 9998."""


def in_words(at: datetime, zone_name: str) -> str:
    """Return `Mon 30 Nov 2026, 09:00`, with the offset if the clock shows this time twice."""
    local = at.astimezone(zone(zone_name))
    text = f"{local:%a %-d %b %Y, %H:%M}"
    twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    offset = f"{local:%z}"
    return f"{text} (UTC{offset[:3]}:{offset[3:5]})" if twice else text


def monday_of(day: date) -> date:
    return day - timedelta(days=day.weekday())


@dataclass(frozen=True, slots=True)
class Week:
    """Seven days of a zone. `starts` are their first moments, and the end of the last."""

    first: date
    zone: str
    starts: tuple[datetime, ...]

    @classmethod
    def of(cls, first: date, zone_name: str) -> Week:
        days = [datetime.combine(first + timedelta(days=number), time()) for number in range(DAYS_OF_WEEK + 1)]
        return cls(first, zone_name, tuple(first_moment(zone_name, day) for day in days))

    @property
    def starts_at(self) -> datetime:
        return self.starts[0]

    @property
    def ends_at(self) -> datetime:
        return self.starts[-1]

    @property
    def days(self) -> list[date]:
        return [self.first + timedelta(days=number) for number in range(DAYS_OF_WEEK)]

    @property
    def marks(self) -> str:
        """Return the starts in epoch milliseconds, for on-call.js."""
        return " ".join(str(to_ms(at)) for at in self.starts)

    def percent(self, at: datetime) -> float:
        """Return how far a moment is from the left, 0 to 100."""
        at = min(max(at, self.starts_at), self.ends_at)
        day = min(bisect_right(self.starts, at), DAYS_OF_WEEK) - 1
        length = self.starts[day + 1] - self.starts[day]
        # A day that the zone skips has no length.
        part = (at - self.starts[day]) / length if length else 0.0
        return (day + part) * 100 / DAYS_OF_WEEK


class Block(NamedTuple):
    """A shift of `person` in a week, or a gap if it is None. `x` and `width` are percentages."""

    x: str
    width: str
    span: Span
    person: Person | None
    title: str

    @property
    def from_ms(self) -> int:
        return to_ms(self.span.starts_at)

    @property
    def to_ms(self) -> int:
        return to_ms(self.span.ends_at)


class Lane(NamedTuple):
    """A row of blocks: a layer, the overrides, or the result."""

    label: str
    blocks: list[Block]
    is_result: bool = False


class Band(NamedTuple):
    week: Week
    lanes: list[Lane]
    now: str | None
    """The percentage of the present moment, if it is in this week."""

    @property
    def days(self) -> list[tuple[date, str, str]]:
        """Return each day, its x of the line, and its x of the text."""
        width = 100 / DAYS_OF_WEEK
        return [
            (day, _percent(number * width), _percent(number * width + 0.6)) for number, day in enumerate(self.week.days)
        ]


def bands(
    schedule: Schedule,
    roster: Roster,
    weeks: Sequence[Week],
    *,
    now: datetime,
    with_layers: bool,
) -> list[Band]:
    """Return a band for each week. `with_layers`: also what each layer and the overrides would give alone."""
    return [
        Band(
            week,
            [*(_parts(schedule, roster, week) if with_layers else ()), _result(schedule, roster, week)],
            _percent(week.percent(now)) if week.starts_at <= now < week.ends_at else None,
        )
        for week in weeks
    ]


def _parts(schedule: Schedule, roster: Roster, week: Week) -> Iterable[Lane]:
    for number, layer in enumerate(schedule.layers, start=1):
        alone = replace(schedule, layers=(layer,), overrides=())
        shifts = rotation.shifts(alone, week.starts_at, week.ends_at, roster.people)
        yield Lane(f"Layer {number}", [_block(week, Span(*shift[:2]), roster[shift.user_id]) for shift in shifts])
    shown = [one for one in schedule.overrides if one.starts_at < week.ends_at and one.ends_at > week.starts_at]
    if shown:
        alone = replace(schedule, layers=(), overrides=tuple(shown))
        shifts = rotation.shifts(alone, week.starts_at, week.ends_at, roster.people)
        yield Lane("Overrides", [_block(week, Span(*shift[:2]), roster[shift.user_id]) for shift in shifts])


def _result(schedule: Schedule, roster: Roster, week: Week) -> Lane:
    return Lane(
        "On call",
        [_block(week, *part) for part in timeline(schedule, roster, week.starts_at, week.ends_at)],
        is_result=True,
    )


def timeline(schedule: Schedule, roster: Roster, start: datetime, end: datetime) -> list[tuple[Span, Person | None]]:
    """Return the shifts from `start` to `end` and the gaps between them, in order."""
    found: list[tuple[Span, Person | None]] = []
    reached = start
    for shift in rotation.shifts(schedule, start, end, roster.people):
        if shift.starts_at > reached:
            found.append((Span(reached, shift.starts_at), None))
        found.append((Span(shift.starts_at, shift.ends_at), roster[shift.user_id]))
        reached = shift.ends_at
    if reached < end:
        found.append((Span(reached, end), None))
    return found


def _block(week: Week, span: Span, person: Person | None) -> Block:
    x, end = week.percent(span.starts_at), week.percent(span.ends_at)
    who = person.email if person else "No one is on call"
    title = f"{who}: {in_words(span.starts_at, week.zone)} to {in_words(span.ends_at, week.zone)}"
    return Block(_percent(x), _percent(end - x), span, person, title)


def _percent(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".") + "%"


def month_of(day: date, zone_name: str) -> list[Week]:
    """Return the weeks that have days of the month."""
    first = monday_of(day.replace(day=1))
    following = (day.replace(day=28) + timedelta(days=4)).replace(day=1)
    count = -(-(following - first).days // DAYS_OF_WEEK)
    return [Week.of(first + timedelta(weeks=number), zone_name) for number in range(count)]


def day_of(at: datetime, zone_name: str) -> date:
    return wall_time(zone_name, at).date()

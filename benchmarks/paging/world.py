"""The world of `benchmarks/oncall.py`: schedules, policies, incidents and what people do, from one seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY, YEAR = 24 * 60, 365 * 24 * 60
EARLIEST = -60 * DAY
"""The first layers start then."""
ZONES = ["Europe/Berlin", "America/New_York", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe"]
SCHEDULES = POLICIES = 10
PEOPLE = [f"person{number}" for number in range(40)]
OWNER = "owner"

Spans = list[tuple[int, int]]
"""Minutes from and to."""


class Page(NamedTuple):
    incident: int
    run: int
    round: int
    step: int
    person: str


@dataclass
class Rules:
    """A policy. `steps`: the wait in minutes, and targets: people and numbers of schedules."""

    steps: list[tuple[int, list[str | int]]]
    repeat: int
    timeout: int


@dataclass
class Outage:
    """An incident: minutes, and what people do to it, in order."""

    policy: int
    start: int
    end: int
    events: list[tuple[int, str]]


@dataclass
class World:
    """All of the simulation but what is computed. Times are minutes since START; layers and overrides as in the API."""

    minutes: int
    zones: list[str]
    layers: list[list[dict[str, Any]]]
    overrides: list[list[dict[str, Any]]]
    policies: list[Rules]
    outages: list[Outage]
    away: dict[str, Spans]
    unreachable: dict[str, Spans]
    muted: list[Spans]
    """Of the incidents of each policy."""
    stopped: Spans
    """When all processes are stopped."""


def is_in(spans: Spans, minute: int) -> bool:
    return any(start <= minute < end for start, end in spans)


def ms(minute: int) -> int:
    return int(START.timestamp() * 1000) + minute * 60_000


def make_world(random: Random, years: float) -> World:
    minutes = int(years * YEAR)

    def spans(per_year: float, least: int, mean: float) -> Spans:
        found, at = [], 0.0
        while (at := at + random.expovariate(per_year / YEAR)) < minutes:
            end = at + least + random.expovariate(1 / mean)
            found.append((int(at), int(end)))
            at = end
        return found

    zones = [ZONES[number % len(ZONES)] for number in range(SCHEDULES)]
    teams = [random.sample(PEOPLE, random.randint(2, 12)) for _ in range(SCHEDULES)]
    return World(
        minutes=minutes,
        zones=zones,
        layers=[
            [make_layer(random, team, zone, minutes, is_first=layer == 0) for layer in range(random.randint(1, 4))]
            for team, zone in zip(teams, zones, strict=True)
        ],
        overrides=[
            [
                {"user_id": random.choice(team), "starts_at": ms(start), "ends_at": ms(end)}
                for start, end in make_overrides(random, minutes)
            ]
            for team in teams
        ],
        policies=[make_policy(random, number) for number in range(POLICIES)],
        outages=sorted(make_outages(random, minutes), key=lambda outage: outage.start),
        away={person: spans(0.3, DAY, 300 * DAY) for person in PEOPLE},
        unreachable={person: spans(1, 10, 5 * DAY) for person in PEOPLE},
        muted=[spans(6, 10, 200) for _ in range(POLICIES)],
        stopped=spans(20, 1, 120),
    )


def make_layer(random: Random, team: list[str], zone: str, minutes: int, *, is_first: bool) -> dict[str, Any]:
    unit, most = random.choice([("hour", 168), ("day", 14), ("day", 1), ("week", 4)])
    hours = []
    for _ in range(random.randint(0 if is_first else 1, 2)):
        start, end = random.randrange(DAY), random.choice([0, 120, 150, 480, random.randrange(DAY)])
        times = [f"{minute // 60:02}:{minute % 60:02}" for minute in (start, end)]
        days = sorted(random.sample(range(1, 8), random.randint(1, 7)))
        hours.append({"days": days, "from": times[0], "to": times[1]})
    start = random.choice([EARLIEST, random.randrange(EARLIEST, minutes)]) + random.randrange(DAY)
    if random.random() < 0.5:  # hand over within the hours that clocks skip or repeat
        day = (START + timedelta(minutes=start + DAY)).astimezone(ZoneInfo(zone)).replace(hour=0, minute=0)
        start = (day + timedelta(minutes=random.randrange(60, 180)) - START) // timedelta(minutes=1)
    return {
        "user_ids": [random.choice(team) for _ in range(random.randint(1, 8))],
        "every": {
            "unit": unit,
            "count": random.choice([1, random.randint(1, most)]),
        },
        "starts_at": ms(start),
        "hours": hours,
    }


def make_overrides(random: Random, minutes: int) -> Iterator[tuple[int, int]]:
    for _ in range(20 * minutes // YEAR):
        start = random.randrange(minutes)
        yield start, start + random.randint(1, random.choice([60, DAY, 7 * DAY]))


def make_policy(random: Random, number: int) -> Rules:
    def target() -> str | int:
        return random.choice(PEOPLE) if random.random() < 0.3 else random.randrange(SCHEDULES)

    steps = [
        (random.randint(0, 60) if step else random.choice([0, 0, 5]), [target() for _ in range(random.randint(1, 3))])
        for step in range(random.randint(1, 5))
    ]
    steps[0][1][0] = number  # each schedule is used
    return Rules(steps, repeat=random.choice([0, 0, 1, 3]), timeout=random.choice([0, 30, 120]))


def make_outages(random: Random, minutes: int) -> Iterator[Outage]:
    for policy in range(POLICIES):
        at = 0
        while (at := at + 1 + int(random.expovariate(1 / (0.8 * DAY)))) < minutes:
            end = at + 1 + int(random.expovariate(1 / random.choice([10, 60, 400])))
            events = [
                (random.randrange(at, end), random.choice(["acknowledge", "acknowledge", "unacknowledge", "escalate"]))
                for _ in range(random.choice([0, 1, 1, 2, 5]))
            ]
            yield Outage(policy, at, end, sorted(events))
            at = end

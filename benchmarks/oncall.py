"""Simulate years of incidents that are escalated while processes are killed, and compare every page with an oracle.

    python benchmarks/oncall.py [--years 10] [--seed 1]

Ten schedules in five time zones, with layers, hours, overrides and people who leave, return or cannot be reached; ten
escalation policies with about 1.2 incidents a day each, which are acknowledged, taken back and escalated by hand. The
engine decides with `oncall.rotation` and `oncall.escalation`, and stores progress and pages in one transaction. Its
processes are killed at any of three points, and another one goes on 5 s later:

- between a decision and its transaction: the decision is lost and made again;
- after the transaction, before its pages are sent: another process sends them;
- after a page was sent, before that is stored: it is sent again, and the receiver drops it by its key.

Twenty times a year all processes are stopped for minutes to hours, and everything late is decided and sent afterwards.

The oracle walks the wall clock of each zone minute by minute, counts hand-overs as it sees them, and counts down the
waits of each incident. It shares no code with the engine. Around each change of the clock it also compares every minute
with `shifts`; otherwise every 61st.

The last line is one JSON object: `pages` (expected), `wrong` (a page that is not expected, or a minute in which the
wrong person is on call), `lost`, `duplicates` (a page that was decided and stored twice) and `late` (sent more than
15 s after it was due, or after processes were back). Exits 1 if any but `pages` is not 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from datetime import timedelta
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.paging.engine import Engine
from benchmarks.paging.oracle import Oracle
from benchmarks.paging.world import DAY, PEOPLE, START, Page, is_in, make_world
from oncall import rotation

MOST_LATE_SEC = 15
SAMPLE_MIN = 61


class Shifts:
    """Compares `shifts` of a schedule with the oracle: each minute around changes of the clock, otherwise some."""

    def __init__(self, schedule: rotation.Schedule, number: int) -> None:
        self.schedule, self.number, self.zone = schedule, number, ZoneInfo(schedule.zone)
        self.present: set[str] = set()
        self.ahead: deque[rotation.Shift] = deque()
        self.until = self.compared = self.wrong = 0
        self.is_near_change = False

    def compare(self, oracle: Oracle, minute: int) -> None:
        at = START + timedelta(minutes=minute)
        if minute >= self.until:
            self.until = minute + 90 * DAY
            self.present = {person for person in PEOPLE if not is_in(oracle.world.away[person], minute)}
            self.ahead = deque(rotation.shifts(self.schedule, at, at + timedelta(days=90), self.present))
        if minute % 60 == 0:
            before, after = ((at + timedelta(hours=hours)).astimezone(self.zone).utcoffset() for hours in (-24, 6))
            self.is_near_change = before != after
        if not self.is_near_change and minute % SAMPLE_MIN:
            return
        while self.ahead and self.ahead[0].ends_at <= at:
            self.ahead.popleft()
        found = self.ahead[0].user_id if self.ahead and self.ahead[0].starts_at <= at else None
        self.compared += 1
        self.wrong += found != oracle.on_call(self.number, minute, self.present)


def simulate(years: float, seed: int) -> dict[str, int]:
    """Return the counts of the last line."""
    world = make_world(Random(seed), years)
    engine = Engine(world, Random(seed + 1))
    engine.run()
    oracle = Oracle(world)
    shifts = [Shifts(schedule, number) for number, schedule in enumerate(engine.schedules)]
    for minute in oracle.walk():
        for each in shifts:
            each.compare(oracle, minute)
    first: dict[Page, float] = {}
    for page, second in engine.sent:
        first.setdefault(page, second)
    repeated = len(engine.sent) - len(first)
    print(f"{len(world.outages)} incidents, {len(engine.sent)} messages; the receivers drop {repeated} of them")
    print(f"{sum(each.compared for each in shifts)} minutes of schedules compared")
    return {
        "pages": len(oracle.pages),
        "wrong": len(first.keys() - oracle.pages.keys()) + sum(each.wrong for each in shifts),
        "lost": len(oracle.pages.keys() - first.keys()),
        "duplicates": engine.twice,
        "late": sum(
            not 0 <= second - oracle.pages[page] * 60 <= MOST_LATE_SEC
            for page, second in first.items()
            if page in oracle.pages
        ),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--years", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    counts = simulate(given.years, given.seed)
    print(json.dumps(counts))
    return 0 if not any(count for name, count in counts.items() if name != "pages") else 1


if __name__ == "__main__":
    sys.exit(main())

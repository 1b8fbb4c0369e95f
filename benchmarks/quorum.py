"""Simulate the rules that decide whether an outage is alerted: how many false alarms, how late, at how many checks.

    python benchmarks/quorum.py [--years 10] [--seed 1]

One monitor, checked every 60 s in turn from one, three or five locations. A failure is verified by the others and
decided by `monitors.quorum.decide`; `monitors.state` counts it. The world of the simulation, the same for all rows:

- the target is down 24 times a year: half of the outages last 10 to 120 s, the others 22 minutes on average;
- each location has 30 faults of its own network a year, of 3 minutes on average;
- the first two locations share a provider, with a fault every five years, also of 3 minutes on average;
- one check in 100,000 fails without a reason.

False alarms are confirmed while the target was not down since the first failure that counted. Detection is the time
from the start of an outage to its alarm, for outages of at least 2 minutes, in seconds. `short` are the alarms of
outages below 2 minutes, per year.

The last line is one JSON object: of three locations with the defaults `false_alarms_per_year` and `checks_ratio`
(checks for each slot), and of all rows `alerts_for_short_outages`, which are shorter than `confirmation_sec`. Exits 1
if one misses its goal (0.2, 1.05 and 0).
"""

from __future__ import annotations

import argparse
import json
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from statistics import quantiles

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from checks.spec import CheckOutcome, Verdict
from monitors.quorum import Decision, Vote, decide
from monitors.state import Policy, Status, advance, confirm_at

START = datetime(2026, 1, 1, tzinfo=UTC)
YEAR_SEC = 365 * 86_400
INTERVAL_SEC = 60
PATIENCE = timedelta(seconds=15)
"""How long a vote may take: a timeout of 10 s and 5 s."""
SHORT_SEC = 120
MOST_FALSE, MOST_CHECKS = 0.2, 1.05
NO_REASON = 1e-5

Faults = Sequence[tuple[float, float]]
"""Seconds from and to, in order and apart from each other."""


def faults(random: Random, *, years: float, per_year: float, lengths: Sequence[tuple[float, float]]) -> Faults:
    """Return faults; the length of each is the least plus an exponential or, if below zero, a uniform random part."""
    found: list[tuple[float, float]] = []
    at = random.expovariate(per_year / YEAR_SEC)
    while at < years * YEAR_SEC:
        least, more = random.choice(lengths)
        end = at + least + (random.expovariate(1 / more) if more > 0 else random.uniform(0, -more))
        found.append((at, end))
        at = end + random.expovariate(per_year / YEAR_SEC)
    return found


def active(periods: Faults, at: float) -> tuple[float, float] | None:
    place = bisect_right(periods, (at, float("inf"))) - 1
    return periods[place] if place >= 0 and at < periods[place][1] else None


def next_start(periods: Faults, at: float) -> float:
    place = bisect_right(periods, (at, float("inf")))
    return periods[place][0] if place < len(periods) else float("inf")


@dataclass
class World:
    target: Faults
    places: Sequence[Sequence[Faults]]
    """Of each location: its own faults, and those that it shares."""


def world(random: Random, *, years: float) -> World:
    shared = faults(random, years=years, per_year=0.2, lengths=[(0, 180)])
    target = faults(random, years=years, per_year=24, lengths=[(10, -110), (120, 1200)])
    own = [faults(random, years=years, per_year=30, lengths=[(0, 180)]) for _ in range(5)]
    return World(target, [[each, shared] if place < 2 else [each] for place, each in enumerate(own)])


@dataclass
class Found:
    slots: int = 0
    checks: int = 0
    false_alarms: int = 0
    short: int = 0
    shorter: int = 0
    """Alarms of outages that were shorter than `confirmation_sec`."""
    delays: list[float] = field(default_factory=list)


def simulate(world: World, random: Random, policy: Policy, *, locations: int, years: float) -> Found:
    found, status, turn, at = Found(), Status(status=Verdict.UP, fresh=False), 0, 0.0
    places = [[world.target, *world.places[number]] for number in range(locations)]
    watched = [world.target, *(each for place in places for each in place[1:])]

    def fails(place: int, moment: float) -> bool:
        return any(active(periods, moment) for periods in places[place]) or random.random() < NO_REASON

    without_reason = int(random.expovariate(NO_REASON))
    while at < years * YEAR_SEC:
        is_quiet = status.status is Verdict.UP and not status.failures and not any(active(one, at) for one in watched)
        if is_quiet:  # pass over the checks that pass
            quiet_until = min(years * YEAR_SEC, *(next_start(one, at) for one in watched))
            ahead = min(int((quiet_until - at) // INTERVAL_SEC) + 1, without_reason)
            if ahead > 0:
                found.slots, found.checks, turn = found.slots + ahead, found.checks + ahead, turn + ahead
                without_reason -= ahead
                at += ahead * INTERVAL_SEC
                continue
            without_reason = int(random.expovariate(NO_REASON))
            failed = True
        else:
            failed = fails(turn % locations, at)
        found.slots, found.checks = found.slots + 1, found.checks + 1
        now = START + timedelta(seconds=at)
        due = at + INTERVAL_SEC
        if not failed or _counts(turn, now, found, locations, partial(fails, moment=at + 1)):
            outcome = CheckOutcome(verdict=Verdict.DOWN if failed else Verdict.UP, checked_at=now)
            before = status
            status, change = advance(status, outcome, policy)
            if change is not None and change.after is Verdict.DOWN:
                assert change.failing_since is not None
                _judge(world, found, policy, began=(change.failing_since - START).total_seconds(), at=at)
            if status.failures > before.failures and (early := confirm_at(status, now, policy)) is not None:
                due = min(due, (early - START).total_seconds())
        turn, at = turn + 1, due
    return found


def _counts(turn: int, now: datetime, found: Found, locations: int, fails: Callable[[int], bool]) -> bool:
    """Ask the other locations. Return whether the failure counts."""
    own = turn % locations
    others = [place for place in range(locations) if place != own]
    found.checks += len(others)
    later = now + timedelta(seconds=1)
    votes = [Vote(str(own), failed=True, at=now)]
    votes += [Vote(str(place), failed=fails(place), at=later) for place in others]
    asked = {str(place) for place in others}
    decision = decide(votes, asked=asked, began=now, ends=now + PATIENCE, now=later, quorum=None)
    assert decision is not Decision.WAITING
    return decision is not Decision.REFUTED


def _judge(world: World, found: Found, policy: Policy, *, began: float, at: float) -> None:
    outage = active(world.target, at)
    if outage is None or began < outage[0]:
        found.false_alarms += 1
        return
    length = outage[1] - outage[0]
    if length < SHORT_SEC:
        found.short += 1
    else:
        found.delays.append(at - outage[0])
    if policy.confirmation is not None and length < policy.confirmation.total_seconds():
        found.shorter += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--years", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    happened = world(Random(options.seed), years=options.years)
    print("locations threshold confirmation  false/year  p50  p95  checks/slot  short/year")
    summary: dict[str, float] = {}
    shorter = 0
    for locations, threshold, confirmation in product((1, 3, 5), (1, 2, 3), (None, 0, 30, 60)):
        length = None if confirmation is None else timedelta(seconds=confirmation)
        policy = Policy(threshold, confirmation=length)
        found = simulate(happened, Random(options.seed), policy, locations=locations, years=options.years)
        false, ratio = found.false_alarms / options.years, found.checks / found.slots
        delays = quantiles(found.delays, n=20, method="inclusive") if len(found.delays) > 1 else [0.0] * 19
        print(
            f"{locations:9} {threshold:9} {'-' if confirmation is None else confirmation:>12}  {false:10.2f} "
            f"{delays[9]:4.0f} {delays[18]:4.0f} {ratio:12.3f} {found.short / options.years:11.1f}"
        )
        shorter += found.shorter
        if (locations, threshold, confirmation) == (3, 3, None):
            summary = {"false_alarms_per_year": round(false, 3), "checks_ratio": round(ratio, 4)}
    is_met = summary["false_alarms_per_year"] <= MOST_FALSE and summary["checks_ratio"] <= MOST_CHECKS and not shorter
    print(json.dumps(summary | {"alerts_for_short_outages": shorter, "goal_met": is_met}))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())

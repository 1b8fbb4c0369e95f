"""What happens when in a run, decided by its seed beforehand. Pure.

Times are seconds since the run's start. Kills come in bouts, each followed by a calm that is long enough for every
monitor to be checked again: longer than an interval, a lease, and the time that processes take to start. A state
of a target is held until a whole calm lies within it, so whoever watches must have seen it, whatever was killed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

INTERVAL_SEC = 2
TIMEOUT_MS = 2_000
PING_SEC = 3.0
GRACE_SEC = 10
HEARTBEAT_SEC = 3  # with the grace: a job may be late by four pings, as it is while the web process starts
DEADLINE_SEC = HEARTBEAT_SEC + GRACE_SEC
LEASE_SEC = 30 + TIMEOUT_MS / 1000
SLACK_SEC = 4.0  # a tick, a probe, and a busy machine
WITHIN_SEC = INTERVAL_SEC + LEASE_SEC + SLACK_SEC  # after a recovery every monitor is checked by then
STARTING_SEC = 14.0  # what the processes of one machine have to start in, after the last kill of a bout
MANY_STARTING_SEC = 30.0  # and those of several trees
BOUT_SEC = 20.0
STOP_SEC = 36.0  # a stop of ours by decision 36 is longer than 30 s

SERVERS = ("postgres", "valkey")
# Of five deaths of servers in a minute their keeper gives up, as it should.
_SERVER_KILLS, _SERVER_WINDOW_SEC = 4, 65.0


@dataclass(frozen=True)
class Flip:
    """From then on the target is up (or the heartbeat pinged), or is not."""

    at: float
    up: bool


@dataclass(frozen=True)
class Part:
    """One monitor's: `flips` begin with its first state, at 0. `down` is how its target is down."""

    number: int
    kind: str  # http, scheduler or heartbeat
    flips: tuple[Flip, ...]
    delay_sec: float = 0.0
    down: str = "error"  # error, reset or hang
    fail_threshold: int = 1

    def is_up(self, at: float) -> bool:
        return [flip.up for flip in self.flips if flip.at <= at or flip is self.flips[0]][-1]

    def states(self, start: float, end: float) -> set[bool]:
        """All that it was between the two."""
        return {self.is_up(start)} | {flip.up for flip in self.flips if start <= flip.at <= end}


@dataclass(frozen=True)
class Blow:
    """`victim` is a process, a server or a host; `back_after` seconds later it is started again.

    `way`: kill outright, terminate, as a restart does, or renew: terminate, and start its next version.
    """

    at: float
    victim: str
    way: str = "kill"
    back_after: float = 0.0


@dataclass(frozen=True)
class Bout:
    start: float
    end: float
    calm_end: float
    blows: tuple[Blow, ...]


@dataclass(frozen=True)
class Script:
    seed: int
    seconds: float
    parts: tuple[Part, ...]
    bouts: tuple[Bout, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def part_from_json(given: dict[str, Any]) -> Part:
    return Part(**given | {"flips": tuple(Flip(**flip) for flip in given["flips"])})


def write_script(
    seed: int,
    *,
    seconds: float,
    monitors: int,
    victims: dict[str, list[str]],
    renewals: Sequence[Sequence[str]] = (),
    starting_sec: float = STARTING_SEC,
) -> Script:
    """`victims` are the names of what may be killed, by kind. A run shorter than a bout is one bout.

    `renewals` are the names of those that are renewed in the first bout, in the second, and so on: there are at least
    as many bouts.
    """
    dice = random.Random(seed)
    bouts = _bouts(dice, seconds, victims, starting_sec + WITHIN_SEC)
    if len(bouts) < len(renewals):
        raise ValueError(f"{seconds:g} s are {len(bouts)} bouts, and {len(renewals)} are needed")
    bouts = (*map(_with_renewals, bouts, renewals), *bouts[len(renewals) :])
    return Script(seed, seconds, tuple(_part(dice, number, bouts) for number in range(monitors)), bouts)


def _with_renewals(bout: Bout, names: Sequence[str]) -> Bout:
    """One by one, evenly over the bout."""
    step = (bout.end - bout.start) / max(len(names), 1)
    blows = [Blow(bout.start + index * step, name, "renew") for index, name in enumerate(names)]
    return replace(bout, blows=(*bout.blows, *blows))


def _bouts(
    dice: random.Random, seconds: float, victims: dict[str, list[str]], calm_sec: float
) -> tuple[Bout, ...]:
    bouts: list[Bout] = []
    servers: list[float] = []  # when one was killed
    start = 1.0
    while start < seconds:
        length = min(BOUT_SEC, seconds - start)
        blows = _blows(dice, start, start + length, victims, servers)
        end = start + length
        if len(bouts) % 3 == 1:
            # Once in a while the scheduler is away for longer than decision 36 lets pass.
            blows += [Blow(end, beat, back_after=STOP_SEC) for beat in victims["beat"]]
            end += STOP_SEC
        bouts.append(Bout(start, end, end + calm_sec, tuple(blows)))
        start = end + calm_sec
    return tuple(bouts)


def _blows(
    dice: random.Random, start: float, end: float, victims: dict[str, list[str]], servers: list[float]
) -> list[Blow]:
    blows: list[Blow] = []
    left: list[str] = []
    at = start
    while at < end:
        if not left:  # each has its turn before anyone has a second one
            # Who holds claims and who sends alerts die twice.
            left = [*victims, "worker", "interactive", *SERVERS]
            dice.shuffle(left)
        kind = left.pop()
        if kind in SERVERS:
            if sum(at - before < _SERVER_WINDOW_SEC for before in servers) < _SERVER_KILLS:
                servers.append(at)
                blows.append(Blow(at, kind))
        else:
            way = "terminate" if kind == "worker" and dice.random() < 0.3 else "kill"
            away = dice.uniform(2.0, 5.0) if kind == "host" else dice.uniform(0.1, 1.5)
            blows.append(Blow(at, dice.choice(victims[kind]), way, back_after=away))
        at += dice.uniform(0.8, 2.5)
    return blows


def _part(dice: random.Random, number: int, bouts: tuple[Bout, ...]) -> Part:
    kind = {0: "heartbeat", 1: "scheduler", 2: "scheduler"}.get(number % 10, "http")
    if kind == "scheduler":
        # Slow, so that a killed worker leaves some that were fired and never answered for.
        delay = dice.uniform(0.2, 1.0)
        return Part(number, kind, (Flip(0.0, up=True),), delay_sec=delay, fail_threshold=3)
    up = True if kind == "heartbeat" else dice.random() < 0.8
    flips = [Flip(0.0, up=up)]
    # A silence is seen when its deadline has passed.
    unseen = DEADLINE_SEC if kind == "heartbeat" else 0.0
    earliest = 0.0
    while bouts:
        at = dice.uniform(earliest, earliest + BOUT_SEC)
        if at > bouts[-1].end:
            break
        up = not up
        flips.append(Flip(at, up=up))
        seen = at + (unseen if not up else 0.0)
        calm = next((bout for bout in bouts if bout.end >= seen), None)
        if calm is None:
            break
        earliest = calm.calm_end
    return Part(
        number,
        kind,
        tuple(flips),
        delay_sec=dice.choice([0.0, 0.02, dice.uniform(0.0, 0.5)]),
        down=dice.choice(["error", "error", "reset", "hang"]),
        fail_threshold=dice.choice([1, 2]),
    )

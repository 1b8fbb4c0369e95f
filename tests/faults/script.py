"""The schedule of a run, derived from its seed. Pure.

Times are seconds since the start of the run. Faults come in bursts. Each burst is followed by a calm that is long
enough to check every monitor again: longer than an interval, a lease and the start of the processes together. A target
keeps its state until one whole calm has passed, so the state must be recorded regardless of what was killed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

INTERVAL_SEC = 2
TIMEOUT_MS = 2_000
PING_SEC = 3.0
GRACE_SEC = 10
HEARTBEAT_SEC = 3  # plus grace: a job may miss four pings while the web process starts
DEADLINE_SEC = HEARTBEAT_SEC + GRACE_SEC
LEASE_SEC = 30 + TIMEOUT_MS / 1000
MINUTE_SEC = 60
CRON_DEADLINE_SEC = MINUTE_SEC + GRACE_SEC
SLACK_SEC = 4.0  # a tick, a probe and a busy machine
WITHIN_SEC = INTERVAL_SEC + LEASE_SEC + SLACK_SEC  # every monitor is checked again this soon after a recovery
STARTING_SEC = 14.0  # for the processes of one machine to start after the last fault of a burst
MANY_STARTING_SEC = 30.0  # the same for several hosts
BURST_SEC = 20.0
STOP_SEC = 36.0  # a gap of more than 30 s counts as a scheduler stop and moves heartbeat deadlines

CHILDREN = 27

SERVERS = ("postgres", "valkey")
HISTORY = "history"
"""The second PostgreSQL of a run with SEPARATE."""
# The server supervisor gives up after five deaths in a minute.
_SERVER_KILLS, _SERVER_WINDOW_SEC = 4, 65.0


@dataclass(frozen=True)
class Flip:
    """From `at` on the target is up (or the heartbeat is pinged), or not."""

    at: float
    up: bool


@dataclass(frozen=True)
class Part:
    """The schedule of one monitor. `flips` begin with its state at 0. `down`: how its target fails."""

    number: int
    kind: str  # http, scheduler or heartbeat
    flips: tuple[Flip, ...]
    delay_sec: float = 0.0
    down: str = "error"  # error, reset or hang
    fail_threshold: int = 1
    confirmation_sec: int | None = None
    cron: bool = False  # it is due every minute by a cron schedule
    reports: bool = False  # the job reports its failure when it goes down, instead of only falling silent
    parent: int | None = None  # the part that it depends on, whose states it has too

    @property
    def is_escalated(self) -> bool:
        """Return whether its outages go the way of an escalation policy."""
        return self.kind == "http" and self.parent is None and self.number % 10 in (5, 7)

    def is_up(self, at: float) -> bool:
        return [flip.up for flip in self.flips if flip.at <= at or flip is self.flips[0]][-1]

    def states(self, start: float, end: float) -> set[bool]:
        """Return all states between `start` and `end`."""
        return {self.is_up(start)} | {flip.up for flip in self.flips if start <= flip.at <= end}


@dataclass(frozen=True)
class Fault:
    """Stop a process, server or host, and start it again `restart_after` seconds later.

    `action`: kill, terminate as a deployment does, or replace by the new version.
    """

    at: float
    victim: str
    action: str = "kill"
    restart_after: float = 0.0


@dataclass(frozen=True)
class Burst:
    start: float
    end: float
    calm_end: float
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Script:
    seed: int
    seconds: float
    parts: tuple[Part, ...]
    bursts: tuple[Burst, ...]

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
    starting_sec: float = STARTING_SEC,
    replaced: Sequence[Sequence[str]] = (),
    children: int = CHILDREN,
    servers: Sequence[str] = SERVERS,
) -> Script:
    """Return the schedule. `victims` are the names of processes and hosts that may be killed, by kind.

    `children` depend on one of each hundred parts, or of more if they are more than 50. If there are processes to
    replace, by burst, nothing is killed. Otherwise a run shorter than BURST_SEC is one burst.
    """
    dice = random.Random(seed)
    calm_sec = starting_sec + WITHIN_SEC
    if replaced:
        bursts = _replacements(seconds, replaced, calm_sec)
    else:
        bursts = _bursts(dice, seconds, victims, calm_sec, servers)
    parts = [_part(dice, number, bursts) for number in range(monitors)]
    return Script(seed, seconds, _families(parts, children), bursts)


def _families(parts: Sequence[Part], children: int) -> tuple[Part, ...]:
    """Let others depend on some of the parts: they are up and down with their parent, and fail in their own ways."""
    found = [*parts]
    size = 100 * ceil(children / 50)
    for parent in parts[3::size]:
        following = parts[parent.number + 1 : parent.number - 3 + size]
        for part in [part for part in following if part.kind == "http"][:children]:
            found[part.number] = replace(part, flips=parent.flips, parent=parent.number)
    return tuple(found)


def _bursts(
    dice: random.Random, seconds: float, victims: dict[str, list[str]], calm_sec: float, servers: Sequence[str]
) -> tuple[Burst, ...]:
    bursts: list[Burst] = []
    killed: list[float] = []  # when a server was
    start = 1.0
    while start < seconds:
        length = min(BURST_SEC, seconds - start)
        faults = _faults(dice, start, start + length, victims, servers, killed)
        end = start + length
        if len(bursts) % 3 == 1:
            # Sometimes the scheduler stops long enough for heartbeat deadlines to move.
            faults += [Fault(end, beat, restart_after=STOP_SEC) for beat in victims["beat"]]
            end += STOP_SEC
        bursts.append(Burst(start, end, end + calm_sec, tuple(faults)))
        start = end + calm_sec
    return tuple(bursts)


def _replacements(seconds: float, replaced: Sequence[Sequence[str]], calm_sec: float) -> tuple[Burst, ...]:
    """Replace one process after the other. All bursts together take `seconds`, without their calms."""
    bursts: list[Burst] = []
    length = seconds / len(replaced)
    for names in replaced:
        start = bursts[-1].calm_end if bursts else 1.0
        pause = length / len(names)
        faults = [Fault(start + number * pause, name, "replace") for number, name in enumerate(names)]
        bursts.append(Burst(start, start + length, start + length + calm_sec, tuple(faults)))
    return tuple(bursts)


def _faults(
    dice: random.Random,
    start: float,
    end: float,
    victims: dict[str, list[str]],
    servers: Sequence[str],
    killed: list[float],
) -> list[Fault]:
    faults: list[Fault] = []
    left: list[str] = []
    at = start
    while at < end:
        if not left:  # every kind gets its turn before a second one
            # Processes that hold claims or send alerts are killed twice.
            left = [*victims, "worker", "interactive", *servers]
            dice.shuffle(left)
        kind = left.pop()
        if kind in servers:
            if sum(at - before < _SERVER_WINDOW_SEC for before in killed) < _SERVER_KILLS:
                killed.append(at)
                faults.append(Fault(at, kind))
        else:
            action = "terminate" if kind == "worker" and dice.random() < 0.3 else "kill"
            away = dice.uniform(2.0, 5.0) if kind == "host" else dice.uniform(0.1, 1.5)
            faults.append(Fault(at, dice.choice(victims[kind]), action, restart_after=away))
        at += dice.uniform(0.8, 2.5)
    return faults


def _part(dice: random.Random, number: int, bursts: tuple[Burst, ...]) -> Part:
    kind = {0: "heartbeat", 1: "scheduler", 2: "scheduler"}.get(number % 10, "http")
    if kind == "scheduler":
        # Slow, so that a killed worker leaves triggers that were sent but not recorded.
        delay = dice.uniform(0.2, 1.0)
        return Part(number, kind, (Flip(0.0, up=True),), delay_sec=delay, fail_threshold=3, cron=number % 20 == 11)
    up = True if kind == "heartbeat" else dice.random() < 0.8
    flips = [Flip(0.0, up=up)]
    # A missed ping is noticed when its deadline has passed.
    cron = kind == "heartbeat" and number % 40 == 20
    unseen = (CRON_DEADLINE_SEC if cron else DEADLINE_SEC) if kind == "heartbeat" else 0.0
    earliest = 0.0
    while bursts:
        at = dice.uniform(earliest, earliest + BURST_SEC)
        if at > bursts[-1].end:
            break
        up = not up
        flips.append(Flip(at, up=up))
        seen = at + (unseen if not up else 0.0)
        calm = next((burst for burst in bursts if burst.end >= seen), None)
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
        confirmation_sec=dice.choice([None, None, 0, 3]),
        cron=cron,
        reports=kind == "heartbeat" and number % 40 == 10,
    )

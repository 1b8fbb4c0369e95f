"""An oracle that walks the clock minute by minute. It shares no code with the engine and the product."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from benchmarks.paging.world import DAY, EARLIEST, OWNER, PEOPLE, START, ZONES, Outage, Page, Rules, World, is_in, ms


@dataclass
class Walker:
    """A layer, for an observer who looks at the clock each minute."""

    layer: dict[str, Any]
    turn: int = -1
    next_hand_over: int = 0

    def __post_init__(self) -> None:
        unit, count = self.layer["every"]["unit"], self.layer["every"]["count"]
        self.goes_by_wall = unit != "hour"
        self.length = count * {"hour": 60, "day": DAY, "week": 7 * DAY}[unit]
        self.first = self.layer["starts_at"] // 60_000

    def look(self, minute: int, wall: int) -> None:
        """Count a hand-over when the clock shows its time, or a later one. Minutes count from 1970, or year 1."""
        shown = wall if self.goes_by_wall else minute
        if self.turn < 0:
            if minute < self.first:
                return
            self.next_hand_over = shown
        while shown >= self.next_hand_over:
            self.turn += 1
            self.next_hand_over += self.length

    def whose(self, wall: int, present: set[str]) -> str | None:
        if self.turn < 0 or not self.is_open(wall):
            return None
        users = self.layer["user_ids"]
        place = self.turn % len(users)
        for person in users[place:] + users[:place]:
            if person in present:
                return str(person)
        return None

    def is_open(self, wall: int) -> bool:
        if not self.layer["hours"]:
            return True
        clock = f"{wall % DAY // 60:02}:{wall % 60:02}"
        today, yesterday = ((wall // DAY - ago) % 7 or 7 for ago in (0, 1))  # day 1 was a Monday
        for row in self.layer["hours"]:
            if row["from"] < row["to"]:
                if today in row["days"] and row["from"] <= clock < row["to"]:
                    return True
            elif (today in row["days"] and clock >= row["from"]) or (yesterday in row["days"] and clock < row["to"]):
                return True
        return False


@dataclass
class Watch:
    """An open incident, for an observer who counts down its waits."""

    outage: Outage
    number: int
    left: int = 0
    run: int = 0
    todo: list[tuple[int, int, int]] = field(default_factory=list)
    is_acknowledged: bool = False
    may_expire: bool = False
    anyone: bool = False

    def restart(self, rules: Rules, left: int) -> None:
        rounds = range(rules.repeat + 1)
        self.todo = [(number, step, wait) for number in rounds for step, (wait, _) in enumerate(rules.steps)]
        self.left, self.is_acknowledged, self.anyone = left + self.todo[0][2], False, False


class Oracle:
    """`pages`: the expected ones, and their minutes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pages: dict[Page, int] = {}
        self.walkers = [[Walker(layer) for layer in layers] for layers in world.layers]
        self.walls = [0] * len(world.zones)
        self.open: dict[int, Watch] = {}

    def walk(self) -> Iterator[int]:
        """Play minute by minute; yield each."""
        zones = {name: ZoneInfo(name) for name in ZONES}
        beginning, stopped = deque(enumerate(self.world.outages)), deque(self.world.stopped)
        epoch, at = ms(0) // 60_000, START + timedelta(minutes=EARLIEST)
        for minute in range(EARLIEST, self.world.minutes):
            walls = {}
            for name, zone in zones.items():
                local = at.astimezone(zone)
                walls[name] = local.toordinal() * DAY + local.hour * 60 + local.minute
            at += timedelta(minutes=1)
            self.walls = [walls[name] for name in self.world.zones]
            for wall, walkers in zip(self.walls, self.walkers, strict=True):
                for walker in walkers:
                    walker.look(epoch + minute, wall)
            if minute < 0:
                continue
            while stopped and stopped[0][1] <= minute:
                stopped.popleft()
            is_stopped = bool(stopped) and stopped[0][0] <= minute
            if self.open or (beginning and beginning[0][1].start <= minute):
                self._play(minute, beginning, is_stopped=is_stopped)
            yield minute

    def _play(self, minute: int, beginning: deque[tuple[int, Outage]], *, is_stopped: bool) -> None:
        for watch in self.open.values():
            watch.left -= 1
        if is_stopped:
            return
        for number in [number for number, watch in self.open.items() if watch.outage.end <= minute]:
            del self.open[number]
        while beginning and beginning[0][1].start <= minute:
            number, outage = beginning.popleft()
            if outage.end > minute:
                watch = self.open[number] = Watch(outage, number)
                watch.restart(self.world.policies[outage.policy], 0)
        for number in sorted(self.open):
            watch = self.open[number]
            rules = self.world.policies[watch.outage.policy]
            for when, what in watch.outage.events:
                if when == minute:
                    self._touch(watch, rules, what, minute)
        for number in sorted(self.open):
            watch = self.open[number]
            rules = self.world.policies[watch.outage.policy]
            if watch.is_acknowledged and watch.may_expire and watch.left <= 0:
                watch.run += 1
                watch.restart(rules, watch.left)
            is_due = not watch.is_acknowledged and bool(watch.todo) and watch.left <= 0
            for start, end in self.world.muted[watch.outage.policy] if is_due else ():
                if start <= minute < end:
                    watch.left = end - minute
            while not watch.is_acknowledged and watch.todo and watch.left <= 0:
                self._page(watch, rules, minute)

    def _touch(self, watch: Watch, rules: Rules, what: str, minute: int) -> None:
        if what == "acknowledge" and not watch.is_acknowledged:
            watch.is_acknowledged, watch.may_expire, watch.left = True, rules.timeout > 0, rules.timeout
        elif what == "unacknowledge" and watch.is_acknowledged:
            watch.run += 1
            watch.restart(rules, 0)
        elif what == "escalate" and not watch.is_acknowledged and watch.todo:
            watch.left = 0
            self._page(watch, rules, minute)

    def _page(self, watch: Watch, rules: Rules, minute: int) -> None:
        number, step, _ = watch.todo.pop(0)
        here = {person for person in PEOPLE if not is_in(self.world.away[person], minute)}
        targets = rules.steps[step][1]
        named = {self.on_call(each, minute, here) if isinstance(each, int) else each for each in targets}
        people = {each for each in named if each in here and not is_in(self.world.unreachable[each], minute)}
        for person in people:
            self.pages[Page(watch.number, watch.run, number, step, person)] = minute
        watch.anyone |= bool(people)
        if not people and not watch.anyone and step == len(rules.steps) - 1:
            self.pages[Page(watch.number, watch.run, 0, 0, OWNER)] = minute
            watch.todo = []
        elif watch.todo and (people or number > 0):
            watch.left += watch.todo[0][2]

    def on_call(self, schedule: int, minute: int, present: set[str]) -> str | None:
        moment = ms(minute)
        winner: str | None = None
        for row in self.world.overrides[schedule]:
            if row["starts_at"] <= moment < row["ends_at"] and row["user_id"] in present:
                winner = str(row["user_id"])
        if winner is None:
            for walker in self.walkers[schedule]:
                winner = walker.whose(self.walls[schedule], present) or winner
        return winner

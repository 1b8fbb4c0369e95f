"""An engine that escalates as the product does, with its functions, and is killed. Its database is in memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from benchmarks.paging.world import OWNER, PEOPLE, START, Page, World, is_in
from oncall import escalation, rotation
from oncall.escalation import Action, Plan, Progress, State, Step

KILLED = 0.03
"""Share of decisions and of sent pages at which the process is killed. A new one runs 5 s later."""
RESTART_SEC, MOST_KILLS = 5, 3


@dataclass
class Stored:
    """The database: what survives a kill."""

    progress: dict[int, Progress] = field(default_factory=dict)
    pages: set[Page] = field(default_factory=set)
    unsent: list[Page] = field(default_factory=list)


class KilledError(Exception):
    """The process was killed."""


@dataclass
class Engine:
    """`sent`: the pages and their seconds. `twice`: how often a page was stored again, which a key would refuse."""

    world: World
    random: Random
    stored: Stored = field(default_factory=Stored)
    sent: list[tuple[Page, float]] = field(default_factory=list)
    twice: int = 0
    may_be_killed: bool = True
    committed: bool = False

    def __post_init__(self) -> None:
        rows = zip(self.world.zones, self.world.layers, self.world.overrides, strict=True)
        self.schedules = [rotation.parse_schedule(*row) for row in rows]
        self.plans = [
            Plan(
                tuple(Step(timedelta(minutes=wait)) for wait, _ in rules.steps),
                rules.repeat,
                timedelta(minutes=rules.timeout) if rules.timeout else None,
            )
            for rules in self.world.policies
        ]

    def run(self) -> None:
        """Play all minutes in which something happens."""
        agenda = self._agenda()
        minutes, minute = deque(sorted(agenda)), -1
        while True:
            due = min((each.next_at for each in self.stored.progress.values() if each.next_at), default=None)
            upcoming = [minutes[0]] if minutes else []
            if due is not None:
                upcoming.append(self._back(max((due - START) // timedelta(minutes=1), minute + 1)))
            if not upcoming or (minute := min(upcoming)) >= self.world.minutes:
                return
            if minutes and minutes[0] == minute:
                minutes.popleft()
            self._play(minute, agenda.get(minute, []))

    def _agenda(self) -> dict[int, list[tuple[int, int, str]]]:
        """Return (order, incident, event) for each minute. What people do while all is stopped has no effect."""
        agenda: dict[int, list[tuple[int, int, str]]] = {}
        for number, outage in enumerate(self.world.outages):
            start, end = self._back(outage.start), self._back(outage.end)
            if start >= outage.end:
                continue  # over before it was seen
            rows = [(start, 1, "begin"), (end, 0, "resolve")]
            rows += [(minute, 2, event) for minute, event in outage.events if self._back(minute) == minute]
            for minute, order, event in rows:
                agenda.setdefault(minute, []).append((order, number, event))
        return {minute: sorted(rows, key=lambda row: row[:2]) for minute, rows in agenda.items()}

    def _back(self, minute: int) -> int:
        """Return the minute, or when processes are back."""
        return next((end for start, end in self.world.stopped if start <= minute < end), minute)

    def _play(self, minute: int, events: list[tuple[int, int, str]]) -> None:
        """Decide and send, in one process after the other until one is not killed."""
        second, left = minute * 60.0, deque(events)
        for attempt in range(MOST_KILLS + 1):
            self.may_be_killed = attempt < MOST_KILLS
            try:
                while left:
                    self.committed = False
                    self._decide(left[0][1], left[0][2], minute)
                    left.popleft()
                for number in sorted(self.stored.progress):
                    while self._decide(number, "due", minute):
                        self._send(second)
                self._send(second)
            except KilledError:
                second += RESTART_SEC
                if left and self.committed:
                    left.popleft()  # the client does not repeat what it did
            else:
                return

    def _kill(self) -> None:
        if self.may_be_killed and self.random.random() < KILLED:
            raise KilledError

    def _decide(self, number: int, event: str, minute: int) -> bool:
        """Play one event in one transaction. Return whether there may be more to do."""
        policy, at = self.world.outages[number].policy, START + timedelta(minutes=minute)
        plan, before = self.plans[policy], self.stored.progress.get(number)
        actions: tuple[Action, ...] = ()
        if before is None:
            before = escalation.begin(plan, at)
        progress = before
        match event:
            case "due" if before.next_at is None or before.next_at > at:
                return False
            case "due" if before.state is State.RUNNING and (until := self._muted_until(policy, minute)):
                progress, actions = escalation.hold(before, until)
            case "due":
                progress, actions = escalation.due(before, plan, at)
            case "resolve":
                progress, actions = escalation.resolve(before)
            case "escalate":
                progress, actions = escalation.escalate(before, plan, at)
            case "acknowledge":
                progress, actions = escalation.acknowledge(before, plan, at)
            case "unacknowledge":
                progress, actions = escalation.unacknowledge(before, plan, at)
        progress, pages = self._carry_out(number, plan, progress, actions, minute)
        self._kill()
        self.stored.progress[number] = progress
        if event == "resolve":
            del self.stored.progress[number]
        self.twice += len(self.stored.pages.intersection(pages))
        self.stored.pages.update(pages)
        self.stored.unsent += pages
        self.committed = True
        self._kill()
        return bool(actions)

    def _carry_out(
        self, number: int, plan: Plan, progress: Progress, actions: tuple[Action, ...], minute: int
    ) -> tuple[Progress, list[Page]]:
        todo, pages = deque(actions), []
        while todo:
            match todo.popleft():
                case escalation.Run() as ran:
                    people = self._whom(self.world.outages[number].policy, ran.step, minute)
                    pages += [Page(number, ran.run, ran.round, ran.step, person) for person in people]
                    if not people:
                        progress, more = escalation.empty(progress, plan, ran)
                        todo.extend(more)
                case escalation.NotifyOwner(run):
                    pages.append(Page(number, run, 0, 0, OWNER))
        return progress, pages

    def _muted_until(self, policy: int, minute: int) -> datetime | None:
        ends = [end for start, end in self.world.muted[policy] if start <= minute < end]
        return START + timedelta(minutes=ends[0]) if ends else None

    def _whom(self, policy: int, step: int, minute: int) -> list[str]:
        """Return the people whom a step reaches, once each."""
        world, at = self.world, START + timedelta(minutes=minute)
        present = {person for person in PEOPLE if not is_in(world.away[person], minute)}
        found: dict[str, None] = {}
        for target in world.policies[policy].steps[step][1]:
            person = target if isinstance(target, str) else rotation.on_call(self.schedules[target], at, present)
            if person in present and not is_in(world.unreachable[person], minute):
                found[person] = None
        return list(found)

    def _send(self, second: float) -> None:
        while self.stored.unsent:
            self.sent.append((self.stored.unsent[0], second))
            self._kill()
            self.stored.unsent.pop(0)

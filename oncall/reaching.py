"""Whom a step of an escalation policy notifies at a time, and how each of them is reached."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from accounts.models import User
from alerts.models import AlertChannel
from alerts.transports import KINDS
from core.db import lock_against_deletion
from core.hours import is_within, parse_hours
from core.text import counted, one_line
from oncall import escalation, rotation
from oncall.escalation import Plan
from oncall.models import EscalationPolicy, OnCallSchedule
from oncall.selectors import contact_rules, named_in, own_channels, parsed, people_of, targets_of

_GONE = {"user": "a person who has left", "schedule": "a deleted schedule", "channel": "a deleted channel"}


@dataclass(frozen=True, slots=True)
class Way:
    """A message to a channel, after a wait. `user` is the person who is reached, or None for a channel as target."""

    channel: AlertChannel
    after: timedelta
    user: User | None

    @property
    def key(self) -> str:
        """Return what identifies the way among those of a step to the channel, in at most 20 characters."""
        return f"u{self.user.pk}+{self.after // timedelta(minutes=1)}" if self.user is not None else "c"


@dataclass(slots=True)
class Step:
    """The ways of a step, and what a timeline says of each target. `missed`: those texts that say why one is missed."""

    ways: list[Way] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    is_reached: bool = False

    @property
    def people(self) -> list[User]:
        return list(dict.fromkeys(way.user for way in self.ways if way.user is not None))

    def miss(self, why: str) -> None:
        self.texts.append(why)
        self.missed.append(why)


class Directory:
    """What the steps of these policies lead to, read in a constant number of statements.

    At `now`, or, with `ahead`, at any other time too, with the people, channels and settings of now. With `lock` the
    people are locked against deletion.
    """

    def __init__(
        self, policies: Collection[EscalationPolicy], *, now: datetime, ahead: bool = False, lock: bool = False
    ) -> None:
        self._now = now
        self._targets = dict(zip(policies, targets_of(list(policies)), strict=True))
        schedules = {row for targets in self._targets.values() for row in targets.schedules.values()}
        self._schedules = {schedule: parsed(schedule) for schedule in schedules}
        names = {name for schedule in schedules for name in named_in(schedule)}
        self._people = people_of(schedules, among=names) if schedules else {}
        users = {user for targets in self._targets.values() for user in targets.people.values()}
        if ahead:
            users |= {user for people in self._people.values() for user in people.values()}
        else:
            users |= {user for schedule in schedules if (user := self._on_call(schedule)) is not None}
        kept = lock_against_deletion(User, {user.pk for user in users}) if lock else ()
        self._busy = {user for user in users if user.pk not in kept} if lock else set()
        self._rules = contact_rules(users) if users else {}
        named = {rule["channel_id"] for rules in self._rules.values() for rule in rules}
        channels = own_channels(list(self._rules)).filter(public_id__in=named) if named else ()
        self._channels = {channel.public_id: channel for channel in channels}

    def at(self, moment: datetime) -> Directory:
        """Return this directory, which was read with `ahead`, at another time."""
        other = copy(self)
        other._now = moment
        return other

    def waits(self, policy: EscalationPolicy) -> bool:
        """Return whether another transaction may be deleting the account of someone whom the policy would notify."""
        if not self._busy:
            return False
        targets = self._targets[policy]
        named = {*targets.people.values(), *map(self._on_call, targets.schedules.values())}
        return not self._busy.isdisjoint(named)

    @property
    def users(self) -> set[User]:
        """Everybody who may be notified."""
        return set(self._rules)

    def look_up(self, policy: EscalationPolicy, targets: Collection[Mapping[str, str]]) -> Step:
        """Return whom these targets of a policy lead to. Each person, and each channel, is notified once."""
        step = Step()
        people: dict[User, None] = {}
        channels: dict[AlertChannel, None] = {}
        for target in targets:
            found = self._find(policy, target)
            if found is None:
                step.miss(_GONE[target["type"]])
            elif isinstance(found, AlertChannel):
                channels[found] = None
            elif isinstance(found, OnCallSchedule):
                if (user := self._on_call(found)) is None:
                    step.miss(f"no one is on call in {one_line(found.name)}")
                else:
                    people[user] = None
            else:
                people[found] = None
        for user in people:
            self._reach(step, user)
        at_once = {way.channel for way in step.ways if not way.after}
        for channel in channels:
            self._reach_channel(step, channel, is_known=channel in at_once)
        return step

    def _find(self, policy: EscalationPolicy, target: Mapping[str, str]) -> User | OnCallSchedule | AlertChannel | None:
        targets = self._targets[policy]
        kinds: dict[str, Mapping[str, Any]] = {
            "user": targets.people,
            "schedule": targets.schedules,
            "channel": targets.channels,
        }
        return kinds[target["type"]].get(target["id"])

    def _reach(self, step: Step, user: User) -> None:
        name, ways = one_line(user.email), {}
        for rule in self._rules[user]:
            channel = self._channels.get(rule["channel_id"])
            if channel is not None:
                way = Way(channel, timedelta(minutes=rule["after_min"]), user)
                ways[channel, way.after] = way
        if not ways:
            step.miss(f"{name} has no confirmed channel")
            return
        step.ways += ways.values()
        step.texts.append(f"{name} {', '.join(self._way_text(way) for way in ways.values())}")
        step.is_reached |= any(self._is_open(way) for way in ways.values())

    def _reach_channel(self, step: Step, channel: AlertChannel, *, is_known: bool) -> None:
        if not channel.enabled or channel.confirmed_at is None:
            why = "disabled" if not channel.enabled else "not confirmed"
            step.miss(f"the channel {one_line(channel.name)} is {why}")
        elif not is_known:
            way = Way(channel, timedelta(), None)
            step.ways.append(way)
            is_open = self._is_open(way)
            step.texts.append(f"the channel {one_line(channel.name)}{'' if is_open else ' outside of its hours'}")
            step.is_reached |= is_open

    def _way_text(self, way: Way) -> str:
        label = KINDS[way.channel.kind].label
        how = f"by {label.lower() if way.channel.kind == 'email' else label}"
        minutes = way.after // timedelta(minutes=1)
        when = f"after {counted(minutes, 'minute')}" if minutes else "at once"
        return f"{how} {when}" if self._is_open(way) else f"{how}, outside of the channel's hours"

    def _is_open(self, way: Way) -> bool:
        channel = way.channel
        return is_within(parse_hours(channel.hours), channel.time_zone, self._now + way.after)

    def _on_call(self, schedule: OnCallSchedule) -> User | None:
        people = self._people[schedule]
        user_id = rotation.on_call(self._schedules[schedule], self._now, people)
        return None if user_id is None else people[user_id]


def plan_of(policy: EscalationPolicy) -> Plan:
    """Return the current waits of the policy."""
    steps = tuple(escalation.Step(timedelta(minutes=step["after_min"])) for step in policy.steps)
    timeout = policy.acknowledge_timeout_min
    return Plan(steps, policy.repeat, timedelta(minutes=timeout) if timeout else None)

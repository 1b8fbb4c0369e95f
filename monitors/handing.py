"""Hand checks to the agents of locations, over one list for each agent in the broker.

The lists carry wake-ups: whatever is lost with them is due again when its lease expires. `config.agents` takes from
them for the agents that wait.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import msgspec
import redis
from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError

from checks.agent_protocol import OFFLINE_SEC

logger = logging.getLogger(__name__)

CHANNEL = "agents"
"""Messages on it are JSON lists of the keys of agents that have something to take."""
KEPT_SEC = 60
MOST_WAITING = 10_000
"""Checks that wait for one agent."""
FIRST_PACE = 1_000.0
"""Checks per second of an agent that is not known."""
LEAST_WAITING = 20
MOST_DELAY_SEC = 60.0
_LOOK_SEC = 0.5
VERIFY = "monitors.tasks.verify"


class Item(msgspec.Struct, array_like=True):
    """A check for an agent: of a claim, or with `draft` of an unsaved configuration, encrypted, for a reply address.

    `votes`: another location saw a failure under this claim.
    """

    monitor_id: int
    claim: int
    votes: bool = False
    draft: str | None = None
    reply_to: str | None = None


class Ask(NamedTuple):
    """A question to another location about a failure under a claim. Without `agent_id` to the workers."""

    location: str
    agent_id: int | None
    monitor_id: int
    claim: int


@cache
def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=3, socket_timeout=3)


def key_of(agent_id: int) -> str:
    return f"agent:{agent_id}"


def pushed_key_of(agent_id: int) -> str:
    return f"agent:{agent_id}:pushed"


@dataclass(slots=True)
class Pace:
    """How fast an agent takes checks, as this process has seen it, and the checks that it postponed for it."""

    per_sec: float = FIRST_PACE
    waiting: int = 0
    _taken: int = 0
    _seen_at: float = 0.0
    _until: dict[int, float] = field(default_factory=dict)
    """By account, when the last of its postponed checks is due."""

    @property
    def room(self) -> int:
        """Return how many more checks may wait: what the agent takes in two ticks, and a few."""
        return max(0, min(MOST_WAITING, int(2 * self.per_sec) + LEAST_WAITING) - self.waiting)

    def look(self, *, pushed: int, waiting: int, now: float) -> None:
        """Note how many checks were ever pushed, and how many of them wait."""
        taken, seconds = pushed - waiting - self._taken, now - self._seen_at
        # One that takes nothing for a while has lost its connection: that says nothing of its pace.
        is_away = taken == 0 and self.waiting > 0 and seconds < OFFLINE_SEC
        if seconds > _LOOK_SEC and not is_away:
            rate = max(0, taken) / seconds
            # One that took all that waited may be faster.
            self.per_sec = max(1.0, (self.per_sec + rate) / 2 if taken < self.waiting else max(self.per_sec, rate))
            self._taken, self._seen_at = pushed - waiting, now
        self.waiting = waiting

    def delays(self, owners: Sequence[int], *, now: float) -> list[float]:
        """Return in how many seconds the agent comes to further checks of these accounts, which take turns."""
        self._until = {owner: until for owner, until in self._until.items() if until > now}
        step = len({*self._until, *owners}) / self.per_sec
        found = []
        for owner in owners:
            delay = min(MOST_DELAY_SEC, max(0.0, self._until.get(owner, now) - now) + step)
            self._until[owner] = now + delay
            found.append(delay)
        return found


class Paces:
    """How fast agents take checks. An agent without any for a minute is forgotten."""

    def __init__(self) -> None:
        self._known: dict[int, Pace] = {}

    def look(self) -> None:
        """Look how many checks wait. Raises RedisError."""
        known = list(self._known)
        with client(settings.REDIS_URL).pipeline(transaction=False) as pipe:
            for agent_id in known:
                pipe.llen(key_of(agent_id))
                pipe.get(pushed_key_of(agent_id))
            found = pipe.execute()
        now = time.monotonic()
        for agent_id, waiting, pushed in zip(known, found[::2], found[1::2], strict=True):
            if pushed is None:
                self._known.pop(agent_id, None)
            else:
                self.of(agent_id).look(pushed=int(pushed), waiting=waiting, now=now)

    def rooms(self, agents: Collection[int]) -> dict[int, int]:
        """Return how many more checks may wait for each agent."""
        return {agent_id: self._known.get(agent_id, _UNKNOWN).room for agent_id in agents}

    def watch(self, agents: Iterable[int]) -> None:
        """Look at these agents from now on: they get checks."""
        for agent_id in agents:
            self.of(agent_id)

    def of(self, agent_id: int) -> Pace:
        return self._known.setdefault(agent_id, Pace())


_UNKNOWN = Pace()
PACES = Paces()
"""Of this dispatcher."""


def push(items: Mapping[int, Sequence[Item]]) -> list[Item]:
    """Hand items to agents. Return those that do not fit. Raises RedisError."""
    if not items:
        return []
    left: list[Item] = []
    taken = []
    connection = client(settings.REDIS_URL)
    with connection.pipeline(transaction=False) as pipe:
        for agent_id in items:
            pipe.llen(key_of(agent_id))
        lengths = pipe.execute()
        for (agent_id, wanted), length in zip(items.items(), lengths, strict=True):
            room = max(0, MOST_WAITING - length)
            left += wanted[room:]
            if given := [msgspec.json.encode(item) for item in wanted[:room]]:
                pipe.rpush(key_of(agent_id), *given)
                pipe.expire(key_of(agent_id), KEPT_SEC)
                pipe.incrby(pushed_key_of(agent_id), len(given))
                pipe.expire(pushed_key_of(agent_id), KEPT_SEC)
                taken.append(agent_id)
        pipe.publish(CHANNEL, msgspec.json.encode(taken))
        pipe.execute()
    return left


def pop(agent_id: int, most: int) -> list[Item]:
    """Take items that wait for an agent. Raises RedisError."""
    taken: Any = client(settings.REDIS_URL).lpop(key_of(agent_id), most)
    return [msgspec.json.decode(each, type=Item) for each in taken or ()]


def ask(asks: Iterable[Ask]) -> None:
    """Ask other locations about failures. What cannot be asked counts as not answered."""
    of_agents: dict[int, list[Item]] = defaultdict(list)
    of_workers = []
    for each in asks:
        if each.agent_id is None:
            of_workers.append((each.monitor_id, each.claim))
        else:
            of_agents[each.agent_id].append(Item(each.monitor_id, each.claim, votes=True))
    try:
        push(of_agents)
        if of_workers:
            current_app.send_task(VERIFY, [of_workers], queue="interactive", expires=KEPT_SEC)
    except (OperationalError, redis.RedisError) as error:
        logger.warning("other locations could not be asked: %s", error)


def revoke(agent_id: int) -> None:
    """End the open request of an agent that was revoked, and drop what waits for it."""
    try:
        client(settings.REDIS_URL).delete(key_of(agent_id))
        client(settings.REDIS_URL).publish(CHANNEL, msgspec.json.encode([-agent_id]))
    except redis.RedisError as error:
        logger.warning("an open request of an agent that was revoked ends later: %s", error)

"""Hand checks to the agents of locations, over one list for each agent in the broker.

The lists carry wake-ups: whatever is lost with them is due again when its lease expires. `config.agents` takes from
them for the agents that wait.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
import redis
from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError

logger = logging.getLogger(__name__)

CHANNEL = "agents"
"""Messages on it are JSON lists of the keys of agents that have something to take."""
KEPT_SEC = 60
MOST_WAITING = 2_000
"""Checks that wait for one agent."""
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


def push(items: Mapping[int, Sequence[Item]]) -> list[Item]:
    """Hand items to agents. Return those for which there is no room. Raises RedisError."""
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

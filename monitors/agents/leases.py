"""Lease checks to the agents of locations."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec
from django.conf import settings

from checks.agent_protocol import Lease
from checks.spec import CheckSpec
from core.clock import from_ms, to_ms
from locations.models import DEFAULT
from locations.selectors import online_agents
from monitors import handing, partial, scheduling
from monitors.checking.jobs import CheckJob, load_draft, load_jobs, startable
from monitors.handing import PACES, Item
from monitors.models import NOBODY
from monitors.scheduling import Agents, Claim
from monitors.stale import NOWHERE

BEHIND = "The agents of its location are behind: more checks are due than they make."
_BEHIND_SEC = 5.0
_LOOK_SEC = 5.0
_BACK_WITHIN = timedelta(seconds=10)
"""Checks that waited for their location are spread over this time."""

_Key = tuple[int, int]


class Holder(NamedTuple):
    """An agent that asks for leases. `location` is the public id of its location."""

    agent_id: int
    location_id: int
    location: str


class Sealed(NamedTuple):
    """What a lease stands for. `reply_to` is the address of an answer to a draft's caller."""

    monitor_id: int
    claim: int
    config_version: int
    votes: bool
    leased_at: datetime
    reply_to: str


class ForgedLease(Exception):
    """The text was not given to this agent."""


class _Watch:
    """What this dispatcher knew about agents at its last look."""

    online: Agents | None = None
    looked_at = 0.0


_watch = _Watch()


def watch_agents(now: datetime, *, has_workers: bool) -> Agents:
    """Return the agents that are online. Give back the leases of others, and check what waited for their return."""
    online: dict[str, Sequence[int]] = {**online_agents(now)}
    if not has_workers:
        online[DEFAULT] = []
    before, looked = _watch.online, time.monotonic()
    if online != before or looked - _watch.looked_at > _LOOK_SEC:
        scheduling.return_leases(except_of=[agent for each in online.values() for agent in each], now=now)
        scheduling.resume(list(online), within=_BACK_WITHIN, now=now)
        partial.forget_offline([*online, DEFAULT] if has_workers else [name for name in online if name != DEFAULT])
        _watch.looked_at = looked
    _watch.online = online
    return online


def claim_due(now: datetime, *, limit: int, agents: Agents, room: int | None = None) -> tuple[list[Claim], int]:
    """Claim due checks, for each agent as many as may wait for it. The rest is postponed to when the agent comes to it.

    `room` as in `scheduling.claim_due`. Return the claims, and the number of checks that were due, at most `limit`.
    """
    PACES.look()
    rooms = PACES.rooms([agent for each in agents.values() for agent in each])
    claims, excess = scheduling.claim_within(now, limit=limit, agents=agents, rooms=rooms, room=room)
    PACES.watch(rooms.keys() & {claim.agent_id for claim in claims})
    postponed: dict[int, float] = {}
    for agent, group in groupby(sorted(excess, key=attrgetter("agent_id")), attrgetter("agent_id")):
        found = list(group)
        delays = PACES.of(agent).delays([each.owner_id for each in found], now=time.monotonic())
        postponed |= {each.monitor_id: delay for each, delay in zip(found, delays, strict=True)}
    if postponed:
        scheduling.postpone_excess(postponed, BEHIND, now=now)
    return claims, len(claims) + len(excess)


def hand_to_agents(claims: Mapping[_Key, int], *, now: datetime) -> None:
    """Hand claims to their agents. Those without an agent, or with one that is behind, are postponed."""
    items: dict[int, list[Item]] = defaultdict(list)
    for key, agent in claims.items():
        if agent != NOBODY:
            items[agent].append(Item(*key))
    behind = {(item.monitor_id, item.claim) for item in handing.push(items)}
    postponed = dict.fromkeys(behind, (BEHIND, _BEHIND_SEC))
    # `postpone` limits it to the interval.
    nowhere = {key: (NOWHERE, float("inf")) for key, agent in claims.items() if agent == NOBODY}
    scheduling.postpone(postponed | nowhere, now=now)


def take_leases(holder: Holder, room: int, *, now: datetime) -> tuple[list[Lease], bool]:
    """Take checks that wait for an agent. Return them with their specs, and whether more may wait."""
    items = handing.pop(holder.agent_id, room)
    leases = [_of_draft(item, item.draft, holder, now) for item in items if item.draft is not None]
    votes = {(item.monitor_id, item.claim) for item in items if item.votes}
    keys = [(item.monitor_id, item.claim) for item in items if item.draft is None]
    for job in startable([job for job in load_jobs(keys) if _may_have(holder, job, votes=job.key in votes)]):
        is_vote = job.key in votes
        sealed = Sealed(*job.key, job.config_version, is_vote, now, "")
        start_within = None if job.start_by == float("inf") else int((job.start_by - time.monotonic()) * 1000)
        leases.append(_lease(sealed, job.spec, holder, owner=job.owner_id, start_within=start_within, down=job.is_down))
    return leases, len(items) == room


def _may_have(holder: Holder, job: CheckJob, *, votes: bool) -> bool:
    """Return whether the check is the agent's: a location may have been removed from the monitor since."""
    return holder.location in job.locations if votes else job.agent_id == holder.agent_id


def _of_draft(item: Item, draft: str, holder: Holder, now: datetime) -> Lease:
    owner_id, spec = load_draft(draft)
    sealed = Sealed(0, 0, 0, False, now, item.reply_to or "")  # noqa: FBT003
    return _lease(sealed, spec, holder, owner=owner_id, start_within=None)


def _lease(
    sealed: Sealed, spec: CheckSpec, holder: Holder, *, owner: int, start_within: int | None, down: bool = False
) -> Lease:
    encoded = msgspec.Raw(msgspec.json.encode(spec))
    return Lease(seal(sealed, holder), type(spec).__name__, encoded, str(owner), start_within, down)


def seal(sealed: Sealed, holder: Holder) -> str:
    """Return the text of a lease, which only this agent can return."""
    *numbers, leased_at, reply_to = sealed
    text = ".".join([*(str(int(number)) for number in numbers), str(_ms(leased_at)), reply_to])
    return f"{text}.{_mac(text, holder)}"


def unseal(lease: str, holder: Holder) -> Sealed:
    """Return what the lease stands for. Raises ForgedLease."""
    text, _, mac = lease.rpartition(".")
    if not hmac.compare_digest(mac.encode(), _mac(text, holder).encode()):
        raise ForgedLease
    monitor_id, claim, config_version, votes, leased_at, reply_to = text.split(".")
    return Sealed(int(monitor_id), int(claim), int(config_version), votes == "1", from_ms(int(leased_at)), reply_to)


_ms = lru_cache(maxsize=8)(to_ms)  # all leases of an answer have the same time


def _mac(text: str, holder: Holder) -> str:
    digest = _begun(settings.SECRET_KEY, holder.agent_id, holder.location_id).copy()
    digest.update(text.encode())
    return base64.urlsafe_b64encode(digest.digest()).decode()


@lru_cache(maxsize=1_024)
def _begun(secret: str, agent_id: int, location_id: int) -> hashlib.blake2b:
    return hashlib.blake2b(f"{agent_id} {location_id} ".encode(), digest_size=15, key=_key(secret))


@cache
def _key(secret: str) -> bytes:
    return hashlib.blake2b(secret.encode(), digest_size=32, person=b"pk.leases").digest()

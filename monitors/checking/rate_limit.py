"""Seconds of target addresses, claimed in the broker: the limit of checks/probes/rate_limit.py for all processes.

A broker that does not answer grants nothing: unlike a throttle of our own API, this limit protects third parties.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import redis

from checks.probes.rate_limit import SECOND, Ask
from core.metrics import CHECK_SEC, LATE
from core.throttles import BROKER_OPTIONS

logger = logging.getLogger(__name__)

# Start-time fair queueing, for each address. The key itself is the second: while it exists, nothing is sent. Checks
# that find it taken queue in `:tags`, by the number of the round in which it is their turn: an owner's first check gets
# the current round, each further one the next round. So each owner gets one second of a round, regardless of the number
# of its checks. A datagram that a check repeats takes precedence, and counts for the owner too.
#
# Most queued checks are not waiting: they return at the time in `:back`. A free second goes to the check that asks for
# it, unless an earlier one is about to return (for `lapse`: its process may have died). So no second is lost on a check
# that does not return, and the others keep their order.
_CLAIM = """
    local second, lapse, kept = tonumber(ARGV[1]), 3 * ARGV[1], 60 * ARGV[1]
    local order = 1073741824  -- arrivals in a round
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local left, longest = {}, 0  -- the second is the wait of an owner's first check, so for other owners

    local function leave(key, ticket)
        redis.call('ZREM', key .. ':tags', ticket)
        redis.call('ZREM', key .. ':back', ticket)
    end

    local function take_place(key, owner, ticket, repeats)
        local owners = key .. ':owners'
        local round = tonumber(redis.call('HGET', owners, 'round') or 0)
        local own = math.max(round, tonumber(redis.call('HGET', owners, owner) or 0))
        redis.call('HSET', owners, owner, own + 1)
        local tag = (repeats and round - 1 or own) * order + redis.call('HINCRBY', owners, 'arrivals', 1)
        redis.call('ZADD', key .. ':tags', tag, ticket)
        return tag
    end

    -- A second that went to a later round does not end the earlier ones.
    local function pass(key, tag)
        local next = redis.call('ZRANGE', key .. ':tags', 0, 0, 'WITHSCORES')[2] or tag
        local round = math.floor(math.min(tag, tonumber(next)) / order)
        if round > tonumber(redis.call('HGET', key .. ':owners', 'round') or 0) then
            redis.call('HSET', key .. ':owners', 'round', round)
        end
    end

    local function is_first(key, ticket, tag)
        local close = redis.call('ZRANGEBYSCORE', key .. ':back', now - lapse, now + second / 10)
        for _, other in ipairs(close) do
            if tonumber(redis.call('ZSCORE', key .. ':tags', other) or tag) < tag then
                return false
            end
        end
        return true
    end

    local function keep(key, wait)
        for _, part in ipairs({':tags', ':back', ':owners'}) do
            if redis.call('PTTL', key .. part) < wait + kept then
                redis.call('PEXPIRE', key .. part, wait + kept)
            end
        end
    end

    local function claim(key, owner, ticket, repeats)
        if redis.call('EXISTS', key .. ':tags') == 0 and redis.call('SET', key, 1, 'NX', 'PX', second) then
            return 0
        end
        for _, gone in ipairs(redis.call('ZRANGEBYSCORE', key .. ':back', '-inf', now - kept)) do
            leave(key, gone)
        end
        local tag = tonumber(redis.call('ZSCORE', key .. ':tags', ticket) or take_place(key, owner, ticket, repeats))
        if is_first(key, ticket, tag) and redis.call('SET', key, 1, 'NX', 'PX', second) then
            leave(key, ticket)
            pass(key, tag)
            return 0
        end
        local wait = math.max(1, redis.call('PTTL', key)) + second * redis.call('ZRANK', key .. ':tags', ticket)
        redis.call('ZADD', key .. ':back', now + wait, ticket)
        keep(key, wait)
        if math.floor(tag / order) <= tonumber(redis.call('HGET', key .. ':owners', 'round') or 0) then
            longest = math.max(longest, wait)
        end
        return wait
    end

    for number, key in ipairs(KEYS) do
        local owner, ticket, kind = ARGV[3 * number - 1], ARGV[3 * number], ARGV[3 * number + 1]
        if kind == 'leaves' then
            leave(key, ticket)
            left[number] = 0
        else
            left[number] = claim(key, owner, ticket, kind == 'repeats')
        end
    end
    left[#left + 1] = longest
    return left
"""


class SharedSeconds:
    """Claims for all processes of a deployment. For one thread."""

    def __init__(self, url: str, *, second: float = SECOND) -> None:
        self._claim = redis.Redis.from_url(url, **BROKER_OPTIONS).register_script(_CLAIM)
        self._second_ms = int(second * 1000)
        self._unreachable = False

    def __call__(self, asks: Sequence[Ask], gone: Sequence[Ask]) -> list[float | None]:
        kinds = [*("leaves" for _ in gone), *("repeats" if ask.repeats else "asks" for ask in asks)]
        everyone = [*gone, *asks]
        keys = [f"probe-second:{ask.address}" for ask in everyone]
        given = [part for ask, kind in zip(everyone, kinds, strict=True) for part in (ask.owner, ask.ticket, kind)]
        try:
            waits = self._claim(keys, [self._second_ms, *given])
        except redis.RedisError as error:
            if not self._unreachable:
                logger.warning("checks by UDP wait for the broker: %s", error)
            self._unreachable = True
            return [None] * len(asks)
        self._unreachable = False
        *waits, longest = (milliseconds / 1000 for milliseconds in waits[len(gone) :])
        if longest > CHECK_SEC:
            LATE.add(1, "checks")
        return waits

"""Seconds of target addresses, claimed in the broker: the limit of checks/probes/rate_limit.py for all processes.

A broker that does not answer grants nothing: unlike a throttle of our own API, this limit protects third parties.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import redis

from checks.probes.rate_limit import SECOND
from core.throttles import BROKER_OPTIONS

logger = logging.getLogger(__name__)

_RETRY_SEC = 0.25
_CLAIM = """
    local left = {}
    for number, key in ipairs(KEYS) do
        local claimed = redis.call('SET', key, 1, 'NX', 'PX', ARGV[1])
        left[number] = claimed and 0 or math.max(1, redis.call('PTTL', key))
    end
    return left
"""


class SharedSeconds:
    """Claims for all processes of a deployment. For one thread."""

    def __init__(self, url: str) -> None:
        self._claim = redis.Redis.from_url(url, **BROKER_OPTIONS).register_script(_CLAIM)
        self._unreachable = False

    def __call__(self, addresses: Sequence[str]) -> list[float]:
        try:
            left = self._claim([f"probe-second:{address}" for address in addresses], [int(SECOND * 1000)])
        except redis.RedisError as error:
            if not self._unreachable:
                logger.warning("udp checks wait for the broker: %s", error)
            self._unreachable = True
            return [_RETRY_SEC] * len(addresses)
        self._unreachable = False
        return [milliseconds / 1000 for milliseconds in left]

"""Throttles: fixed windows counted in the broker, so that every web process shares them."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

logger = logging.getLogger(__name__)


class AddressThrottle(BaseThrottle):
    """At most `rate` requests in `seconds` from one address; subclasses set `scope`."""

    scope = ""
    rate = 0
    seconds = 60

    def allow_request(self, request: Request, view: Any) -> bool:
        if settings.THROTTLE_SCALE == 0:
            return True
        key = f"throttle:{self.scope}:{request.META.get('REMOTE_ADDR', '')}"
        try:
            # add() then incr(): both atomic; whichever request comes first in a window opens it.
            cache.add(key, 0, timeout=self.seconds)
            return int(cache.incr(key)) <= self.rate * settings.THROTTLE_SCALE
        except ValueError:
            return True  # the window ended between the two calls
        except RedisError as error:
            # Signing in during a broker outage matters more than counting: PostgreSQL still judges it.
            logger.warning("throttle %s is off, the broker does not answer: %s", self.scope, error)
            return True

    def wait(self) -> float:
        return float(self.seconds)


class SignInThrottle(AddressThrottle):
    scope = "sign-in"
    rate = 20

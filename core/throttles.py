"""Throttles: fixed windows counted in the broker, so that every web process shares them.

Scopes and their rates are one table, `THROTTLES` of the settings; `THROTTLE_SCALE` multiplies all of them. A broker
that is out of reach opens every throttle: PostgreSQL still judges credentials and caps.

Every request asks the broker, but for pings: theirs is the one path on which the question would cost more than the
rest of the view, so each process tells of a hundredth of the limit at a time, and the limit holds to a hundredth for
each process.
"""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import Any

import redis
from django.conf import settings
from django.utils.crypto import salted_hmac
from redis.backoff import NoBackoff
from redis.retry import Retry
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from core.addresses import client_network
from core.errors import TooManyRequests
from core.tallies import Tally

logger = logging.getLogger(__name__)

PATIENCE_SEC = 0.25  # for connecting, and for an answer
LEFT_ALONE_SEC = 5.0  # a broker that did not answer is not asked again for so long
CALLBACK = (
    "connector-callback"  # by address: the page to which a provider leads back, where nobody has a credential
)
PINGS = "pings"  # by address, and generous: a whole network of jobs may come from one

_asked_again_at = (
    0.0  # monotonic; one number per process, and a lost race between threads costs one more question
)


@cache
def _broker(url: str) -> redis.Redis:
    # One more try, and only for a connection that was closed on us meanwhile; a silence is not waited for twice.
    retry: Any = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
    return redis.Redis.from_url(
        url, socket_connect_timeout=PATIENCE_SEC, socket_timeout=PATIENCE_SEC, retry=retry
    )


def _add(name: str, count: int, seconds: int) -> tuple[int, float]:
    """Count so many more in the window of `scope:identity`: how many it has now, and the seconds until it ends."""
    scope, _, identity = name.partition(":")
    # A digest: an e-mail address, or what somebody typed in its place, is nothing to leave in the broker.
    digest = salted_hmac("pulsekeeper.throttles", identity, algorithm="sha256").hexdigest()[:32]
    key = f"throttle:{scope}:{digest}"
    with _broker(settings.REDIS_URL).pipeline(transaction=True) as pipe:
        pipe.incrby(key, count)
        # NX: the window ends when its first request says. Asked every time, so that no count is left for ever.
        pipe.expire(key, seconds, nx=True)
        pipe.pttl(key)
        total, _, remaining_ms = pipe.execute()
    return int(total), max(0.0, int(remaining_ms) / 1000)


_tally = Tally(_add)


def seconds_to_wait(scope: str, identity: str) -> float | None:
    """Count a request of `identity` in `scope`; None where it may pass, else the rest of the window."""
    global _asked_again_at
    scale = settings.THROTTLE_SCALE
    if scale == 0 or time.monotonic() < _asked_again_at:
        return None
    most, seconds = settings.THROTTLES[scope]
    most = max(1, int(most * scale))
    name = f"{scope}:{identity}"
    try:
        if scope == PINGS:
            count, remaining = _tally.hit(name, seconds=seconds, share=max(1, most // 100))
        else:
            count, remaining = _add(name, 1, seconds)
    except redis.RedisError as error:
        _asked_again_at = time.monotonic() + LEFT_ALONE_SEC
        logger.warning("throttles are off for %.0f s, the broker does not answer: %s", LEFT_ALONE_SEC, error)
        return None
    return None if count <= most else remaining


class Throttle(BaseThrottle):
    """At most so many requests of one identity in a window; subclasses name the scope and the identity.

    `methods` limits it to some methods of a view.
    """

    scope: str
    methods: frozenset[str] | None = None
    _wait: float | None = None

    def identity(self, request: Request) -> str | None:
        """Whose requests are counted together; None counts nothing."""
        raise NotImplementedError

    def allow_request(self, request: Request, view: Any) -> bool:
        if self.methods is not None and request.method not in self.methods:
            return True
        identity = self.identity(request)
        self._wait = None if identity is None else seconds_to_wait(self.scope, identity)
        return self._wait is None

    def wait(self) -> float | None:
        return self._wait


class AddressThrottle(Throttle):
    def identity(self, request: Request) -> str | None:
        return client_network(request)


class CallerThrottle(Throttle):
    """Everything of `/v1`, by the person behind the credential, whichever token is used; else by address."""

    scope = "requests"

    def identity(self, request: Request) -> str | None:
        # Caller is of a higher floor: what is asked of it here is that it has a `user`.
        person = getattr(request.user, "user", None)
        return client_network(request) if person is None else f"user:{person.pk}"


class ProbeThrottle(CallerThrottle):
    """Creating and testing monitors: each has a worker probe somebody's server at once."""

    scope = "create-and-test"
    methods = frozenset({"POST"})


class CheckThrottle(CallerThrottle):
    """Checking monitors at once: a pipeline does it with each of a project's, and a thread waits for each."""

    scope = "check-now"
    methods = frozenset({"POST"})


class ProviderThrottle(CallerThrottle):
    """Listing the projects of a connector: it asks somebody else's API, and a thread waits for that."""

    scope = "ask-provider"
    methods = frozenset({"GET"})


class InviteThrottle(CallerThrottle):
    """Adding members: it sends e-mail to strangers, and tells who has an account (decision 44)."""

    scope = "invite"
    methods = frozenset({"POST"})


class ChannelAddressThrottle(InviteThrottle):
    """Setting the e-mail address of a channel: a stranger's gets a request to agree, so it counts as an invitation."""

    methods = frozenset({"POST", "PATCH"})

    def identity(self, request: Request) -> str | None:
        given = isinstance(request.data, dict) and "address" in request.data
        return super().identity(request) if given else None


class ChannelTestThrottle(CallerThrottle):
    """Testing channels: each sends a message to somebody at once."""

    scope = "test-channel"
    methods = frozenset({"POST"})


class LogoThrottle(CallerThrottle):
    """Setting a logo: each picture takes a process of its own for up to some seconds."""

    scope = "logo"
    methods = frozenset({"PUT"})


class PasswordThrottle(CallerThrottle):
    """Changing the password, or deleting the account, asks for it: a stolen session is not to try them all."""

    scope = "password"
    methods = frozenset({"PATCH", "DELETE"})


class ExportThrottle(CallerThrottle):
    """Exporting the account: it reads all that there is of it."""

    scope = "export"


class SignInThrottle(AddressThrottle):
    scope = "sign-in"


class SignInEmailThrottle(Throttle):
    """By the account that is tried: one account cannot be tried from many addresses."""

    scope = "sign-in-email"

    def identity(self, request: Request) -> str | None:
        email = request.data.get("email") if isinstance(request.data, dict) else None
        return email.strip().lower() if isinstance(email, str) else None


def count_unauthorized(request: Request) -> None:
    """One more request of that address without a valid token; raises Throttled past the rate.

    Counted where it failed, and asked of failures only: whoever shares the address and has a token is not stopped.
    """
    wait = seconds_to_wait("unauthorized", client_network(request))
    if wait is not None:
        raise Throttled(wait)


def count_second_factor(user_id: int) -> None:
    """One more code that is tried for the account, by whichever door; raises TooManyRequests past the rate."""
    wait = seconds_to_wait("second-factor", f"user:{user_id}")
    if wait is not None:
        raise TooManyRequests(wait=wait)

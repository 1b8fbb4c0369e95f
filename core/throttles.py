"""Throttles: fixed windows counted in the broker, so that all web processes share them.

Scopes and rates are one setting, `THROTTLES`; `THROTTLE_SCALE` multiplies all of them. An unreachable broker opens
every throttle: PostgreSQL still checks credentials and limits.

Every request asks the broker, except pings: for them the question would cost more than the rest of the view. Each
process counts them locally and reports each hundredth of the limit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import redis
from django.conf import settings
from django.utils.crypto import salted_hmac
from redis.backoff import NoBackoff
from redis.retry import Retry
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from core.addresses import client_network
from core.errors import TooManyRequests

logger = logging.getLogger(__name__)

PATIENCE_SEC = 0.25  # for connecting, and for an answer
LEFT_ALONE_SEC = 5.0  # how long a broker that did not answer is not asked again
CALLBACK = "connector-callback"  # by address: a provider redirects there, without a credential
PINGS = "pings"  # by address, and generous: a whole network of jobs may share one
MAX_COUNTERS = 20_000  # about 5 MB; beyond it all counters are dropped with what was not reported

BROKER_OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": PATIENCE_SEC,
    "socket_timeout": PATIENCE_SEC,
    # Only a connection that the broker had closed is tried again: a timeout is not waited for twice.
    "retry": Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
}

Counted = tuple[int, float]  # the count of all processes in the window, and the seconds until it ends


@dataclass(slots=True)
class _Counter:
    ends_at: float  # monotonic
    unreported: int = 0
    total: int = 0  # of all processes, when this one last reported


class LocalCounters:
    """Counts names in windows, and reports to the broker only once a share of requests was counted.

    With n processes the count of a window may be wrong by n shares. A share of one reports every request. A name that
    stays below its share, as nearly all do, is never reported.
    """

    def __init__(self, report: Callable[[str, int, int], Counted]) -> None:
        """`report(name, count, seconds)` adds to the shared count, in a window that it opens if necessary."""
        self._report = report
        self._counters: dict[str, _Counter] = {}
        self._lock = threading.Lock()

    def hit(self, name: str, *, seconds: int, share: int, count: int = 1) -> Counted:
        """Count requests. Return the known count of the window with them. Raises what `report` raises."""
        now = time.monotonic()
        with self._lock:
            counter = self._counters.get(name)
            if counter is None or counter.ends_at <= now:
                if len(self._counters) >= MAX_COUNTERS:
                    self._counters.clear()
                counter = self._counters[name] = _Counter(now + seconds)
            counter.unreported += count
            known = (counter.total + counter.unreported, counter.ends_at - now)
            if counter.unreported < share:
                return known
            reported, counter.unreported = counter.unreported, 0
        total, remaining = self._report(name, reported, seconds)
        with self._lock:
            counter.total, counter.ends_at = total, time.monotonic() + remaining
        return total, remaining


# Monotonic, one number per process. A lost race between threads costs one more question.
_asked_again_at = 0.0


@cache
def _broker(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, **BROKER_OPTIONS)


def _add(name: str, count: int, seconds: int) -> Counted:
    """Add to the window of `scope:identity`. Return its count, and the seconds until it ends."""
    scope, _, identity = name.partition(":")
    # A digest, because the broker must not contain e-mail addresses, or other input in their place.
    digest = salted_hmac("pulsekeeper.throttles", identity, algorithm="sha256").hexdigest()[:32]
    key = f"throttle:{scope}:{digest}"
    with _broker(settings.REDIS_URL).pipeline(transaction=True) as pipe:
        pipe.incrby(key, count)
        # NX: the first request of a window sets its end. Sent every time, so that no count stays without an end.
        pipe.expire(key, seconds, nx=True)
        pipe.pttl(key)
        total, _, remaining_ms = pipe.execute()
    return int(total), max(0.0, int(remaining_ms) / 1000)


_ping_counters = LocalCounters(_add)


def reset() -> None:
    """Drop the counts of this process, and ask the broker again, for tests."""
    global _asked_again_at, _ping_counters
    _asked_again_at, _ping_counters = 0.0, LocalCounters(_add)


def seconds_to_wait(scope: str, identity: str) -> float | None:
    """Count a request of `identity` in `scope`. Return None if it may pass, else the rest of the window."""
    return waits(scope, [identity])[0]


def waits(scope: str, identities: Sequence[str]) -> list[float | None]:
    """Count a request of each identity, in their order. Return for each what `seconds_to_wait` does."""
    global _asked_again_at
    scale = settings.THROTTLE_SCALE
    if scale == 0 or time.monotonic() < _asked_again_at:
        return [None] * len(identities)
    limit, seconds = settings.THROTTLES[scope]
    limit = max(1, int(limit * scale))
    left: dict[str, int] = {}  # how many more may pass
    ends: dict[str, float] = {}
    try:
        for identity, count in Counter(identities).items():
            name = f"{scope}:{identity}"
            if scope == PINGS:
                total, end = _ping_counters.hit(name, seconds=seconds, share=max(1, limit // 100), count=count)
            else:
                total, end = _add(name, count, seconds)
            left[identity], ends[identity] = limit - (total - count), end
    except redis.RedisError as error:
        _asked_again_at = time.monotonic() + LEFT_ALONE_SEC
        logger.warning("throttles are off for %.0f s, the broker does not answer: %s", LEFT_ALONE_SEC, error)
        return [None] * len(identities)
    found: list[float | None] = []
    for identity in identities:
        found.append(None if left[identity] > 0 else ends[identity])
        left[identity] -= 1
    return found


def count_request(scope: str, identity: str) -> None:
    """Count a request of `identity` in `scope`. Raises TooManyRequests past the limit."""
    wait = seconds_to_wait(scope, identity)
    if wait is not None:
        raise TooManyRequests(wait=wait)


class Throttle(BaseThrottle):
    """Limits the requests of one identity in a window. Operations of viewsets name the throttles that they add."""

    scope: str
    _wait: float | None = None

    def __init_subclass__(cls, *, scope: str | None = None) -> None:
        if scope is not None:
            cls.scope = scope

    def identity(self, request: Request) -> str | None:
        """Return whose requests are counted together, or None to count nothing."""
        raise NotImplementedError

    def allow_request(self, request: Request, view: Any) -> bool:
        identity = self.identity(request)
        self._wait = None if identity is None else seconds_to_wait(self.scope, identity)
        return self._wait is None

    def wait(self) -> float | None:
        return self._wait


class CallerThrottle(Throttle, scope="requests"):
    """All of `/v1`, by the user behind the credential, or else by address."""

    def identity(self, request: Request) -> str | None:
        # Caller belongs to a higher floor: only its `user` is used here.
        user = getattr(request.user, "user", None)
        return client_network(request) if user is None else f"user:{user.pk}"


def _of_callers(scope: str) -> type[CallerThrottle]:
    class Limited(CallerThrottle, scope=scope):
        pass

    return Limited


ProbeThrottle = _of_callers("create-and-test")  # a worker probes a foreign server at once
CheckThrottle = _of_callers("check-now")  # a pipeline checks all of a project, and a thread waits for each
ProviderThrottle = _of_callers("ask-provider")  # a foreign API lists projects, and a thread waits for it
InviteThrottle = _of_callers("invite")  # it sends e-mail to strangers, and shows who has an account
ChannelTestThrottle = _of_callers("test-channel")  # each test sends a message at once
LogoThrottle = _of_callers("logo")  # each picture occupies a separate process for up to some seconds
PasswordThrottle = _of_callers("password")  # a stolen session must not try all passwords
ManifestThrottle = _of_callers("manifest")  # it reads or compares everything in the account
MetricsThrottle = _of_callers("metrics")  # it reads every monitor of the account
ExportThrottle = _of_callers("export")  # it reads everything in the account
BacktestThrottle = _of_callers("backtest")  # it reads up to 150,000 checks


class JoinThrottle(Throttle, scope="join"):
    """Agents that join locations, by address: they have no credential yet."""

    def identity(self, request: Request) -> str | None:
        return client_network(request)


class ChannelAddressThrottle(CallerThrottle, scope="invite"):
    """Setting the e-mail address of a channel: a stranger gets a request to agree, so it counts as an invitation."""

    def identity(self, request: Request) -> str | None:
        given = isinstance(request.data, dict) and "address" in request.data
        return super().identity(request) if given else None


def wait_to_sign_in(address: str, email: str | None) -> float | None:
    """Count a sign-in by address, by account and address, and by account. Return None if it may pass, else the wait.

    What one count refuses does not add to the next, so a blocked address cannot use up an account's attempts.
    """
    email = email.strip().lower() if email else None
    wait = seconds_to_wait("sign-in", address)
    if wait is None and email:
        wait = seconds_to_wait("sign-in-email-address", f"{email} {address}")
    if wait is None and email:
        wait = seconds_to_wait("sign-in-email", email)
    return wait


class SignInThrottle(Throttle):
    """Signing in. Pages have `signin.limits` for it, and count together with the API."""

    def allow_request(self, request: Request, view: Any) -> bool:
        email = request.data.get("email") if isinstance(request.data, dict) else None
        self._wait = wait_to_sign_in(client_network(request), email if isinstance(email, str) else None)
        return self._wait is None

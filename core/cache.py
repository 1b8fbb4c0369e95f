"""Django's cache in the broker, for values that can be computed again.

Entries are JSON, so that write access to the broker does not run code in a process that reads them. `store` and `load`
also sign what pages are made from. An unreachable broker makes the cache empty and raises no error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from copy import copy
from typing import Any, TypeVar

import msgspec
import redis
from django.core.cache import cache
from django.core.cache.backends.redis import RedisCache
from django.core.signing import BadSignature, TimestampSigner

from core.throttles import LEFT_ALONE_SEC, PATIENCE_SEC, broker_retry

logger = logging.getLogger(__name__)

T = TypeVar("T")


def store(key: str, value: object, *, seconds: int) -> None:
    """Sign the value for this key and cache it for `seconds`."""
    cache.set(key, _signer(key).sign(msgspec.json.encode(value).decode()), seconds)


def load(key: str, kind: type[T], *, seconds: int) -> T | None:
    """Return the value that `store` cached under the key, or None.

    An entry counts as absent if it has no valid signature for this key, is older than `seconds`, or is not a `kind`.
    """
    signed = cache.get(key)
    if not isinstance(signed, str):
        return None
    try:
        return msgspec.json.decode(_signer(key).unsign(signed, max_age=seconds), type=kind)
    except (BadSignature, msgspec.DecodeError):
        return None


def _signer(key: str) -> TimestampSigner:
    return TimestampSigner(salt=f"pulsekeeper.cache.{key}")


class MalformedEntry(Exception):
    """An entry of the cache is not JSON."""


class JsonSerializer:
    """Encodes entries as JSON instead of pickles. Types that JSON lacks change: bytes become base64 text."""

    def dumps(self, value: object) -> bytes:
        return msgspec.json.encode(value)

    def loads(self, data: bytes) -> Any:
        """Return the value; raises MalformedEntry."""
        try:
            return msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:  # RecursionError: too many nested lists
            raise MalformedEntry from error


def _failing_open(method: Callable[..., Any], *, fallback: Any) -> Any:
    def call(cache: FailOpenRedisCache, *args: Any, **kwargs: Any) -> Any:
        return cache._ask(method, copy(fallback), *args, **kwargs)

    return call


class FailOpenRedisCache(RedisCache):
    """Reads find nothing and writes do nothing while the broker does not answer within `PATIENCE_SEC`.

    The broker is then not asked for `LEFT_ALONE_SEC`, so that a page with twenty reads waits once. `add` and `touch`
    return True during that time, so that a caller that takes a lock with `add` proceeds. A malformed entry counts as
    absent.
    """

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._options: dict[str, Any] = {
            "socket_connect_timeout": PATIENCE_SEC,
            "socket_timeout": PATIENCE_SEC,
            "retry": broker_retry(),
            "serializer": JsonSerializer,
        }
        self._asked_again_at = 0.0  # monotonic; a lost race between threads costs one more question

    def _ask(self, method: Callable[..., T], fallback: T, *args: Any, **kwargs: Any) -> T:
        if time.monotonic() < self._asked_again_at:
            return fallback
        try:
            return method(self, *args, **kwargs)
        except MalformedEntry:
            return fallback
        except redis.RedisError as error:
            self._asked_again_at = time.monotonic() + LEFT_ALONE_SEC
            logger.warning("the cache is off for %.0f s, the broker does not answer: %s", LEFT_ALONE_SEC, error)
            return fallback

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        return self._ask(RedisCache.get, default, key, default, version)

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        return self._ask(RedisCache.incr, delta, key, delta, version)

    add = _failing_open(RedisCache.add, fallback=True)
    set = _failing_open(RedisCache.set, fallback=None)
    touch = _failing_open(RedisCache.touch, fallback=True)
    delete = _failing_open(RedisCache.delete, fallback=False)
    has_key = _failing_open(RedisCache.has_key, fallback=False)
    get_many = _failing_open(RedisCache.get_many, fallback={})
    set_many = _failing_open(RedisCache.set_many, fallback=[])
    delete_many = _failing_open(RedisCache.delete_many, fallback=None)

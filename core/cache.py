"""Django's cache in the broker, for values that can be computed again.

Entries are JSON, so that write access to the broker does not run code in a process that reads them. `store` and `load`
also sign what pages are made from. An unreachable broker makes the cache empty and raises no error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import redis
from django.core.cache import cache
from django.core.cache.backends.redis import RedisCache
from django.core.signing import BadSignature, TimestampSigner

from core.throttles import BROKER_OPTIONS, LEFT_ALONE_SEC

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


def _failing_open(method: Callable[..., Any], fallback: Callable[..., Any]) -> Any:
    """Return the method, which returns `fallback` of its arguments while the broker does not answer."""

    def call(cache: FailOpenRedisCache, *args: Any, **kwargs: Any) -> Any:
        if time.monotonic() >= cache._asked_again_at:
            try:
                return method(cache, *args, **kwargs)
            except MalformedEntry:
                pass
            except redis.RedisError as error:
                cache._asked_again_at = time.monotonic() + LEFT_ALONE_SEC
                logger.warning("the cache is off for %.0f s, the broker does not answer: %s", LEFT_ALONE_SEC, error)
        return fallback(*args, **kwargs)

    return call


class FailOpenRedisCache(RedisCache):
    """Reads find nothing and writes do nothing while the broker does not answer within `PATIENCE_SEC`.

    The broker is then not asked for `LEFT_ALONE_SEC`, so that a page with twenty reads waits once. `add` and `touch`
    return True during that time, so that a caller that takes a lock with `add` proceeds. A malformed entry counts as
    absent.
    """

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._options = {**BROKER_OPTIONS, "serializer": JsonSerializer}
        self._asked_again_at = 0.0  # monotonic; a lost race between threads costs one more question

    get = _failing_open(RedisCache.get, lambda key, default=None, version=None: default)  # noqa: ARG005
    incr = _failing_open(RedisCache.incr, lambda key, delta=1, version=None: delta)  # noqa: ARG005
    add = _failing_open(RedisCache.add, lambda *_, **__: True)
    set = _failing_open(RedisCache.set, lambda *_, **__: None)
    touch = _failing_open(RedisCache.touch, lambda *_, **__: True)
    delete = _failing_open(RedisCache.delete, lambda *_, **__: False)
    has_key = _failing_open(RedisCache.has_key, lambda *_, **__: False)
    get_many = _failing_open(RedisCache.get_many, lambda *_, **__: {})
    set_many = _failing_open(RedisCache.set_many, lambda *_, **__: [])
    delete_many = _failing_open(RedisCache.delete_many, lambda *_, **__: None)

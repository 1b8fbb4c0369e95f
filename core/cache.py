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


class PatientCache(RedisCache):
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
            **params.get("OPTIONS", {}),
        }
        self._asked_again_at = 0.0  # monotonic; a lost race between threads costs one more question

    def _ask(self, question: Callable[[], T], otherwise: T) -> T:
        if time.monotonic() < self._asked_again_at:
            return otherwise
        try:
            return question()
        except MalformedEntry:
            return otherwise
        except redis.RedisError as error:
            self._asked_again_at = time.monotonic() + LEFT_ALONE_SEC
            logger.warning("the cache is off for %.0f s, the broker does not answer: %s", LEFT_ALONE_SEC, error)
            return otherwise

    def add(self, *args: Any, **kwargs: Any) -> bool:
        return self._ask(lambda: super(PatientCache, self).add(*args, **kwargs), otherwise=True)

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        return self._ask(lambda: super(PatientCache, self).get(key, default, version), default)

    def set(self, *args: Any, **kwargs: Any) -> None:
        self._ask(lambda: super(PatientCache, self).set(*args, **kwargs), None)

    def touch(self, *args: Any, **kwargs: Any) -> bool:
        return self._ask(lambda: super(PatientCache, self).touch(*args, **kwargs), otherwise=True)

    def delete(self, *args: Any, **kwargs: Any) -> bool:
        return self._ask(lambda: super(PatientCache, self).delete(*args, **kwargs), otherwise=False)

    def get_many(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return self._ask(lambda: super(PatientCache, self).get_many(*args, **kwargs), {})

    def has_key(self, *args: Any, **kwargs: Any) -> bool:
        return self._ask(lambda: super(PatientCache, self).has_key(*args, **kwargs), otherwise=False)

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        return self._ask(lambda: super(PatientCache, self).incr(key, delta, version), delta)

    def set_many(self, *args: Any, **kwargs: Any) -> list[Any]:
        return self._ask(lambda: super(PatientCache, self).set_many(*args, **kwargs), [])

    def delete_many(self, *args: Any, **kwargs: Any) -> None:
        self._ask(lambda: super(PatientCache, self).delete_many(*args, **kwargs), None)

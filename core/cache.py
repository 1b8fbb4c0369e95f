"""Django's cache in the broker, for what can be made anew. A broker that is out of reach makes it empty, not broken."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis
from django.core.cache.backends.redis import RedisCache
from redis.backoff import NoBackoff
from redis.retry import Retry

from core.throttles import LEFT_ALONE_SEC, PATIENCE_SEC

logger = logging.getLogger(__name__)

T = TypeVar("T")


class PatientCache(RedisCache):
    """Reads find nothing and writes do nothing while the broker does not answer within `PATIENCE_SEC`.

    It is then left alone for `LEFT_ALONE_SEC`, so that a page with twenty reads waits once. `add` and `touch` say yes
    meanwhile: whoever holds a lock by `add` goes on, as the only one would.
    """

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        # One more try, and only for a connection that was closed on us meanwhile; a silence is not waited for twice.
        self._options: dict[str, Any] = {
            "socket_connect_timeout": PATIENCE_SEC,
            "socket_timeout": PATIENCE_SEC,
            "retry": Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
            **params.get("OPTIONS", {}),
        }
        self._asked_again_at = 0.0  # monotonic; a lost race between threads costs one more question

    def _ask(self, question: Callable[[], T], otherwise: T) -> T:
        if time.monotonic() < self._asked_again_at:
            return otherwise
        try:
            return question()
        except redis.RedisError as error:
            self._asked_again_at = time.monotonic() + LEFT_ALONE_SEC
            logger.warning(
                "the cache is off for %.0f s, the broker does not answer: %s", LEFT_ALONE_SEC, error
            )
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

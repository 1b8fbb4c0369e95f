"""The cache: what the broker stores, and how pages work while the broker is unreachable."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator

import pytest
import redis
from pytest_django.fixtures import Settings

from core.cache import FailOpenRedisCache
from core.throttles import PATIENCE_SEC


@pytest.fixture
def cache(settings: Settings) -> Iterator[FailOpenRedisCache]:
    assert settings.REDIS_URL is not None
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        broker.flushdb()
        yield FailOpenRedisCache(settings.REDIS_URL, {"KEY_PREFIX": "cache"})
        broker.flushdb()


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield the address of a broker that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


def test_what_is_kept(cache: FailOpenRedisCache) -> None:
    assert cache.get("page") is None
    cache.set("page", "<p>", 60)
    cache.set_many({"a": 1, "b": {"c": [2]}}, 60)
    assert cache.get("page") == "<p>"
    assert cache.get_many(["a", "b", "x"]) == {"a": 1, "b": {"c": [2]}}
    assert (cache.add("a", 2), cache.add("new", 2), cache.incr("a"), cache.has_key("a")) == (False, True, 2, True)
    assert (cache.touch("a", 1), cache.touch("x", 1), cache.delete("a"), cache.delete("a")) == (
        True,
        False,
        True,
        False,
    )
    cache.delete_many(["b", "page"])
    assert cache.get_many(["a", "b", "page"]) == {}


def test_a_broker_that_is_away_makes_it_empty_and_is_not_asked_each_time(
    silent: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache = FailOpenRedisCache(silent, {})
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "core.cache"):
        cache.set("page", "<p>")
        cache.set_many({"a": 1})
        cache.delete_many(["a"])
        answers = [cache.get("page", "none"), cache.get_many(["page"]), cache.has_key("page"), cache.delete("page")]
        assert answers == ["none", {}, False, False]
        assert (cache.add("lock", 1), cache.touch("lock"), cache.incr("hits")) == (True, True, 1)
    assert time.monotonic() - began < 4 * PATIENCE_SEC
    assert len(caplog.records) == 1


def test_it_is_asked_again_after_a_while(cache: FailOpenRedisCache) -> None:
    cache._asked_again_at = time.monotonic() + 60
    cache.set("page", 1)
    cache._asked_again_at = time.monotonic()
    assert cache.get("page") is None
    cache.set("page", 2)
    assert cache.get("page") == 2

"""Tasks whose callers wait: a worker answers a web process over a list of one item in the broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar

import msgspec
import redis
from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError

from core.db import release_connection
from core.ids import random_text
from core.turns import paused
from core.waiting import interruptible

logger = logging.getLogger(__name__)

T = TypeVar("T")

KEPT_SEC = 120
SILENCE_SEC = 90  # past the longest wait, a check's 60 s and the queue; redis-py would give up after 5


@cache
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=3, socket_timeout=SILENCE_SEC)


def new_address() -> str:
    return f"reply:{random_text(16)}"


def send(task: str, args: Sequence[Any], *, queue: str, patience_sec: float) -> bool:
    """Enqueue a task that expires after `patience_sec`. Return False if the broker does not accept it."""
    try:
        current_app.send_task(task, args, queue=queue, expires=patience_sec)
    except (OperationalError, redis.RedisError) as error:
        logger.warning("the broker does not answer: %s", error)
        return False
    return True


def ask(task: str, args: Sequence[Any], kind: type[T], *, queue: str, patience_sec: float) -> T | None:
    """Enqueue a task with a reply address as its last argument. Return its answer, or None if none came in time."""

    def send_task(address: str) -> bool:
        return send(task, [*args, address], queue=queue, patience_sec=patience_sec)

    return ask_by(send_task, kind, patience_sec=patience_sec)


def ask_by(send: Callable[[str], bool], kind: type[T], *, patience_sec: float) -> T | None:
    """Ask over a reply address. Return the answer, or None if none came in time or `send` returned False."""
    address = new_address()
    release_connection()
    try:
        if not send(address):
            return None
        with interruptible(partial(_end_wait, address)), paused():
            return wait(address, kind, timeout_sec=patience_sec)
    except redis.RedisError as error:
        logger.warning("the broker does not answer: %s", error)
        return None


def _end_wait(address: str) -> None:
    """Let the waiting thread return None. If the broker does not answer, its wait times out."""
    with suppress(redis.RedisError):
        post(address, None)


def post(address: str, answer: Any) -> None:
    """Send the answer. It expires if it is not fetched."""
    with _client(settings.REDIS_URL).pipeline() as pipe:
        pipe.rpush(address, msgspec.json.encode(answer))
        pipe.expire(address, KEPT_SEC)
        pipe.execute()


def wait(address: str, kind: type[T], *, timeout_sec: float) -> T | None:
    """Return the answer, or None if none came in time, it is no `kind`, or the task failed. Raises RedisError."""
    taken = _client(settings.REDIS_URL).blpop([address], timeout=timeout_sec)
    if taken is None:
        return None
    try:
        return msgspec.json.decode(taken[1], type=kind | None)
    except (ValueError, RecursionError) as error:
        logger.warning("dropped a malformed answer from the broker: %s", error)
        return None

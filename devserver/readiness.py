"""Check whether each kind of process answers."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime

WAIT_SECONDS = 60
LOOK_SECONDS = 0.2


def wait_until_answering(
    checks: Mapping[str, Callable[[], bool]], ending: threading.Event, *, seconds: float = WAIT_SECONDS
) -> list[str]:
    """Return the names of checks that still fail after `seconds`, or an empty list once `ending` is set."""
    open_checks = dict(checks)
    deadline = time.monotonic() + seconds
    while open_checks and time.monotonic() < deadline:
        for name in [name for name, answers in open_checks.items() if answers()]:
            del open_checks[name]
        if open_checks and ending.wait(LOOK_SECONDS):
            return []
    return list(open_checks)


def web_answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=2) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)
    except OSError:  # URLError, HTTPError and timeouts are all OSErrors
        return False


def worker_answers(node: str) -> bool:
    """Return whether a worker answers. `node` is the part of its --hostname before @."""
    from kombu.exceptions import OperationalError
    from redis import RedisError

    from config import celery_app

    name = f"{node}@{socket.gethostname()}"
    try:
        replies = celery_app.control.ping(destination=[name], timeout=1, limit=1)
    except (OperationalError, RedisError, OSError):  # the broker does not answer yet
        return False
    return any(name in reply for reply in replies or [])


def beat_answers(since: datetime) -> bool:
    """Return whether a tick passed from beat through the broker and a worker into the database."""
    from django.db import DatabaseError, connection

    from monitors.selectors import last_tick

    try:
        tick = last_tick()
    except DatabaseError:  # the database does not answer yet
        return False
    finally:
        connection.close()  # the connection of this thread
    return tick is not None and tick > since

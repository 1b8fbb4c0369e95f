"""Messages expire by the broker's clock, which senders and workers share: their own clocks may be wrong.

Beat imports this too, so it imports little.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

import celery
from celery.signals import before_task_publish
from celery.worker import request, state
from redis import RedisError

from core.clock import BROKER


def connect() -> None:
    """Connect the signal handler. Repeated calls have no effect."""
    before_task_publish.connect(_set_expiry)


def _set_expiry(headers: dict[str, Any], **_: object) -> None:
    """Replace the expiry, which Celery counted from this machine's clock."""
    if expires := headers.get("expires"):
        left = datetime.fromisoformat(expires).timestamp() - time.time()
        with suppress(RedisError):  # the message cannot be sent either
            headers["expires"] = datetime.fromtimestamp(BROKER.time() + left, UTC).isoformat()


class Request(request.Request):
    """A message that a worker has received."""

    def maybe_expire(self) -> Literal[True] | None:
        if self.expires is None or self.expires.timestamp() >= BROKER.time():
            return None
        state.revoked.add(self.id)
        return True


class Task(celery.Task):  # type: ignore[type-arg]
    Request = f"{__name__}:Request"

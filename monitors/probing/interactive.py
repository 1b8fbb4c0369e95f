"""Checks that somebody waits for: handed to a worker over queue `interactive`, the answer over the broker.

They never run in the web process, whose address no customer has allowed.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any, TypedDict, TypeVar

import msgspec
from celery import current_app
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from checks.spec import CheckOutcome, CheckSpec, Verdict
from core import replies
from core.clock import utc_now
from core.crypto import decrypt, encrypt
from core.db import release_connection
from core.errors import NoWorker
from monitors.models import Monitor, MonitorState

logger = logging.getLogger(__name__)

LOOK_SEC = 0.1
PATIENCE_SEC = 5.0  # what the queue may take on top of the check's own timeout

T = TypeVar("T")


class CheckResult(TypedDict):
    """A check's result as the API returns it."""

    status: Verdict
    latency_ms: int | None
    connect_ms: int | None
    ttfb_ms: int | None
    detail: str | None
    http_status: int | None


def first_check(monitor: Monitor, *, claim: int) -> bool:
    """Check a new monitor and wait until the result is recorded. Return False if none came in time."""
    answer = _ask("monitors.tasks.first_check", [monitor.pk, claim], bool, timeout_ms=monitor.timeout_ms)
    if not answer:
        logger.warning("no worker made the first check of %s in time", monitor.public_id)
    return bool(answer)


def check_claimed(monitor: Monitor, *, claim: int) -> bool:
    """Have a monitor checked under a claim of now, and wait for the result; False where none came in time."""
    return bool(_ask("monitors.tasks.first_check", [monitor.pk, claim], bool, timeout_ms=monitor.timeout_ms))


def enqueue_first_check(monitor: Monitor, *, claim: int) -> bool:
    """Ask for a new monitor's check without waiting for it; False where the broker does not take the question.

    A page leads on at once and shows the result when it is there. Should no worker take the task, the lease of the
    claim runs out and the scheduler has the check made.
    """
    patience = monitor.timeout_ms / 1000 + PATIENCE_SEC
    return _send("monitors.tasks.first_check", [monitor.pk, claim, replies.new_address()], patience=patience)


def await_first_check(monitor: Monitor, *, claim: int) -> None:
    """Wait for the first check that another request started, as long as that request may wait."""
    deadline = monitor.created_at + timedelta(milliseconds=monitor.timeout_ms, seconds=PATIENCE_SEC)
    under_way = MonitorState.objects.filter(
        pk=monitor.pk, claim=claim, claimed_at__isnull=False, last_checked_at=None
    )
    while utc_now() < deadline and under_way.exists():
        release_connection()
        time.sleep(LOOK_SEC)


def check_draft(spec: CheckSpec) -> CheckResult:
    """Return the result of a spec that is not stored; raises NoWorker if none came in time."""
    # Encrypted, because header values are secrets and the broker is no place for them.
    answer = _ask(
        "monitors.tasks.check_draft", [encrypt(dump_spec(spec))], CheckResult, timeout_ms=spec.timeout_ms
    )
    if answer is None:
        raise NoWorker
    return answer


def _ask(task: str, args: list[Any], kind: type[T], *, timeout_ms: int) -> T | None:
    patience = timeout_ms / 1000 + PATIENCE_SEC
    address = replies.new_address()
    release_connection()
    if not _send(task, [*args, address], patience=patience):
        return None
    try:
        return replies.wait(address, kind, timeout_sec=patience)
    except RedisError as error:
        logger.warning("the broker does not answer: %s", error)
        return None


def _send(task: str, args: list[Any], *, patience: float) -> bool:
    try:
        current_app.send_task(task, args, queue="interactive", expires=patience)
    except (OperationalError, RedisError) as error:
        logger.warning("the broker does not answer: %s", error)
        return False
    return True


def dump_spec(spec: CheckSpec) -> str:
    """Encode a spec of any protocol, under the name of its type."""
    return msgspec.json.encode((type(spec).__name__, spec)).decode()


def load_spec(encrypted: str) -> CheckSpec:
    from checks.probes.engine import PROTOCOLS  # loads libcurl, which only workers need

    name, encoded = msgspec.json.decode(decrypt(encrypted), type=tuple[str, msgspec.Raw])
    spec_type = {known.__name__: known for known in PROTOCOLS}[name]
    return msgspec.json.decode(encoded, type=spec_type)


def as_check_result(outcome: CheckOutcome) -> CheckResult:
    return {
        "status": outcome.verdict,
        "latency_ms": outcome.latency_ms,
        "connect_ms": outcome.connect_ms,
        "ttfb_ms": outcome.ttfb_ms,
        "detail": outcome.detail,
        "http_status": outcome.http_status,
    }

"""Checks whose callers wait: enqueued in `interactive`, with the reply sent through the broker.

They never run in the web process, because customers' firewalls do not allow its address.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from checks.addresses import UntestedError, tls_question
from checks.probes.http.evidence import HttpEvidence
from checks.spec import CheckOutcome, CheckSpec, ReasonCode, Verdict
from core import replies
from core.clock import utc_now
from core.crypto import decrypt, encrypt
from core.db import release_connection
from core.errors import NoWorker, TooManyRequests, ValidationFailed
from core.turns import paused
from core.waiting import limit_waiting
from monitors import services
from monitors.checking.results import CheckResult, as_check_result
from monitors.models import Monitor, MonitorState
from projects.access import Caller

logger = logging.getLogger(__name__)

LOOK_SEC = 0.1
BUSY = "Too many checks of this account are waiting for their targets; try again in a moment."
PATIENCE_SEC = 5.0  # for the queue, in addition to the check's timeout

T = TypeVar("T")


def check_claimed(monitor: Monitor, *, claim: int) -> bool:
    """Check a monitor under a current claim and wait until it is recorded. Return False if no result came in time."""
    answer = _ask("monitors.tasks.first_check", [monitor.pk, claim], bool, timeout_ms=monitor.timeout_ms)
    if not answer:
        logger.warning("no worker made the check of %s in time", monitor.public_id)
    return bool(answer)


def enqueue_first_check(monitor: Monitor, *, claim: int) -> bool:
    """Enqueue a new monitor's first check without waiting. Return False if the broker does not accept it.

    The page continues at once and shows the result when it arrives. If no worker takes the task, the claim's lease
    expires and the scheduler enqueues the check.
    """
    patience_sec = monitor.timeout_ms / 1000 + PATIENCE_SEC
    args = [monitor.pk, claim, replies.new_address()]
    return replies.send("monitors.tasks.first_check", args, queue="interactive", patience_sec=patience_sec)


def await_first_check(monitor: Monitor, *, claim: int) -> None:
    """Wait for the first check that another request started, but not longer than that request may wait."""
    deadline = monitor.created_at + timedelta(milliseconds=monitor.timeout_ms, seconds=PATIENCE_SEC)
    under_way = MonitorState.objects.filter(pk=monitor.pk, claim=claim, claimed_at__isnull=False, last_checked_at=None)
    while utc_now() < deadline and under_way.exists():
        release_connection()
        with paused():
            time.sleep(LOOK_SEC)


class DraftAnswer(msgspec.Struct, omit_defaults=True):
    """A worker's answer: the result and the evidence, or our own fault that prevented the check.

    `evidence` is that of any protocol: http has all fields that others have. `blocked`: the target may not be probed.
    """

    result: CheckResult | None = None
    evidence: HttpEvidence | None = None
    fault: str | None = None
    blocked: bool = False


def draft_answer(outcome: CheckOutcome) -> DraftAnswer:
    """Return the answer to the caller of a draft that was checked."""
    evidence: Any = outcome.evidence  # encoded with the fields that its protocol has
    return DraftAnswer(as_check_result(outcome), evidence, blocked=outcome.reason_code is ReasonCode.BLOCKED_TARGET)


def check_draft(spec: CheckSpec, *, owner_id: int) -> CheckResult:
    """Check an unsaved spec of an account and return the result.

    Raises NoWorker if none came in time, or the check did not run.
    """
    return _ask_for_draft(spec, owner_id)[0]


def explain_draft(spec: CheckSpec, *, owner_id: int) -> tuple[CheckResult, HttpEvidence | None]:
    """Like `check_draft`, and return also what was seen of the target, with secrets masked. Raises NoWorker."""
    result, answer = _ask_for_draft(replace(spec, explains=True), owner_id)
    return result, answer.evidence


def _ask_for_draft(spec: CheckSpec, owner_id: int) -> tuple[CheckResult, DraftAnswer]:
    encoded = msgspec.json.encode((type(spec).__name__, spec, owner_id)).decode()
    # Encrypted, because header values are secrets and must not be in the broker as plaintext.
    answer = _ask("monitors.tasks.check_draft", [encrypt(encoded)], DraftAnswer, timeout_ms=spec.timeout_ms)
    if answer is None:
        raise NoWorker
    if answer.result is None:
        raise NoWorker(answer.fault)
    return answer.result, answer


def begins_tls(caller: Caller, host: str, port: int) -> bool:
    """Return whether a server begins a TLS handshake, and True for one that may not be probed. Raises UntestedError."""
    try:
        spec = services.test_spec(services.config_of(caller, tls_question(host, port)))
    except (ValidationFailed, ValueError):
        return True  # the completed address is refused, for the reason that fits it
    try:
        with limit_waiting(caller.account):
            result, answer = _ask_for_draft(spec, caller.user.pk)
            return answer.blocked or result["status"] != Verdict.DOWN
    except (NoWorker, TooManyRequests) as error:
        raise UntestedError from error


def _ask(task: str, args: list[Any], kind: type[T], *, timeout_ms: int) -> T | None:
    patience_sec = timeout_ms / 1000 + PATIENCE_SEC
    return replies.ask(task, args, kind, queue="interactive", patience_sec=patience_sec)


def load_draft(encrypted: str) -> tuple[int, CheckSpec]:
    """Return the owner and the spec of any protocol that `_ask_for_draft` sent with the name of its type."""
    from checks.probes.engine import PROTOCOLS  # loads libcurl, which only workers need

    name, encoded, owner_id = msgspec.json.decode(decrypt(encrypted), type=tuple[str, msgspec.Raw, int])
    spec_type = {known.__name__: known for known in PROTOCOLS}[name]
    return owner_id, msgspec.json.decode(encoded, type=spec_type)

"""Checks whose callers wait: enqueued in `interactive`, with the reply sent through the broker.

They never run in the web process, because customers' firewalls do not allow its address.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from redis.exceptions import RedisError

from checks.addresses import UntestedError, tls_question
from checks.probes.http.evidence import HttpEvidence
from checks.spec import CheckOutcome, CheckSpec, ReasonCode, Verdict
from core import replies
from core.clock import utc_now
from core.crypto import encrypt
from core.db import release_connection
from core.errors import NoWorker, TooManyRequests, ValidationFailed
from core.turns import paused
from core.waiting import limit_waiting
from locations.models import DEFAULT
from locations.selectors import online_agents
from monitors import handing, services
from monitors.agents.leases import hand_to_agents
from monitors.checking.results import CheckResult, as_check_result
from monitors.models import NOBODY, Monitor, MonitorState
from monitors.recording import verifying
from monitors.scheduling import agents_of
from monitors.stale import NOWHERE
from projects.access import Caller

logger = logging.getLogger(__name__)

LOOK_SEC = 0.1
BUSY = "Too many checks of this account are waiting for their targets; try again in a moment."
PATIENCE_SEC = 5.0  # for the queue, in addition to the check's timeout

T = TypeVar("T")


def check_claimed(monitor: Monitor, *, claim: int) -> bool:
    """Check a monitor under a current claim and wait until it is recorded. Return False if no result came in time.

    A failure about which other locations are asked is recorded when they have answered.
    """
    deadline = utc_now() + _patience(monitor)
    if agents := agents_of({monitor.pk: claim}):
        is_done = _hand_over(monitor, claim, agents[monitor.pk])
    else:
        is_done = bool(_ask("monitors.tasks.first_check", [monitor.pk, claim], bool, timeout_ms=monitor.timeout_ms))
    if is_done and monitor.locations != [DEFAULT]:
        is_done = _await_end(monitor, claim, deadline=deadline)
    if not is_done:
        logger.warning("the check of %s was not made in time", monitor.public_id)
    return is_done


def _hand_over(monitor: Monitor, claim: int, agent: int) -> bool:
    """Hand a check to an agent. Return False if none is online, or the broker does not accept it."""
    try:
        hand_to_agents({(monitor.pk, claim): agent}, now=utc_now())
    except RedisError as error:
        logger.warning("the broker does not answer: %s", error)
        return False
    return agent != NOBODY


def _patience(monitor: Monitor) -> timedelta:
    """Return how long a caller waits for a check, with the answers of other locations."""
    own = timedelta(milliseconds=monitor.timeout_ms, seconds=PATIENCE_SEC)
    return own if len(monitor.locations) == 1 else 2 * own + verifying.PATIENCE


def _await_end(monitor: Monitor, claim: int, *, deadline: datetime) -> bool:
    """Wait until the claim is no longer open. Return False at the deadline."""
    under_way = MonitorState.objects.filter(pk=monitor.pk, claim=claim, claimed_at__isnull=False)
    while under_way.exists():
        if utc_now() >= deadline:
            return False
        release_connection()
        with paused():
            time.sleep(LOOK_SEC)
    return True


def enqueue_first_check(monitor: Monitor, *, claim: int) -> bool:
    """Enqueue a new monitor's first check without waiting. Return False if the broker does not accept it.

    The page continues at once and shows the result when it arrives. If no worker takes the task, the claim's lease
    expires and the scheduler enqueues the check.
    """
    if agents := agents_of({monitor.pk: claim}):
        return _hand_over(monitor, claim, agents[monitor.pk])
    patience_sec = monitor.timeout_ms / 1000 + PATIENCE_SEC
    args = [monitor.pk, claim, replies.new_address()]
    return replies.send("monitors.tasks.first_check", args, queue="interactive", patience_sec=patience_sec)


def await_first_check(monitor: Monitor, *, claim: int) -> None:
    """Wait for the first check that another request started, but not longer than that request may wait."""
    _await_end(monitor, claim, deadline=monitor.created_at + _patience(monitor))


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


def check_draft(spec: CheckSpec, *, owner_id: int, locations: Sequence[str] = (DEFAULT,)) -> CheckResult:
    """Check an unsaved spec of an account and return the result.

    The first of the locations that is online makes the check, a worker if the default location is one of them. Raises
    NoWorker if none came in time, or the check did not run.
    """
    return _ask_for_draft(spec, owner_id, locations)[0]


def explain_draft(
    spec: CheckSpec, *, owner_id: int, locations: Sequence[str]
) -> tuple[CheckResult, HttpEvidence | None]:
    """Like `check_draft`, and return also what was seen of the target, with secrets masked. Raises NoWorker."""
    result, answer = _ask_for_draft(replace(spec, explains=True), owner_id, locations)
    return result, answer.evidence


def _ask_for_draft(
    spec: CheckSpec, owner_id: int, locations: Sequence[str] = (DEFAULT,)
) -> tuple[CheckResult, DraftAnswer]:
    encoded = msgspec.json.encode((type(spec).__name__, spec, owner_id)).decode()
    # Encrypted, because header values are secrets and must not be in the broker as plaintext.
    draft = encrypt(encoded)
    if DEFAULT in locations:
        answer = _ask("monitors.tasks.check_draft", [draft], DraftAnswer, timeout_ms=spec.timeout_ms)
    else:
        answer = _ask_agent(draft, locations, timeout_ms=spec.timeout_ms)
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


def _ask_agent(draft: str, locations: Sequence[str], *, timeout_ms: int) -> DraftAnswer | None:
    agents = online_agents(utc_now())
    agent = next((agents[name][0] for name in locations if name in agents), None)
    if agent is None:
        raise NoWorker(NOWHERE)

    def send(address: str) -> bool:
        return not handing.push({agent: [handing.Item(0, 0, draft=draft, reply_to=address)]})

    return replies.ask_by(send, DraftAnswer, patience_sec=timeout_ms / 1000 + PATIENCE_SEC)


def _ask(task: str, args: list[Any], kind: type[T], *, timeout_ms: int) -> T | None:
    patience_sec = timeout_ms / 1000 + PATIENCE_SEC
    return replies.ask(task, args, kind, queue="interactive", patience_sec=patience_sec)

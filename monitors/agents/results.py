"""Store what agents found under their leases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from checks.agent_protocol import MAX_EVIDENCE_BYTES, Found, Results
from checks.spec import CheckOutcome, ReasonCode, Verdict
from core import replies
from core.errors import Unavailable, ValidationFailed
from monitors import metrics
from monitors.agents.leases import ForgedLease, Holder, Sealed, unseal
from monitors.checking import interactive
from monitors.recording import record
from monitors.recording.batch import CheckRecord
from monitors.recording.verifying import vote
from monitors.scheduling import note_faults, postpone, return_claims

NO_AGENT = 0
"""In place of an agent whose lease has ended: the result is history at most."""
_REASONS = frozenset(ReasonCode) - {
    ReasonCode.WORKER_LOST,
    ReasonCode.HEARTBEAT_MISSED,
    ReasonCode.HEARTBEAT_FAILED,
}

_Done = tuple[Sealed, Found, CheckOutcome]


class MonitorsLocked(Unavailable):
    """Other transactions have locked some of the monitors, for milliseconds: the agent's other results wait too."""

    reason = "Some of these monitors are being changed; send the results again in a moment."
    wait = 1


def decode(body: bytes) -> Sequence[Found]:
    """Return the results of a request. Raises ValidationFailed."""
    if b"\\u0000" in body:  # PostgreSQL's texts have none
        raise ValidationFailed("has the character U+0000.", field="results")
    try:
        results = msgspec.json.decode(body, type=Results).results
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValidationFailed(f"the body is not valid: {error}") from None
    for number, each in enumerate(results):
        if fault := _fault_of(each):
            raise ValidationFailed(fault, field=f"results[{number}]")
    return results


def store(holder: Holder, results: Sequence[Found], *, valid_since: datetime, now: datetime) -> None:
    """Store an agent's results, those that were stored before not again. Leases from before `valid_since` have ended.

    Raises ValidationFailed for a forged lease, and MonitorsLocked if others have locked some of the monitors.
    """
    start = time.monotonic()
    done = [_outcome(holder, each, number, now) for number, each in enumerate(results)]
    for sealed, _, outcome in done:
        if sealed.reply_to:
            _answer(sealed.reply_to, outcome)
    claims = [each for each in done if not each[0].reply_to]
    valid = [each for each in claims if each[0].leased_at >= valid_since]
    is_locked = False
    if votes := [_record_of(sealed, outcome, holder) for sealed, _, outcome in valid if sealed.votes]:
        is_locked = bool(vote(votes, now=now))
    _note_unmade([each for each in valid if not each[0].votes], now=now)
    made = [each for each in claims if each[1].verdict is not None and not each[0].votes]
    records = [
        _record_of(sealed, outcome, holder, counts=sealed.leased_at >= valid_since) for sealed, _, outcome in made
    ]
    if record(records, now=now, skip_locked=True) or is_locked:
        raise MonitorsLocked
    metrics.count_group([outcome for *_, outcome in made], seconds=time.monotonic() - start)


def _fault_of(found: Found) -> str | None:
    """Return what is wrong with a result, or None."""
    if found.evidence is not None and len(msgspec.json.encode(found.evidence)) > MAX_EVIDENCE_BYTES:
        return f"its evidence is longer than {MAX_EVIDENCE_BYTES} bytes."
    if found.verdict is Verdict.DOWN and (found.detail is None or found.reason_code not in _REASONS):
        return "a check that is down needs a detail, and the reason code of a probe."
    if found.verdict is Verdict.SLOW and found.detail is None:
        return "a slow check needs a detail."
    if found.verdict is Verdict.UP and (found.detail is not None or found.reason_code is not None):
        return "a check that is up has neither a detail nor a reason code."
    return None


def _outcome(holder: Holder, found: Found, number: int, now: datetime) -> _Done:
    try:
        sealed = unseal(found.lease, holder)
    except ForgedLease:
        raise ValidationFailed("the lease is not one of this agent.", field=f"results[{number}].lease") from None
    age = timedelta(milliseconds=found.age_ms)
    return sealed, found, found.outcome(checked_at=max(now - age, min(sealed.leased_at, now)))


def _record_of(sealed: Sealed, outcome: CheckOutcome, holder: Holder, *, counts: bool = True) -> CheckRecord:
    agent_id = holder.agent_id if counts else NO_AGENT
    key = (sealed.monitor_id, sealed.claim, sealed.config_version)
    return CheckRecord(*key, outcome, agent_id=agent_id, location_id=holder.location_id)


def _note_unmade(done: Sequence[_Done], *, now: datetime) -> None:
    """Give back the claims of checks that were not made, now or later, or leave them until their leases expire."""
    unmade = [
        ((sealed.monitor_id, sealed.claim), found, outcome) for sealed, found, outcome in done if not found.verdict
    ]
    if returned := [key for key, found, _ in unmade if found.retry_ms == 0]:
        return_claims(returned, now=now)
    postpone(
        {
            key: (outcome.detail or "", outcome.postponed)
            for key, found, outcome in unmade
            if found.retry_ms and outcome.postponed is not None
        },
        now=now,
    )
    note_faults({key: outcome.detail or "" for key, found, outcome in unmade if found.retry_ms is None})


def _answer(reply_to: str, outcome: CheckOutcome) -> None:
    """Answer the caller of a draft."""
    if outcome.reason_code is ReasonCode.WORKER_LOST:
        replies.post(reply_to, interactive.DraftAnswer(fault=outcome.detail))
    else:
        replies.post(reply_to, interactive.draft_answer(outcome))

"""Ask the other locations of a monitor about a failure that one of them saw, and decide whether it counts."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from django.db import transaction

from checks.agent_protocol import Found, found
from checks.evidence import Evidence
from checks.spec import CheckOutcome, ReasonCode
from locations.models import DEFAULT, Location
from locations.selectors import online_agents, titles_of
from monitors import handing
from monitors.models import Verification
from monitors.quorum import Decision, Vote, decide
from monitors.recording import fast_path
from monitors.recording.batch import CheckRecord, StateBatch, is_open, lock_batch

logger = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=5)
"""How long the answers of other locations may take, in addition to the timeout of the check."""
_LEASE = timedelta(seconds=20)
"""From the end of a verification to the end of its claim: the decision is made in between."""
MOST_DECIDED = 1_000
_CONFIRMED = {Decision.CONFIRMED: True, Decision.REFUTED: False, Decision.ALONE: None}
_ALONE = ("seen from one place", "no other location answered in time")


class Seen(msgspec.Struct, omit_defaults=True):
    """What a location saw. `failed` is None if its check was not made."""

    location: str
    at: datetime
    failed: bool | None = None
    verdict: str | None = None
    latency_ms: int | None = None
    detail: str | None = None


def begin(batch: StateBatch, records: Sequence[CheckRecord], *, now: datetime) -> list[CheckRecord]:
    """Ask about the failures that other locations may refute. Return the records that are to be settled now.

    Their claims stay open until the decision. A repeated record is dropped while it is awaited.
    """
    doubtful = [each for each in records if each.monitor_id in batch.monitors and _may_ask(batch, each)]
    if not doubtful:
        return [*records]
    open_ones = Verification.objects.in_bulk([each.monitor_id for each in doubtful])
    agents, names = online_agents(now), _public_ids(each.location_id for each in doubtful)
    asked: list[handing.Ask] = []
    begun: dict[int, Verification] = {}
    held = set()
    for each in doubtful:
        monitor = batch.monitors[each.monitor_id]
        earlier = begun.get(monitor.pk) or open_ones.get(monitor.pk)
        if earlier is not None and earlier.claim == each.claim:
            held.add(each.key)
            continue
        own = names[each.location_id]
        others = [one for one in monitor.locations if one != own and (one == DEFAULT or one in agents)]
        if not others:
            continue
        held.add(each.key)
        begun[monitor.pk] = Verification(
            monitor=monitor,
            claim=each.claim,
            config_version=each.config_version,
            location_id=each.location_id,
            began_at=now,
            ends_at=now + timedelta(milliseconds=monitor.timeout_ms) + PATIENCE,
            asked=others,
            outcome=_stored(each.outcome),
        )
        monitor.state.next_due_at = begun[monitor.pk].ends_at + _LEASE
        batch.move(monitor.state)
        # Agents of a location take turns.
        asked += [handing.Ask(one, _one_of(agents.get(one), each.claim), *each.key) for one in others]
    Verification.objects.bulk_create(
        begun.values(),
        update_conflicts=True,
        unique_fields=["monitor"],
        update_fields=["claim", "config_version", "location_id", "began_at", "ends_at", "asked", "outcome", "votes"],
    )
    transaction.on_commit(partial(handing.ask, asked))
    return [each for each in records if each.key not in held]


def vote(votes: Sequence[CheckRecord], *, now: datetime) -> set[int]:
    """Store what other locations saw, under the claim of the failure, and decide where nothing else can change it.

    Return the monitors that other transactions have locked. Their votes are to be stored later.
    """
    with transaction.atomic():
        wanted = {each.monitor_id for each in votes}
        locked = fast_path.try_lock_states(list(wanted))
        batch = lock_batch(wanted - locked)
        names = _public_ids(each.location_id for each in votes)
        open_ones = Verification.objects.in_bulk(batch.monitors)
        for each in votes:
            verification = open_ones.get(each.monitor_id)
            location = names.get(each.location_id)
            if verification is not None and verification.claim == each.claim and location in verification.asked:
                verification.votes.append(msgspec.to_builtins(_seen(location, each.outcome, now)))
        voted = [one for one in open_ones.values() if one.votes]
        left = _decide(batch, voted, now=now)
        Verification.objects.bulk_update(left, ["votes"])
    return locked


def decide_overdue(now: datetime) -> None:
    """Decide where answers are missing at the end of the time for them."""
    overdue = Verification.objects.filter(ends_at__lt=now).order_by("ends_at").values_list("pk", flat=True)
    if keys := list(overdue[:MOST_DECIDED]):
        with transaction.atomic():
            batch = lock_batch(keys, skip_locked=True)
            _decide(batch, Verification.objects.in_bulk(batch.monitors).values(), now=now)


def _decide(batch: StateBatch, verifications: Iterable[Verification], *, now: datetime) -> list[Verification]:
    """Settle what is decided, and return the others."""
    left, decided, records = [], [], []
    verifications = [*verifications]
    names = _public_ids(one.location_id for one in verifications)
    titles = titles_of({name for one in verifications for name in (names[one.location_id], *one.asked)})
    for one in verifications:
        monitor = batch.monitors[one.pk]
        try:
            votes, outcome = msgspec.convert(one.votes, list[Seen]), _loaded(one)
        except msgspec.ValidationError:  # it must not stop the dispatcher; its claim expires
            logger.exception("the verification of monitor %s cannot be read", one.pk)
            decided.append(one.pk)
            continue
        seen = [Seen(names[one.location_id], one.began_at, failed=True), *votes]
        decision = decide(
            [Vote(each.location, each.failed, each.at) for each in seen],
            asked=one.asked,
            began=one.began_at,
            ends=one.ends_at,
            now=now,
            quorum=monitor.quorum,
        )
        if decision is Decision.WAITING:
            left.append(one)
            continue
        decided.append(one.pk)
        _explain(outcome, seen, decision, titles, quorum=monitor.quorum)
        key = (one.pk, one.claim, one.config_version)
        records.append(CheckRecord(*key, outcome, location_id=one.location_id, confirmed=_CONFIRMED[decision]))
    if decided:
        batch.settle(records, now=now)
        batch.write()
        Verification.objects.filter(pk__in=decided).delete()
    return left


def _may_ask(batch: StateBatch, record: CheckRecord) -> bool:
    """Return whether the failure counts, if it is not refuted, and the monitor has other locations."""
    monitor = batch.monitors[record.monitor_id]
    has_others = monitor.locations is not None and len(monitor.locations) > 1 and monitor.kind.polls
    is_current = record.config_version == monitor.config_version and is_open(monitor.state, record)
    return has_others and is_current and monitor.enabled and not record.outcome.passed


def _seen(location: str, outcome: CheckOutcome, now: datetime) -> Seen:
    if outcome.reason_code is ReasonCode.WORKER_LOST:
        return Seen(location, now, detail=outcome.detail)
    return Seen(location, now, not outcome.passed, outcome.verdict, outcome.latency_ms, outcome.detail)


def _loaded(verification: Verification) -> CheckOutcome:
    """Return what the first location found. Raises msgspec.ValidationError."""
    stored = msgspec.convert(verification.outcome, Found)
    return stored.outcome(checked_at=msgspec.convert(verification.outcome["checked_at"], datetime))


def _explain(
    outcome: CheckOutcome, seen: Collection[Seen], decision: Decision, titles: Mapping[str, str], *, quorum: int | None
) -> None:
    """Add to the evidence where it is from, what other locations saw, and how many had to agree if not the quorum.

    The first of `seen` is the failed check itself.
    """
    evidence = outcome.evidence or Evidence()
    own, *others = ((titles.get(each.location, each.location), each) for each in seen)
    facts = [("checked from", own[0]), *((f"from {title}", _sentence(each)) for title, each in others)]
    if decision is Decision.ALONE:
        facts.append(_ALONE)
    answers = sum(each.failed is not None for each in seen)
    if decision is Decision.CONFIRMED and quorum is not None and quorum > answers:
        facts.append(("quorum", f"all {answers} locations that answered, instead of {quorum}"))
    outcome.evidence = replace(evidence, facts=(*evidence.facts, *facts))


def _sentence(seen: Seen) -> str:
    if seen.failed is None:
        return f"not checked: {seen.detail}"
    if seen.detail:
        return f"{seen.verdict}: {seen.detail}"
    return f"{seen.verdict}, answered in {seen.latency_ms} ms"


def _stored(outcome: CheckOutcome) -> dict[str, Any]:
    stored: dict[str, Any] = msgspec.to_builtins(found("", outcome, age_ms=0, took_ms=0))
    return stored | {"checked_at": outcome.checked_at.isoformat()}


def _public_ids(keys: Iterable[int | None]) -> Mapping[int | None, str]:
    """Return the public ids of locations. That of a deleted one is its key."""
    wanted = {key for key in keys if key is not None}
    found_ids: dict[int | None, str] = {None: DEFAULT, **{key: str(key) for key in wanted}}
    if wanted:
        found_ids |= dict(Location.objects.filter(pk__in=wanted).values_list("pk", "public_id"))
    return found_ids


def _one_of(agents: Sequence[int] | None, claim: int) -> int | None:
    return None if not agents else agents[claim % len(agents)]

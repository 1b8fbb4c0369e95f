"""Checks on demand, outside the schedule: made by workers, recorded and counted like any other.

A scheduler's check is an action at its target, and a heartbeat has no check: neither is checked on demand.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from checks.results.models import CheckResult
from checks.results.selectors import results_since
from core.bulk import BulkResult
from core.errors import MonitorPaused, NotFound, NoWorker, ValidationFailed
from monitors import scheduling
from monitors.models import LEASE_MARGIN, Monitor, MonitorState
from monitors.probing import interactive

logger = logging.getLogger(__name__)

BATCH = 200
SKEW = timedelta(minutes=5)  # how far a worker's clock, which dates the results, may be behind ours


class BrokerAway(Exception):
    """The broker did not accept checks to enqueue."""


def check_now(monitor: Monitor, *, now: datetime) -> CheckResult:
    """Check a monitor and return the result. Raises ValidationFailed, MonitorPaused, NotFound or NoWorker."""
    claims = _claim_one(monitor, now=now)
    if not interactive.check_claimed(monitor, claim=claims[monitor.pk]):
        give_back(claims, now=now)
        raise NoWorker
    result = results(claims, now=now).get(monitor.pk)
    if result is None:
        raise NoWorker
    return result


def start(monitor: Monitor, *, now: datetime) -> int:
    """Start a check without waiting, and return the claim of its future result.

    A running check is not started again. Raises ValidationFailed, MonitorPaused or NotFound.
    """
    with transaction.atomic():
        # Locked, so that of two concurrent requests one starts a check and the other finds it.
        states = MonitorState.objects.select_for_update(of=["self"])
        under_way = states.filter(monitor=monitor, monitor__enabled=True, claimed_at__isnull=False).first()
        if under_way is not None and monitor.kind.polls:
            return under_way.claim
        claims = _claim_one(monitor, now=now)
        transaction.on_commit(partial(_hand_out_or_give_back, claims, now=now))
    return claims[monitor.pk]


def _claim_one(monitor: Monitor, *, now: datetime) -> dict[int, int]:
    if not monitor.kind.polls:
        raise ValidationFailed(f"a {monitor.type} is not checked on demand.", field="type")
    claims = claim([monitor], now=now)
    if not claims:
        raise MonitorPaused if Monitor.objects.filter(pk=monitor.pk).exists() else NotFound
    return claims


def claim(monitors: Iterable[Monitor], *, now: datetime) -> dict[int, int]:
    """Claim monitors to check now. Return the claims by monitor, without paused and deleted ones."""
    claimed = scheduling.claim_now([monitor.pk for monitor in monitors], now=now)
    return {each.monitor_id: each.number for each in claimed}


def hand_out(claims: Mapping[int, int], *, now: datetime) -> None:
    """Enqueue the claims in batches. Raises BrokerAway; the caller must then give the claims back."""
    pairs = list(claims.items())
    for start in range(0, len(pairs), BATCH):
        try:
            # Not queued behind regular checks, because a caller waits.
            current_app.send_task(
                "monitors.tasks.probe_now",
                [pairs[start : start + BATCH]],
                expires=now + LEASE_MARGIN,
            )
        except (OperationalError, RedisError) as error:
            logger.warning("the broker does not answer: %s", error)
            raise BrokerAway from error


def begin(ids: Collection[int], *, now: datetime) -> BulkResult[Monitor]:
    """Start checks of the monitors with these keys without waiting. Return which were claimed and why others were not.

    The checks are enqueued on commit. If the broker does not accept them, they are due at once.
    """
    wanted: list[Monitor] = []
    left: Counter[str] = Counter()
    with transaction.atomic():
        for monitor in Monitor.objects.filter(pk__in=ids).select_related("state").order_by("pk"):
            if not monitor.kind.polls:
                left[f"a {monitor.type}, which is not checked on demand"] += 1
            elif monitor.enabled and monitor.state.claimed_at is not None:
                left["being checked already"] += 1
            else:
                wanted.append(monitor)
        claims = claim(wanted, now=now)
        done = [monitor for monitor in wanted if monitor.pk in claims]
        if len(done) < len(wanted):
            left["paused"] += len(wanted) - len(done)
        transaction.on_commit(partial(_hand_out_or_give_back, claims, now=now))
    return BulkResult(done, left)


def _hand_out_or_give_back(claims: Mapping[int, int], *, now: datetime) -> None:
    try:
        hand_out(claims, now=now)
    except BrokerAway:
        give_back(claims, now=now)


def results(claims: Mapping[int, int], *, now: datetime) -> dict[int, CheckResult]:
    """Return the results that these claims, made at `now`, have so far, by monitor.

    The result of a later claim counts too: after an expired lease the scheduler repeats the check.
    """
    return results_since(claims, since=now - SKEW)


def give_back(claims: Mapping[int, int], *, now: datetime) -> None:
    """Give back claims whose callers no longer wait. Their monitors are due at once for the scheduler."""
    scheduling.return_claims(list(claims.items()), now=now)

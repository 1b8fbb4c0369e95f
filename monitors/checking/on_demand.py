"""Checks on demand, outside the schedule: made by workers, recorded and counted like any other.

A scheduler's check is an action at its target, and a heartbeat has no check: neither is checked on demand.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
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
from monitors.agents.leases import hand_to_agents
from monitors.checking import interactive
from monitors.models import LEASE_MARGIN, Monitor, MonitorState
from monitors.recording import fast_path

logger = logging.getLogger(__name__)

BATCH = 200
SKEW = timedelta(minutes=5)  # how far a worker's clock, which dates the results, may be behind ours


def check_now(monitor: Monitor, *, now: datetime) -> CheckResult:
    """Check a monitor and return the result. Raises ValidationFailed, MonitorPaused, NotFound or NoWorker."""
    claims = _claim_one(monitor, now=now)
    if not interactive.check_claimed(monitor, claim=claims[monitor.pk]):
        scheduling.return_claims(claims.items(), now=now)
        raise NoWorker(faults(claims).get(monitor.pk))
    result = results(claims, now=now).get(monitor.pk)
    if result is None:
        raise NoWorker
    return result


def start(monitor: Monitor, *, now: datetime) -> int:
    """Start a check without waiting, and return the claim of its future result.

    A running check is not started again. Raises ValidationFailed, MonitorPaused or NotFound.
    """
    with transaction.atomic():
        # Of two concurrent requests one starts a check and the other finds it.
        fast_path.lock_states([monitor.pk])
        states = MonitorState.objects.filter(monitor=monitor, monitor__enabled=True)
        under_way = states.exclude(claimed_at=None).first()
        if under_way is not None and monitor.kind.polls:
            return under_way.claim
        claims = _claim_one(monitor, now=now)
        transaction.on_commit(partial(hand_out, claims, now=now))
    return claims[monitor.pk]


def _claim_one(monitor: Monitor, *, now: datetime) -> dict[int, int]:
    if not monitor.kind.polls:
        raise ValidationFailed(f"a {monitor.type} is not checked on demand.", field="type")
    claims = scheduling.claim_now([monitor.pk], now=now)
    if not claims:
        raise MonitorPaused if Monitor.objects.filter(pk=monitor.pk).exists() else NotFound
    return claims


def hand_out(claims: Mapping[int, int], *, now: datetime) -> bool:
    """Enqueue the claims in batches. Give all of them back and return False if the broker does not accept one."""
    elsewhere = scheduling.agents_of(claims)
    pairs = [pair for pair in claims.items() if pair[0] not in elsewhere]
    try:
        hand_to_agents({(key, claims[key]): agent for key, agent in elsewhere.items()}, now=now)
        for start in range(0, len(pairs), BATCH):
            # Not queued behind regular checks, because a caller waits.
            batch = pairs[start : start + BATCH]
            current_app.send_task("monitors.tasks.probe_now", [batch], expires=LEASE_MARGIN.total_seconds())
    except (OperationalError, RedisError) as error:
        logger.warning("the broker does not answer: %s", error)
        scheduling.return_claims(claims.items(), now=now)
        return False
    return True


def begin(ids: Collection[int], *, now: datetime) -> BulkResult[Monitor]:
    """Start checks of the monitors with these keys without waiting. Return which were claimed and why others were not.

    The checks are enqueued on commit. If the broker does not accept them, they are due at once.
    """
    wanted: list[Monitor] = []
    left: Counter[str] = Counter()
    with transaction.atomic():
        fast_path.lock_states(list(ids))
        for monitor in Monitor.objects.filter(pk__in=ids).select_related("state").order_by("pk"):
            if not monitor.kind.polls:
                left[f"a {monitor.type}, which is not checked on demand"] += 1
            elif monitor.enabled and monitor.state.claimed_at is not None:
                left["being checked already"] += 1
            else:
                wanted.append(monitor)
        claims = scheduling.claim_now([monitor.pk for monitor in wanted], now=now)
        done = [monitor for monitor in wanted if monitor.pk in claims]
        if len(done) < len(wanted):
            left["paused"] += len(wanted) - len(done)
        transaction.on_commit(partial(hand_out, claims, now=now))
    return BulkResult(done, left)


def faults(ids: Collection[int]) -> dict[int, str]:
    """Return our own faults that prevented the last checks of the monitors with these keys, by monitor."""
    prevented = MonitorState.objects.filter(monitor__in=list(ids)).exclude(fault=None)
    return {key: fault or "" for key, fault in prevented.values_list("monitor_id", "fault")}


def results(claims: Mapping[int, int], *, now: datetime) -> dict[int, CheckResult]:
    """Return the results that these claims, made at `now`, have so far, by monitor.

    The result of a later claim counts too: after an expired lease the scheduler repeats the check.
    """
    return results_since(claims, since=now - SKEW)

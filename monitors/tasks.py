"""Celery tasks of monitors. A message contains ids and claims; everything else is read when the task runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from celery import shared_task
from celery.signals import worker_shutdown
from django.conf import settings
from django.db import InterfaceError, OperationalError

from checks.spec import CheckOutcome, ReasonCode, Verdict
from core import replies
from core.clock import utc_now
from core.db import release_connection, write_page
from core.egress import EgressGuard
from core.metrics import ProcessReports, read_processes
from core.outbound import guard, trust_store
from monitors import bulk_edits, handing, metrics, scheduling, types
from monitors.agents.leases import claim_due, hand_to_agents, watch_agents
from monitors.checking import interactive
from monitors.checking.jobs import CheckJob, load_draft, load_jobs, startable
from monitors.checking.runner import drain, runner
from monitors.expiry import registrations, warnings
from monitors.heartbeats import excess, gaps
from monitors.heartbeats.services import sweep
from monitors.models import LEASE_MARGIN, DomainRegistration
from monitors.recording import answers, record, verifying
from monitors.recording.batch import CheckRecord
from monitors.scheduling import time_zones
from monitors.scheduling.backlog import queued
from monitors.uptime import daily

if TYPE_CHECKING:
    from checks.rdap import RdapClient

logger = logging.getLogger(__name__)

PROBES = "probes"
BATCH = 500
# Batches that may wait in the broker for each worker: more than it can do before the next tick, and no leases expire.
QUEUED_PER_WORKER = 10
LEAST_WORKERS = 2  # as if these were alive, until workers have reported
CLAIMS_AT_ONCE = 2_000
LOOKUPS_PER_RUN = 20
LOAD_TRIES, LOAD_RETRY_SEC = 20, 0.5
_tick_began: tuple[datetime, float] | None = None  # PostgreSQL's time, and that of the monotonic clock
_tick_ended: float | None = None  # monotonic
TEST_WRITES_EVERY_SEC = 10.0
_written: tuple[datetime, float] | None = None  # the last test of writes that succeeded, as `_tick_began`
_write_failed = False
STOP_SEC = 2.5  # for running checks to end when the worker stops


@shared_task(name="monitors.tasks.dispatch_due")
def dispatch_due() -> None:
    """Run one tick of the scheduler: claim due monitors, the most overdue first, and enqueue them in batches.

    It claims no more checks than workers can take. Unclaimed monitors wait in the database, where the backlog is
    visible and no lease runs. In the broker their leases would expire, and they would be checked twice.
    """
    global _tick_began, _tick_ended
    start = time.monotonic()
    now = utc_now()
    refused_since = _test_writes(now, start)
    scheduling.tick(
        now,
        refused_since=refused_since,
        idle_for=None if _tick_ended is None else timedelta(seconds=start - _tick_ended),
        step=timedelta() if _tick_began is None else now - _tick_began[0] - timedelta(seconds=start - _tick_began[1]),
    )
    _tick_began = now, start
    reports = read_processes()
    gaps.watch(now, reports.get("web", ProcessReports()))
    verifying.decide_overdue(now)
    workers = reports.get("worker", ProcessReports())
    _dispatch(
        now, workers=workers.alive, agents=watch_agents(now, has_workers=workers.alive > 0 or not workers.last_at)
    )
    _tick_ended = time.monotonic()
    metrics.DISPATCH_SECONDS.observe((_tick_ended - start,))


def _test_writes(now: datetime, start: float) -> datetime | None:
    """Raise OperationalError while PostgreSQL's disk is full. Return since when writes may have failed until now.

    Without this test the tick, which needs no new page, would succeed while pings are refused.
    """
    global _written, _write_failed
    if _written is not None and not _write_failed and start - _written[1] < TEST_WRITES_EVERY_SEC:
        return None
    since = _written[0] if _write_failed and _written is not None else None
    _write_failed = True
    write_page()
    _written, _write_failed = (now, start), False
    return since


def _dispatch(now: datetime, *, workers: int, agents: scheduling.Agents) -> None:
    most = QUEUED_PER_WORKER * max(workers, LEAST_WORKERS)
    room = (most - queued(PROBES)) * BATCH
    without_turns = CLAIMS_AT_ONCE * max(workers, LEAST_WORKERS)  # behind so many, no account waits long
    while room > 0:
        limit = min(room, CLAIMS_AT_ONCE)
        claims, due = claim_due(now, limit=limit, agents=agents, room=min(room, without_turns))
        _hand_out(claims, now)
        if due < limit:
            return
        room -= sum(claim.agent_id is None for claim in claims)
    logger.warning("the workers are behind: up to %d batches wait", most)
    metrics.DISPATCH_HELD_BACK.add()
    # Missed pings need no worker.
    while _hand_out(scheduling.claim_due(now, limit=CLAIMS_AT_ONCE, only=types.waiting()), now) == CLAIMS_AT_ONCE:
        pass


def _hand_out(claims: Sequence[scheduling.Claim], now: datetime) -> int:
    """Pass each claim to its handler. Return the number of claims."""
    metrics.count_claims(
        [claim.type for claim in claims],
        again=sum(claim.again and not claim.lost for claim in claims),
        triggers=sum(claim.lost for claim in claims),
    )
    waiting = types.waiting()  # not `types.get`, which fails for a type of a newer version
    heartbeats = [claim.monitor_id for claim in claims if claim.type in waiting]
    probed = [claim.key for claim in claims if claim.agent_id is None and claim.type not in waiting and not claim.lost]
    elsewhere = {claim.key: claim.agent_id for claim in claims if claim.agent_id is not None and not claim.lost}
    start = 0
    try:
        if heartbeats and sweep(heartbeats, now=now):
            ask_canary.apply_async(expires=gaps.CONFIRMED_WITHIN.total_seconds())
        if lost := [_lost(claim, now) for claim in claims if claim.lost]:
            record(lost, now=now)
        for start in range(0, len(probed), BATCH):
            # A batch that starts later than this could outlast its leases and be checked twice.
            probe_batch.apply_async((probed[start : start + BATCH],), expires=LEASE_MARGIN.total_seconds())
        start = len(probed)
        hand_to_agents(elsewhere, now=now)
    except Exception:
        # Otherwise all would wait for their leases to expire, although what failed may recover in a second.
        scheduling.return_claims([*probed[start:], *elsewhere], now=now)
        raise
    return len(claims)


@shared_task(name="monitors.tasks.ask_canary")
def ask_canary() -> None:
    """Check by a request to BASE_URL whether pings and pages are answered."""
    # Imported here, because most workers do not need its libraries.
    from monitors.heartbeats import own_requests

    own_requests.ask()


@shared_task(name="monitors.tasks.probe_batch")
def probe_batch(claims: list[tuple[int, int]]) -> None:
    """Submit a batch to this process's runner, which records the results. Wait while it is full."""
    runner().submit(_load(claims))


@shared_task(name="monitors.tasks.probe_now")
def probe_now(claims: list[tuple[int, int]]) -> None:
    """Check a batch on demand, as far as there is room beside checks whose callers wait. The rest is due at once.

    Unlike `probe_batch`, it must not wait for room: first checks, tests and alerts use the same threads.
    """
    if left := runner().offer(_load(claims)):
        scheduling.return_claims([job.key for job in left], now=utc_now())


@shared_task(name=handing.VERIFY)
def verify(claims: list[tuple[int, int]]) -> None:
    """Check whether the default location sees failures that other locations saw, as far as there is room."""
    runner().offer(replace(job, votes=True) for job in _load(claims))


@shared_task(name="monitors.tasks.first_check")
def first_check(monitor_id: int, claim: int, reply_to: str) -> None:
    """Check a monitor whose caller waits. The reply says only whether the result was recorded."""
    jobs = _load([(monitor_id, claim)])

    def answer(outcome: CheckOutcome | None) -> None:
        replies.post(reply_to, outcome is not None)

    if not jobs:
        answer(None)
    elif not runner().ask(jobs[0], owner_id=jobs[0].owner_id, then=answer):
        scheduling.return_claims([jobs[0].key], now=utc_now())
        answer(None)


@shared_task(name="monitors.tasks.note_excess")
def note_excess() -> None:
    """Note jobs that run more often than expected."""
    excess.note_excess(utc_now())


@shared_task(name="monitors.tasks.write_days")
def write_days() -> None:
    """Write each monitor's uptime of past days, and delete old days and old notes."""
    now = utc_now()
    daily.write_days(now)
    daily.forget_old_days(now)
    answers.forget_old_changes(now)
    excess.forget_old_excess(now)


@shared_task(name="monitors.tasks.apply_tzdata")
def apply_tzdata() -> None:
    """Recompute what was computed with other data of time zones than this process has."""
    time_zones.recompute(utc_now())


@shared_task(name="monitors.tasks.forget_bulk_edits")
def forget_bulk_edits() -> None:
    bulk_edits.forget(utc_now())


@shared_task(name="monitors.tasks.refresh_registrations")
def refresh_registrations() -> None:
    """Look up due registrations, one after the other. Overlapping runs share the work."""
    registrations.remove_unused(utc_now())
    for _ in range(LOOKUPS_PER_RUN):
        registration = registrations.claim_lookup(utc_now())
        if registration is None:
            return
        release_connection()
        _look_up(registration)


@shared_task(name="monitors.tasks.warn_of_expiries")
def warn_of_expiries() -> None:
    """Record warnings for certificates and registrations that expire soon."""
    warnings.warn_of_expiries(utc_now())


@shared_task(name="monitors.tasks.check_draft")
def check_draft(encrypted_spec: str, reply_to: str) -> None:
    """Check an unsaved configuration and reply with the result."""

    def answer(outcome: CheckOutcome | None) -> None:
        if outcome is None or outcome.reason_code is ReasonCode.WORKER_LOST:
            fault = None if outcome is None else outcome.detail
            logger.error("a draft was not checked: %s", fault)
            replies.post(reply_to, interactive.DraftAnswer(fault=fault))
        else:
            replies.post(reply_to, interactive.draft_answer(outcome))

    owner_id, spec = load_draft(encrypted_spec)
    if not runner().ask(spec, owner_id=owner_id, then=answer):
        replies.post(reply_to, interactive.DraftAnswer(fault=interactive.BUSY))


@worker_shutdown.connect
def leave(**_: object) -> None:
    """Stop this worker: running checks get a short grace, all others are due again at once."""
    if left := drain(grace_sec=STOP_SEC):
        logger.warning("%d claims of checks were released", left)


def _load(claims: Sequence[tuple[int, int]]) -> list[CheckJob]:
    """Return the jobs of the claims. Wait while the database is away, but not longer than the leases last."""
    for _ in range(LOAD_TRIES):
        try:
            return startable(load_jobs(claims))
        except (OperationalError, InterfaceError) as error:
            logger.warning("a batch waits for the database: %s", error)
            time.sleep(LOAD_RETRY_SEC)
        finally:
            release_connection()
    return startable(load_jobs(claims))


def _lost(claim: scheduling.Claim, now: datetime) -> CheckRecord:
    outcome = CheckOutcome(
        verdict=Verdict.DOWN,
        checked_at=now,
        reason_code=ReasonCode.WORKER_LOST,
        detail="The trigger may have been sent, but the worker that sent it was lost before the answer arrived.",
    )
    return CheckRecord(claim.monitor_id, claim.number, claim.config_version, outcome)


def _look_up(registration: DomainRegistration) -> None:
    # Imported here, because other workers do not need these modules and each would use memory for them.
    from checks.domains import top_level
    from checks.rdap import LookupFailed, NoRegistry, RegistryBusy

    try:
        expires_at = _rdap_client(guard(), trust_store(), settings.RDAP_BOOTSTRAP_URL).look_up(
            registration.name, now=utc_now()
        )
    except RegistryBusy as refusal:
        suffix = top_level(registration.name)
        logger.warning("the registry of .%s is left alone for %s", suffix, refusal.retry_after)
        registrations.put_off(suffix, refusal.retry_after, error=str(refusal), now=utc_now())
    except NoRegistry as gap:
        registrations.record_failure(registration, str(gap), now=utc_now(), retry_after=registrations.UNSUPPORTED_RETRY)
    except LookupFailed as failure:
        logger.info("the lookup of %s failed: %s", registration.name, failure)
        registrations.record_failure(registration, str(failure), now=utc_now())
    else:
        registrations.record_expiry(registration, expires_at, now=utc_now())


@cache
def _rdap_client(guard: EgressGuard, ca_file: str | None, bootstrap_url: str) -> RdapClient:
    """Return this process's client, which keeps the list of registries."""
    from checks.rdap import RdapClient
    from core.http import GuardedSession

    schemes = {"https", "http"} if bootstrap_url.startswith("http:") else {"https"}
    session = GuardedSession(guard, ca_file=ca_file, schemes=frozenset(schemes))
    return RdapClient(session, bootstrap_url)

"""What workers do. A message carries ids and claims; everything else is read when it is worked on."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime

from celery import shared_task

from checks import mailbox
from checks.engine import probe_engine
from checks.spec import CheckOutcome, ReasonCode, Verdict
from core.clock import utc_now
from core.db import release_connection
from monitors import interactive, pulses, scheduling
from monitors.drafts import MonitorType
from monitors.models import LEASE_MARGIN
from monitors.recording import Reading, record
from monitors.selectors import Assignment, load_assignments

logger = logging.getLogger(__name__)

BATCH = 100
CLAIMS_PER_TICK = 2_000
LINGER_SEC = 0.05  # results that come this close together are recorded together
MOST_AT_ONCE = 200


@shared_task(name="monitors.tasks.dispatch_due")
def dispatch_due() -> None:
    """One tick of the scheduler: claim what is due and hand it out in batches."""
    now = utc_now()
    scheduling.tick(now)
    claims = scheduling.claim_due(now, limit=CLAIMS_PER_TICK)
    probed = [claim for claim in claims if claim.type != MonitorType.HEARTBEAT and not claim.lost]
    for start in range(0, len(probed), BATCH):
        batch = probed[start : start + BATCH]
        # A batch that starts later than this could outlast its leases, and be checked a second time meanwhile.
        probe_batch.apply_async(
            ([(claim.monitor_id, claim.number) for claim in batch],), expires=now + LEASE_MARGIN
        )
    heartbeats = [claim.monitor_id for claim in claims if claim.type == MonitorType.HEARTBEAT]
    if heartbeats:
        pulses.sweep(heartbeats, now=now)
    if lost := [_lost(claim, now) for claim in claims if claim.lost]:
        record(lost, now=now)


@shared_task(name="monitors.tasks.probe_batch")
def probe_batch(claims: list[tuple[int, int]]) -> None:
    """Probe all of a batch at once and record results as they come: a target that hangs delays only itself."""
    _probe(claims)


@shared_task(name="monitors.tasks.first_check")
def first_check(monitor_id: int, claim: int, reply_to: str) -> None:
    """The check of a new monitor, which its creator waits for. The answer says only whether it is recorded."""
    mailbox.post(reply_to, _probe([(monitor_id, claim)]) > 0)


@shared_task(name="monitors.tasks.check_draft")
def check_draft(sealed_spec: str, reply_to: str) -> None:
    """The check of a draft that is stored nowhere."""
    outcome = probe_engine().check(interactive.load_spec(sealed_spec))
    if outcome.reason_code is ReasonCode.WORKER_LOST:
        logger.error("a draft was not checked: %s", outcome.detail)
        return
    mailbox.post(reply_to, interactive.as_check_result(outcome))


def _probe(claims: list[tuple[int, int]]) -> int:
    """How many results came of the claims, all of them recorded."""
    assignments = _startable(load_assignments(claims))
    release_connection()
    recorded = 0
    for readings in _gather(assignments):
        record(readings, now=utc_now())
        release_connection()
        recorded += len(readings)
    return recorded


def _lost(claim: scheduling.Claim, now: datetime) -> Reading:
    outcome = CheckOutcome(
        verdict=Verdict.DOWN,
        checked_at=now,
        reason_code=ReasonCode.WORKER_LOST,
        detail="The trigger may have been sent, but the worker that sent it was lost before the answer came.",
    )
    return Reading(claim.monitor_id, claim.number, claim.config_version, outcome)


def _startable(assignments: list[Assignment]) -> list[Assignment]:
    """All but the triggers whose slot has been fired already."""
    runs = {
        scheduling.Claim(assignment.monitor_id, assignment.claim): assignment
        for assignment in assignments
        if assignment.type == MonitorType.SCHEDULER
    }
    if not runs:
        return assignments
    started = scheduling.start_runs(runs.keys())
    again = {assignment.monitor_id for claim, assignment in runs.items() if claim not in started}
    return [assignment for assignment in assignments if assignment.monitor_id not in again]


def _gather(assignments: Sequence[Assignment]) -> Iterator[list[Reading]]:
    """Readings in the order they come about, in groups that are worth a transaction.

    The probes run in a thread of their own: were recording to hold their loop up, its time would be
    counted as the targets' latency.
    """
    done: queue.SimpleQueue[Reading | None] = queue.SimpleQueue()

    def finish(assignment: Assignment, outcome: CheckOutcome) -> None:
        if outcome.reason_code is ReasonCode.WORKER_LOST:
            # Our own fault says nothing about the target. The lease runs out, and another worker tries.
            logger.error("check of monitor %s was not made: %s", assignment.monitor_id, outcome.detail)
            return
        done.put(Reading(assignment.monitor_id, assignment.claim, assignment.config_version, outcome))

    def run() -> None:
        try:
            probe_engine().run(((assignment, assignment.spec) for assignment in assignments), finish)
        finally:
            done.put(None)

    prober = threading.Thread(target=run, name="probes")
    prober.start()
    open_ended = True
    while open_ended:
        group: list[Reading] = []
        reading = done.get()
        while reading is not None:
            group.append(reading)
            if len(group) == MOST_AT_ONCE:
                break
            try:
                reading = done.get(timeout=LINGER_SEC)
            except queue.Empty:
                break
        else:
            open_ended = False
        if group:
            yield group
    prober.join()

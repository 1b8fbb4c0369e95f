"""A worker's single probe loop: any task submits checks, and results are recorded in groups as they arrive.

All batches share the loop, so a hanging target occupies a slot but no thread, and delays neither its own batch nor
the next. A full loop preempts a check of the account with the most slots for one of an account with fewer, so hanging
targets of some accounts do not delay checks of others. A preempted check releases its claim. Tasks block while too many
checks wait to be started or recorded, so the worker receives no more messages from the queue.
"""

from __future__ import annotations

import logging
import os
import queue
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from redis.exceptions import RedisError

from checks.own_network import OwnNetwork, dropped, is_within
from checks.probes.engine import ProbeEngine
from checks.probes.loop import Party
from checks.probes.ping.rights import may_ping
from checks.probes.rate_limit import RateLimiter
from checks.probes.resolver import Resolver
from checks.spec import CheckOutcome, CheckSpec, ReasonCode
from checks.verdict import Failure, failed, own_fault
from core.clock import utc_now
from core.db import release_connection
from core.metrics import CHECK_SEC, LATE
from core.outbound import guard, trust_store
from monitors import metrics
from monitors.checking import own_network
from monitors.checking.jobs import CheckJob
from monitors.checking.rate_limit import SharedSeconds
from monitors.recording import record
from monitors.recording.batch import CheckRecord
from monitors.recording.verifying import vote
from monitors.scheduling import note_faults, postpone, return_claims

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 4_000  # bounds descriptors and memory of a worker
MAX_WAITING = 4_000  # to be started, or to be recorded
MAX_ASKED = MAX_IN_FLIGHT // 2
"""Checks whose callers wait. Their web processes may have given up since."""
MAX_ASKED_OF_OWNER = MAX_ASKED // 16
ASKED_RESERVED = MAX_ASKED // 4
"""The last places, for owners that have none."""
LINGER_SEC = 0.2  # results this close together are recorded together, as each transaction costs CPU
LINGER_ASKED_SEC = 0.05  # with one that a caller waits for, at most
MOST_AT_ONCE = 500
_CHECK_TIME = timedelta(seconds=CHECK_SEC)
_RETRY_SEC = 0.5
_LAST_WRITE_SEC = 2.0
_LEAST_POSTPONED_SEC = 2.0
_BROKEN = 70  # EX_SOFTWARE
_NO_SLOT = own_fault("too many checks of its account are waiting for targets that do not answer")
_TOO_LATE = own_fault("too many checks of other accounts came before it")

Then = Callable[[CheckOutcome | None], object]
_Key = tuple[int, int]  # (monitor, claim)


@dataclass(slots=True, eq=False)
class _Running:
    """A running check, of an unsaved configuration if `job` is None. `started_at` is by the monotonic clock.

    `due_at` is the slot of a scheduled check.
    """

    job: CheckJob | None
    owner_id: int
    timeout_ms: int
    then: Then | None
    started_at: float
    due_at: datetime | None = None
    admitted: bool = False

    @property
    def party(self) -> Party:
        if self.job is None:
            return str(self.owner_id), None
        # A scheduled check that has to wait for its turn comes back.
        return str(self.owner_id), str(self.job.monitor_id)

    @property
    def comes_back_sec(self) -> float:
        """When the check comes back if it has no slot: what occupies them may take as long as the check itself."""
        return max(_LEAST_POSTPONED_SEC, self.timeout_ms / 2_000)

    def __str__(self) -> str:
        return "a draft" if self.job is None else f"monitor {self.job.monitor_id} claim {self.job.claim}"


_Done = tuple[CheckJob, Then | None, CheckOutcome, float]  # with the seconds it took


class CheckRunner:
    """Runs and records checks in its own threads. One per process, created for the first check.

    At most `most_in_flight` checks run at the same time.
    """

    def __init__(self, engine: ProbeEngine) -> None:
        self.most_in_flight = MAX_IN_FLIGHT
        self._waiting = 0  # to be started or recorded
        self._blocked = 0  # tasks that wait for room
        self._counting = threading.Lock()
        self._room = threading.Condition(self._counting)
        # Those in the loop, by account, in the order of their starts; for its thread alone.
        self._slots: dict[int, dict[_Running, None]] = {}
        self._taken = 0
        self._done: queue.SimpleQueue[_Done | None] = queue.SimpleQueue()
        self._network = OwnNetwork(settings.CONNECTIVITY_TARGETS)
        own_network.follow(self._network)
        self._service = engine.service(
            self._finish, on_slow=_note_slow, party_of=lambda check: check.party, admit=self._admit
        )
        self._open: set[tuple[int, int]] = set()  # (monitor, claim) of running checks
        self._asked: Counter[int] = Counter()  # running checks whose callers wait, by owner
        self._leaving = threading.Event()
        self._lock = threading.Lock()
        self._callers = ThreadPoolExecutor(max_workers=8, thread_name_prefix="probe-answers")
        self._loop = _lasting(self._service.run, "prober")
        self._recorder = _lasting(self._record, "recorder")
        _lasting(self._network.run, "own-network").start()
        self._loop.start()
        self._recorder.start()
        metrics.IN_FLIGHT.follow(lambda: self.in_flight)
        metrics.WITHOUT_PINGS.follow(lambda: not may_ping())

    @property
    def in_flight(self) -> int:
        """Return the number of checks that this process has claimed and not recorded yet."""
        return len(self._open)

    def submit(self, jobs: Iterable[CheckJob], *, then: Then | None = None) -> None:
        """Submit all checks. Block while too many wait.

        `then`, if passed, is called for each check, in any thread: with its outcome once recorded, or with None if
        it is not recorded.
        """
        left = list(jobs)
        while left:
            room = self._enter(len(left), most=MAX_WAITING)
            self._start(left[:room], then, is_scheduled=then is None)
            del left[:room]

    def ask(self, check: CheckJob | CheckSpec, *, owner_id: int, then: Then) -> bool:
        """Check a monitor, or an unsaved configuration, whose caller waits. Return False if all places are taken.

        `then` is called as in `submit`. Never blocks, because alerts use the same threads.
        """
        with self._lock:
            own, free = self._asked[owner_id], MAX_ASKED - self._asked.total()
            if own >= MAX_ASKED_OF_OWNER or free <= (ASKED_RESERVED if own else 0):
                return False
            if not self._enter(1, most=MAX_WAITING, wait=False):
                return False
            self._asked[owner_id] += 1

        def answer(outcome: CheckOutcome | None) -> None:
            with self._lock:
                self._asked -= Counter([owner_id])  # drops owners without checks
            then(outcome)

        if isinstance(check, CheckJob):
            self._start([check], answer, is_scheduled=False)
        else:
            self._service.submit(_Running(None, owner_id, check.timeout_ms, answer, time.monotonic()), check)
        return True

    def offer(self, jobs: Iterable[CheckJob]) -> list[CheckJob]:
        """Check as many as fit into half of the loop, without waiting. Return the others.

        The other half is for checks whose callers wait.
        """
        left = []
        for job in jobs:
            if self.in_flight < self.most_in_flight // 2 and self._enter(1, most=MAX_WAITING // 2, wait=False):
                self._start([job], None, is_scheduled=False)
            else:
                left.append(job)
        return left

    def _start(self, jobs: Sequence[CheckJob], then: Then | None, *, is_scheduled: bool) -> None:
        # The claims of votes are not released when this process stops: the failure is decided without the vote.
        with self._lock:
            self._open.update(job.key for job in jobs if not job.votes)
        now = time.monotonic()
        checks = []
        for job in jobs:
            due_at = job.slot_at if is_scheduled else None
            checks.append((_Running(job, job.owner_id, job.spec.timeout_ms, then, now, due_at), job.spec))
        # At once: to wake the loop for each would switch between the threads as often.
        self._service.submit_all(checks)

    def _enter(self, count: int, *, most: int, wait: bool = True) -> int:
        """Count at most `count` checks that wait to be started. Return their number: 0 only without `wait`."""
        with self._room:
            if self._waiting >= most:
                if not wait:
                    return 0
                self._blocked += 1
                self._room.wait_for(lambda: self._waiting < most)
                self._blocked -= 1
            taken = min(count, most - self._waiting)
            self._waiting += taken
        return taken

    def _leave(self, count: int) -> None:
        with self._counting:  # the condition's own lock, which is taken with less Python
            self._waiting -= count
            # Not at each place: to switch to the tasks for one check at a time costs more than to check it.
            if self._blocked and self._waiting <= MAX_WAITING // 2:
                self._room.notify_all()

    def _admit(self, check: _Running) -> CheckOutcome | None:
        """Give the check a slot, or return its outcome if its account has the most slots or a trigger waited too long.

        Runs in the loop's thread.
        """
        if check.job is not None and time.monotonic() > check.job.start_by:
            return self._refuse(check, _TOO_LATE)
        own = self._slots.get(check.owner_id, {})
        if self._taken >= self.most_in_flight:
            most = max(self._slots.values(), key=len)
            if len(most) <= len(own) + 1:
                return self._refuse(check, _NO_SLOT)
            # The youngest: the others have waited longer, and are nearer to their results.
            youngest = next(reversed(most))
            # A trigger may have been sent. It must not be repeated, so its lease expires.
            is_trigger = youngest.job is not None and youngest.job.kind.fires
            self._service.drop(youngest, _NO_SLOT, postponed=None if is_trigger else youngest.comes_back_sec)
        self._slots.setdefault(check.owner_id, own)[check] = None
        self._taken += 1
        check.admitted = True
        self._leave(1)
        return None

    def _refuse(self, check: _Running, why: Failure) -> CheckOutcome:
        refusal = failed(why, now=utc_now())
        refusal.postponed = check.comes_back_sec
        return refusal

    def _release(self, check: _Running) -> None:
        own = self._slots[check.owner_id]
        del own[check]
        if not own:
            del self._slots[check.owner_id]
        self._taken -= 1

    def drain(self, *, grace_sec: float) -> int:
        """Wait up to `grace_sec` for running checks, and give back the claims of the rest. Return their number."""
        deadline = time.monotonic() + grace_sec
        self._service.close()
        self._network.close()
        self._loop.join(max(0.0, deadline - time.monotonic()))
        self._done.put(None)
        self._leaving.set()
        self._recorder.join(_LAST_WRITE_SEC)
        with self._lock:
            left = sorted(self._open)
            self._open.clear()
        if left:
            return_claims(left, now=utc_now())
            metrics.CHECKS_DROPPED.add(len(left), "returned")
        self._callers.shutdown(wait=True)
        return len(left)

    def _finish(self, check: _Running, outcome: CheckOutcome) -> None:
        """Pass on the outcome of a check, perhaps later if the network failed. Runs in the loop's thread."""
        if check.admitted:
            self._release(check)
            with self._counting:
                self._waiting += 1
        if outcome.by_network and not is_within(outcome, settings.ALLOWED_PRIVATE_NETWORKS):
            asks = check.job is not None and not check.job.is_down
            fires = check.job is not None and check.job.kind.fires
            drop = partial(self._pass_on, check, dropped(outcome, fires=fires))
            self._network.judge(check.started_at, ours=drop, theirs=partial(self._pass_on, check, outcome), asks=asks)
        else:
            self._pass_on(check, outcome)

    def _pass_on(self, check: _Running, outcome: CheckOutcome) -> None:
        if check.job is None:
            # A draft is not stored and its caller waits, so it is not queued behind other results.
            self._leave(1)
            self._answer(check.then, outcome)
        else:
            if check.due_at is not None and _is_late(outcome, check.due_at, check.job.spec):
                LATE.add(1, "checks")
            self._done.put((check.job, check.then, outcome, time.monotonic() - check.started_at))

    def _record(self) -> None:
        while True:
            group = self._next_group()
            if group is None:
                return
            self._leave(self._take(group))

    def _next_group(self) -> list[_Done] | None:
        """Return the next results in order, as many as one transaction should record, or None at the end."""
        first = self._done.get()
        if first is None:
            return None
        group = [first]
        deadline = time.monotonic() + (LINGER_SEC if first[1] is None else LINGER_ASKED_SEC)
        while len(group) < MOST_AT_ONCE:
            try:
                item = self._done.get_nowait()
            except queue.Empty:
                if time.monotonic() >= deadline:
                    break
                # Not until the next result: to wake up for each costs more than to record it.
                self._leaving.wait(LINGER_ASKED_SEC)
                continue
            if item is None:
                self._done.put(None)
                break
            if item[1] is not None:
                deadline = 0.0
            group.append(item)
        return group

    def _take(self, group: Sequence[_Done]) -> int:
        """Record the group, and return how many checks are done. The others are queued again."""
        for job, _, outcome, _ in group:
            if outcome.reason_code is ReasonCode.WORKER_LOST and outcome.postponed is None:
                # Own faults say nothing about the target. The lease expires, and another worker retries.
                logger.error("a check was not made: %s", outcome.detail, extra=_naming(job, outcome))
        if votes := [_record_of(job, outcome) for job, _, outcome, _ in group if job.votes]:
            locked = self._vote(votes)
            held = [item for item in group if item[0].votes and item[0].monitor_id in locked]
            for item in held:
                self._done.put(item)
            group = [item for item in group if not item[0].votes]
            if held and not group:
                self._leaving.wait(LINGER_SEC)
            return len(votes) - len(held) + (self._take(group) if group else 0)
        records = [
            _record_of(job, outcome)
            for job, _, outcome, _ in group
            if outcome.reason_code is not ReasonCode.WORKER_LOST
        ]
        stored, left = self._store(records) if records else (set(), set())
        if left:
            for item in group:
                if item[0].key in left:
                    self._done.put(item)
            group = [item for item in group if item[0].key not in left]
            records = [each for each in records if each.key not in left]
            if not group:
                self._leaving.wait(LINGER_SEC)
        metrics.PROBE_SECONDS.observe([seconds for *_, seconds in group])
        faulty = [(job.key, outcome) for job, _, outcome, _ in group if outcome.reason_code is ReasonCode.WORKER_LOST]
        postponed = {
            key: (outcome.detail or "", outcome.postponed) for key, outcome in faulty if outcome.postponed is not None
        }
        not_made = {key: outcome.detail or "" for key, outcome in faulty if outcome.postponed is None}
        if faulty:
            self._note_faults(postponed, not_made)
        metrics.CHECKS_DROPPED.add(len(postponed), "postponed")
        metrics.CHECKS_DROPPED.add(len(not_made), "not_made")
        metrics.CHECKS_DROPPED.add(len(records) - len(stored), "not_stored")
        with self._lock:
            self._open.difference_update(job.key for job, *_ in group)
        if logger.isEnabledFor(logging.DEBUG):
            for job, _, outcome, _ in group:
                logger.debug("checked", extra=_naming(job, outcome))
        for job, then, outcome, _ in group:
            self._answer(then, outcome if job.key in stored else None)
        return len(group)

    def _vote(self, votes: Sequence[CheckRecord]) -> set[int]:
        """Store what this location saw of others' failures. Without it, they are decided at the end of the time.

        Return the monitors that are locked.
        """
        try:
            return vote(votes, now=utc_now())
        except (DatabaseError, InterfaceError) as error:
            logger.warning("%d answers to other locations are lost: %s", len(votes), error)
            connection.close()
            return set()
        finally:
            release_connection()

    def _note_faults(self, postponed: Mapping[_Key, tuple[str, float]], not_made: Mapping[_Key, str]) -> None:
        if postponed:
            logger.info("%d checks are postponed: %s", len(postponed), next(iter(postponed.values()))[0])
        try:
            postpone(postponed, now=utc_now())
            note_faults(not_made)
        except (DatabaseError, InterfaceError) as error:
            waiting = len(postponed) + len(not_made)
            logger.warning("%d checks that were not made wait for their leases to expire: %s", waiting, error)
            connection.close()
        finally:
            release_connection()

    def _answer(self, then: Then | None, outcome: CheckOutcome | None) -> None:
        if then is not None:
            with suppress(RuntimeError):  # the worker has stopped and cannot send the answer
                self._callers.submit(_call, then, outcome)

    def _store(self, records: Sequence[CheckRecord]) -> tuple[set[_Key], set[_Key]]:
        """Record the results, retrying while the database is away.

        Return the keys of the stored ones, and of those whose monitors are locked.
        """
        is_logged = False
        while True:
            start = time.monotonic()
            try:
                left = record(records, now=utc_now(), skip_locked=True)
            except (OperationalError, InterfaceError) as error:
                # Keep the results until they can be stored. Their slots stay occupied, so no new work is accepted.
                if not is_logged:
                    logger.warning("results wait for the database: %s", error)
                    is_logged = True
                metrics.RECORD_RETRIES.add()
                connection.close()
                if self._leaving.wait(_RETRY_SEC):
                    return set(), set()
            except DatabaseError:
                if len(records) == 1:
                    logger.exception(
                        "the result of monitor %s cannot be stored",
                        records[0].monitor_id,
                        extra={"monitor": records[0].monitor_id, "claim": records[0].claim},
                    )
                    return set(), set()
                alone = [self._store([each]) for each in records]
                return set().union(*(stored for stored, _ in alone)), set().union(*(kept for _, kept in alone))
            else:
                kept = {each.key for each in left}
                done = [each for each in records if each.key not in kept]
                metrics.count_group([each.outcome for each in done], seconds=time.monotonic() - start)
                return {each.key for each in done}, kept
            finally:
                release_connection()


def _record_of(job: CheckJob, outcome: CheckOutcome) -> CheckRecord:
    return CheckRecord(job.monitor_id, job.claim, job.config_version, outcome)


def _note_slow(check: _Running, seconds: float) -> None:
    """Count and log a check whose response took long to judge and so delayed all other checks."""
    metrics.SLOW_JUDGEMENTS.add()
    logger.warning("judging the response of %s took %.0f ms of CPU and delayed all other checks", check, seconds * 1000)


def _naming(job: CheckJob, outcome: CheckOutcome) -> dict[str, object]:
    """Return the fields that identify a check in a log line. The public id of a monitor may be a secret."""
    return {
        "monitor": job.monitor_id,
        "claim": job.claim,
        "verdict": outcome.verdict.value,
        "reason": outcome.reason_code and outcome.reason_code.value,
        "latency_ms": outcome.latency_ms,
    }


def _is_late(outcome: CheckOutcome, due_at: datetime, spec: CheckSpec) -> bool:
    """Return whether the check began too late. The latency covers the whole check only if it has a connection."""
    late = outcome.checked_at - due_at
    if late <= _CHECK_TIME:
        return False
    took_ms = outcome.latency_ms if outcome.connect_ms is not None else None
    took_ms = spec.timeout_ms if took_ms is None else took_ms
    return late - timedelta(milliseconds=took_ms) > _CHECK_TIME and outcome.reason_code is not ReasonCode.WORKER_LOST


def _lasting(work: Callable[[], None], name: str) -> threading.Thread:
    """Return a thread that the process cannot do without: if its work raises, the process exits.

    A worker without its loop or its recorder would take messages and do nothing. Its claims become due again when their
    leases expire.
    """

    def run() -> None:
        try:
            work()
        except BaseException:
            logger.critical("the %s broke; this worker ends", name, exc_info=True)
            os._exit(_BROKEN)

    return threading.Thread(target=run, name=name, daemon=True)


def _call(then: Then, outcome: CheckOutcome | None) -> None:
    try:
        then(outcome)
    except RedisError as error:
        logger.warning("an answer could not be left in the broker: %s", error)


@cache
def shared_engine() -> ProbeEngine:
    """Return this process's engine: it keeps its DNS cache and its handles between batches."""
    # Only `manage.py probe` runs without a broker.
    limiter = RateLimiter(SharedSeconds(settings.REDIS_URL) if settings.REDIS_URL else None)
    return ProbeEngine(guard(), trust_store(), resolver=Resolver(settings.DNS_SERVERS), rate_limiter=limiter)


_making = threading.Lock()
_runner: CheckRunner | None = None


def runner() -> CheckRunner:
    """Return this process's runner, created on first use."""
    global _runner
    with _making:
        if _runner is None:
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            _runner = CheckRunner(shared_engine())
        return _runner


def drain(*, grace_sec: float) -> int:
    """Stop this process's runner, if it has one. Return how many claims were released."""
    global _runner
    with _making:
        leaving, _runner = _runner, None
    return 0 if leaving is None else leaving.drain(grace_sec=grace_sec)

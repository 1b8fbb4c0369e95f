"""Many probes at once, in the thread that runs them: starts paced, outcomes handed over as they come."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

import pycurl

from checks.probes.http.failures import own_fault
from checks.probes.http.probe import Probe
from checks.probes.http.spec import HttpSpec
from checks.probes.http.transfer import Transfer
from checks.probes.reactor import Reactor
from checks.probes.resolver import Answer, Resolver
from checks.spec import CheckOutcome, ReasonCode, Verdict
from checks.verdict import Exchange, Failure, judge
from core.clock import utc_now

logger = logging.getLogger(__name__)

K = TypeVar("K")

# A burst of starts would make every probe of it wait for the others' sockets, and record our queue as latency.
_STARTS_PER_TURN = 4
_WAIT_SECONDS = 0.1  # libcurl's own timer ends the wait earlier where it matters
_WATCH_SECONDS = 0.05  # how often deadlines are looked at that libcurl does not keep, or has missed
_LATE_SECONDS = 0.1  # how long past its deadline libcurl may keep a transfer
SLOW_SECONDS = 0.05  # of CPU: all other checks wait while one is judged
_MARK_SECONDS = 0.005  # how old a measure of CPU may be that a later one is compared with: each costs 1 us


class _Check(Generic[K]):
    """A probe under its caller's key. It has a transfer while a request is out, none while it waits for a name."""

    __slots__ = ("key", "parked_at", "probe", "transfer")

    def __init__(self, key: K, probe: Probe) -> None:
        self.key = key
        self.probe = probe
        self.transfer: Transfer | None = None
        self.parked_at = 0.0


class Loop(Generic[K]):
    """Runs checks over a reactor and its idle transfers, which it gives back when it ends."""

    def __init__(
        self,
        reactor: Reactor,
        idle: list[Transfer],
        *,
        new_transfer: Callable[[], Transfer],
        resolver: Resolver,
        on_outcome: Callable[[K, CheckOutcome], object],
        on_slow: Callable[[K, float], object] | None = None,
    ) -> None:
        self._reactor = reactor
        self._idle = idle
        self._new_transfer = new_transfer
        self._resolver = resolver
        self._on_outcome = on_outcome
        self._on_slow = on_slow
        self._sent: dict[pycurl.Curl, _Check[K]] = {}
        self._parked: set[_Check[K]] = set()
        self._answers: deque[tuple[_Check[K], Answer]] = deque()  # filled by the resolver's threads
        self._next_watch = 0.0
        self._marked_at, self._cpu = 0.0, 0.0  # by the clock, and this thread's CPU time then

    @property
    def _under_way(self) -> int:
        return len(self._sent) + len(self._parked)

    def run(self, specs: Iterable[tuple[K, HttpSpec]], *, max_in_flight: int) -> None:
        """Run every check to its outcome. Raises what `specs` or `on_outcome` raise, and nothing else."""
        waiting = iter(specs)
        more = True
        try:
            while more or self._under_way:
                for _ in range(_STARTS_PER_TURN):
                    if not more or self._under_way >= max_in_flight:
                        break
                    item = next(waiting, None)
                    if item is None:
                        more = False
                        break
                    self._begin(*item)
                if self._under_way:
                    self._turn(may_start=more and self._under_way < max_in_flight)
        finally:
            self._abandon()

    def serve(self, inbox: deque[tuple[K, HttpSpec]], closing: Callable[[], bool]) -> None:
        """Run whatever is put into `inbox`, until it is `closing` and nothing is left.

        Ring the reactor after putting something in, and after closing. Raises what `on_outcome` raises.
        """
        try:
            while inbox or self._under_way or not closing():
                for _ in range(min(len(inbox), _STARTS_PER_TURN)):
                    self._begin(*inbox.popleft())
                self._turn(may_start=bool(inbox))
        finally:
            self._abandon()

    def _begin(self, key: K, spec: HttpSpec) -> None:
        try:
            check = _Check(key, Probe(spec, now=time.monotonic()))
        except Exception:
            # A spec of values that its types forbid. Whatever it is, the batch's other checks go on.
            logger.exception("A check could not be begun.", extra={"check": str(key)})
            fault = Exchange(failure=own_fault("its settings cannot be read"))
            self._on_outcome(key, self._judge(key, spec, fault))
            return
        self._launch(check)

    def _turn(self, *, may_start: bool) -> None:
        timeout = 0.0 if may_start else (_WATCH_SECONDS if self._parked else _WAIT_SECONDS)
        finished = self._reactor.turn(timeout)
        if finished:
            since = time.perf_counter()
            if since - self._marked_at > _MARK_SECONDS:
                self._marked_at, self._cpu = since, time.thread_time()
            for easy, code, message in finished:
                check = self._sent.pop(easy, None)
                if check is None:
                    continue
                self._finish(check, code, message)
                now = time.perf_counter()
                if now - since > SLOW_SECONDS:
                    self._note_slow(check.key)
                since = now
        while self._answers:
            self._unpark(*self._answers.popleft())
        if time.monotonic() >= self._next_watch:
            self._next_watch = time.monotonic() + _WATCH_SECONDS
            self._end_overdue()

    def _note_slow(self, key: K) -> None:
        """Report a check that took the CPU for long, and not only the clock."""
        cpu = time.thread_time()
        if cpu - self._cpu > SLOW_SECONDS and self._on_slow is not None:
            self._on_slow(key, cpu - self._cpu)
        self._marked_at, self._cpu = time.perf_counter(), cpu

    def _launch(self, check: _Check[K]) -> None:
        """Send the probe's request, once its host's addresses are known; deliver where there is none left."""
        request = check.probe.request
        if request is None:
            self._conclude(check)
        elif (host := request.target.host) is None:
            self._send(check, addresses=None)
        elif (answer := self._resolver.recall(host)) is not None:
            self._send(check, addresses=answer.addresses)
        else:
            self._release(check)
            check.parked_at = time.monotonic()
            self._parked.add(check)
            self._resolver.resolve(host, partial(self._take_answer, check))

    def _take_answer(self, check: _Check[K], answer: Answer) -> None:
        """In a thread of the resolver."""
        self._answers.append((check, answer))
        self._reactor.ring()

    def _unpark(self, check: _Check[K], answer: Answer) -> None:
        if check not in self._parked:
            return  # its deadline was earlier
        self._parked.discard(check)
        check.probe.spend(time.monotonic() - check.parked_at)
        if answer.error is not None:
            failure = Failure(ReasonCode.DNS_FAILURE, answer.error)
            check.probe.fail(own_fault(answer.error) if answer.ours else failure)
            self._conclude(check)
        else:
            self._send(check, addresses=answer.addresses)

    def _send(self, check: _Check[K], *, addresses: str | None) -> None:
        probe = check.probe
        remaining_ms = probe.remaining_ms(time.monotonic())
        if probe.request is None or remaining_ms == 0:
            probe.run_out("the time was used up before the request could be sent; raise the timeout")
            self._conclude(check)
            return
        try:
            transfer = check.transfer
            if transfer is None:
                transfer = check.transfer = self._idle.pop() if self._idle else self._new_transfer()
            transfer.start(
                probe.request,
                timeout_ms=remaining_ms,
                addresses=addresses,
                keep_body=bool(probe.spec.rules),
                follow=probe.spec.follow_redirects,
            )
            self._reactor.add(transfer.easy)
        except Exception:
            # pycurl refuses a value in several ways; this check ends with it, the batch does not.
            logger.exception("A request could not be started.", extra={"check": str(check.key)})
            check.transfer = None  # not reused: what state it is in is unknown
            probe.fail(own_fault("the request could not be started"))
            self._conclude(check)
            return
        self._sent[transfer.easy] = check

    def _finish(self, check: _Check[K], code: int, message: str) -> None:
        """Take in a transfer that ended, and go on with what follows from it."""
        transfer = check.transfer
        if transfer is None:
            return
        self._reactor.remove(transfer.easy)
        try:
            check.probe.advance(transfer.finish(code, message), transfer)
        except Exception:
            # What a hostile response can trip in our reading of it costs its own check only.
            logger.exception("A response could not be read.", extra={"check": str(check.key)})
            check.probe.fail(own_fault("an internal error"))
        self._launch(check)

    def _conclude(self, check: _Check[K]) -> None:
        outcome = self._judge(check.key, check.probe.spec, check.probe.exchange)
        if outcome.verdict is Verdict.DOWN:
            outcome = self._prove(check, outcome)
        self._release(check)
        self._on_outcome(check.key, outcome)

    def _release(self, check: _Check[K]) -> None:
        if check.transfer is not None:
            self._idle.append(check.transfer)
            check.transfer = None

    def _judge(self, key: K, spec: HttpSpec, exchange: Exchange) -> CheckOutcome:
        now = utc_now()
        try:
            return judge(spec, exchange, now=now)
        except Exception:
            # As above: a body that trips a rule is one check's matter.
            logger.exception("A response could not be judged.", extra={"check": str(key)})
            return judge(spec, Exchange(failure=own_fault("an internal error")), now=now)

    def _prove(self, check: _Check[K], outcome: CheckOutcome) -> CheckOutcome:
        """The outcome with what was seen, while the transfer still knows it."""
        try:
            return replace(outcome, evidence=check.probe.evidence(check.transfer))
        except Exception:
            # The verdict stands without its evidence.
            logger.exception("The evidence of a failure could not be taken.", extra={"check": str(check.key)})
            return outcome

    def _end_overdue(self) -> None:
        """End what is past its deadline: probes that wait for a name, and transfers that libcurl forgot."""
        now = time.monotonic()
        for check in [check for check in self._parked if check.probe.deadline <= now]:
            self._parked.discard(check)
            check.probe.run_out("the name servers gave no answer; check the domain's name servers")
            self._conclude(check)
        late = now - _LATE_SECONDS
        for easy, check in [item for item in self._sent.items() if item[1].probe.deadline <= late]:
            del self._sent[easy]
            self._finish(check, pycurl.E_OPERATION_TIMEDOUT, "overdue")

    def _abandon(self) -> None:
        """Leave nothing on the multi handle; something is there only where the caller's code raised."""
        for easy, check in self._sent.items():
            self._reactor.remove(easy)
            self._release(check)
        self._sent.clear()
        self._parked.clear()

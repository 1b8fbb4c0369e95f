"""One loop for all protocols: starts probes at a pace, waits for their sockets, and delivers outcomes as they end.

`Probe` is the seam: a protocol subclasses it, and `checks.probes.engine.PROTOCOLS` maps its spec type to it.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import os
import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import pycurl

from checks.evidence import Evidence
from checks.probes.liveness import Wait
from checks.probes.rate_limit import PATIENCE, Ask, RateLimiter, Turn, Waiting, identity
from checks.probes.reactor import Reactor
from checks.probes.resolver import SILENT, Answer, Resolver
from checks.probes.target import literal_form
from checks.spec import CheckOutcome, CheckSpec, ReasonCode, Verdict
from checks.verdict import Failure, failed, judge, own_fault
from core.clock import EPOCH, utc_now
from core.fair_queue import FairQueue

logger = logging.getLogger(__name__)

K = TypeVar("K")
S = TypeVar("S", bound=CheckSpec)

# A burst of starts would make each probe wait for the others' sockets, and record our queue as latency.
_STARTS_PER_TURN = 4
_TICK_SECONDS = 0.01  # timers fire together then: a wake-up for each would cost as much as what it sends
_DEADLINE_SECONDS = 0.05  # how often deadlines are checked at most
_IDLE_SECONDS = 1.0  # the longest wait; `Reactor.wake` ends it
SLOW_SECONDS = 0.05  # of CPU: all other checks wait while one is judged
_CPU_MARK_SECONDS = 0.005  # the greatest age of a CPU time to compare with: reading it costs 1 us

# The ciphers that probes offer, over both TLS libraries: OpenSSL's default without finite-field Diffie-Hellman of TLS
# 1.2. There the server chooses the group, and a handshake with 10,000 bits took 0.7 s of CPU, during which all other
# checks of the loop wait.
CIPHERS = "DEFAULT:!kDHE:@SECLEVEL=2"

# The time after which the rate limiter has surely answered.
_LIMITER_SECONDS = 2 * PATIENCE
_NO_SECOND = own_fault(
    "no second of its address was free, as all checks together send one datagram a second to it, in turns by account"
)
_MOST_HEAVY = 100  # each may be a mebibyte
_REFUSED_SECONDS = 30.0
_NO_TURN = own_fault("too many large answers of its account wait to be read")

Party = tuple[str, str | None]
"""The account that a check counts for, and the name by which the check comes back if it has to wait, if it does."""


class BlockedTarget(Exception):
    """The egress guard refuses the address."""


@dataclass(frozen=True, slots=True)
class Network:
    """How probes reach their targets. `permits` is the egress guard, to be asked of each address before a socket."""

    permits: Callable[[str], bool]
    ca_file: str | None
    resolver: Resolver
    rate_limiter: RateLimiter


class Probe(ABC, Generic[S]):
    """One check in progress. The loop calls its methods and callbacks in one thread, and an exception fails this check.

    A probe fills in `outcome`, except for the verdict, and ends by `finish` or `fail`, once. `started_at` and
    `deadline` are in seconds of the monotonic clock.
    """

    # Without slots, here and in subclasses, a tcp check took 3 us more.
    __slots__ = ("answered_at", "deadline", "ended", "failure", "key", "loop", "outcome", "spec", "started_at", "waits")

    def __init__(self, spec: S, loop: Loop[Any]) -> None:
        self.spec = spec
        self.loop = loop
        self.key: object = None
        self.ended = False
        self.started_at = time.monotonic()
        self.deadline = self.started_at + spec.timeout_ms / 1000
        self.outcome = CheckOutcome(Verdict.UP, EPOCH)  # both are set when it is judged
        self.failure: Failure | None = None
        self.answered_at: datetime | None = None  # if it is judged later
        self.waits: tuple[Wait, ...] = ()  # for our name servers

    @abstractmethod
    def start(self) -> None:
        """Send the first request, or ask for what it needs."""

    @abstractmethod
    def expire(self) -> None:
        """End because the deadline has passed. The failure names the step that timed out."""

    def is_heavy(self) -> bool:
        """Return whether judging the response may take long. Accounts take turns at heavy responses."""
        return False

    def may_repeat(self) -> bool:
        """Return whether the check may be made again if its response was not judged. A trigger may not."""
        return True

    @abstractmethod
    def find_failure(self) -> Failure | None:
        """Return what is wrong with a response that came whole. The loop measures how long this takes."""

    @abstractmethod
    def evidence(self) -> Evidence | None:
        """Return what was seen of the target."""

    @abstractmethod
    def close(self) -> None:
        """Release sockets and handles. Called once, after the verdict or when the run is abandoned."""

    def elapsed_ms(self) -> int:
        return int((time.monotonic() - self.started_at) * 1000)

    def finish(self) -> None:
        """Deliver the outcome once the current callback has returned."""
        if not self.ended:
            self.ended = True
            self.loop.ended.append(self)

    def fail(self, failure: Failure) -> None:
        self.failure = failure
        self.finish()


AnyProbe = Probe[Any]
Protocols = Mapping[type[CheckSpec], Callable[[Any, "Loop[Any]"], AnyProbe]]


class Loop(Generic[K]):
    """Runs probes over a reactor, in the thread that calls `run`."""

    def __init__(
        self,
        reactor: Reactor,
        network: Network,
        protocols: Protocols,
        *,
        on_outcome: Callable[[K, CheckOutcome], object],
        on_slow: Callable[[K, float], object] | None = None,
        party_of: Callable[[K], Party] | None = None,
        admit: Callable[[K], CheckOutcome | None] | None = None,
    ) -> None:
        self.network = network
        self.resources = reactor.resources
        self.ended: deque[AnyProbe] = deque()  # to be delivered
        self._reactor = reactor
        self._protocols = protocols
        self._on_outcome = on_outcome
        self._on_slow = on_slow
        self._party_of = party_of
        self._name = os.urandom(8).hex()  # unlike all others, also those of other processes
        self._admit = admit
        self._probes: set[AnyProbe] = set()
        self._inbox: deque[tuple[K, CheckSpec]] = deque()
        self._closing = False
        self._transfers: dict[pycurl.Curl, tuple[AnyProbe, Callable[[int, str], None]]] = {}
        self._sockets: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, AnyProbe, Callable[[], None]]] = []
        self._timer_number = itertools.count()
        self._answers: deque[tuple[AnyProbe, Callable[[Any], None], object]] = deque()  # by other threads
        self._heavy = FairQueue[AnyProbe](_MOST_HEAVY)  # responses to be judged, by account
        self._heavy_at = 0.0  # when the next of them may be judged
        self._next_deadline = math.inf  # no probe expires before it; a wake-up to look costs CPU
        self._event_at = 0.0  # when the event that is handled now began, by time.perf_counter
        self._cpu_marked_at, self._cpu = 0.0, 0.0  # by time.perf_counter, and this thread's CPU time then

    # For the caller

    def submit(self, key: K, spec: CheckSpec) -> None:
        """Start the check after those submitted before it. May be called from any thread."""
        self.submit_all([(key, spec)])

    def submit_all(self, checks: Iterable[tuple[K, CheckSpec]]) -> None:
        """Do the same for many checks. They wake the loop once."""
        self._inbox.extend(checks)
        self._reactor.wake()

    def close(self) -> None:
        """Make `run` return once no check is in progress. May be called from any thread."""
        self._closing = True
        self._reactor.wake()

    def run(self, specs: Iterable[tuple[K, CheckSpec] | None] | None = None) -> None:
        """Run these checks, or by default those that are submitted until `close`.

        Raises what `specs` or `on_outcome` raise, and nothing else; the checks in progress are dropped then.
        """
        source = iter(self._submitted() if specs is None else specs)
        try:
            while (items := list(islice(source, _STARTS_PER_TURN))) or self._probes:
                for item in filter(None, items):
                    self._start(*item)
                self._turn(may_start=bool(items) and items[-1] is not None)
        finally:
            self._abandon()

    def _submitted(self) -> Iterator[tuple[K, CheckSpec] | None]:
        """Yield what is submitted, and None as long as nothing is, until all is done after `close`."""
        while self._inbox or self._probes or not self._closing:
            yield self._inbox.popleft() if self._inbox else None

    # For probes

    def resolve(self, probe: AnyProbe, host: str, then: Callable[[Sequence[str]], None]) -> None:
        """Look up the addresses of a name and call `then` with them, the best first, at once if they are known.

        Without an address the check fails.
        """

        def take(answer: Answer) -> None:
            if answer.failure is None:
                then(answer.addresses)
            else:
                probe.fail(answer.failure)

        answer = self.network.resolver.recall(host)
        if answer is not None:
            take(answer)
        elif (wait := self.network.resolver.resolve(host, partial(self._take_answer, probe, take))) is not None:
            probe.waits += (wait,)

    def find_addresses(self, probe: AnyProbe, host: str, then: Callable[[Sequence[str]], None]) -> None:
        """Resolve a host that may be an address itself."""
        if (literal := literal_form(host)) is not None:
            then([literal])
        else:
            self.resolve(probe, host, then)

    def reserve(
        self, probe: AnyProbe, address: str, then: Callable[[], None], *, repeats: bool = False, pauses: bool = True
    ) -> None:
        """Call `then` in a second in which no other datagram of the deployment is sent to the address.

        `repeats`: the check has sent one before. `pauses`: the check expects nothing from the target during the wait,
        so the wait does not count towards its timeout, and the check is postponed if its turn is not soon. Without
        `pauses`, `then` is not called if the turn would come too late.
        """
        owner, ticket = ("", None) if self._party_of is None else self._party_of(probe.key)  # type: ignore[arg-type]
        began = time.monotonic()
        left = probe.deadline - began
        until = began + PATIENCE if pauses else probe.deadline
        if pauses:
            probe.deadline = began + _LIMITER_SECONDS

        def take(turn: Turn) -> None:
            now = time.monotonic()
            if turn.ends is None:
                if pauses:
                    self.postpone(probe, turn.comes_in)
                return
            if pauses:
                probe.started_at += now - began
                probe.deadline = now + left
                self._next_deadline = min(self._next_deadline, probe.deadline)
            if now > turn.ends:  # the loop was busy, and another check may have this second by now
                self.reserve(probe, address, then, repeats=repeats, pauses=pauses)
            elif now < probe.deadline:  # the loop looks at deadlines a little later
                then()

        returns = ticket is not None and not repeats
        ask = Ask(identity(address), owner, ticket or f"{self._name}/{id(probe)}", repeats, returns)
        waiting = Waiting(ask, until, probe, partial(self._take_answer, probe, take))
        self.network.rate_limiter.reserve(waiting)

    def postpone(self, probe: AnyProbe, seconds: float = 0.0) -> None:
        """End a check that was not made, because its turn is in `seconds` only."""
        probe.outcome.postponed = seconds
        probe.fail(_NO_SECOND)

    def drop(self, key: K, failure: Failure, *, postponed: float | None) -> None:
        """End a check in progress, for another one. To be called by `admit`."""
        for probe in self._probes:
            if probe.key is key and not probe.ended:
                for easy in [easy for easy, (owner, _) in self._transfers.items() if owner is probe]:
                    self.cancel_transfer(easy)
                probe.outcome.postponed = postponed
                probe.fail(failure)
                break
        while self.ended:
            self._deliver(self.ended.popleft())

    def transfer(self, probe: AnyProbe, easy: pycurl.Curl, then: Callable[[int, str], None]) -> None:
        """Run a libcurl handle. `then` gets libcurl's result code and message. Raises pycurl.error."""
        self._reactor.add(easy)
        self._transfers[easy] = (probe, then)

    def cancel_transfer(self, easy: pycurl.Curl) -> None:
        if self._transfers.pop(easy, None) is not None:
            self._reactor.remove(easy)

    def connect(self, address: str, port: int, kind: socket.SocketKind, *, guarded: bool = True) -> socket.socket:
        """Return a non-blocking socket, connected (or connecting, for TCP). Raises BlockedTarget and OSError.

        Without `guarded` the egress guard is not asked: for servers of the operator's choice.
        """
        if guarded and not self.network.permits(address):
            raise BlockedTarget(address)
        opened = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind | socket.SOCK_NONBLOCK)
        try:
            opened.connect((address, port))
        except BlockingIOError:
            pass  # watch it: it gets writable once it is connected
        except OSError:
            opened.close()
            raise
        return opened

    def watch(self, probe: AnyProbe, watched: socket.socket, then: Callable[[], None], *, write: bool = False) -> None:
        """Call `then` whenever the socket is readable (or writable). It may also be called for nothing."""
        self._sockets[watched.fileno()] = partial(self.call, probe, then)
        self._reactor.watch(watched.fileno(), write=write)

    def watch_shared(self, watched: socket.socket, then: Callable[[], None]) -> None:
        """Call `then` whenever the socket is readable or has an error. It must not raise, and calls probes by `call`.

        For a socket that several probes share, so that no error is one probe's.
        """
        self._sockets[watched.fileno()] = then
        self._reactor.watch(watched.fileno(), write=False)

    def unwatch(self, watched: socket.socket) -> None:
        """Undo `watch` or `watch_shared`, before the socket is closed."""
        if self._sockets.pop(watched.fileno(), None) is not None:
            self._reactor.unwatch(watched.fileno())

    def call_later(self, probe: AnyProbe, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` after `seconds`, or up to _TICK_SECONDS later, unless the probe has ended."""
        due = math.ceil((time.monotonic() + seconds) / _TICK_SECONDS) * _TICK_SECONDS
        heapq.heappush(self._timers, (due, next(self._timer_number), probe, then))

    def call(self, probe: AnyProbe, function: Callable[..., None], *args: object) -> None:
        """Call a function of a probe, unless it has ended. An exception ends it. Delivers what has ended by then."""
        if not probe.ended:
            try:
                function(*args)
            except Exception:
                # A hostile response, or a refusal of libcurl's, costs its own check only.
                logger.exception("A check failed with an internal error.", extra={"check": str(probe.key)})
                probe.fail(own_fault("an internal error"))
        while self.ended:
            ended = self.ended.popleft()
            if ended.failure is None and ended.is_heavy():
                ended.answered_at = utc_now()
                if removed := self._heavy.put(self._owner(ended), ended):
                    self._refuse(removed[0])
            else:
                self._deliver(ended)

    # Inside

    def _owner(self, probe: AnyProbe) -> str:
        return "" if self._party_of is None else self._party_of(probe.key)[0]  # type: ignore[arg-type]

    def _refuse(self, probe: AnyProbe) -> None:
        probe.failure = _NO_TURN
        probe.outcome.postponed = _REFUSED_SECONDS if probe.may_repeat() else None
        self._deliver(probe)

    def _judge_heavy(self) -> None:
        """Judge one heavy response. Judge the next one after a pause of the same length, for other checks."""
        start = self._event_at = time.perf_counter()
        self._cpu_marked_at, self._cpu = start, time.thread_time()
        self._deliver(self._heavy.pop())
        self._event_at = 0.0
        now = time.monotonic()
        self._heavy_at = now + time.perf_counter() - start

    def _start(self, key: K, spec: CheckSpec) -> None:
        if self._admit is not None and (refusal := self._admit(key)) is not None:
            self._on_outcome(key, refusal)
            return
        try:
            probe = self._protocols[type(spec)](spec, self)
        except Exception:
            # A spec with values that its types forbid. The batch's other checks go on.
            logger.exception("A check could not be started.", extra={"check": str(key)})
            self._on_outcome(key, failed(own_fault("its settings cannot be read"), now=utc_now()))
            return
        probe.key = key
        self._probes.add(probe)
        self.call(probe, probe.start)
        self._next_deadline = min(self._next_deadline, probe.deadline)

    def _turn(self, *, may_start: bool) -> None:
        timeout = 0.0
        while self._timers and self._timers[0][2].ended:  # a wake-up for nothing would cost CPU
            heapq.heappop(self._timers)
        if not may_start:
            wake_at = min(self._next_deadline, self._timers[0][0]) if self._timers else self._next_deadline
            if self._heavy:
                wake_at = min(wake_at, self._heavy_at)
            timeout = min(_IDLE_SECONDS, max(0.0, wake_at - time.monotonic()))
        finished, ready = self._reactor.turn(timeout)
        if finished or ready:
            self._event_at = time.perf_counter()
            if self._event_at - self._cpu_marked_at > _CPU_MARK_SECONDS:
                self._cpu_marked_at, self._cpu = self._event_at, time.thread_time()
            for easy, code, message in finished:
                if (transfer := self._transfers.pop(easy, None)) is not None:
                    self._reactor.remove(easy)
                    self.call(transfer[0], transfer[1], code, message)
            for fd in ready:
                if (watcher := self._sockets.get(fd)) is not None:
                    watcher()
            self._event_at = 0.0
        while self._answers:
            probe, then, answer = self._answers.popleft()
            self.call(probe, then, answer)
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, _, probe, call = heapq.heappop(self._timers)
            self.call(probe, call)
        if self._heavy and now >= self._heavy_at:
            self._judge_heavy()
        if now >= self._next_deadline:
            for probe in [probe for probe in self._probes if probe.deadline <= now]:
                self.call(probe, self._expire, probe)
            earliest = min((probe.deadline for probe in self._probes), default=math.inf)
            self._next_deadline = max(earliest, now + _DEADLINE_SECONDS)

    def _expire(self, probe: AnyProbe) -> None:
        probe.expire()
        if not probe.ended:
            raise RuntimeError("the probe did not end at its deadline")

    def _take_answer(self, probe: AnyProbe, then: Callable[[Any], None], answer: object) -> None:
        """Called in a thread of the resolver or of the rate limiter."""
        self._answers.append((probe, then, answer))
        self._reactor.wake()

    def _deliver(self, probe: AnyProbe) -> None:
        self._probes.discard(probe)
        outcome = self._judge(probe)
        self._close(probe)
        self._on_outcome(probe.key, outcome)  # type: ignore[arg-type]  # the key that came with its spec
        if self._event_at:
            now = time.perf_counter()
            if now - self._event_at > SLOW_SECONDS:
                self._note_slow(probe)
            self._event_at = now

    def _judge(self, probe: AnyProbe) -> CheckOutcome:
        now = probe.answered_at or utc_now()
        outcome = probe.outcome
        try:
            judge(probe.spec, outcome, self._blame(probe, probe.failure or probe.find_failure()), now=now)
        except Exception:
            logger.exception("A response could not be judged.", extra={"check": str(probe.key)})
            outcome = failed(own_fault("an internal error"), now=now)
        if outcome.verdict is Verdict.DOWN or probe.spec.explains:
            try:
                outcome.evidence = probe.evidence()
            except Exception:
                # The verdict stands without its evidence.
                logger.exception("The evidence could not be collected.", extra={"check": str(probe.key)})
        return outcome

    def _blame(self, probe: AnyProbe, failure: Failure | None) -> Failure | None:
        """Return the failure, or ours if the check was slow or timed out, and our name servers used up its time."""
        if failure is None:
            took_long = (probe.outcome.latency_ms or 0) >= probe.spec.slow_ms
        else:
            took_long = failure.reason_code is ReasonCode.TIMEOUT
        if took_long and any(self.network.resolver.liveness.was_silent(wait) for wait in probe.waits):
            return own_fault(SILENT, by_network=True)
        return failure

    def _close(self, probe: AnyProbe) -> None:
        try:
            probe.close()
        except Exception:
            logger.exception("A probe could not be closed.", extra={"check": str(probe.key)})

    def _note_slow(self, probe: AnyProbe) -> None:
        """Report a check that took much CPU, and not only time."""
        cpu = time.thread_time()
        if cpu - self._cpu > SLOW_SECONDS and self._on_slow is not None:
            self._on_slow(probe.key, cpu - self._cpu)  # type: ignore[arg-type]  # as above
        self._cpu_marked_at, self._cpu = time.perf_counter(), cpu

    def _abandon(self) -> None:
        """Leave nothing on the reactor. Something is left only if the caller's code raised."""
        for easy in list(self._transfers):
            self.cancel_transfer(easy)
        for probe in self._probes.union(self.ended):
            probe.ended = True
            self._close(probe)
        self._probes.clear()
        self.ended.clear()
        self._timers.clear()
        self._answers.clear()

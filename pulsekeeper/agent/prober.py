"""Leases in, outcomes out: the probe engine as an agent uses it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from checks.agent_protocol import Lease
from checks.own_network import OwnNetwork, dropped, is_within
from checks.probes.engine import PROTOCOLS, ProbeEngine
from checks.spec import CheckOutcome, CheckSpec, ReasonCode
from checks.verdict import BLOCKED_BY_AGENT, Failure, failed, own_fault
from core.clock import utc_now
from core.egress import Network
from core.text import shorten
from pulsekeeper.agent.outbox import Result

MAX_IN_FLIGHT = 2_000  # bounds descriptors and memory
_MOST_REMEMBERED = 5 * MAX_IN_FLIGHT
_COMES_BACK_SEC = 2.0
_KINDS = {kind.__name__: kind for kind in PROTOCOLS}
_NO_ROOM = own_fault("its agent runs as many checks as it can")
_TOO_LATE = own_fault("its agent came to it too late")
_STOPPING = own_fault("its agent is stopping")
_OFFLINE = own_fault("its lease has ended")


@dataclass(slots=True, eq=False)
class _Held:
    """A lease. Times are those of the monotonic clock."""

    lease: str = field(repr=False)
    owner: str
    is_down: bool
    fires: bool
    taken_at: float
    start_by: float
    started: bool = False


class Prober:
    """Makes the checks of leases, each once, and calls `done` with the result, in any thread.

    `allowed` are private networks, whose failures are never our uplink's. While not `is_online`, leases have ended, and
    what has not started is forgotten.
    """

    def __init__(
        self,
        engine: ProbeEngine,
        network: OwnNetwork,
        allowed: Iterable[Network],
        *,
        is_online: Callable[[], bool],
        done: Callable[[Result], object],
    ) -> None:
        self._network = network
        self._allowed = tuple(allowed)
        self._is_online = is_online
        self._done = done
        self._service = engine.service(self._finish, party_of=lambda held: (held.owner, None), admit=self._admit)
        self._lock = threading.Lock()
        self._held: set[_Held] = set()
        self._seen: dict[str, None] = {}  # the latest leases, in order
        self._closing = False

    @property
    def room(self) -> int:
        """Return how many more checks may be leased."""
        return max(0, MAX_IN_FLIGHT - len(self._held))

    def run(self) -> None:
        """Make checks until `close`, in a separate thread."""
        self._service.run()

    def take(self, leases: Sequence[Lease]) -> None:
        """Start the checks of leases that have just arrived."""
        now = time.monotonic()
        for lease in leases:
            start_by = math.inf if lease.start_within_ms is None else now + lease.start_within_ms / 1000
            fires = lease.start_within_ms is not None
            held = _Held(lease.lease, lease.owner, lease.is_down, fires, now, start_by)
            with self._lock:
                if lease.lease in self._seen:  # its answer came twice
                    continue
                self._seen[lease.lease] = None
                if len(self._seen) > _MOST_REMEMBERED:
                    del self._seen[next(iter(self._seen))]
                has_room, is_closing = self.room > 0, self._closing
                self._held.add(held)
            if is_closing:
                self._end(held, _not_made(_STOPPING, 0.0))
            elif not has_room:
                self._end(held, _not_made(_NO_ROOM, _COMES_BACK_SEC))
            elif isinstance(spec := _spec_of(lease), Failure):
                self._end(held, _not_made(spec, None))
            else:
                self._service.submit(held, spec)

    def close(self) -> None:
        """Make `run` return once no check is in progress, and refuse further leases."""
        with self._lock:
            self._closing = True
        self._service.close()

    def give_back(self) -> None:
        """End all leases whose checks have not ended. A trigger that may have been sent must not be repeated."""
        for held in list(self._held):
            self._end(held, _not_made(_STOPPING, None if held.fires and held.started else 0.0))

    def _admit(self, held: _Held) -> CheckOutcome | None:
        """Return the outcome of a check that must not start. Runs in the loop's thread, as `_finish`."""
        if not self._is_online():
            with self._lock:
                self._held.discard(held)
            return _not_made(_OFFLINE, None)
        if time.monotonic() > held.start_by:
            return _not_made(_TOO_LATE, _COMES_BACK_SEC)
        held.started = True
        return None

    def _finish(self, held: _Held, outcome: CheckOutcome) -> None:
        if outcome.reason_code is ReasonCode.BLOCKED_TARGET:
            outcome.detail = BLOCKED_BY_AGENT
        end = partial(self._end, held, outcome, ended_at=time.monotonic())
        if outcome.by_network and not is_within(outcome, self._allowed):
            ours = partial(self._end, held, dropped(outcome, fires=held.fires))
            self._network.judge(held.taken_at, ours=ours, theirs=end, asks=not held.is_down)
        else:
            end()

    def _end(self, held: _Held, outcome: CheckOutcome, *, ended_at: float | None = None) -> None:
        with self._lock:
            if held not in self._held:  # forgotten, or given back
                return
            self._held.remove(held)
        self._done(Result(held.lease, outcome, held.taken_at, time.monotonic() if ended_at is None else ended_at))


def _not_made(why: Failure, postponed: float | None) -> CheckOutcome:
    outcome = failed(why, now=utc_now())
    outcome.postponed = postponed
    return outcome


def _spec_of(lease: Lease) -> CheckSpec | Failure:
    """Return the check of a lease, or why this version cannot make it."""
    if (kind := _KINDS.get(lease.kind)) is None:
        return own_fault(f"its agent knows no checks of kind {shorten(lease.kind, limit=40)}")
    try:
        return msgspec.json.decode(lease.spec, type=kind)
    except (ValueError, RecursionError) as error:
        return own_fault(f"its agent cannot read its settings: {shorten(str(error), limit=200)}")

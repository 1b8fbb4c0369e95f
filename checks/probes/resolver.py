"""Resolve names with c-ares: any number at once on one socket, each name once, cached for a short time.

libcurl's threaded resolver looks up at most 20 names of a multi handle at a time, so 20 names whose servers hang would
delay all other checks. Threads with getaddrinfo only raise that limit, and getaddrinfo does not distinguish a name
without addresses from one that does not exist.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

import pycares
from pycares import errno

from checks.probes.liveness import TRY_SECONDS, Liveness, Wait
from checks.probes.target import join_host_port
from checks.spec import ReasonCode
from checks.verdict import Failure, own_fault
from core.text import shorten

_REMEMBER_SECONDS = 30.0  # shorter than the shortest interval, so every check sees a new address
_MAX_REMEMBERED = 10_000
# The first takes TRY_SECONDS, each further one twice as long, about 12 s in total. A lost answer to AAAA delays the one
# to A by one try.
_TRIES = 6
# How long to wait for an A record before AAAA alone is used. Long, because a machine without IPv6 cannot use it; less
# than the usual timeout, because a zone that drops queries for A is up for others.
_LONELY_SECONDS = 2.0
_JOIN_SECONDS = 5.0  # an older lookup is between late tries: a new one is faster
_MOST_ALONE = 64  # lookups with a separate socket and thread
_MOST_ADDRESSES = 32  # of a name: an answer over TCP may have four thousand
_NAME_CHARS = 120  # of a name in a sentence


class Server(NamedTuple):
    """A name server."""

    address: str
    port: int

    def __str__(self) -> str:
        return join_host_port(self.address, self.port)


@dataclass(frozen=True, slots=True)
class Answer:
    """The addresses in the order to try them, or why there is none.

    The failure is ours if no name server answered at all, which says nothing about the name.
    """

    addresses: tuple[str, ...] = ()
    failure: Failure | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class _Lookup(Wait):
    """A lookup in progress and the callbacks that wait for it.

    `channel` is the shared one, or a separate one after a doubtful answer.
    """

    host: str
    channel: pycares.Channel
    waiting: list[Callable[[Answer], None]]


_ERRORS = {
    errno.ARES_ENOTFOUND: "The name {name} does not exist; check its spelling and its DNS records.",
    errno.ARES_ENODATA: "The name {name} has no address; add an A or AAAA record to its zone.",
    errno.ARES_ETIMEOUT: "The name servers gave no answer for {name}; check that those of its zone are up.",
    errno.ARES_EBADNAME: "The name {name} could not be resolved: it is not a valid domain name; check its spelling.",
    errno.ARES_ECONNREFUSED: "no name server could be reached",
} | dict.fromkeys(
    (errno.ARES_ESERVFAIL, errno.ARES_EREFUSED, errno.ARES_ENOTIMP, errno.ARES_EFORMERR, errno.ARES_EBADRESP),
    "The name servers refused or failed to answer for {name}; check its zone.",
)
_BY_NETWORK = frozenset({errno.ARES_ETIMEOUT, errno.ARES_ESERVFAIL, errno.ARES_EREFUSED})
"""A forwarding name server in our own network also returns these while it cannot reach other servers."""
SILENT = "no name server answers"
_OTHER_ERROR = "The name {name} could not be resolved; check its DNS records."


def _parse_server(spelt: str) -> Server:
    """Return the server of c-ares' `192.0.2.1:53`, `[2001:db8::1]:53` or, link-local, `[fe80::1]:53%eth0`."""
    spelt, mark, scope = spelt.partition("%")
    address, _, port = spelt.rpartition(":")
    return Server(address.strip("[]") + mark + scope, int(port))


def _failed(host: str, status: int) -> Answer:
    error = _ERRORS.get(status, _OTHER_ERROR).format(name=shorten(host, limit=_NAME_CHARS))
    if status == errno.ARES_ECONNREFUSED:
        return Answer(failure=own_fault(error, by_network=True))
    return Answer(failure=Failure(ReasonCode.DNS_FAILURE, error, by_network=status in _BY_NETWORK))


def _addresses(found: pycares.AddrInfoResult) -> tuple[str, ...]:
    # Without scoped addresses, which are link-local: libcurl takes no scopes.
    nodes = (node.addr for node in found.nodes if node.family != socket.AF_INET6 or not node.addr[3])
    return tuple(dict.fromkeys(address.decode("ascii") for address, *_ in nodes))[:_MOST_ADDRESSES]


def _is_doubtful(found: pycares.AddrInfoResult | None, status: int) -> bool:
    """Return whether garbage that was received for another name may have caused the answer.

    Bytes that are not a DNS message make c-ares close the socket and repeat all queries on it. A few of them use up the
    tries of all names, so a hostile zone could make other names fail or lose their IPv4 addresses.
    """
    if found is None:
        return status in {errno.ARES_EBADRESP, errno.ARES_ENODATA}
    return all(node.family == socket.AF_INET6 for node in found.nodes)


def _ask(
    channel: pycares.Channel,
    host: str,
    callback: Callable[[pycares.AddrInfoResult | None, int], None],
    *,
    family: socket.AddressFamily = socket.AF_UNSPEC,
) -> None:
    channel.getaddrinfo(host, None, family=family, type=socket.SOCK_STREAM, callback=callback)


class Resolver:
    """Thread-safe; one for all loops of an engine. Its threads do not delay the exit of the process.

    c-ares also caches answers by their TTL, including failures, as name servers do.
    """

    def __init__(self, servers: Sequence[str] = ()) -> None:
        """`servers` are addresses with or without a port, `192.0.2.1`, `192.0.2.1:5353` or `[2001:db8::1]:5353`.

        Without any, the system's are used. The system's hosts file and search domains always apply.
        """
        # For the tables below. Not held during calls of c-ares, whose thread calls us with its own lock held.
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Answer]] = {}
        self._under_way: dict[str, _Lookup] = {}
        self._alone = threading.BoundedSemaphore(_MOST_ALONE)
        self._new_channel = partial(pycares.Channel, timeout=TRY_SECONDS, tries=_TRIES, servers=tuple(servers))
        self._channel = self._new_channel()
        self.liveness = Liveness(self.servers)
        self._asked: SimpleQueue[_Lookup] = SimpleQueue()
        self._doubts: SimpleQueue[tuple[_Lookup, pycares.AddrInfoResult | None, int]] = SimpleQueue()
        # c-ares must not be called from its own callbacks: another thread may hold our lock and wait for its lock.
        for work in (self._ask_for_lonely, self._ask_alone):
            threading.Thread(target=work, name="probe-resolver", daemon=True).start()

    def servers(self) -> list[Server]:
        """Return the name servers that are asked, in their order."""
        return list(dict.fromkeys(map(_parse_server, self._channel.servers)))

    def recall(self, host: str) -> Answer | None:
        """Return the cached answer, if any."""
        known = self._known.get(host)
        return known[1] if known is not None and known[0] > time.monotonic() else None

    def resolve(self, host: str, on_answer: Callable[[Answer], None]) -> Wait | None:
        """Look up `host`. Return the wait for the answer, or None if there was none.

        `on_answer` is called, mostly in another thread, and must be quick and not raise.
        """
        if not host.isascii() or "\0" in host:  # c-ares would read another name
            on_answer(_failed(host, errno.ARES_EBADNAME))
            return None
        with self._lock:
            lookup = self._under_way.get(host)
            if lookup is not None and time.monotonic() - lookup.started < _JOIN_SECONDS:
                lookup.waiting.append(on_answer)
                return lookup
            lookup = self._under_way[host] = _Lookup(host=host, channel=self._channel, waiting=[on_answer])
        _ask(self._channel, host, partial(self._take, lookup))
        if not lookup.lasts:  # the hosts file and c-ares' cache answer at once
            return None
        self._asked.put(lookup)
        return self.liveness.watch(lookup)

    def _ask_for_lonely(self) -> None:
        """Query AAAA alone if A gets no answer.

        c-ares gives up on a lost AAAA once it has A, but not the other way round: a name whose servers answer AAAA
        and drop A would wait for all tries.
        """
        while True:
            lookup = self._asked.get()
            if lookup.lasts:
                time.sleep(max(0.0, lookup.started + _LONELY_SECONDS - time.monotonic()))
            if lookup.lasts:
                # Fully qualified, or a search domain could answer for a name whose own zone is slow.
                name = lookup.host.removesuffix(".") + "."
                _ask(lookup.channel, name, partial(self._take_lonely, lookup), family=socket.AF_INET6)

    def _ask_alone(self) -> None:
        """Repeat doubtful lookups, each on its own socket. Beyond `_MOST_ALONE` the doubtful answer is used."""
        while True:
            lookup, found, status = self._doubts.get()
            if not self._alone.acquire(blocking=False):
                self._settle(lookup, found, status)
                continue
            try:
                lookup.channel = self._new_channel()
            except pycares.AresError:  # the system has no socket or thread left
                self._take_alone(lookup, found, status)
                continue
            lookup.started = time.monotonic()
            _ask(lookup.channel, lookup.host, partial(self._take_alone, lookup))
            self._asked.put(lookup)
            self.liveness.watch(lookup)

    def _take_alone(self, lookup: _Lookup, found: pycares.AddrInfoResult | None, status: int) -> None:
        self._alone.release()
        self._settle(lookup, found, status)

    def _take_lonely(self, lookup: _Lookup, found: pycares.AddrInfoResult | None, _status: int) -> None:
        if found is not None:
            self._settle(lookup, found, errno.ARES_SUCCESS, whole=False)

    def _take(self, lookup: _Lookup, found: pycares.AddrInfoResult | None, status: int) -> None:
        """Called in c-ares' thread, or in the caller's if c-ares sends no query."""
        if _is_doubtful(found, status):
            self._doubts.put((lookup, found, status))
        else:
            self._settle(lookup, found, status)

    def _settle(
        self, lookup: _Lookup, found: pycares.AddrInfoResult | None, status: int, *, whole: bool = True
    ) -> None:
        """Answer all that wait. `whole` is False if a record without an answer may exist."""
        addresses = () if found is None else _addresses(found)
        is_partial = status == errno.ARES_ETIMEOUT or _is_doubtful(found, status)
        if is_partial and self.liveness.was_silent(lookup):
            answer = Answer(failure=own_fault(SILENT, by_network=True))
        elif addresses:
            answer = Answer(addresses)
        else:
            answer = _failed(lookup.host, errno.ARES_ENODATA if found is not None else status)
        with self._lock:
            # Failures are not cached: an outage of the name servers must not be prolonged.
            if answer.failure is None and whole:
                if len(self._known) >= _MAX_REMEMBERED:
                    self._known.clear()
                self._known[lookup.host] = (time.monotonic() + _REMEMBER_SECONDS, answer)
            if self._under_way.get(lookup.host) is lookup:
                del self._under_way[lookup.host]
            waiting, lookup.waiting = lookup.waiting, []
            lookup.end()
        for on_answer in waiting:
            on_answer(answer)

"""Names to addresses on c-ares: any number at once on one socket, each name once, remembered for a short while.

libcurl's threaded resolver looks up at most 20 names of a multi handle at a time, so that 20 names whose servers
hang would delay everybody else's check; threads of our own with getaddrinfo move that limit but keep it, and
getaddrinfo does not tell a name without addresses from one that does not exist.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

import pycares
from pycares import errno

from core.text import shorten

_REMEMBER_SECONDS = 30.0  # shorter than the shortest interval: every check may see a change of address
_MAX_REMEMBERED = 10_000
# The first try; each further one waits twice as long, about 12 s in all. c-ares would come down to this by
# itself for servers that answer quickly, and a lost answer to AAAA delays the one to A by one try.
_TRY_SECONDS = 0.25
_TRIES = 6
# How long an A record is waited for before AAAA alone will do. Long, because a machine without IPv6 can do nothing
# with it and would call the target down; short of the usual timeout, because a zone that drops A is up for others.
_LONELY_SECONDS = 2.0
_JOIN_SECONDS = 5.0  # a lookup this old is between late tries; who asks now is better served by a new one
_MOST_ALONE = 64  # lookups with a socket and a thread of their own
_MOST_ADDRESSES = 32  # of a name: an answer over TCP may hold four thousand
_NAME_CHARS = 120  # of a name in a sentence


@dataclass(frozen=True, slots=True)
class Answer:
    """`addresses` in libcurl's spelling, comma separated, in the order to try them; or `error`, a sentence.

    `ours`: no name server could be reached at all, which says nothing about the name.
    """

    addresses: str = ""
    error: str | None = None
    ours: bool = False

    def hosts(self) -> list[str]:
        """Return the addresses one by one, as sockets take them."""
        return [address.strip("[]") for address in self.addresses.split(",") if address]


class _Lookup:
    """One question under way and who waits for its answer. `started` is in monotonic seconds.

    `channel` is the shared one, or one of its own once what that brought was doubtful.
    """

    __slots__ = ("answered", "channel", "host", "started", "waiting")

    def __init__(self, host: str, channel: pycares.Channel, on_answer: Callable[[Answer], None]) -> None:
        self.host = host
        self.channel = channel
        self.started = time.monotonic()
        self.waiting = [on_answer]
        self.answered = False


_ERRORS = {
    errno.ARES_ENOTFOUND: "The name {name} does not exist; check its spelling and its DNS records.",
    errno.ARES_ENODATA: "The name {name} has no address; add an A or AAAA record to its zone.",
    errno.ARES_ETIMEOUT: "The name servers gave no answer for {name}; check that those of its zone are up.",
    errno.ARES_EBADNAME: "The name {name} could not be resolved: it is no valid domain name; check its spelling.",
    errno.ARES_ECONNREFUSED: "no name server could be reached",
} | dict.fromkeys(
    (
        errno.ARES_ESERVFAIL,
        errno.ARES_EREFUSED,
        errno.ARES_ENOTIMP,
        errno.ARES_EFORMERR,
        errno.ARES_EBADRESP,
    ),
    "The name servers refused or failed to answer for {name}; check its zone.",
)
_OTHER_ERROR = "The name {name} could not be resolved; check its DNS records."


def _failed(host: str, status: int) -> Answer:
    error = _ERRORS.get(status, _OTHER_ERROR).format(name=shorten(host, limit=_NAME_CHARS))
    return Answer(error=error, ours=status == errno.ARES_ECONNREFUSED)


def _addresses(found: pycares.AddrInfoResult) -> str:
    spelt: dict[str, None] = {}
    for node in found.nodes:
        text = node.addr[0].decode("ascii")
        if node.family != socket.AF_INET6:
            spelt[text] = None
        elif not node.addr[3]:  # a scoped address is link-local, and libcurl's list cannot spell its scope
            spelt[f"[{text}]"] = None
        if len(spelt) == _MOST_ADDRESSES:
            break
    return ",".join(spelt)


def _is_doubtful(found: pycares.AddrInfoResult | None, status: int) -> bool:
    """Whether an answer may be owed to garbage that came for another name.

    Bytes that are no message make c-ares close the socket they came over and ask everything anew that waits on
    it: a few of them use up everybody's tries, of one query or of both, and of two it reports the last. So a
    hostile zone would make other names fail, or lose their IPv4 addresses.
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
    """Thread-safe; one for all loops of an engine. Nothing of it holds up the process's exit.

    c-ares keeps answers by their TTL as well, failures among them, as name servers do.
    """

    def __init__(self, servers: Sequence[str] = ()) -> None:
        """`servers` are addresses with or without a port, `192.0.2.1`, `192.0.2.1:5353` or `[2001:db8::1]:5353`.

        None means the system's. The system's hosts file and search domains hold either way.
        """
        # Guards the tables below. Never held while c-ares is called: its thread calls us with its own lock held.
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Answer]] = {}
        self._under_way: dict[str, _Lookup] = {}
        self._alone = 0
        self._new_channel = partial(
            pycares.Channel, timeout=_TRY_SECONDS, tries=_TRIES, servers=tuple(servers)
        )
        self._channel = self._new_channel()
        self._asked: SimpleQueue[_Lookup] = SimpleQueue()
        self._doubts: SimpleQueue[tuple[_Lookup, pycares.AddrInfoResult | None, int]] = SimpleQueue()
        # c-ares must not be asked from its own callbacks: another thread may wait for its lock with ours in hand.
        for work in (self._ask_for_lonely, self._ask_alone):
            threading.Thread(target=work, name="probe-resolver", daemon=True).start()

    def recall(self, host: str) -> Answer | None:
        """What is known of `host`, without waiting."""
        known = self._known.get(host)
        return known[1] if known is not None and known[0] > time.monotonic() else None

    def resolve(self, host: str, on_answer: Callable[[Answer], None]) -> None:
        """Looks `host` up; `on_answer` is called, mostly in another thread, and must be quick and not raise."""
        if not host.isascii() or "\0" in host:  # what c-ares would read as another name
            on_answer(_failed(host, errno.ARES_EBADNAME))
            return
        with self._lock:
            lookup = self._under_way.get(host)
            if lookup is not None and time.monotonic() - lookup.started < _JOIN_SECONDS:
                lookup.waiting.append(on_answer)
                return
            lookup = self._under_way[host] = _Lookup(host, self._channel, on_answer)
        _ask(self._channel, host, partial(self._take, lookup))
        if not lookup.answered:  # the hosts file and c-ares' own memory answer at once
            self._asked.put(lookup)

    def _ask_for_lonely(self) -> None:
        """Ask for AAAA alone where A does not come.

        c-ares gives up on a lost AAAA as soon as it has A, but not the other way round: a name whose servers
        answer AAAA and drop A would wait for all tries.
        """
        while True:
            lookup = self._asked.get()
            if not lookup.answered:
                time.sleep(max(0.0, lookup.started + _LONELY_SECONDS - time.monotonic()))
            if not lookup.answered:
                # Fully qualified, lest a search domain answers for a name whose own zone is only slow.
                name = lookup.host.removesuffix(".") + "."
                _ask(lookup.channel, name, partial(self._take_lonely, lookup), family=socket.AF_INET6)

    def _ask_alone(self) -> None:
        """Ask doubtful ones again, each on a socket of its own; what came stands where there is no room for that."""
        while True:
            lookup, found, status = self._doubts.get()
            with self._lock:
                room = self._alone < _MOST_ALONE
                self._alone += room
            if not room:
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

    def _take_alone(self, lookup: _Lookup, found: pycares.AddrInfoResult | None, status: int) -> None:
        with self._lock:
            self._alone -= 1
        self._settle(lookup, found, status)

    def _take_lonely(self, lookup: _Lookup, found: pycares.AddrInfoResult | None, _status: int) -> None:
        if found is not None:
            self._settle(lookup, found, errno.ARES_SUCCESS, whole=False)

    def _take(self, lookup: _Lookup, found: pycares.AddrInfoResult | None, status: int) -> None:
        """In c-ares' thread, or in that of the caller where c-ares had to ask nobody."""
        if _is_doubtful(found, status):
            self._doubts.put((lookup, found, status))
        else:
            self._settle(lookup, found, status)

    def _settle(
        self, lookup: _Lookup, found: pycares.AddrInfoResult | None, status: int, *, whole: bool = True
    ) -> None:
        """Answer whoever waits; `whole` is False where a record that did not come may still exist."""
        addresses = "" if found is None else _addresses(found)
        if addresses:
            answer = Answer(addresses)
        else:
            answer = _failed(lookup.host, errno.ARES_ENODATA if found is not None else status)
        with self._lock:
            # A failure is not remembered: the next check asks anew, and an outage ends when it ends.
            if answer.error is None and whole:
                self._remember(lookup.host, answer)
            if self._under_way.get(lookup.host) is lookup:
                del self._under_way[lookup.host]
            waiting, lookup.waiting = lookup.waiting, []
            lookup.answered = True
        for on_answer in waiting:
            on_answer(answer)

    def _remember(self, host: str, answer: Answer) -> None:
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        self._known[host] = (time.monotonic() + _REMEMBER_SECONDS, answer)

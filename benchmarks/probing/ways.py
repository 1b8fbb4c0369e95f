"""Engines that request a target many times: ours, bare libcurl or sockets, requests, and blackbox_exporter.

Each runs the given number of checks and returns the seconds until the last counted response. All of them open a new
connection for every check.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import cycle, product, repeat
from urllib.parse import quote, urlsplit

import pycurl
import requests

from checks.probes.dns.message import make_query, question
from checks.probes.dns.spec import DnsSpec
from checks.probes.engine import ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.probes.ping.rights import open_socket
from checks.probes.ping.spec import PingSpec
from checks.probes.rate_limit import LocalSeconds, RateLimiter
from checks.probes.tcp.spec import TcpSpec
from checks.probes.udp import UdpSpec
from checks.spec import CheckOutcome, CheckSpec, ReasonCode, Verdict
from core.egress import EgressGuard, parse_networks

THREADS = 50
DATAGRAM = b"hello"
DNS_NAME = "example.com"
HANGING_SHARE = 10  # every tenth

Way = Callable[[int], float]


@dataclass(frozen=True)
class Job:
    """The task of a worker process. `pid` is the process to measure; None is the worker itself."""

    way: str
    url: str
    at_once: int
    ca_file: str | None = None
    other_url: str | None = None  # for every tenth check, whose response does not count
    hang_ms: int = 10_000
    blackbox: str | None = None
    pid: int | None = None


def ours(job: Job) -> Way:
    # All dns checks ask the same server, which gets one datagram a second otherwise.
    limiter = RateLimiter(LocalSeconds(0.0)) if job.url.startswith("dns:") else None
    engine = ProbeEngine(EgressGuard(parse_networks("127.0.0.0/8")), job.ca_file, rate_limiter=limiter)
    specs = _specs(job.url)
    other = HttpSpec(job.other_url or job.url, method="GET", timeout_ms=job.hang_ms)
    hangs = job.way == "ours_beside_hanging"

    def run(checks: int) -> float:
        counted = running = 0
        failed: list[CheckOutcome] = []
        last = started = time.perf_counter()

        def take(number: int, outcome: CheckOutcome) -> None:
            nonlocal counted, last, running
            running -= 1
            if job.other_url is not None and number % HANGING_SHARE == 0:
                expected = outcome.reason_code is ReasonCode.TIMEOUT if hangs else outcome.passed
            else:
                counted, last = counted + 1, time.perf_counter()
                expected = outcome.verdict is Verdict.UP
            if not expected:
                failed.append(outcome)

        def start() -> Iterator[tuple[int, CheckSpec] | None]:
            nonlocal running
            for number in range(checks):
                while running == job.at_once:
                    yield None
                running += 1
                yield number, other if job.other_url is not None and number % HANGING_SHARE == 0 else next(specs)

        engine.run(start(), take)
        if failed or not counted:
            raise SystemExit(f"{len(failed)} checks did not end as they should: {failed[:1]}")
        return last - started

    return run


def _specs(url: str) -> Iterator[CheckSpec]:
    """Yield a check after the other, never slow on a busy machine."""
    target = urlsplit(url)
    if target.scheme == "udp":
        assert target.port is not None
        for address in _addresses():
            yield UdpSpec(host=address, port=target.port, body=DATAGRAM, timeout_ms=60_000, slow_ms=60_000)
    elif target.scheme == "tcp":
        assert target.port is not None
        yield from repeat(TcpSpec(host="127.0.0.1", port=target.port, timeout_ms=60_000, slow_ms=60_000))
    elif target.scheme == "dns":
        assert target.port is not None
        yield from repeat(
            DnsSpec(name=DNS_NAME, server="127.0.0.1", port=target.port, timeout_ms=60_000, slow_ms=60_000)
        )
    elif target.scheme == "icmp":
        yield from repeat(PingSpec(host="127.0.0.1", timeout_ms=60_000, slow_ms=60_000))
    else:
        yield from repeat(HttpSpec(url, method="GET", timeout_ms=60_000, slow_ms=60_000))


def _addresses() -> Iterator[str]:
    """Yield another address each time: one is checked once a second."""
    return (f"127.{a}.{b}.{c}" for a, b, c in cycle(product(range(1, 10), range(256), range(256))))


def bare_sockets(job: Job) -> Way:
    """Send a datagram and receive one, or for tcp only connect."""
    target = urlsplit(job.url)
    addresses = _addresses() if target.scheme == "udp" else repeat("127.0.0.1")
    datagram = DATAGRAM if target.scheme == "udp" else make_query(question(DNS_NAME, "A"), edns=True)
    connects = target.scheme == "tcp"

    def start(poll: select.epoll) -> socket.socket:
        if connects:
            opened = socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            opened.connect_ex((next(addresses), target.port))
            poll.register(opened.fileno(), select.EPOLLOUT)
            return opened
        opened = socket.socket(type=socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        opened.connect((next(addresses), target.port))
        opened.send(datagram)
        poll.register(opened.fileno(), select.EPOLLIN)
        return opened

    def run(checks: int) -> float:
        started = time.perf_counter()
        with select.epoll() as poll:
            running = {opened.fileno(): opened for opened in (start(poll) for _ in range(min(job.at_once, checks)))}
            to_start = checks - len(running)
            while running:
                for fd, _ in poll.poll(10.0):
                    with running.pop(fd) as opened:
                        if connects:
                            opened.getpeername()
                        else:
                            opened.recv(65_536)
                    if to_start > 0:
                        to_start -= 1
                        following = start(poll)
                        running[following.fileno()] = following
        return time.perf_counter() - started

    return run


def bare_pings(job: Job) -> Way:
    """Send three echo requests, 200 ms apart, for each check, and read what comes back."""
    payload = bytes(32)

    def run(checks: int) -> float:
        started = time.perf_counter()
        to_start = unfinished = checks
        timers: list[tuple[float, int]] = []  # when to send, and how many more follow
        last: set[int] = set()
        sequence = 0
        with open_socket(socket.AF_INET, socket.IPPROTO_ICMP) as opened, select.epoll() as poll:
            at = 20 if opened.type == socket.SOCK_RAW else 0
            poll.register(opened.fileno(), select.EPOLLIN)
            while unfinished:
                while to_start and unfinished - to_start < job.at_once:
                    to_start -= 1
                    heappush(timers, (time.monotonic(), 2))
                while timers and timers[0][0] <= time.monotonic():
                    _, more = heappop(timers)
                    sequence = (sequence + 1) % 65_536
                    total = 0x0800 + sequence
                    header = struct.pack("!BBHHH", 8, 0, 0xFFFF - (total & 0xFFFF) - (total >> 16), 0, sequence)
                    opened.sendto(header + payload, ("127.0.0.1", 0))
                    if more:
                        heappush(timers, (time.monotonic() + 0.2, more - 1))
                    else:
                        last.add(sequence)
                poll.poll(max(0.0, timers[0][0] - time.monotonic()) if timers else 1.0)
                with suppress(BlockingIOError):
                    while packet := opened.recv(128):
                        if packet[at] == 0 and (number := int.from_bytes(packet[at + 6 : at + 8], "big")) in last:
                            last.remove(number)
                            unfinished -= 1
        return time.perf_counter() - started

    return run


def _multi(prepare: Callable[[], pycurl.Curl], at_once: int, take: Callable[[pycurl.Curl], None] | None = None) -> Way:
    """Run a bare loop over one multi handle and `at_once` easy handles. `take` is called with each that has ended."""

    def run(checks: int) -> float:
        started = time.perf_counter()
        multi = pycurl.CurlMulti()
        handles = [prepare() for _ in range(min(at_once, checks))]
        to_start, unfinished = checks - len(handles), checks
        for easy in handles:
            multi.add_handle(easy)
        while unfinished:
            multi.perform()
            queued = 1
            while queued:
                queued, succeeded, failed = multi.info_read()
                if failed:
                    raise SystemExit(f"A bare transfer failed: {failed[0][2]}")
                for easy in succeeded:
                    unfinished -= 1
                    multi.remove_handle(easy)
                    if take is not None:
                        take(easy)
                    if to_start > 0:
                        to_start -= 1
                        multi.add_handle(easy)
            if unfinished:
                multi.select(1.0)
        return time.perf_counter() - started

    return run


def bare_pycurl(job: Job, take: Callable[[pycurl.Curl], None] | None = None) -> Way:
    def prepare() -> pycurl.Curl:
        easy = pycurl.Curl()
        easy.setopt(pycurl.URL, job.url)
        easy.setopt(pycurl.PROXY, "")
        easy.setopt(pycurl.NOSIGNAL, 1)
        easy.setopt(pycurl.FRESH_CONNECT, 1)
        easy.setopt(pycurl.FORBID_REUSE, 1)
        easy.setopt(pycurl.SSL_SESSIONID_CACHE, 0)
        if job.ca_file is not None:
            easy.setopt(pycurl.CAINFO, job.ca_file)
            easy.setopt(pycurl.CAPATH, None)
        easy.setopt(pycurl.WRITEFUNCTION, lambda _: None)
        return easy

    return _multi(prepare, job.at_once, take)


def bare_requests(job: Job) -> Way:
    def ask(_: int) -> None:
        requests.get(job.url, timeout=10, verify=job.ca_file or True).raise_for_status()

    def run(checks: int) -> float:
        started = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(ask, range(checks)):
                pass
        return time.perf_counter() - started

    return run


def blackbox_exporter(job: Job) -> Way:
    """Ask the exporter to probe the target. Connections to the exporter are kept, as scrapers do."""
    target = urlsplit(job.url)
    name = job.url if target.scheme.startswith("http") else target.netloc
    module = "http" if target.scheme == "https" else target.scheme
    url = f"{job.blackbox}/probe?module={module}&target={quote(name, safe='')}"

    def take(chunk: bytes) -> int | None:
        # One response is one chunk; a failed probe is a 200 as well. Accepting no byte ends the transfer.
        return 0 if b"probe_success 0" in chunk else None

    def prepare() -> pycurl.Curl:
        easy = pycurl.Curl()
        easy.setopt(pycurl.URL, url)
        easy.setopt(pycurl.PROXY, "")
        easy.setopt(pycurl.NOSIGNAL, 1)
        easy.setopt(pycurl.FAILONERROR, 1)
        easy.setopt(pycurl.WRITEFUNCTION, take)
        return easy

    # Of many pings at once, some fail: each of its raw sockets gets the packets of all.
    return _multi(prepare, 1 if target.scheme == "icmp" else job.at_once)


WAYS: dict[str, Callable[[Job], Way]] = {
    "ours": ours,
    "ours_beside_hanging": ours,
    "bare_pycurl": bare_pycurl,
    "bare_sockets": bare_sockets,
    "bare_pings": bare_pings,
    "requests": bare_requests,
    "blackbox_exporter": blackbox_exporter,
}

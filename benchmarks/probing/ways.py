"""Engines that request a target many times: ours, bare libcurl, requests, and blackbox_exporter.

Each runs the given number of checks and returns the seconds until the last counted response. All of them open a new
connection for every check.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import quote

import pycurl
import requests

from checks.probes.engine import ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.spec import CheckOutcome, ReasonCode, Verdict
from core.egress import EgressGuard, parse_networks

THREADS = 50
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
    engine = ProbeEngine(EgressGuard(parse_networks("127.0.0.0/8")), job.ca_file)
    spec = HttpSpec(job.url, method="GET", timeout_ms=60_000, slow_ms=60_000)  # never slow on a busy machine
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

        def start() -> Iterator[tuple[int, HttpSpec] | None]:
            nonlocal running
            for number in range(checks):
                while running == job.at_once:
                    yield None
                running += 1
                yield number, other if job.other_url is not None and number % HANGING_SHARE == 0 else spec

        engine.run(start(), take)
        if failed or not counted:
            raise SystemExit(f"{len(failed)} checks did not end as they should: {failed[:1]}")
        return last - started

    return run


def _multi(prepare: Callable[[], pycurl.Curl], at_once: int) -> Way:
    """Run a bare loop over one multi handle and `at_once` easy handles."""

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
                    if to_start > 0:
                        to_start -= 1
                        multi.add_handle(easy)
            if unfinished:
                multi.select(1.0)
        return time.perf_counter() - started

    return run


def bare_pycurl(job: Job) -> Way:
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

    return _multi(prepare, job.at_once)


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
    url = f"{job.blackbox}/probe?module=http&target={quote(job.url, safe='')}"

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

    return _multi(prepare, job.at_once)


WAYS: dict[str, Callable[[Job], Way]] = {
    "ours": ours,
    "ours_beside_hanging": ours,
    "bare_pycurl": bare_pycurl,
    "requests": bare_requests,
    "blackbox_exporter": blackbox_exporter,
}

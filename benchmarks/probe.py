"""What a check costs: our probe core beside bare `requests` and a bare pycurl multi loop (issue 2, show 7).

    python benchmarks/probe.py [--checks N] [--rounds N]

All three ask the same local target the same number of times, in turns. The target runs in a process of its own,
and only the CPU of this process counts. The last line printed is one JSON object. Exits 1 where our core costs
more than 2 times the bare loop, or more than a fifth of requests.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pycurl
import requests

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from checks.probes import ProbeEngine
from checks.spec import CheckOutcome, CheckSpec, Verdict
from core.egress import EgressGuard, parse_networks

TRANSFERS = 100
THREADS = 50
MAX_RATIO_TO_BARE = 2.0
MAX_RATIO_TO_REQUESTS = 0.2

# A server as cheap as Python allows. It closes first, so that the ports in TIME_WAIT are on its side.
TARGET = r"""
import asyncio, socket
ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: target\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 12\r\nConnection: close\r\n\r\nhello world\n"
)
class Answer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.seen = transport, b""
    def data_received(self, data):
        self.seen += data
        if b"\r\n\r\n" in self.seen:
            self.transport.write(ANSWER)
            self.transport.close()
async def main():
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    print(listening.getsockname()[1], flush=True)
    server = await asyncio.get_running_loop().create_server(Answer, sock=listening, backlog=4096)
    await server.serve_forever()
asyncio.run(main())
"""


class Cost(NamedTuple):
    us_per_check: float
    checks_per_second: float


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(run: Callable[[int], None], checks: int) -> Cost:
    cpu, wall = cpu_seconds(), time.perf_counter()
    run(checks)
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    return Cost(cpu / checks * 1e6, checks / wall)


def ours(engine: ProbeEngine, url: str) -> Callable[[int], None]:
    spec = CheckSpec(url, method="GET")

    def run(checks: int) -> None:
        outcomes: list[CheckOutcome] = []
        engine.run(
            ((number, spec) for number in range(checks)),
            lambda _, outcome: outcomes.append(outcome),
            max_in_flight=TRANSFERS,
        )
        failed = [outcome for outcome in outcomes if outcome.verdict is Verdict.DOWN]
        if failed or len(outcomes) != checks:
            raise SystemExit(f"{len(failed)} of {len(outcomes)} checks failed: {failed[:1]}")

    return run


def bare_pycurl(url: str) -> Callable[[int], None]:
    def prepare() -> pycurl.Curl:
        easy = pycurl.Curl()
        easy.setopt(pycurl.URL, url)
        easy.setopt(pycurl.PROXY, "")
        easy.setopt(pycurl.NOSIGNAL, 1)
        easy.setopt(pycurl.FRESH_CONNECT, 1)
        easy.setopt(pycurl.FORBID_REUSE, 1)
        easy.setopt(pycurl.WRITEFUNCTION, lambda _: None)
        return easy

    def run(checks: int) -> None:
        multi = pycurl.CurlMulti()
        to_start = checks - TRANSFERS
        unfinished = checks
        for _ in range(TRANSFERS):
            multi.add_handle(prepare())
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

    return run


def bare_requests(url: str) -> Callable[[int], None]:
    def ask(_: int) -> None:
        requests.get(url, timeout=10).raise_for_status()

    def run(checks: int) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(ask, range(checks)):
                pass

    return run


def compare(url: str, *, checks: int, rounds: int) -> dict[str, float]:
    """The median of the rounds, each of which runs all three: a busy moment of the machine hits them alike."""
    engine = ProbeEngine(EgressGuard(parse_networks("127.0.0.0/8")))
    ways = {"ours": ours(engine, url), "bare_pycurl": bare_pycurl(url), "requests": bare_requests(url)}
    for warm_up in ways.values():
        warm_up(TRANSFERS)
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, run in ways.items():
            costs[name].append(measure(run, checks))
            print(f"round {number + 1}, {name}: {costs[name][-1].us_per_check:.0f} us per check")
    cpu = {name: statistics.median(cost.us_per_check for cost in found) for name, found in costs.items()}
    speed = {
        name: statistics.median(cost.checks_per_second for cost in found) for name, found in costs.items()
    }
    return {
        **{f"{name}_us_per_check": round(value, 1) for name, value in cpu.items()},
        **{f"{name}_checks_per_second": round(value) for name, value in speed.items()},
        "ratio_to_bare": round(cpu["ours"] / cpu["bare_pycurl"], 2),
        "ratio_to_requests": round(cpu["ours"] / cpu["requests"], 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checks", type=int, default=3_000, help="checks per round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with subprocess.Popen([sys.executable, "-c", TARGET], stdout=subprocess.PIPE, text=True) as target:
        try:
            assert target.stdout is not None
            port = int(target.stdout.readline())
            found = compare(
                f"http://127.0.0.1:{port}/",
                checks=max(options.checks, TRANSFERS * 10),
                rounds=max(options.rounds, 1),
            )
        finally:
            target.kill()
    good = found["ratio_to_bare"] <= MAX_RATIO_TO_BARE and found["ratio_to_requests"] <= MAX_RATIO_TO_REQUESTS
    print(json.dumps(found | {"goal_met": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""The engine under fire, in a process of its own.

So that its memory is its own, what pycurl prints of an exception in a callback is seen, and it does not share
an interpreter with the server that it asks. Batches come pickled on standard input, reports go to standard output.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checks.probes.engine import ProbeEngine
from checks.probes.rate_limit import LocalSeconds, RateLimiter
from checks.probes.resolver import Answer, Resolver
from checks.spec import CheckOutcome, CheckSpec, ReasonCode
from checks.verdict import Failure
from core.egress import Address, EgressGuard, parse_networks

ROOT = Path(__file__).resolve().parents[2]

# Addresses of our names; None is a name whose servers never answer. No other name has an address.
NAMES: dict[str, str | None] = {
    "localhost": "127.0.0.1",
    "good.test": "127.0.0.1",
    "both.test": "10.0.0.1,127.0.0.1",
    "private.test": "10.0.0.1",
    "hanging.test": None,
}


class LoopbackOnly(EgressGuard):
    """Refuses public addresses too: what a random response names must not be asked anything."""

    def permits(self, address: Address) -> bool:
        return any(address in network for network in self.allowed)


class KnownNames(Resolver):
    """Answers `NAMES` without querying name servers."""

    def recall(self, host: str) -> Answer | None:
        addresses = NAMES.get(host.lower().removesuffix("."), "")
        return Answer(tuple(addresses.split(","))) if addresses else None

    def resolve(self, host: str, on_answer: Callable[[Answer], None]) -> None:
        if host.lower().removesuffix(".") not in NAMES:
            failure = Failure(ReasonCode.DNS_FAILURE, "The name has no address; it is none of the test's.")
            on_answer(Answer(failure=failure))


@dataclass
class Report:
    """What came of a batch. Times are milliseconds past a check's own deadline, memory is in KiB.

    `peak` is the most that the process has held since it began, `held` what it holds now.
    """

    ended: list[tuple[int, CheckOutcome, float]] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0
    held: int = 0
    peak: int = 0


class Prober:
    """The process, seen from the tests. A context manager."""

    def __init__(self, ca_file: str) -> None:
        self._ca_file = ca_file

    def __enter__(self) -> Prober:
        with contextlib.ExitStack() as stack:
            self._printed = stack.enter_context(tempfile.TemporaryFile())
            self._process = stack.enter_context(
                subprocess.Popen(
                    # Imported, not run as __main__, so that both sides pickle the same Report.
                    [sys.executable, "-c", "from tests.fuzz.prober import main; main()", self._ca_file],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._printed,
                )
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        # Popen's own exit closes the pipes, at which the process ends, and waits for it.
        self._stack.close()

    def run(self, specs: Sequence[CheckSpec]) -> Report:
        """Run a batch, all checks at once; their keys are their places. Raises EOFError where it kills the process."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        pickle.dump(list(specs), stdin)
        stdin.flush()
        report = pickle.load(stdout)
        assert isinstance(report, Report)
        return report

    def printed(self) -> str:
        """What the process has written to standard error so far."""
        self._printed.seek(0)
        return self._printed.read().decode("utf-8", "replace")


def _memory(name: str) -> int:
    """`VmRSS` or `VmHWM` of this process, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


class _Ears(logging.Handler):
    """Collects what is logged as an error, traceback and all."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(self.format(record))


def _run_batch(engine: ProbeEngine, specs: list[CheckSpec], ears: _Ears) -> Report:
    report = Report()
    deadlines: dict[int, float] = {}

    def started() -> Iterator[tuple[int, CheckSpec]]:
        for number, spec in enumerate(specs):
            deadlines[number] = time.monotonic() + spec.timeout_ms / 1000
            yield number, spec

    def ended(number: int, outcome: CheckOutcome) -> None:
        report.ended.append((number, outcome, (time.monotonic() - deadlines[number]) * 1000))

    ears.heard.clear()
    cpu = time.process_time()
    engine.run(started(), ended)
    report.cpu_seconds = time.process_time() - cpu
    report.logged = list(ears.heard)
    gc.collect()
    report.held, report.peak = _memory("VmRSS"), _memory("VmHWM")
    return report


def main() -> None:
    engine = ProbeEngine(
        LoopbackOnly(parse_networks("127.0.0.0/8")),
        sys.argv[1],
        resolver=KnownNames(),
        rate_limiter=RateLimiter(LocalSeconds(0.0)),
    )
    ears = _Ears()
    logging.getLogger("checks").addHandler(ears)
    while True:
        try:
            specs = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        report = _run_batch(engine, specs, ears)
        pickle.dump(report, sys.stdout.buffer)
        sys.stdout.buffer.flush()

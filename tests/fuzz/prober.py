"""The engine under test, in a separate process.

Its memory can then be measured, pycurl's output about exceptions in callbacks is captured, and it does not share an
interpreter with the server. Batches arrive pickled on standard input, reports are written to standard output.
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

# Addresses of our names; None: the name's servers never answer. Other names have no address.
NAMES: dict[str, str | None] = {
    "localhost": "127.0.0.1",
    "good.test": "127.0.0.1",
    "both.test": "10.0.0.1,127.0.0.1",
    "private.test": "10.0.0.1",
    "hanging.test": None,
}


class LoopbackOnly(EgressGuard):
    """Refuses public addresses too: no request may go to an address in a random response."""

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
    """The result of a batch. Times are milliseconds past the check's deadline, memory is in KiB.

    `peak`: the peak memory of the process so far, `held`: its current memory.
    """

    ended: list[tuple[int, CheckOutcome, float]] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0
    held: int = 0
    peak: int = 0


class Prober:
    """The tests' side of the process. A context manager."""

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
        """Run all checks of a batch concurrently; keys are positions. Raises EOFError if it kills the process."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        pickle.dump(list(specs), stdin)
        stdin.flush()
        report = pickle.load(stdout)
        assert isinstance(report, Report)
        return report

    def printed(self) -> str:
        """Return the standard error output so far."""
        self._printed.seek(0)
        return self._printed.read().decode("utf-8", "replace")


def _memory(name: str) -> int:
    """Return `VmRSS` or `VmHWM` of this process, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


class _Ears(logging.Handler):
    """Collect logged errors with their tracebacks."""

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

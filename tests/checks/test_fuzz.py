"""The engine against a server that sends random data: every check ends in time, with one verdict, within its memory.

`make test` runs a bounded version. The full version prints its findings as one JSON line:

    EXAMPLES=10 python -m pytest tests/checks/test_fuzz.py -n 0 -s
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from checks.probes.http.spec import HttpSpec
from checks.probes.http.verdict import expects
from checks.spec import CheckOutcome
from tests.fuzz import verdicts
from tests.fuzz.prober import Prober, Report
from tests.fuzz.responses import Shot, shots
from tests.helpers import examples
from tests.targets.certificates import Certificates
from tests.targets.server import Script, Seen, Site, TargetServer, answer

RESPONSES = examples(1000)
BATCH = 100
OVERRUN_MS = 250
KIB_PER_PROBE = 2 * 1024

GOOD = Shot([answer(200, b"the end")], HttpSpec("", method="GET", timeout_ms=5_000))


class Range:
    """A plain and a TLS target that answer with the scripts of the current batch."""

    def __init__(self, targets: TargetServer, certificates: Certificates, prober: Prober) -> None:
        self._prober = prober
        self._scripts: list[Script] = []
        self._sites = {
            False: targets.serve(self._script_for),
            True: targets.serve(self._script_for, tls=certificates.good()),
        }

    def _script_for(self, seen: Seen) -> Script:
        # A redirect may have any path.
        number = re.search("[0-9]{1,3}", seen.path)
        return self._scripts[int(number[0]) % len(self._scripts) if number else 0]

    def fire(self, batch: list[Shot]) -> Report:
        """Run the checks of a batch, all at once."""
        self._scripts = [_addressed(shot.script, self._sites[shot.tls]) for shot in batch]
        report = self._prober.run(
            [
                replace(shot.spec, url=self._sites[shot.tls].url(f"/{number}", host=shot.host))
                for number, shot in enumerate(batch)
            ]
        )
        for site in self._sites.values():
            site.seen.clear()
        return report

    def faults(self, batch: list[Shot], report: Report) -> list[str]:
        """Return the faults of the outcomes, each with its shot."""
        ended = Counter(number for number, _, _ in report.ended)
        wrong = [f"{ended[number]} outcomes: {shot!r}" for number, shot in enumerate(batch) if ended[number] != 1]
        for number, outcome, _ in report.ended:
            if found := find_faults(batch[number].spec, outcome):
                wrong.append(f"{', '.join(found)}: {outcome!r} of {batch[number]!r}")
        if late := _late(report):
            again = _late(self.fire(batch))  # the machine may have been busy
            wrong += [f"late by {late[n]:.0f} and {again[n]:.0f} ms: {batch[n]!r}" for n in late if n in again]
        if report.logged:
            wrong += [f"logged: {text}" for text in report.logged]
            wrong += [
                f"logged alone: {self.fire([shot]).logged[:1]} of {shot!r}"
                for shot in batch
                if self.fire([shot]).logged
            ]
        return wrong


def _late(report: Report) -> dict[int, float]:
    """Return how many milliseconds late checks ended, by number."""
    return {number: late_ms for number, _, late_ms in report.ended if late_ms >= OVERRUN_MS}


def _addressed(script: Script, site: Site) -> Script:
    """Return the script with the URLs of other responses in the placeholders of its redirects."""
    port = b"%d" % site.port
    return [
        step.replace(b"%p", port).replace(b"%d", b"%d" % (number * 37 % 100)) if isinstance(step, bytes) else step
        for number, step in enumerate(script)
    ]


def find_faults(spec: HttpSpec, outcome: CheckOutcome) -> list[str]:
    """Return the rules that an outcome breaks; they apply to any answer of a target."""
    rules = {
        "passed with a status that fails": outcome.passed and not expects(spec, outcome.http_status or 0),
        "an impossible status": outcome.http_status is not None and not 1 <= outcome.http_status <= 999,
        "times of one hop among several": spec.follow_redirects
        and (outcome.connect_ms, outcome.ttfb_ms) != (None, None),
    }
    return verdicts.find_faults(outcome) + [name for name, broken in rules.items() if broken]


@pytest.fixture
def range_(targets: TargetServer, certificates: Certificates) -> Iterator[Range]:
    with Prober(certificates.ca_file) as prober:
        yield Range(targets, certificates, prober)
        assert prober.printed() == ""  # pycurl prints what a callback raises


def test_any_answer_ends_in_one_verdict(range_: Range) -> None:
    # By now everything that is loaded once is loaded: the trust store, the codecs, a handle per check.
    batch = min(BATCH, RESPONSES)
    before = range_.fire([GOOD] * batch)
    reports: list[Report] = []
    failures: list[str] = []

    @settings(
        max_examples=-(-RESPONSES // batch),
        deadline=None,
        database=None,
        phases=[Phase.generate],  # a failure is a single shot of its batch; shrinking would not help
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(shots(), min_size=batch, max_size=batch))
    def fire(shots: list[Shot]) -> None:
        reports.append(range_.fire(shots))
        failures.extend(range_.faults(shots, reports[-1]))

    fire()
    overruns = sorted(late for report in reports for _, _, late in report.ended)
    peak_kib = max(report.peak for report in reports) - before.held
    found = {
        "responses": len(overruns),
        "failures": len(failures),
        "worst_overrun_ms": round(overruns[-1], 1),
        "peak_memory_mib": round(peak_kib / 1024, 1),
        "memory_goal_mib": batch * KIB_PER_PROBE // 1024,
        "kept_memory_mib": round((reports[-1].held - before.held) / 1024, 1),
        "cpu_ms_per_check": round(sum(report.cpu_seconds for report in reports) / len(overruns) * 1000, 2),
        "reasons": Counter(outcome.reason_code or "passed" for report in reports for _, outcome, _ in report.ended),
    }
    print(json.dumps(found))  # noqa: T201
    assert failures == [], "\n\n".join([f"{len(failures)} failures", *failures[:20]])
    assert len(overruns) >= RESPONSES
    assert peak_kib < batch * KIB_PER_PROBE

"""Every case of the catalogue three ways: by the engine, by the API's test endpoint, and as a scheduled check.

Each way runs all cases concurrently, and all ways must report the same verdicts.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker
from django.db import connection
from pytest_django.fixtures import Settings

from checks.probes.engine import ProbeEngine
from checks.probes.resolver import SILENT, Resolver
from checks.results.models import CheckResult
from checks.spec import CheckOutcome, CheckSpec
from config.celery import app
from core.clock import utc_now
from core.waiting import MAX_ACTIVE
from monitors import configuration, types
from monitors.checking.runner import drain, shared_engine
from monitors.models import MonitorState
from monitors.services import permits_host
from monitors.tasks import dispatch_due
from tests.api.client import Api
from tests.checks.conftest import LOOPBACK
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import flush_broker
from tests.processes.waiting import until
from tests.targets.catalogue import CASES, Case
from tests.targets.certificates import Certificates
from tests.targets.document import DOCUMENT, with_catalogue
from tests.targets.stage import Stage

CALLERS = MAX_ACTIVE  # one more would be refused while stalling targets occupy the others
OVERRUN = timedelta(milliseconds=250)
HELD_UP = timedelta(milliseconds=20)  # less than 15 on a quiet machine
ROUNDS = 4
LONGEST_DETAIL = 300


@dataclass(frozen=True)
class Found:
    """The result of one way; the API's test endpoint returns no reason code."""

    status: str
    http_status: int | None
    detail: str | None
    reason_code: str | None = None


@pytest.fixture(scope="module")
def stage(certificates: Certificates) -> Iterator[Stage]:
    with Stage(CASES, certificates) as stage:
        yield stage


@pytest.fixture
def worker(stage: Stage, transactional_db: None, settings: Settings, patient: None) -> Iterator[None]:
    """A real worker on the real broker that asks the stage's name server and trusts its authority."""
    settings.DNS_SERVERS = [stage.names.address]
    settings.SSL_CERT_FILE = stage.ca_file
    settings.THROTTLE_SCALE = 0
    flush_broker()
    _forget_probers()
    queues = ["interactive", "probes"]
    with start_worker(app, pool="threads", concurrency=CALLERS, perform_ping_check=False, queues=queues):
        yield
    _forget_probers()


def _forget_probers() -> None:
    """Discard the probers that this process created with other settings."""
    drain(grace_sec=0)
    shared_engine.cache_clear()


def compare(cases: Sequence[Case], found: Mapping[str, Found], *, with_reason: bool = True) -> None:
    """Fail with a line for each case that deviates from the catalogue."""
    lines = [f"{case.id}: {fault}" for case in cases for fault in _faults(case, found.get(case.id), with_reason)]
    assert not lines, "\n".join(lines)


def _faults(case: Case, found: Found | None, with_reason: bool) -> Iterator[str]:
    if found is None:
        yield "no result"
        return
    expected = (case.status, case.http_status, case.reason_code if with_reason else None)
    if (came := (found.status, found.http_status, found.reason_code if with_reason else None)) != expected:
        yield f"{came} instead of {expected}: {found.detail}"
    detail = found.detail or ""
    if case.words not in detail:
        yield f"{case.words!r} is not in {detail!r}"
    if (found.detail is None) is not (found.status == "up"):
        yield f"{found.status} with the detail {found.detail!r}"
    if detail and (not detail.endswith(".") or len(detail) > LONGEST_DETAIL or not detail.isprintable()):
        yield f"{detail!r} is not a printable sentence"


def _timed(case: Case, outcome: CheckOutcome) -> bool:
    """Return whether the timings are in order, not split after redirects, and complete for a pass."""
    split = [outcome.connect_ms, outcome.ttfb_ms]
    if case.settings.get("follow_redirects"):
        return split == [None, None] and (outcome.latency_ms is not None or not outcome.passed)
    reached = [time for time in (*split, outcome.latency_ms) if time is not None]
    if case.settings.get("type") in ("udp", "dns"):  # without connections
        return outcome.connect_ms is None and (len(reached) == 2 or not outcome.passed)
    whole = 2 if case.settings.get("type") == "port" else 3  # without rules nothing is read from a port
    return reached == sorted(reached) and (len(reached) >= whole or not outcome.passed)


def spec_for(case: Case, stage: Stage) -> CheckSpec:
    config = configuration.complete(
        stage.inputs[case.id], configuration.Limits(floor_sec=60, permits_host=permits_host)
    )
    return types.get(config.type).spec(config, run_id="run-1")


class Metronome:
    """Measure how late this machine, under its current load, wakes a thread that sleeps until a deadline."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self.latest = timedelta()

    @contextmanager
    def beating(self) -> Iterator[None]:
        thread = threading.Thread(target=self._beat)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def _beat(self) -> None:
        step = 0.01
        due = time.monotonic() + step
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            self.latest = max(self.latest, timedelta(seconds=time.monotonic() - due))
            due = time.monotonic() + step


@pytest.mark.usefixtures("patient")
def test_by_the_engine(stage: Stage) -> None:
    hurried = {case.id for case in CASES if "timeout_ms" in case.settings}
    faults, latest = _by_the_engine(stage, CASES)
    for _ in range(ROUNDS - 1):
        if not faults or latest < HELD_UP or not faults.keys() <= hurried:
            break
        # On a busy machine a target with a second to answer may miss it: these cases are repeated alone.
        faults, latest = _by_the_engine(stage, [case for case in CASES if case.id in faults])
    assert faults == {}


def _by_the_engine(stage: Stage, cases: Sequence[Case]) -> tuple[dict[str, list[str]], timedelta]:
    """Return the deviations from the catalogue by case, and the longest delay of a thread during the run."""
    engine = ProbeEngine(LOOPBACK, stage.ca_file, resolver=Resolver([stage.names.address]))
    began: dict[str, datetime] = {}
    outcomes: dict[str, CheckOutcome] = {}

    def specs() -> Iterator[tuple[Case, CheckSpec]]:
        for case in cases:
            spec = spec_for(case, stage)
            began[case.id] = utc_now()
            yield case, spec

    metronome = Metronome()
    with metronome.beating():
        engine.run(specs(), lambda case, outcome: outcomes.setdefault(case.id, outcome))

    def faults_of(case: Case) -> Iterator[str]:
        outcome = outcomes.get(case.id)
        if outcome is None:
            yield "no result"
            return
        found = Found(outcome.verdict, outcome.http_status, outcome.detail, outcome.reason_code)
        yield from _faults(case, found, with_reason=True)
        if not _timed(case, outcome):
            yield f"timings {outcome.connect_ms}, {outcome.ttfb_ms}, {outcome.latency_ms}"
        allowed = timedelta(milliseconds=case.settings.get("timeout_ms", 10_000)) + OVERRUN + metronome.latest
        if (took := outcome.checked_at - began[case.id]) > allowed:
            yield f"took {took} of {allowed}"

    faults = {case.id: lines for case in cases if (lines := list(faults_of(case)))}
    return faults, metronome.latest


def test_by_the_api(stage: Stage, worker: None) -> None:
    compare(CASES, by_the_api(CASES, stage.inputs), with_reason=False)


def test_as_scheduled_checks(stage: Stage, worker: None) -> None:
    compare(CASES, as_scheduled_checks(CASES, stage.inputs))


def by_the_api(cases: Sequence[Case], inputs: Mapping[str, dict[str, Any]]) -> dict[str, Found]:
    """Return the responses of the API's test endpoint, by case. `inputs` are MonitorInputs."""
    token = Api.signed_in(UserFactory()).token

    def ask(case: Case) -> Found:
        try:
            answer = Api(token).post("/v1/monitors/test", inputs[case.id])
            if answer.status == 503 and SILENT in answer.json["reason"]:  # see below
                answer = Api(token).post("/v1/monitors/test", inputs[case.id])
            assert answer.status == 200, f"{case.id}: {answer.text}"
            result = answer.json
            return Found(result["status"], result["http_status"], result["detail"])
        finally:
            connection.close()

    with ThreadPoolExecutor(CALLERS) as callers:
        return dict(zip((case.id for case in cases), callers.map(ask, cases), strict=True))


def as_scheduled_checks(cases: Sequence[Case], inputs: Mapping[str, dict[str, Any]]) -> dict[str, Found]:
    """Return what a worker records, by case."""
    user = UserFactory()
    monitors = {MonitorFactory(owner=user, **inputs[case.id]).pk: case for case in cases}
    # As if the first checks had been made long ago.
    MonitorState.objects.update(claimed_at=None, next_due_at=utc_now())
    dispatch_due()

    def are_recorded() -> bool:
        # On a busy machine the stage's name server, a thread of this process, may be silent for too long.
        prevented = MonitorState.objects.filter(fault__contains=SILENT)
        prevented.update(claimed_at=None, next_due_at=utc_now(), fault=None, fault_since=None)
        # Includes checks that were postponed because no second of their address was free.
        if MonitorState.objects.filter(last_checked_at=None, claimed_at=None, next_due_at__lte=utc_now()).exists():
            dispatch_due()
        return CheckResult.objects.count() == len(cases)

    until(are_recorded, 60, "a result for every monitor")
    return {
        monitors[result.monitor_id].id: Found(result.verdict, result.http_status, result.detail, result.reason_code)
        for result in CheckResult.objects.all()
    }


def test_the_catalogue_is_sound() -> None:
    assert len(CASES) >= 80
    assert [name for name, count in Counter(case.id for case in CASES).items() if count > 1] == []
    names = Counter(name for case in CASES for name in case.zone)
    assert [name for name, count in names.items() if count > 1] == []
    assert [case.id for case in CASES if not case.about.endswith(".") or not case.about[:1].isupper()] == []
    assert [case.id for case in CASES if case.status == "down" and not case.words] == []
    covered: set[Any] = {case.reason_code for case in CASES}
    assert covered >= {
        "timeout",
        "dns_failure",
        "connection_failure",
        "tls_failure",
        "http_failure",
        "content_failure",
        "partial_response",
        "redirect_failure",
        "blocked_target",
    }


def test_the_document_holds_the_catalogue() -> None:
    """`python -m tests.generated` updates it."""
    text = DOCUMENT.read_text()
    assert text == with_catalogue(text)

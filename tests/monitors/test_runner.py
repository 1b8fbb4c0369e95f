"""A worker's probe loop: hanging batches, an unreachable database, and its shutdown."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

import pytest
from django.db import connection, transaction
from pytest_django.fixtures import Settings

import checks.own_network
from checks.probes.engine import ProbeEngine
from checks.probes.http.spec import HttpSpec
from checks.probes.resolver import Resolver
from checks.results.models import CheckResult
from checks.spec import CheckOutcome, ReasonCode, Verdict
from core import metrics
from core.clock import utc_now
from core.db import separate_connection
from core.metrics import LATE
from core.outbound import guard, trust_store
from monitors.checking import own_network
from monitors.checking import runner as runner_module
from monitors.checking.jobs import CheckJob, load_jobs
from monitors.checking.runner import CheckRunner, drain, shared_engine
from monitors.models import Monitor, MonitorState
from monitors.recording.batch import CheckRecord
from monitors.scheduling import claim_due, claim_now, start_runs
from monitors.selectors import status_of
from monitors.stale import stale_reason, stale_since
from monitors.tasks import probe_now
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, flush_broker, outcome, state_of
from tests.processes.up import free_port
from tests.targets.server import Hang, TargetServer, answer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.fixture
def runner() -> Iterator[CheckRunner]:
    made = CheckRunner(shared_engine())
    yield made
    made.drain(grace_sec=0)


def assign(*urls: str, **given: object) -> list[CheckJob]:
    """Create and claim a monitor for each URL."""
    user = UserFactory()
    for url in urls:
        MonitorFactory(owner=user, url=url, created_at=utc_now() - timedelta(minutes=10), up=True, **given)
    claims = claim_due(utc_now(), limit=100)
    assert len(claims) == len(urls)
    return load_jobs([(claim.monitor_id, claim.number) for claim in claims])


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def results() -> int:
    return CheckResult.objects.exclude(claim=1).count()


def test_a_target_that_hangs_delays_nobody(runner: CheckRunner, targets: TargetServer) -> None:
    hanging, good = targets.serve([Hang()]), targets.serve([answer()])
    both = assign(hanging.url(), good.url(), timeout_ms=60_000)
    runner.submit(both)
    wait_until(lambda: results() == 1)
    runner.submit(assign(good.url("/later")))
    wait_until(lambda: results() == 2 and runner.in_flight == 1)
    assert state_of_url(hanging.url()).claimed_at is not None


def test_late_checks_are_counted_but_not_those_on_demand(runner: CheckRunner, targets: TargetServer) -> None:
    url = targets.serve([answer()]).url()

    def late() -> float:
        metrics.report()
        return LATE.read(metrics.read_levels())["checks",]

    before = late()
    jobs = assign(url)  # due minutes ago
    runner.submit(jobs)
    wait_until(lambda: results() == 1)
    assert late() == before + 1
    MonitorState.objects.update(next_due_at=utc_now())
    runner.submit(load_jobs([claim.key for claim in claim_due(utc_now(), limit=1)]))
    wait_until(lambda: results() == 2)
    MonitorState.objects.update(slot_at=utc_now() - timedelta(minutes=4))
    runner.offer(load_jobs([*claim_now([jobs[0].monitor_id], now=utc_now()).items()]))
    wait_until(lambda: results() == 3)
    assert late() == before + 1


def test_a_monitor_that_is_being_edited_delays_no_result_of_others(runner: CheckRunner, targets: TargetServer) -> None:
    good = targets.serve([answer()])
    held, free = assign(good.url("/held"), good.url("/free"))
    with separate_connection(patience_sec=60) as other:
        other.execute("SELECT FROM monitors_monitorstate WHERE monitor_id = %s FOR UPDATE", [held.monitor_id])
        runner.submit([held, free])
        wait_until(lambda: results() == 1 and runner.in_flight == 1)
        assert CheckResult.objects.exclude(claim=1).get().monitor_id == free.monitor_id
    wait_until(lambda: results() == 2 and runner.in_flight == 0)


def test_an_owner_has_a_share_of_the_checks_whose_callers_wait(
    runner: CheckRunner, targets: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks continue, even if their callers have given up."""
    monkeypatch.setattr(runner_module, "MAX_ASKED", 16)
    monkeypatch.setattr(runner_module, "MAX_ASKED_OF_OWNER", 4)
    monkeypatch.setattr(runner_module, "ASKED_RESERVED", 4)
    found: list[CheckOutcome | None] = []

    def ask(owner_id: int, url: str) -> bool:
        return runner.ask(HttpSpec(url, timeout_ms=60_000), owner_id=owner_id, then=found.append)

    hanging, good = targets.serve([Hang()]), targets.serve([answer()])
    assert [ask(1, hanging.url()) for _ in range(6)] == [True] * 4 + [False] * 2
    assert sum(ask(owner, hanging.url()) for owner in range(2, 6) for _ in range(4)) == 10
    assert [ask(owner, good.url()) for owner in (2, 7, 8)] == [False, True, True]
    wait_until(lambda: len(found) == 2)
    assert ask(7, good.url()), "its place was given back"


def state_of_url(url: str) -> MonitorState:
    return state_of(Monitor.objects.get(url=url))


def test_who_asks_hears_when_it_is_recorded(runner: CheckRunner, targets: TargetServer) -> None:
    told: list[tuple[CheckOutcome | None, int]] = []
    done = threading.Event()

    def then(found: CheckOutcome | None) -> None:
        told.append((found, results()))
        connection.close()
        done.set()

    runner.submit(assign(targets.serve([answer()]).url()), then=then)
    assert done.wait(20)
    assert [(found is not None and found.verdict, count) for found, count in told] == [(Verdict.UP, 1)]


def test_leaving_gives_back_what_does_not_end_in_time(runner: CheckRunner, targets: TargetServer) -> None:
    hanging = targets.serve([Hang()])
    (job,) = assign(hanging.url(), timeout_ms=60_000)
    runner.submit([job])
    wait_until(lambda: hanging.connections)
    before = state_of_url(hanging.url())
    assert runner.drain(grace_sec=0.1) == 1
    after = state_of_url(hanging.url())
    assert (after.claimed_at, after.next_due_at) == (None, before.slot_at)
    assert [claim.monitor_id for claim in claim_due(utc_now(), limit=10)] == [job.monitor_id]
    assert results() == 0


def test_leaving_lets_what_is_quick_end(runner: CheckRunner, targets: TargetServer) -> None:
    runner.submit(assign(*[targets.serve([answer()]).url() for _ in range(5)]))
    assert runner.drain(grace_sec=20) == 0
    assert results() == 5


def test_a_fired_trigger_is_not_given_back(runner: CheckRunner, targets: TargetServer) -> None:
    hanging = targets.serve([Hang()])
    (job,) = assign(hanging.url(), type="scheduler", method="POST", timeout_ms=60_000)
    assert start_runs([job.key], now=utc_now())
    runner.submit([job])
    wait_until(lambda: hanging.connections)
    runner.drain(grace_sec=0)
    assert state_of_url(hanging.url()).claimed_at is not None


def test_results_wait_for_a_database_that_went_away(runner: CheckRunner, targets: TargetServer) -> None:
    site = targets.serve([answer()])
    assigned = assign(site.url())
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE checks_checkresult")
        runner.submit(assigned)
        # Once it waits for our lock, terminate its session, as a restart of the server does.
        wait_until(end_whoever_waits)
    wait_until(lambda: results() == 1)
    assert site.connections == 1, "what was found is recorded, not checked again"


def end_whoever_waits(*, by: str = "pg_terminate_backend") -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {by}(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"
        )
        return bool(cursor.fetchall())


def test_one_odd_result_costs_itself_alone(runner: CheckRunner, caplog: pytest.LogCaptureFixture) -> None:
    """The latency overflows its column. No target can cause this, but a fault in our code could."""
    good, odd = assign("http://127.0.0.1:9/good", "http://127.0.0.1:9/odd")
    records = [
        CheckRecord(
            each.monitor_id, each.claim, each.config_version, outcome(Verdict.UP, at=NOON, latency_ms=latency_ms)
        )
        for each, latency_ms in ((good, 20), (odd, 2**40))
    ]
    assert runner._store(records) == ({(good.monitor_id, good.claim)}, set())
    assert CheckResult.objects.exclude(claim=1).get().monitor_id == good.monitor_id
    assert f"the result of monitor {odd.monitor_id} cannot be stored" in caplog.text


def test_many_checks_at_once_leave_room_for_those_that_somebody_waits_for(
    runner: CheckRunner, targets: TargetServer
) -> None:
    runner.most_in_flight = 8
    hanging, good = targets.serve([Hang()]), targets.serve([answer()])
    many = assign(*[hanging.url(f"/{number}") for number in range(10)], timeout_ms=60_000)
    assert runner.offer(many) == many[4:]
    runner.submit(assign(good.url()))
    wait_until(lambda: results() == 1)
    assert runner.offer(many[4:]) == many[4:]


def test_hanging_targets_of_one_account_leave_places_to_another(runner: CheckRunner, targets: TargetServer) -> None:
    """Preempted checks are retried later and do not count as failures."""
    runner.most_in_flight = 8
    hanging, good = targets.serve([Hang()]), targets.serve([answer()])
    runner.submit(assign(*[hanging.url(f"/{number}") for number in range(20)], timeout_ms=60_000))
    wait_until(lambda: runner.in_flight == 8)
    runner.submit(assign(*[good.url(f"/{number}") for number in range(4)]))
    wait_until(lambda: results() == 4)
    postponed = MonitorState.objects.filter(monitor__url__startswith=hanging.url(), claimed_at=None)
    wait_until(lambda: runner.in_flight + postponed.count() == 20)
    assert postponed.count() > 12
    assert {"too many checks of its account" in (state.fault or "") for state in postponed} == {True}
    assert claim_due(utc_now(), limit=100) == []
    waiting = {state.monitor_id for state in postponed}
    assert {claim.monitor_id for claim in claim_due(utc_now() + timedelta(seconds=31), limit=100)} == waiting


def test_accounts_whose_targets_hang_share_the_loop(runner: CheckRunner, targets: TargetServer) -> None:
    runner.most_in_flight = 40
    hanging, good = targets.serve([Hang()]), targets.serve([answer()])
    for account in range(9):
        runner.submit(assign(*[hanging.url(f"/{account}/{number}") for number in range(20)], timeout_ms=60_000))
    wait_until(lambda: runner.in_flight == 40)
    owners = MonitorState.objects.exclude(claimed_at=None).values_list("monitor__owner", flat=True)
    assert set(Counter(owners).values()) <= {4, 5}
    runner.submit(assign(good.url()))
    wait_until(lambda: results() == 1)


def test_a_trigger_that_had_to_go_is_not_repeated(runner: CheckRunner, targets: TargetServer) -> None:
    runner.most_in_flight = 2
    hanging, good = targets.serve([Hang()]), targets.serve([answer()])
    jobs = assign(*[hanging.url(f"/{n}") for n in range(2)], type="scheduler", method="POST", timeout_ms=60_000)
    start_runs([job.key for job in jobs], now=utc_now())
    runner.submit(jobs)
    wait_until(lambda: hanging.connections == 2)
    runner.submit(assign(good.url()))
    wait_until(lambda: results() == 1)
    wait_until(lambda: runner.in_flight == 1)
    assert MonitorState.objects.filter(monitor__type="scheduler", claimed_at=None).count() == 0


def test_what_does_not_fit_is_due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drain(grace_sec=0)
    monkeypatch.setattr(runner_module, "MAX_IN_FLIGHT", 1)
    monitor = MonitorFactory(created_at=utc_now(), up=True)
    claims = claim_now([monitor.pk], now=utc_now())
    assert claim_due(utc_now(), limit=10) == []
    try:
        probe_now(list(claims.items()))
    finally:
        drain(grace_sec=0)  # this process's own queue, which would be full for other tests
    assert [claim.monitor_id for claim in claim_due(utc_now(), limit=10)] == [monitor.pk]


@pytest.mark.parametrize(
    ("is_silent", "fault"), [(False, "no name server could be reached"), (True, "no name server answers")]
)
def test_a_dead_name_server_leaves_the_monitor_unchecked_with_the_reason(is_silent: bool, fault: str) -> None:
    unread = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    unread.bind(("127.0.0.1", 0))
    server = f"127.0.0.1:{unread.getsockname()[1]}"
    if not is_silent:
        unread.close()
    runner = CheckRunner(ProbeEngine(guard(), trust_store(), resolver=Resolver((server,))))
    try:
        (job,) = assign("http://shop.example/", interval_sec=60, timeout_ms=1_000)
        made = results()
        runner.submit([job])
        wait_until(lambda: runner.in_flight == 0)
    finally:
        runner.drain(grace_sec=0)
        unread.close()
    monitor = Monitor.objects.select_related("state").get()
    assert results() == made
    assert monitor.state.status == "up"
    assert fault in stale_reason(monitor)
    late = utc_now() + timedelta(minutes=5)
    assert stale_since(monitor, now=late) == monitor.state.slot_at
    assert status_of(monitor, now=late) is None


def levels() -> Mapping[str, float]:
    metrics.report()
    return metrics.read_levels()


@pytest.fixture
def uplink(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[CheckRunner, socket.socket]]:
    """A runner that treats loopback targets as public, and the server that shows whether its own network is up."""
    monkeypatch.setattr(checks.own_network, "_APART_SEC", 0.01)
    monkeypatch.setattr(checks.own_network, "NO_SEC", 0.1)
    monkeypatch.setattr(checks.own_network, "RETRY_SEC", 2.0)
    monkeypatch.setattr(runner_module, "is_within", lambda *_: False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.CONNECTIVITY_TARGETS = (server.getsockname(),)
        flush_broker()
        made = CheckRunner(shared_engine())
        wait_until(lambda: not own_network.silent_servers(levels()))
        yield made, server
        made.drain(grace_sec=0)


def test_a_network_failure_of_ours_is_not_recorded(
    uplink: tuple[CheckRunner, socket.socket], targets: TargetServer
) -> None:
    runner, server = uplink
    place = server.getsockname()
    hanging, good = targets.serve([Hang()]), targets.serve([answer()])
    server.close()
    lost, passing, refused = jobs = assign(
        hanging.url(), good.url(), f"http://127.0.0.1:{free_port()}/", timeout_ms=1_000, fail_threshold=1
    )
    runner.submit(jobs)
    wait_until(lambda: runner.in_flight == 0)
    assert results() == 2
    assert CheckResult.objects.get(monitor_id=passing.monitor_id, claim=passing.claim).verdict == "up"
    assert CheckResult.objects.get(monitor_id=refused.monitor_id, claim=refused.claim).verdict == "down", "an answer"
    state = MonitorState.objects.get(monitor_id=lost.monitor_id)
    assert (state.status, state.claimed_at) == ("up", None)
    assert state.fault == "Pulsekeeper could not run this check: its own network is down."
    assert state.next_due_at is not None
    assert state.next_due_at - utc_now() < timedelta(seconds=2), "it is checked again soon"

    with socket.create_server(place):
        wait_until(lambda: not own_network.DOWN.read(levels())[()])
        MonitorState.objects.filter(monitor_id=lost.monitor_id).update(next_due_at=utc_now())
        runner.submit(load_jobs([claim.key for claim in claim_due(utc_now(), limit=1)]))
        wait_until(lambda: results() == 3)
    assert MonitorState.objects.get(monitor_id=lost.monitor_id).status == "down", "its target does hang"


def test_a_failure_is_recorded_while_our_network_is_up(
    uplink: tuple[CheckRunner, socket.socket], targets: TargetServer
) -> None:
    runner, _ = uplink
    runner.submit(assign(targets.serve([Hang()]).url(), timeout_ms=1_000, fail_threshold=1))
    wait_until(lambda: results() == 1)
    assert CheckResult.objects.exclude(claim=1).get().verdict == "down"


def test_who_asks_for_a_check_hears_that_our_network_is_down(
    uplink: tuple[CheckRunner, socket.socket], targets: TargetServer
) -> None:
    runner, server = uplink
    hanging = targets.serve([Hang()])
    server.close()
    (job,) = assign(hanging.url(), timeout_ms=1_000)
    told: queue.SimpleQueue[CheckOutcome | None] = queue.SimpleQueue()
    assert runner.ask(job, owner_id=job.owner_id, then=told.put)
    assert told.get(timeout=20) is None
    assert runner.ask(HttpSpec(hanging.url(), timeout_ms=1_000), owner_id=1, then=told.put), "a draft"
    draft = told.get(timeout=20)
    assert draft is not None
    assert draft.reason_code is ReasonCode.WORKER_LOST


def test_a_trigger_that_may_have_been_sent_is_not_repeated_after_a_cut(
    uplink: tuple[CheckRunner, socket.socket], targets: TargetServer
) -> None:
    runner, server = uplink
    hanging = targets.serve([Hang()])
    server.close()
    (job,) = assign(hanging.url(), type="scheduler", method="POST", timeout_ms=1_000)
    assert start_runs([job.key], now=utc_now())
    runner.submit([job])
    wait_until(lambda: runner.in_flight == 0)
    assert results() == 0
    assert state_of_url(hanging.url()).claimed_at is not None, "its lease expires"

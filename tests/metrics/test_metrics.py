"""`/metrics` on real servers: counts of all processes are summed, and access is restricted."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from socket import gethostname

import pytest
import redis
from celery.contrib.testing.worker import start_worker
from django.db import connections
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from pytest_django.fixtures import Settings

from accounts.models import User
from checks.probes import loop
from checks.spec import CheckOutcome, ReasonCode, Verdict
from config import metrics as shown
from config.celery import app
from core import metrics
from core.clock import BROKER, utc_now
from core.version import product_version
from locations.models import Location
from monitors import metrics as instruments
from monitors.heartbeats.services import sweep
from monitors.models import MonitorState
from monitors.scheduling import claim_due
from monitors.stale import LABELS, LOST
from monitors.tasks import dispatch_due
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import NOON, flush_broker, record_ping
from tests.locations import add_agent, shared
from tests.oncall.making import make_schedule
from tests.processes.up import free_port
from tests.processes.waiting import until
from tests.site import Site
from tests.targets.server import TargetServer, answer

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_counted(fresh_health: None) -> Iterator[None]:
    flush_broker()
    yield
    metrics.report()
    sums = metrics.read_sums()
    flush_broker()
    for counter in shown.COUNTERS:
        assert counter.read(sums).keys() == set(counter.known), counter.name


def test_agents_of_locations() -> None:
    owner, now = UserFactory(), utc_now()
    fra, private = shared(), shared("loc_private")
    Location.objects.filter(pk=private.pk).update(owner=owner, offline_since=now)
    shared("iad")
    MonitorFactory(locations=["default", "iad"])
    shared("new")
    for columns in ({}, {"network_down": True}, {"seen": now - timedelta(seconds=31)}):
        add_agent(fra, **({"seen": now} | columns))
    add_agent(private, seen=now)
    found = scrape()
    assert {name: value for name, value in found.items() if "location" in name} == {
        "pulsekeeper_location_agents{location=fra}": 1,
        "pulsekeeper_location_agents{location=iad}": 0,
        "pulsekeeper_private_locations_offline": 1,
    }


def test_the_schedule_that_waits_longest() -> None:
    owner, now = UserFactory(), utc_now()
    for minutes in (2, 6):
        schedule = make_schedule(owner, owner)
        type(schedule).objects.filter(pk=schedule.pk).update(announced_until=now - timedelta(minutes=minutes))
    assert 360 <= scrape()["pulsekeeper_on_call_look_age_seconds"] < 420


@pytest.fixture
def stop_all(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let all processes that have reported count as stopped from now on."""
    return lambda: monkeypatch.setattr(metrics, "LEVEL_KEPT_SEC", 0.0)


@pytest.fixture
def user() -> User:
    return UserFactory()


def scrape(**headers: str) -> dict[str, float]:
    """Return every sample as Prometheus would read it: `name{label=value}` and its value."""
    answer = Client().get("/metrics", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_with_nothing_at_all() -> None:
    found = scrape()
    assert found["pulsekeeper_due"] == found["pulsekeeper_lag_seconds"] == found["pulsekeeper_in_flight"] == 0
    assert found["pulsekeeper_record_retries_total"] == 0
    assert found["pulsekeeper_probe_seconds_count"] == found["pulsekeeper_probe_seconds_sum"] == 0
    assert found["pulsekeeper_queue_length{queue=probes}"] == 0
    assert found["pulsekeeper_unreachable{source=database}"] == found["pulsekeeper_unreachable{source=broker}"] == 0
    assert "pulsekeeper_tick_age_seconds" not in found, "the scheduler has never run"
    assert "pulsekeeper_on_call_look_age_seconds" not in found, "there is no schedule"
    assert found["pulsekeeper_processes{process=beat}"] == 0
    assert found["pulsekeeper_process_last_report_timestamp_seconds{process=beat}"] == 0


def test_every_known_series_exists_before_its_first_event() -> None:
    """Prometheus sees no increase in a series that starts at 1, so the first dead delivery would be lost."""
    found = scrape()
    for counter in shown.COUNTERS:
        for values in counter.known:
            labels = ",".join(f"{label}={value}" for label, value in sorted(zip(counter.labels, values, strict=True)))
            assert found[f"{counter.name}{{{labels}}}" if labels else counter.name] == 0
    assert found["pulsekeeper_deliveries_total{kind=webhook,outcome=dead}"] == 0
    assert found["pulsekeeper_status_page_mails_total{outcome=dead}"] == 0
    assert found["pulsekeeper_checks_total{reason=timeout,verdict=down}"] == 0


def test_a_worker_reports_while_its_consumer_runs(stop_all: Callable[[], None]) -> None:
    started = utc_now().timestamp()
    with start_worker(app, pool="threads", concurrency=1, perform_ping_check=False, queues=["probes", "dispatch"]):
        until(lambda: scrape()["pulsekeeper_processes{process=worker}"] == 1, 30, "it reports")
        first = scrape()
        last = "pulsekeeper_process_last_report_timestamp_seconds{process=dispatcher}"
        assert first[last] >= started
        until(lambda: scrape()[last] > first[last], 30, "it reports again")
    assert first["pulsekeeper_processes{process=dispatcher}"] == 1
    assert first["pulsekeeper_processes{process=interactive}"] == 0
    stop_all()
    stopped = scrape()
    assert stopped["pulsekeeper_processes{process=worker}"] == 0
    assert stopped[last] >= first[last], "the time of its last report is kept"


def test_the_host_and_version_of_each_process_are_shown_until_it_has_exited(
    settings: Settings, stop_all: Callable[[], None]
) -> None:
    own = f"host={gethostname()},process={{}},version={product_version()}"
    metrics.mark_alive(("web", "worker"))
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        now = BROKER.time()
        broker.hset(metrics.PROCESSES_KEY, mapping={"worker|b": f"{now}|0.0|other|0.9", "worker|c": f"{now}|0.0"})
    shown_hosts = {name: value for name, value in scrape().items() if name.startswith("pulsekeeper_process_hosts")}
    assert shown_hosts == {
        f"pulsekeeper_process_hosts{{{labels}}}": 1
        for labels in (
            own.format("web"),
            own.format("worker"),
            "host=other,process=worker,version=0.9",
            "host=,process=worker,version=",  # of a version that does not report them
        )
    }
    stop_all()
    assert not [name for name in scrape() if name.startswith("pulsekeeper_process_hosts")]


def test_the_version_is_shown_also_without_the_broker(settings: Settings) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    assert scrape()[f"pulsekeeper_build_info{{version={product_version()}}}"] == 1


def test_the_pool_of_connections_is_shown_by_kind() -> None:
    with start_worker(app, pool="threads", concurrency=1, perform_ping_check=False, queues=["probes"]):
        until(lambda: scrape()["pulsekeeper_processes{process=worker}"] == 1, 30, "it reports")

        def pooled() -> dict[str, float]:
            found = scrape()
            states = {
                state: found[f"pulsekeeper_database_connections{{process=worker,state={state}}}"]
                for state in ("used", "idle")
            }
            return states | {"waiting": found["pulsekeeper_database_waiting{process=worker}"]}

        connections["default"].close()
        until(lambda: pooled()["used"] == 0 and pooled()["idle"] > 0, 30, "all are in the pool")
        pool = connections["default"].pool  # type: ignore[attr-defined]  # of PostgreSQL alone
        with ExitStack() as stack:
            for _ in range(pool.max_size):
                stack.enter_context(pool.connection(timeout=30))
            with ThreadPoolExecutor(1) as threads:
                waiting = threads.submit(pool.getconn, 30)
                until(
                    lambda: pooled() == {"used": pool.max_size, "idle": 0, "waiting": 1},
                    30,
                    "a thread waits for one of those that are used",
                )
                stack.close()
                pool.putconn(waiting.result())
        until(lambda: pooled()["used"] == pooled()["waiting"] == 0, 30, "all are given back")


def test_what_a_worker_does_is_counted(user: User) -> None:
    with Site() as site, start_worker(app, pool="threads", concurrency=2, perform_ping_check=False, queues=["probes"]):
        MonitorFactory(owner=user, url=site.url("/"))
        MonitorFactory(owner=user, url=site.url("/"), expect_status=418)
        MonitorState.objects.update(next_due_at=utc_now() - timedelta(seconds=5), claimed_at=None)
        before = scrape()
        assert before["pulsekeeper_due"] == 2
        assert 5 <= before["pulsekeeper_lag_seconds"] < 60
        dispatch_due()
        until(
            lambda: (
                scrape().get("pulsekeeper_probe_seconds_count") == 2
                and not MonitorState.objects.exclude(claimed_at=None).exists()
            ),
            20,
            "both are checked",
        )
        until(lambda: scrape()["pulsekeeper_record_results_sum"] == 2, 30, "it is published")
        found = scrape()
    assert found["pulsekeeper_checks_total{reason=none,verdict=up}"] == 1
    assert found["pulsekeeper_checks_total{reason=http_failure,verdict=down}"] == 1
    assert found["pulsekeeper_claims_total{type=http}"] == 2
    assert found["pulsekeeper_record_results_sum"] == 2
    assert found["pulsekeeper_probe_seconds_bucket{le=+Inf}"] == 2
    assert found["pulsekeeper_dispatch_seconds_count"] == 1
    assert found["pulsekeeper_due"] == found["pulsekeeper_lag_seconds"] == 0
    assert 0 <= found["pulsekeeper_tick_age_seconds"] < 60


def test_a_response_that_is_slow_to_judge_is_counted(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SLOW_SECONDS", 0.01)  # of CPU; the first takes some 30 ms, the second 0.2
    with (
        TargetServer() as targets,
        start_worker(app, pool="threads", concurrency=2, perform_ping_check=False, queues=["probes"]),
    ):
        slow = targets.serve([answer(200, b"[" + b"1," * 500_000 + b"1]")])
        rule = {"type": "json_field", "path": "400000"}
        MonitorFactory(owner=user, type="api", method="GET", url=slow.url(), timeout_ms=60_000, content_rules=[rule])
        MonitorFactory(owner=user, url=targets.serve([answer()]).url())
        MonitorState.objects.update(next_due_at=utc_now() - timedelta(seconds=5), claimed_at=None)
        dispatch_due()
        until(lambda: scrape()["pulsekeeper_record_results_sum"] == 2, 60, "both are recorded")
        until(lambda: scrape()["pulsekeeper_slow_judgements_total"], 20, "it is counted")
        found = scrape()
    assert found["pulsekeeper_slow_judgements_total"] == 1
    assert found["pulsekeeper_checks_total{reason=none,verdict=up}"] == 2


def test_pings_are_counted_by_what_came_of_them(user: User, settings: Settings) -> None:
    monitor = MonitorFactory(owner=user, heartbeat=True, interval_sec=60, grace_sec=0)
    for second in (0, 1, 2):
        record_ping(monitor.public_id, now=NOON + timedelta(seconds=second))
    record_ping("mon_nothere", now=NOON)
    late = NOON + timedelta(seconds=100)
    sweep([claim.monitor_id for claim in claim_due(late, limit=10)], now=late)
    settings.THROTTLES = settings.THROTTLES | {"pings": (1, 60)}
    settings.THROTTLE_SCALE = 1
    stranger = Client(REMOTE_ADDR="198.51.100.77")  # whose pings no other test has counted
    assert [stranger.get("/v1/heartbeats/mon_x/ping").status_code for _ in range(2)] == [404, 429]
    found = scrape()
    outcomes = {"full": 1, "unchanged": 2, "unknown": 2, "throttled": 1}
    assert {outcome: found[f"pulsekeeper_pings_total{{outcome={outcome}}}"] for outcome in outcomes} == outcomes
    assert found["pulsekeeper_heartbeats_missed_total"] == 1


def test_stale_monitors_are_counted_by_reason(user: User) -> None:
    def stale() -> dict[str, float]:
        found = scrape()
        return {label: found[f"pulsekeeper_monitors_stale{{reason={label}}}"] for label in LABELS}

    since = utc_now() - timedelta(minutes=10)
    own, lost, late = (MonitorFactory(owner=user, interval_sec=60).pk for _ in range(3))
    assert stale() == {"not_started": 0, "lost": 0, "own_fault": 0}
    MonitorState.objects.filter(pk=own).update(fault="No name server answers.", fault_since=since)
    MonitorState.objects.filter(pk=lost).update(fault=LOST, fault_since=since)
    assert stale() == {"not_started": 0, "lost": 1, "own_fault": 1}
    MonitorState.objects.filter(pk__in=[own, late]).update(
        fault=None, fault_since=None, claimed_at=None, next_due_at=since
    )
    assert stale() == {"not_started": 2, "lost": 1, "own_fault": 0}


def test_claims_that_are_lost_are_counted(user: User) -> None:
    MonitorFactory(owner=user)
    MonitorState.objects.update(next_due_at=utc_now() - timedelta(seconds=1))  # the lease of its first claim is over
    dispatch_due()
    assert scrape()["pulsekeeper_claims_lost_total{fate=again}"] == 1
    assert scrape()["pulsekeeper_queue_length{queue=probes}"] == 1


COUNT = """
import django; django.setup()
from core.metrics import Level
from monitors.metrics import IN_FLIGHT, PINGS, PROBE_SECONDS
import sys
PINGS.add(3, "full")
PROBE_SECONDS.observe([0.001, 0.02, 99.0])
IN_FLIGHT.follow(lambda: 4)
print("counted", flush=True)
sys.stdin.readline()
"""


def counting(environment: dict[str, str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", COUNT],
        cwd=ROOT,
        env=os.environ | environment | {"DJANGO_SETTINGS_MODULE": "config.settings"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "counted\n"
    return process


def test_two_processes_add_up_and_one_that_is_gone_still_counts() -> None:
    processes = [counting({}) for _ in range(2)]
    until(lambda: scrape()["pulsekeeper_in_flight"] == 8, 30, "both have published")
    found = scrape()
    assert found["pulsekeeper_pings_total{outcome=full}"] == 6
    assert found["pulsekeeper_probe_seconds_count"] == 6
    assert found["pulsekeeper_probe_seconds_sum"] == pytest.approx(2 * 99.021)
    buckets = {le: found[f"pulsekeeper_probe_seconds_bucket{{le={le}}}"] for le in ("0.005", "0.025", "60", "+Inf")}
    assert buckets == {"0.005": 2, "0.025": 4, "60": 4, "+Inf": 6}
    for process in processes:
        process.communicate("\n", timeout=20)
    third = counting({})
    third.communicate("\n", timeout=20)  # ends at once and publishes its counters on exit
    assert scrape()["pulsekeeper_pings_total{outcome=full}"] == 9


def test_what_a_process_held_goes_with_it(stop_all: Callable[[], None]) -> None:
    process = counting({})
    until(lambda: scrape()["pulsekeeper_in_flight"] == 4, 30, "it has published")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    assert scrape()["pulsekeeper_in_flight"] == 4, "not known to be gone yet"
    stop_all()
    assert scrape()["pulsekeeper_in_flight"] == 0


def test_a_forked_child_counts_for_itself() -> None:
    instruments.PINGS.add(5, "full")
    pid = os.fork()
    if pid == 0:  # reports its own count, not the parent's five again
        instruments.PINGS.add(1, "full")
        metrics.report()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert scrape()["pulsekeeper_pings_total{outcome=full}"] == 6


def test_a_flushed_broker_begins_at_zero() -> None:
    instruments.PINGS.add(5, "full")
    assert scrape()["pulsekeeper_pings_total{outcome=full}"] == 5
    flush_broker()
    instruments.PINGS.add(2, "full")
    assert scrape()["pulsekeeper_pings_total{outcome=full}"] == 2


def test_without_the_broker_nothing_fails_and_nothing_is_lost(
    settings: Settings, caplog: pytest.LogCaptureFixture, user: User
) -> None:
    alive = settings.REDIS_URL
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    monitor = MonitorFactory(owner=user, heartbeat=True)
    with caplog.at_level(logging.INFO, logger="core"):
        for second in range(3):
            assert record_ping(monitor.public_id, now=NOON + timedelta(seconds=second))
            metrics.report()
        found = scrape()
        assert found["pulsekeeper_unreachable{source=broker}"] == 1
        assert "pulsekeeper_due" in found
        assert "pulsekeeper_in_flight" not in found
        assert caplog.text.count("the broker does not answer") == 1
        settings.REDIS_URL = alive
        metrics.report()
        assert caplog.text.count("the broker answers again") == 1
    assert scrape()["pulsekeeper_pings_total{outcome=unchanged}"] == 2


@pytest.mark.usefixtures("no_database")
def test_without_the_database_the_rest_is_shown() -> None:
    instruments.PINGS.add(5, "full")
    found = scrape()
    assert found["pulsekeeper_unreachable{source=database}"] == 1
    assert found["pulsekeeper_pings_total{outcome=full}"] == 5
    assert "pulsekeeper_due" not in found


def test_a_scrape_is_good_for_a_while(monkeypatch: pytest.MonkeyPatch, user: User) -> None:
    assert scrape()["pulsekeeper_due"] == 0
    monkeypatch.setattr(shown, "FRESH_SEC", 60.0)
    MonitorFactory(owner=user)
    MonitorState.objects.update(next_due_at=utc_now() - timedelta(seconds=1))
    assert scrape()["pulsekeeper_due"] == 0


@pytest.mark.parametrize(
    ("peer", "headers", "trusted", "status"),
    [
        ("127.0.0.1", {}, "", 200),
        ("::1", {}, "", 200),
        ("::ffff:127.0.0.1", {}, "", 200),
        ("192.0.2.1", {}, "", 404),
        ("10.1.2.3", {}, "", 200),
        ("192.0.2.1", {"X-Forwarded-For": "127.0.0.1"}, "", 404),
        # An unknown proxy on this machine: the client is unknown.
        ("127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}, "", 404),
        ("127.0.0.1", {"Forwarded": "for=192.0.2.1"}, "", 404),
        ("127.0.0.1", {"Via": "1.1 proxy"}, "", 404),
        ("127.0.0.1", {"X-Forwarded-For": "192.0.2.1"}, "127.0.0.0/8", 404),
        ("127.0.0.1", {"X-Forwarded-For": "10.1.2.3"}, "127.0.0.0/8", 200),
        ("127.0.0.1", {"X-Forwarded-For": "192.0.2.1:567"}, "127.0.0.0/8", 404),
        ("127.0.0.1", {"X-Forwarded-For": "nonsense"}, "127.0.0.0/8", 404),
        ("", {}, "", 404),
    ],
)
def test_who_may_see_it(settings: Settings, peer: str, headers: dict[str, str], trusted: str, status: int) -> None:
    settings.METRICS_ALLOWED = (*settings.METRICS_ALLOWED, ip_network("10.1.0.0/16"))
    settings.TRUSTED_PROXIES = tuple(ip_network(cidr) for cidr in trusted.split(",") if cidr)
    answer = Client(REMOTE_ADDR=peer).get("/metrics", headers=headers)
    assert answer.status_code == status
    if status == 404:
        assert without_random(answer.content) == without_random(Client().get("/nothing").content)


@pytest.mark.parametrize(
    ("peer", "host", "status"),
    [
        ("127.0.0.1", "127.0.0.1:8000", 200),
        ("127.0.0.1", "localhost:8000", 200),
        ("127.0.0.1", "web:8000", 200),
        ("127.0.0.1", "pulsekeeper.example.com", 200),
        ("192.0.2.1", "pulsekeeper.example.com", 404),
        ("192.0.2.1", "127.0.0.1:8000", 400),
    ],
)
def test_prometheus_sends_the_name_of_its_target(settings: Settings, peer: str, host: str, status: int) -> None:
    settings.ALLOWED_HOSTS = ["pulsekeeper.example.com"]
    assert Client(REMOTE_ADDR=peer).get("/metrics", headers={"Host": host}).status_code == status


def without_random(page: bytes) -> bytes:
    """Return the parts that differ per response: nonce and CSRF token."""
    return re.sub(rb'nonce="[^"]+"|"X-CSRFToken": "[^"]+"', b"", page)


def test_dropped_checks_are_counted_by_why() -> None:
    instruments.CHECKS_DROPPED.add(0, "not_made")
    instruments.CHECKS_DROPPED.add(2, "returned")
    found = CheckOutcome(Verdict.DOWN, NOON, reason_code=ReasonCode.TIMEOUT)
    instruments.count_group([found] * 3, seconds=0.2)
    samples = scrape()
    assert samples["pulsekeeper_checks_dropped_total{why=not_made}"] == 0
    assert samples["pulsekeeper_checks_dropped_total{why=returned}"] == 2
    assert samples["pulsekeeper_checks_total{reason=timeout,verdict=down}"] == 3


def test_sums_of_an_older_version_are_left_out(settings: Settings) -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        broker.hset(metrics.KEY, mapping={"pulsekeeper_pings_total||": 5, "pulsekeeper_gone_total||": 1})
    found = scrape()
    assert not [name for name in found if name.startswith("pulsekeeper_gone")]
    assert not any(value for name, value in found.items() if name.startswith("pulsekeeper_pings_total"))

"""Pings of hosts in a network namespace, by both kinds of sockets."""

from __future__ import annotations

import gc
import logging
import random
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from checks.probes.engine import ProbeEngine
from checks.probes.ping.icmp import _NOBODY, Echo
from checks.probes.ping.probe import PingProbe
from checks.probes.ping.rights import may_ping
from checks.probes.ping.spec import MAX_PACKETS, PingSpec, parse_ping
from checks.probes.resolver import Resolver
from checks.probes.target import BadAddressError
from checks.results.models import CheckResult
from checks.spec import CheckOutcome, CheckSpec, ReasonCode, Verdict
from core.egress import EgressGuard, parse_networks
from monitors.models import Monitor
from tests.checks.test_catalogue import CALLERS, Metronome, as_scheduled_checks, by_the_api, compare
from tests.checks.test_egress import REFUSED
from tests.fuzz import verdicts
from tests.fuzz.pings import hostile
from tests.helpers import examples
from tests.targets.catalogue.pings import CASES, PingCase
from tests.targets.names import NameServer
from tests.targets.namespace import Namespace, why_no_namespace
from tests.targets.pings import ROUTER_V4, Answer, PingHosts
from tests.targets.server import TargetServer
from tests.targets.workers import worker_in

GUARD = EgressGuard(parse_networks("10.64.0.0/12, fd00::/8"))
ANSWERS = examples(10_000)
BATCH = 100
OVERRUN_SECONDS = 0.25
STANDSTILL_SECONDS = 0.1
INPUTS = {case.id: {**case.settings, "url": case.url} for case in CASES}


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    if reason := why_no_namespace():
        pytest.skip(reason)
    with Namespace() as namespace:
        yield namespace


@pytest.fixture(scope="module")
def hosts(namespace: Namespace) -> Iterator[PingHosts]:
    answers = {address: answers for case in CASES for address, answers in case.hosts.items()}
    with PingHosts(namespace, answers) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def names(namespace: Namespace) -> Iterator[NameServer]:
    """A name server in the namespace, because the loop's thread queries it."""
    server = namespace.run(TargetServer().__enter__)
    zone = {name: said for case in CASES for name, said in case.zone.items()}
    yield namespace.run(lambda: server.serve_names(zone))
    server.__exit__(None, None, None)


@pytest.fixture(scope="module")
def engine(namespace: Namespace, names: NameServer) -> ProbeEngine:
    return namespace.run(lambda: ProbeEngine(GUARD, resolver=Resolver([names.address])))


@pytest.fixture(params=["datagram", "raw"])
def kind(request: pytest.FixtureRequest, namespace: Namespace) -> str:
    """Use this kind of socket."""
    namespace.permit_datagram_pings(request.param == "datagram")
    return str(request.param)


def run(namespace: Namespace, engine: ProbeEngine, specs: dict[str, CheckSpec]) -> dict[str, CheckOutcome]:
    ended: dict[str, CheckOutcome] = {}
    namespace.run(lambda: engine.run(specs.items(), lambda key, outcome: ended.setdefault(key, outcome)))
    return ended


def spec_of(case: PingCase) -> PingSpec:
    settings = {name: value for name, value in case.settings.items() if name != "type"}
    return PingSpec(host=parse_ping(case.url).host, **settings)


def find_faults(case: PingCase, outcome: CheckOutcome) -> Iterator[str]:
    expected = (case.status, case.reason_code, case.loss)
    if (came := (outcome.verdict, outcome.reason_code, outcome.loss)) != expected:
        yield f"{came} instead of {expected}"
    if case.words not in (outcome.detail or ""):
        yield f"{case.words!r} is not in the detail"
    if (outcome.latency_ms is None) is (outcome.loss not in {None, 100}):
        yield f"{outcome.latency_ms} ms"
    if (outcome.connect_ms, outcome.ttfb_ms, outcome.http_status) != (None, None, None):
        yield "timings of other protocols"


def test_every_case(namespace: Namespace, hosts: PingHosts, engine: ProbeEngine, kind: str) -> None:
    hosts.requests.clear()
    ended = run(namespace, engine, {case.id: spec_of(case) for case in CASES})
    faults = [f"{case.id}: {fault}: {ended[case.id]}" for case in CASES for fault in find_faults(case, ended[case.id])]
    assert faults == [], "\n".join(faults)


@pytest.fixture
def worker(
    namespace: Namespace,
    hosts: PingHosts,
    engine: ProbeEngine,
    names: NameServer,
    transactional_db: None,
    settings: Settings,
) -> Iterator[None]:
    """A real worker in the namespace, which reaches the broker through it and the database by a Unix socket."""
    namespace.permit_datagram_pings(True)
    settings.DNS_SERVERS = [names.address]
    settings.ALLOWED_PRIVATE_NETWORKS = GUARD.allowed
    settings.THROTTLE_SCALE = 0
    hosts.requests.clear()
    with worker_in(namespace, concurrency=CALLERS):
        yield


def test_every_case_by_the_api(worker: None) -> None:
    # The API refuses a blocked address without a worker, but not a name.
    compare(CASES, by_the_api(CASES, INPUTS), with_reason=False)


def test_every_case_as_a_scheduled_check(worker: None) -> None:
    compare(CASES, as_scheduled_checks(CASES, INPUTS))
    losses = dict(Monitor.objects.values_list("pk", "url"))
    found = {losses[result.monitor_id]: result.loss for result in CheckResult.objects.all()}
    assert found == {case.url: case.loss for case in CASES}


def test_pings_in_flight_share_one_socket(
    namespace: Namespace, hosts: PingHosts, engine: ProbeEngine, kind: str
) -> None:
    hosts.requests.clear()
    most = 0

    def specs() -> Iterator[tuple[int, PingSpec] | None]:
        nonlocal most
        for number in range(50):
            yield number, PingSpec(host="10.66.1.1")
        while not most:
            yield None
            most = _icmp_sockets()

    outcomes: list[CheckOutcome] = []
    namespace.run(lambda: engine.run(specs(), lambda _, outcome: outcomes.append(outcome)))
    assert {(outcome.verdict, outcome.loss) for outcome in outcomes} == {(Verdict.UP, 0)}
    assert len(outcomes) == 50
    assert most == 1
    assert namespace.run(_icmp_sockets) == 0
    assert hosts.requests["10.66.1.1"] == 150


def test_an_abandoned_run_closes_the_socket(
    namespace: Namespace, hosts: PingHosts, engine: ProbeEngine, kind: str
) -> None:
    def fail(key: str, _: CheckOutcome) -> None:
        raise LookupError(key)

    silent, blocked = PingSpec(host="10.66.8.8"), PingSpec(host="192.168.1.1")
    with pytest.raises(LookupError):
        namespace.run(lambda: engine.run([("silent", silent), ("blocked", blocked)], fail))
    assert namespace.run(_icmp_sockets) == 0
    assert run(namespace, engine, {"next": PingSpec(host="10.66.1.1")})["next"].verdict is Verdict.UP


def test_two_loops_do_not_take_each_others_replies(
    namespace: Namespace, hosts: PingHosts, engine: ProbeEngine, kind: str
) -> None:
    def check_twice() -> list[CheckOutcome]:
        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(engine.check, [PingSpec(host="10.66.1.1", packets=10)] * 2))

    assert [outcome.loss for outcome in namespace.run(check_twice)] == [0, 0]


def test_a_busy_loop_is_not_measured(namespace: Namespace, hosts: PingHosts, engine: ProbeEngine, kind: str) -> None:
    """The replies come while another check keeps the loop busy: the kernel notes when."""
    spec = PingSpec(host="10.66.1.1", packets=1)
    keys = []

    def specs() -> Iterator[tuple[str, PingSpec] | None]:
        yield "first", spec
        yield None
        yield "second", spec
        time.sleep(1.0)

    def take(key: str, outcome: CheckOutcome) -> None:
        keys.append(key)
        assert outcome.latency_ms is not None
        assert outcome.latency_ms < 1_000

    namespace.run(lambda: engine.run(specs(), take))
    assert len(keys) == 2


def test_evidence_has_each_packet(namespace: Namespace, hosts: PingHosts, engine: ProbeEngine, kind: str) -> None:
    hosts.requests.clear()
    ended = run(
        namespace, engine, {case.id: spec_of(case) for case in CASES if case.id in {"ping-lost-too-many", "ping-host"}}
    )
    evidence = ended["ping-lost-too-many"].evidence
    assert evidence is not None
    facts = dict(evidence.facts)
    assert list(facts) == ["packets", "round trips", "minimum, mean, maximum", "jitter"]
    assert facts["packets"] == "3 sent, 2 returned, 33 % lost"
    trips = facts["round trips"].split(", ")
    assert trips[1] == "lost"
    assert all(text.endswith(" ms") and float(text.removesuffix(" ms")) > 0 for text in (trips[0], trips[2]))
    evidence = ended["ping-host"].evidence
    assert evidence is not None
    assert dict(evidence.facts)["reported by"] == ROUTER_V4


def test_a_private_router_is_not_named(namespace: Namespace, hosts: PingHosts, engine: ProbeEngine, kind: str) -> None:
    hosts.answers = {**hosts.answers, "10.66.8.9": [Answer(error=(3, 1), source="192.168.1.1")]}
    outcome = run(namespace, engine, {"host": PingSpec(host="10.66.8.9")})["host"]
    assert (outcome.reason_code, outcome.loss) == (ReasonCode.CONNECTION_FAILURE, 100)
    assert outcome.evidence is not None
    assert "Reported by" not in dict(outcome.evidence.facts)


def test_without_a_right_it_is_a_fault_of_ours(namespace: Namespace, hosts: PingHosts, engine: ProbeEngine) -> None:
    namespace.permit_datagram_pings(False)
    specs = [PingSpec(host=host) for host in ("10.66.1.1", "fd66::1:3b", "good.ping.test")]
    for outcome in namespace.without_raw_sockets(lambda: [engine.check(spec) for spec in specs]):
        assert outcome.reason_code is ReasonCode.WORKER_LOST
        assert outcome.loss is None
        assert outcome.detail is not None
        assert "net.ipv4.ping_group_range" in outcome.detail
    assert namespace.without_raw_sockets(may_ping) is False
    assert namespace.run(may_ping) is True
    namespace.permit_datagram_pings(True)
    assert namespace.without_raw_sockets(may_ping) is True


def test_without_a_descriptor_it_is_a_fault_of_ours(
    namespace: Namespace, hosts: PingHosts, engine: ProbeEngine, kind: str
) -> None:
    spec = PingSpec(host="10.66.1.1", packets=1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def check() -> CheckOutcome:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            return engine.check(spec)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert namespace.run(lambda: engine.check(spec)).verdict is Verdict.UP
    outcome = namespace.run(check)
    assert (outcome.reason_code, outcome.loss) == (ReasonCode.WORKER_LOST, None)
    assert outcome.detail == "Pulsekeeper could not run this check: Too many open files."
    assert namespace.run(lambda: engine.check(spec)).verdict is Verdict.UP


@pytest.fixture(scope="module")
def strict() -> ProbeEngine:
    return ProbeEngine(EgressGuard())


@pytest.mark.parametrize("host", [text for text in REFUSED.split() if "%" not in text])
def test_no_packet_leaves_for_a_forbidden_address(strict: ProbeEngine, host: str) -> None:
    outcome = strict.check(PingSpec(host=host, timeout_ms=500))
    assert (outcome.reason_code, outcome.loss) == (ReasonCode.BLOCKED_TARGET, None)


def test_what_is_no_address_is_looked_up() -> None:
    """A socket would block on the system's resolver."""
    outcome = ProbeEngine(EgressGuard(), resolver=Resolver(["127.0.0.1:1"])).check(PingSpec(host="1.2.3.4.5"))
    assert outcome.reason_code in {ReasonCode.WORKER_LOST, ReasonCode.DNS_FAILURE}


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("icmp://router.example", "router.example"),
        ("icmp://Router.EXAMPLE", "router.example"),
        ("icmp://192.0.2.1", "192.0.2.1"),
        ("icmp://[2001:DB8::1]", "2001:db8::1"),
        ("icmp://127.1", "127.0.0.1"),
        ("icmp://bücher.example", "xn--bcher-kva.example"),
    ],
)
def test_addresses(url: str, host: str) -> None:
    target = parse_ping(url)
    assert (target.host, target.port, target.is_literal) == (host, 0, host[0] in "12")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://router.example", "must begin with icmp://"),
        ("icmp://router.example:7", "cannot contain a port"),
        ("icmp://router.example/", "cannot contain a path"),
        ("icmp://router.example#a", "a fragment"),
        ("icmp://router.example?a=b", "cannot contain a query"),
        ("icmp://me@router.example", "cannot contain a user name"),
        ("icmp://", "must name a host"),
        ("icmp://router..example", "does not name a valid host"),
        (f"icmp://{'a' * 2_048}", "at most 2048 characters"),
    ],
)
def test_bad_addresses(url: str, words: str) -> None:
    with pytest.raises(BadAddressError, match=words):
        parse_ping(url)


def _icmp_sockets() -> int:
    """Return the number of ICMP sockets in this thread's namespace."""
    tables = [Path(f"/proc/thread-self/net/{name}").read_text() for name in ("icmp", "icmp6", "raw", "raw6")]
    return sum(len(table.splitlines()) - 1 for table in tables)


def test_any_answer_ends_in_one_verdict(
    namespace: Namespace, hosts: PingHosts, engine: ProbeEngine, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    faults: list[str] = []
    made = 0
    for batch in range(-(-ANSWERS // 2 // (BATCH * MAX_PACKETS))):  # the other half by the other kind of socket
        addresses = [
            f"fd66::7:{number:x}" if number % 4 == 0 else f"10.66.7.{number}" for number in range(1, BATCH + 1)
        ]
        answers = {host: [hostile(chance, host) for _ in range(MAX_PACKETS)] for host in addresses}
        hosts.answers = {**hosts.answers, **answers}
        hosts.requests.clear()
        specs = {
            host: PingSpec(
                host=host, packets=MAX_PACKETS, min_replies=chance.randrange(1, MAX_PACKETS + 1), timeout_ms=500
            )
            for host in addresses
        }
        metronome = Metronome()
        with metronome.beating():
            ended, overrun = _run_timed(namespace, engine, specs)
        made += sum(hosts.requests[host] for host in addresses)
        # Packets that this machine had no time to send are our own fault.
        stood_still = metronome.latest.total_seconds() > STANDSTILL_SECONDS
        judged = {
            host: one for host, one in ended.items() if not (stood_still and one.reason_code is ReasonCode.WORKER_LOST)
        }
        wrong = {host: [*verdicts.find_faults(outcome), *_loss_faults(outcome)] for host, outcome in judged.items()}
        faults += [f"{', '.join(found)}: {ended[host]}, {answers[host]}" for host, found in wrong.items() if found]
        if len(ended) != BATCH or overrun > OVERRUN_SECONDS + metronome.latest.total_seconds():
            faults.append(f"batch {batch}: {len(ended)} outcomes, {overrun:.3f} s too late")
    assert not faults, "\n".join([f"seed {seed}", *faults[:20]])
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert made >= ANSWERS // 4, "an unreachable host is sent no more packets"
    assert namespace.run(_icmp_sockets) == 0
    # Probes of other tests may still wait for an answer of the silent name server.
    kept = [
        one
        for one in gc.get_objects()
        if (type(one) is Echo and one is not _NOBODY[1]) or (type(one) is PingProbe and one.spec.host in addresses)
    ]
    assert kept == [], "no reference cycle outlives its check"


def _run_timed(
    namespace: Namespace, engine: ProbeEngine, specs: dict[str, PingSpec]
) -> tuple[dict[str, CheckOutcome], float]:
    """Return the outcomes, and how many seconds past its deadline the latest came."""
    ended: dict[str, CheckOutcome] = {}
    deadlines: dict[str, float] = {}
    overruns: list[float] = []

    def started() -> Iterator[tuple[str, PingSpec]]:
        for host, spec in specs.items():
            deadlines[host] = time.monotonic() + spec.timeout_ms / 1000
            yield host, spec

    def take(host: str, outcome: CheckOutcome) -> None:
        assert host not in ended
        ended[host] = outcome
        overruns.append(time.monotonic() - deadlines[host])

    namespace.run(lambda: engine.run(started(), take))
    return ended, max(overruns)


def _loss_faults(outcome: CheckOutcome) -> list[str]:
    rules = {
        "no loss though packets were sent": outcome.loss is None,
        "an impossible loss": outcome.loss is not None and not 0 <= outcome.loss <= 100,
        "a latency without a reply, or none with one": (outcome.latency_ms is None) is not (outcome.loss == 100),
        "passed without a reply": outcome.passed and outcome.loss == 100,
    }
    return [name for name, broken in rules.items() if broken]

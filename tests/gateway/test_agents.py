"""The server's side of the protocol of agents: leases, results, verification and what is refused."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import requests
from django.core.handlers.wsgi import WSGIHandler
from django.db import transaction
from pytest_django.fixtures import Settings

from checks.agent_protocol import LEASES, OFFLINE_SEC, PROTOCOL, RESULTS
from checks.results.models import CheckResult
from checks.spec import CheckOutcome, ReasonCode, Verdict
from config import agents as gateway_agents
from config.gateway import Gateway
from core.clock import utc_now
from core.credentials import issue
from core.metrics import read_levels
from incidents.consuming import consume
from incidents.models import Incident
from locations.agents import AGENT_PREFIX
from locations.models import Agent, Location
from locations.services import revoke_agents
from monitors import scheduling, tasks
from monitors.agents.leases import hand_to_agents
from monitors.models import DnsChange, Monitor, MonitorState, StatusChange, Verification
from monitors.recording import record, verifying
from monitors.recording.batch import CheckRecord
from monitors.stale import NOWHERE
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import flush_broker, state_of
from tests.locations import shared
from tests.processes.up import free_port
from tests.processes.waiting import until
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)

DOWN = {"verdict": "down", "reason_code": "timeout", "detail": "No result.", "age_ms": 0, "took_ms": 5}
UP = {"verdict": "up", "latency_ms": 12, "age_ms": 0, "took_ms": 20}


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[None]:
    monkeypatch.setattr(gateway_agents, "FLUSH_SEC", 0.02)
    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    flush_broker()
    yield
    tasks.leave()
    flush_broker()


@pytest.fixture
def port() -> Iterator[int]:
    with serving(Gateway(WSGIHandler())) as port:
        yield port


class Probe:
    """An agent by hand."""

    def __init__(self, port: int, location: Location) -> None:
        self.credential, columns = issue(AGENT_PREFIX)
        given = {"name": "probe", "version": "1.0", "protocol": PROTOCOL, "created_at": utc_now()}
        self.row = Agent.objects.create(location=location, last_seen_at=utc_now(), **columns, **given)
        self._url = f"http://127.0.0.1:{port}"

    def post(self, path: str, body: Any, *, credential: str | None = None) -> requests.Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {credential or self.credential}", "Content-Type": "application/json"}
        return requests.post(self._url + path, data=data, headers=headers, timeout=30)

    def poll(self, **given: Any) -> list[dict[str, Any]]:
        answer = self.post(LEASES, {"room": 100, "version": "1.0", "wait_sec": 20} | given)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["leases"])

    def send(self, *found: dict[str, Any]) -> requests.Response:
        return self.post(RESULTS, {"results": found})


@pytest.fixture
def fra(port: int) -> Probe:
    return Probe(port, shared())


def monitor_from(*locations: str, **given: Any) -> Monitor:
    earlier = utc_now() - timedelta(minutes=10)
    given = {"owner": UserFactory(), "created_at": earlier, "fail_threshold": 1, "up": True} | given
    monitor = MonitorFactory(**given)
    Monitor.objects.filter(pk=monitor.pk).update(locations=[*locations])
    return monitor


def test_a_check_is_leased_and_its_result_counts(fra: Probe) -> None:
    monitor = monitor_from("fra")
    with ThreadPoolExecutor() as pool:
        polling: Future[list[dict[str, Any]]] = pool.submit(fra.poll)
        tasks.dispatch_due()
        (lease,) = polling.result()
    assert lease["kind"] == "HttpSpec"
    assert lease["spec"]["url"] == monitor.url
    assert fra.send({"lease": lease["lease"], **DOWN}).status_code == 200
    state = state_of(monitor)
    assert (state.status, state.claimed_at) == (Verdict.DOWN, None)
    result = CheckResult.objects.get(monitor_id=monitor.pk, claim=state.claim)
    assert (result.location_id, result.confirmed) == (fra.row.location_id, None)

    fra.send({"lease": lease["lease"], **UP})
    assert state_of(monitor).status == Verdict.DOWN, "a second result of a lease changes nothing"
    until(lambda: Agent.objects.get().checks == 2, 20, "what it says of itself is noted")


def test_one_location_takes_the_turn_of_another_and_triggers_prefer_the_first(fra: Probe, port: int) -> None:
    Probe(port, shared("ams"))
    monitor = monitor_from("default", "fra", "ams")
    agents = {"fra": [1], "ams": [2]}
    found = []
    for number in range(6):
        now = utc_now() + timedelta(hours=number)
        (claim,) = scheduling.claim_due(now, limit=10, agents=agents)
        found.append(claim.agent_id)
    assert found[:3] == found[3:]
    assert set(found) == {None, 1, 2}
    Monitor.objects.filter(pk=monitor.pk).update(type="scheduler", locations=["ams", "fra", "default"])
    for online, chosen in (({"fra": [1]}, 1), (agents, 2), ({}, None)):
        (claim,) = scheduling.claim_due(utc_now() + timedelta(days=chosen or 9), limit=10, agents=online)
        assert claim.agent_id == chosen


def test_a_failure_that_others_do_not_see_changes_nothing(fra: Probe, port: int) -> None:
    ams, lon = Probe(port, shared("ams")), Probe(port, shared("lon"))
    monitor = monitor_from("fra", "ams", "lon")
    first, *others = _first_to_be_asked(monitor, [fra, ams, lon])
    first.send({"lease": first.poll()[0]["lease"], **DOWN})
    assert state_of(monitor).status == Verdict.UP
    claim = state_of(monitor).claim
    for other in others:
        (vote,) = other.poll()
        other.send({"lease": vote["lease"], **UP})
    assert not Verification.objects.exists()
    state = state_of(monitor)
    assert (state.status, state.failures, state.claimed_at) == (Verdict.UP, 0, None)
    result = CheckResult.objects.get(monitor_id=monitor.pk, claim=claim)
    assert (result.verdict, result.confirmed) == (Verdict.DOWN, False)
    assert result.evidence is not None
    own, *others = result.evidence["facts"]
    assert own == ["checked from", "Frankfurt"]
    assert [fact[1] for fact in others] == ["up, answered in 12 ms"] * 2


def test_a_failure_that_others_see_counts(fra: Probe, port: int) -> None:
    ams, lon = Probe(port, shared("ams")), Probe(port, shared("lon"))
    monitor = monitor_from("fra", "ams", "lon")
    first, second, third = _first_to_be_asked(monitor, [fra, ams, lon])
    first.send({"lease": first.poll()[0]["lease"], **DOWN})
    (vote,) = second.poll()
    second.send({"lease": vote["lease"], **DOWN})
    assert state_of(monitor).status == Verdict.DOWN, "two of three have seen it: the third cannot change it"
    change = StatusChange.objects.get(monitor=monitor, after="down")
    result = CheckResult.objects.get(monitor_id=monitor.pk, claim=change.claim or 0)
    assert result.confirmed is True
    assert third.poll(wait_sec=0) == [], "it is decided"


def test_a_quorum_above_the_locations_online_is_all_of_them(fra: Probe, port: int) -> None:
    ams = Probe(port, shared("ams"))
    shared("lon")
    monitor = monitor_from("fra", "ams", "lon")
    Monitor.objects.filter(pk=monitor.pk).update(quorum=3)
    first, second = _first_to_be_asked(monitor, [fra, ams])
    first.send({"lease": first.poll()[0]["lease"], **DOWN})
    second.send({"lease": second.poll()[0]["lease"], **DOWN})
    assert state_of(monitor).status == Verdict.DOWN
    consume(utc_now(), slow=lambda _: None)
    evidence = Incident.objects.get(monitor=monitor).evidence
    assert evidence is not None
    assert ["quorum", "all 2 locations that answered, instead of 3"] in evidence["facts"]


def test_a_failure_counts_if_no_other_location_answers_in_time(fra: Probe, port: int) -> None:
    ams = Probe(port, shared("ams"))
    monitor = monitor_from("fra", "ams")
    first, _ = _first_to_be_asked(monitor, [fra, ams])
    first.send({"lease": first.poll()[0]["lease"], **DOWN})
    ends = Verification.objects.get().ends_at
    verifying.decide_overdue(ends - timedelta(seconds=1))
    assert state_of(monitor).status == Verdict.UP
    verifying.decide_overdue(ends + timedelta(seconds=1))
    assert state_of(monitor).status == Verdict.DOWN
    result = CheckResult.objects.get(monitor_id=monitor.pk, verdict="down")
    assert result.confirmed is None
    assert result.evidence is not None
    assert ["seen from one place", "no other location answered in time"] in result.evidence["facts"]


def test_forged_and_foreign_leases_store_nothing(fra: Probe, port: int) -> None:
    ams = Probe(port, shared("ams"))
    monitor = monitor_from("fra")
    tasks.dispatch_due()
    (lease,) = fra.poll()
    tampered = lease["lease"].replace(f"{monitor.pk}.", f"{monitor.pk + 1}.", 1)
    for sender, text in ((ams, lease["lease"]), (fra, tampered), (fra, "x"), (fra, "")):
        answer = sender.send({"lease": text, **DOWN})
        assert (answer.status_code, answer.json()["error"]) == (422, "validation_error")
    assert state_of(monitor).status == Verdict.UP
    assert fra.send({"lease": lease["lease"], **DOWN}).status_code == 200


@pytest.mark.parametrize(
    "found",
    [
        {"verdict": "down"},
        {"verdict": "down", "reason_code": "heartbeat_missed", "detail": "x"},
        {"verdict": "up", "latency_ms": -1},
        {"verdict": "up", "latency_ms": 2**31},
        {"verdict": "sideways"},
        {**DOWN, "detail": "x" * 2_001},
        {**DOWN, "detail": "a\0b"},
        {**DOWN, "evidence": {"body": "x" * 40_000}},
        {**DOWN, "evidence": {"facts": 5}},
        {"verdict": "up", "cert_expires_at": "2026-01-01T00:00:00"},
    ],
)
def test_results_of_another_shape_are_refused(fra: Probe, found: dict[str, Any]) -> None:
    monitor = monitor_from("fra")
    tasks.dispatch_due()
    (lease,) = fra.poll()
    answer = fra.send({"lease": lease["lease"], **UP}, {"lease": lease["lease"], **found})
    assert answer.status_code == 422
    assert state_of(monitor).claimed_at is not None, "none of them is stored"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"results": 5}', b"\xff", b'{"results": [{"lease": "\\ud800"}]}'])
def test_garbage_is_refused(fra: Probe, body: bytes) -> None:
    for path in (LEASES, RESULTS):
        assert fra.post(path, body).status_code == 422


def test_credentials(fra: Probe, port: int) -> None:
    other, _ = issue(AGENT_PREFIX)
    wrong = fra.credential[:-1] + ("b" if fra.credential.endswith("a") else "a")
    for credential in (other, "x", wrong):
        assert fra.post(LEASES, {"room": 1, "version": "1"}, credential=credential).status_code == 401
    assert fra.post(LEASES, {"room": 1, "version": "1", "protocol": PROTOCOL + 1}).json()["error"] == "agent_outdated"
    until(lambda: Agent.objects.get().protocol == PROTOCOL + 1, 20, "the refused version is shown")


def test_a_revoked_agent_is_answered_at_once_and_stores_nothing(fra: Probe) -> None:
    monitor = monitor_from("fra")
    tasks.dispatch_due()
    (lease,) = fra.poll()
    with ThreadPoolExecutor() as pool:
        polling = pool.submit(fra.poll)
        until(lambda: gateway_agents.WAITING.read(read_levels())[()] == 1, 20, "its request is held open")
        revoke_agents(Agent.objects.all())
        assert polling.result() == []
    assert fra.send({"lease": lease["lease"], **DOWN}).status_code == 401
    assert fra.post(LEASES, {"room": 1, "version": "1"}).status_code == 401
    assert state_of(monitor).status == Verdict.UP


def test_checks_are_kept_for_an_agent_whose_connection_broke(fra: Probe, port: int) -> None:
    fra.poll(wait_sec=0)  # it is known from now on
    body = json.dumps({"room": 100, "version": "1.0"})
    head = f"POST {LEASES} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {fra.credential}\r\n"
    with socket.create_connection(("127.0.0.1", port)) as broken:
        broken.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        until(lambda: gateway_agents.WAITING.read(read_levels())[()] == 1, 20, "its request is held open")
    monitor = monitor_from("fra")
    tasks.dispatch_due()
    (lease,) = fra.poll()
    assert lease["spec"]["url"] == monitor.url


def test_a_request_without_its_body_delays_no_other(fra: Probe, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_agents, "BODY_SEC", 0.5)
    fra.poll(wait_sec=0)
    head = f"POST {LEASES} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {fra.credential}\r\n"
    with socket.create_connection(("127.0.0.1", port)) as silent:
        silent.sendall(f"{head}Content-Length: 50\r\n\r\n".encode())
        assert fra.poll(wait_sec=0) == []
        silent.settimeout(20)
        assert silent.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_breaks_in_a_request_is_no_error(
    fra: Probe, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, raised = gateway_agents.Agents.poll, []

    async def watched(*given: Any) -> bytes:
        try:
            return await poll(*given)
        except Exception as error:
            raised.append(type(error))
            raise

    monkeypatch.setattr(gateway_agents.Agents, "poll", watched)
    fra.poll(wait_sec=0)
    head = f"POST {LEASES} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {fra.credential}\r\n"
    with socket.create_connection(("127.0.0.1", port)) as broken:
        broken.sendall(f"{head}Content-Length: 50\r\n\r\n{{".encode())
    until(lambda: raised, 20, "the web server notices it")
    assert raised == [ConnectionError]
    assert fra.poll(wait_sec=0) == []


def test_leases_of_an_agent_that_was_silent_have_ended(fra: Probe) -> None:
    monitor = monitor_from("fra")
    tasks.dispatch_due()
    (lease,) = fra.poll()
    now = utc_now() + timedelta(seconds=OFFLINE_SEC + 1)
    scheduling.return_leases(except_of=[], now=now)
    assert state_of(monitor).claimed_at is None
    assert fra.send({"lease": lease["lease"], **DOWN}).status_code == 200
    assert state_of(monitor).status == Verdict.UP
    assert CheckResult.objects.filter(monitor_id=monitor.pk, verdict="down").count() == 1, "it is history"


def test_without_an_online_location_nothing_is_checked_until_one_is_back(fra: Probe) -> None:
    monitor = monitor_from("fra")
    Agent.objects.update(last_seen_at=utc_now() - timedelta(minutes=1))
    tasks.dispatch_due()
    state = state_of(monitor)
    assert (state.claimed_at, state.fault) == (None, NOWHERE)
    now = utc_now()
    assert state.next_due_at is not None
    assert state.next_due_at > now + timedelta(seconds=30)
    Agent.objects.update(last_seen_at=now)
    tasks.dispatch_due()
    due = state_of(monitor).next_due_at
    assert due is not None
    assert due <= now + timedelta(seconds=12)


def test_what_an_agent_cannot_take_is_postponed(fra: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitors.handing.MOST_WAITING", 1)
    monitors = [monitor_from("fra") for _ in range(2)]
    tasks.dispatch_due()
    faults = [state_of(monitor).fault for monitor in monitors]
    assert sorted(fault is None for fault in faults) == [False, True]


def test_checks_that_are_given_back_are_due_again(fra: Probe) -> None:
    monitor = monitor_from("fra")
    tasks.dispatch_due()
    (lease,) = fra.poll()
    assert fra.send({"lease": lease["lease"], "detail": "Stopping.", "retry_ms": 0}).status_code == 200
    state = state_of(monitor)
    assert state.claimed_at is None
    assert state.next_due_at is not None
    assert state.next_due_at <= utc_now()


def test_a_location_that_was_removed_gets_no_settings(fra: Probe) -> None:
    monitor = monitor_from("fra")
    hand_to_agents({(monitor.pk, state_of(monitor).claim + 1): fra.row.pk}, now=utc_now())
    assert fra.poll(wait_sec=0) == [], "the claim is not this agent's"


def _first_to_be_asked(monitor: Monitor, probes: list[Probe]) -> list[Probe]:
    """Dispatch the monitor, and return the probes, the one that has the check first."""
    tasks.dispatch_due()
    chosen = state_of(monitor).agent_id
    return sorted(probes, key=lambda probe: probe.row.pk != chosen)


def test_the_default_location_without_workers_has_no_turn(fra: Probe) -> None:
    monitor = monitor_from("default", "fra")
    for hours in (1, 2, 3):
        (claim,) = scheduling.claim_due(utc_now() + timedelta(hours=hours), limit=1, agents={"default": [], "fra": [7]})
        assert claim.agent_id == 7
    Monitor.objects.filter(pk=monitor.pk).update(locations=["default"])
    (claim,) = scheduling.claim_due(utc_now() + timedelta(hours=4), limit=1, agents={"default": [], "fra": [7]})
    assert claim.agent_id is None, "it waits for a worker"


def test_an_agent_that_floods_is_held_back(fra: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_agents, "REFILL_SEC", 1_000.0)
    monkeypatch.setattr(gateway_agents, "BURST", 3)
    answers = [fra.send().status_code for _ in range(4)]
    assert answers == [200, 200, 200, 429]


def test_a_failure_that_a_later_claim_overtook_is_history(fra: Probe) -> None:
    """The others were not asked about it."""
    monitor = monitor_from("default", "fra")
    (claim,) = scheduling.claim_due(utc_now(), limit=1, agents={"fra": []})
    later = scheduling.claim_now([monitor.pk], now=utc_now())[monitor.pk]
    outcome = CheckOutcome(Verdict.DOWN, utc_now(), reason_code=ReasonCode.TIMEOUT, detail="No result.")
    record([CheckRecord(*claim.key, monitor.config_version, outcome)], now=utc_now())
    state = state_of(monitor)
    assert (state.status, state.claim, state.claimed_at is None) == (Verdict.UP, later, False)
    assert CheckResult.objects.filter(monitor_id=monitor.pk, claim=claim.number).count() == 1


def test_answers_of_name_servers_are_compared_at_the_first_location(fra: Probe) -> None:
    """They may depend on where the question comes from."""
    given = {"type": "dns", "url": "dns:shop.example"}
    monitor = monitor_from("default", "fra", **given)

    def see(claim: int, location_id: int | None, *records: str) -> None:
        outcome = CheckOutcome(Verdict.UP, utc_now(), answer=records)
        record([CheckRecord(monitor.pk, claim, 1, outcome, location_id=location_id)], now=utc_now())

    see(2, None, "192.0.2.1")
    see(3, fra.row.location_id, "198.51.100.1")
    assert not DnsChange.objects.exists()
    see(4, None, "192.0.2.2")
    assert DnsChange.objects.get().added == ["192.0.2.2"]


def test_a_verification_that_cannot_be_read_stops_no_other(fra: Probe, port: int) -> None:
    ams = Probe(port, shared("ams"))
    monitors = [monitor_from("fra", "ams") for _ in range(2)]
    tasks.dispatch_due()
    leased = [(probe, lease["lease"]) for probe in (fra, ams) for lease in probe.poll(wait_sec=0)]
    for probe, lease in leased:
        probe.send({"lease": lease, **DOWN})
    assert Verification.objects.count() == 2
    Verification.objects.filter(pk=monitors[0].pk).update(outcome={"verdict": "of a newer version"})
    verifying.decide_overdue(utc_now() + timedelta(minutes=1))
    assert [state_of(monitor).status for monitor in monitors] == [Verdict.UP, Verdict.DOWN]
    assert not Verification.objects.exists()


def test_a_locked_monitor_holds_up_no_request(fra: Probe) -> None:
    """Its result is sent again, and counts once."""
    monitors = [monitor_from("fra") for _ in range(2)]
    tasks.dispatch_due()
    found = [{"lease": lease["lease"], **DOWN} for lease in fra.poll()]
    with transaction.atomic():
        MonitorState.objects.select_for_update().get(pk=monitors[0].pk)
        assert fra.send(*found).status_code == 503
    assert [state_of(monitor).status for monitor in monitors] == [Verdict.UP, Verdict.DOWN]
    assert fra.send(*found).status_code == 200
    assert [state_of(monitor).status for monitor in monitors] == [Verdict.DOWN, Verdict.DOWN]
    assert CheckResult.objects.filter(verdict="down").count() == 2


def test_without_the_broker_an_agent_is_asked_to_wait(port: int, settings: Settings) -> None:
    """Its first request looks for checks at once."""
    fra = Probe(port, shared())
    broker = settings.REDIS_URL
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    try:
        assert fra.post(LEASES, {"room": 1, "version": "1.0", "wait_sec": 0}).status_code == 503
    finally:
        settings.REDIS_URL = broker

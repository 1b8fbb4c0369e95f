"""POST /v1/monitors/<id>/checks: one check now, by a worker, recorded like any other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accounts.models import User
from checks.spec import Verdict
from core.clock import utc_now
from monitors.checking import on_demand
from monitors.models import Monitor
from monitors.recording import record
from monitors.scheduling import Claim, claim_due, claim_now
from tests.api.client import Api
from tests.factories import MonitorFactory
from tests.helpers import NOON, check_record, minutes, state_of
from tests.targets.server import TargetServer, answer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.mark.usefixtures("worker")
def test_the_answer_is_the_recorded_check(api: Api, user: User, targets: TargetServer) -> None:
    site = targets.serve([answer(503, b"Sorry")])
    monitor = MonitorFactory(owner=user, url=site.url(), method="GET", up=True, created_at=utc_now())
    made = api.post(f"/v1/monitors/{monitor.public_id}/checks")
    assert made.status == 201
    assert (made.json["status"], made.json["http_status"], made.json["evidence"]["body"]) == ("down", 503, "Sorry")
    assert api.get(f"/v1/monitors/{monitor.public_id}/checks/{made.json['id']}").json == made.json
    state = state_of(monitor)
    assert (state.status, state.failures, state.claimed_at) == ("up", 1, None), "it counts towards the threshold"


@pytest.mark.usefixtures("no_worker")
def test_without_a_worker_it_is_given_to_the_scheduler(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True, timeout_ms=1000)
    answered = api.post(f"/v1/monitors/{monitor.public_id}/checks")
    assert (answered.status, answered.json["error"]) == (503, "no_worker")
    assert [claim.monitor_id for claim in claim_due(utc_now(), limit=10)] == [monitor.pk]


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        ("heartbeat", (422, "validation_error")),
        ("scheduler", (422, "validation_error")),
        ("http", (409, "monitor_paused")),
    ],
)
def test_what_is_not_checked_on_demand(api: Api, user: User, kind: str, refusal: tuple[int, str]) -> None:
    monitor = MonitorFactory(owner=user, type=kind)
    Monitor.objects.filter(pk=monitor.pk).update(enabled=kind != "http")
    before = state_of(monitor).claim
    answered = api.post(f"/v1/monitors/{monitor.public_id}/checks")
    assert (answered.status, answered.json["error"]) == refusal
    assert state_of(monitor).claim == before


def test_the_rhythm_stays(user: User) -> None:
    """Between two slots, and in place of a slot that is already due."""
    monitor = MonitorFactory(owner=user, up=True)
    at = NOON + minutes(0.5)
    assert claim_now([monitor.pk], now=at) == {monitor.pk: 2}
    assert claim_due(NOON + minutes(1), limit=10) == [], "it is being checked"
    record([check_record(monitor, claim=2, verdict=Verdict.UP, at=at)], now=at)
    assert state_of(monitor).next_due_at == NOON + minutes(1)

    late = NOON + minutes(1.1)
    assert claim_now([monitor.pk], now=late) == {monitor.pk: 3}
    record([check_record(monitor, claim=3, verdict=Verdict.UP, at=late)], now=late)
    assert state_of(monitor).next_due_at == NOON + minutes(2)


def test_a_check_that_is_under_way_is_the_older_one(user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    now = utc_now()
    assert claim_due(NOON + minutes(1), limit=10) == [Claim(monitor.pk, 2)]
    claims = claim_now([monitor.pk], now=now)
    assert claims == {monitor.pk: 3}
    record([check_record(monitor, claim=2, verdict=Verdict.UP, at=now)], now=now)
    assert on_demand.results(claims, now=now) == {}
    record([check_record(monitor, claim=3, verdict=Verdict.DOWN, at=now)], now=now)
    assert on_demand.results(claims, now=now)[monitor.pk].verdict == "down"


def test_a_lost_claim_is_answered_by_the_next_one(user: User) -> None:
    monitor = MonitorFactory(owner=user, up=True)
    now = utc_now()
    claims = claim_now([monitor.pk], now=now)
    later = now + minutes(2)
    assert claim_due(later, limit=10) == [Claim(monitor.pk, 3, again=True)]
    record([check_record(monitor, claim=3, verdict=Verdict.SLOW, at=later)], now=later)
    assert on_demand.results(claims, now=now)[monitor.pk].claim == 3

"""POST /v1/monitors/<id>/backtest."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from checks.results.rollups import roll_up_past
from checks.spec import ReasonCode, Verdict
from core import waiting
from core.clock import to_ms
from incidents import backtest
from monitors.models import MaintenanceSpan, Monitor
from monitors.services import update_monitor
from projects.access import Caller
from tests.api.client import Api
from tests.api.test_history import add_result
from tests.factories import MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, flush_broker, keep_checked, minutes

UP, SLOW, DOWN = Verdict.UP, Verdict.SLOW, Verdict.DOWN
NOW = NOON + minutes(60)


@pytest.fixture(autouse=True)
def at_one() -> Any:
    with time_machine.travel(NOW, tick=False):
        yield


@pytest.fixture
def monitor(user: User) -> Monitor:
    """A monitor that fails for two minutes after 10, for three after 20, and is slow at 30."""
    monitor = MonitorFactory(owner=user, created_at=NOON)
    for minute in range(40):
        verdict = DOWN if minute in (10, 11, 20, 21, 22) else SLOW if minute == 30 else UP
        latency_ms = {UP: 20, SLOW: 1_500}.get(verdict)
        reason = {"reason_code": ReasonCode.TIMEOUT if minute == 10 else ReasonCode.HTTP_FAILURE, "detail": "No."}
        given = reason if verdict is DOWN else {}
        add_result(monitor, minute + 1, NOON + minutes(minute), verdict, latency_ms=latency_ms, **given)
    keep_checked(NOW + minutes(60))
    return monitor


def path(monitor: Monitor) -> str:
    return f"/v1/monitors/{monitor.public_id}/backtest"


def ms(minute: float) -> int:
    return to_ms(NOON + minutes(minute))


def test_both_sides_and_what_differs(api: Api, monitor: Monitor) -> None:
    found = api.post(path(monitor), {"fail_threshold": 2, "slow_ms": 20}).json
    own = {"fail_threshold": 3, "recover_threshold": 1, "slow_ms": 1500, "confirmation_sec": None}
    assert found["stored"] == {
        "settings": own,
        "outages": 1,
        "down_sec": 180,
        "alerts": 1,
        "slow_alerts": 1,
        "avg_detection_sec": 120,
        "max_detection_sec": 120,
    }
    assert found["tried"] == {
        "settings": own | {"fail_threshold": 2, "slow_ms": 20},
        "outages": 2,
        "down_sec": 300,
        "alerts": 2,
        "slow_alerts": 1,
        "avg_detection_sec": 60,
        "max_detection_sec": 60,
    }
    first, second = ({"started_at": ms(start), "alerts": 1, "reason_code": "http_failure"} for start in (10, 20))
    assert found["differences"] == [
        {
            "stored": [second | {"confirmed_at": ms(22), "resolved_at": ms(23)}],
            "tried": [second | {"confirmed_at": ms(21), "resolved_at": ms(23)}],
        },
        {"stored": [], "tried": [first | {"confirmed_at": ms(11), "resolved_at": ms(12)}]},
    ]
    assert (found["from"], found["to"]) == (to_ms(NOW - timedelta(days=90)), to_ms(NOW))
    assert (found["history_from"], found["history_to"], found["checks"]) == (ms(0), ms(39), 40)
    assert (found["differences_total"], [each["code"] for each in found["unanswered"]]) == (2, ["timeouts"])


def test_the_stored_settings_are_the_default(api: Api, monitor: Monitor) -> None:
    found = api.post(path(monitor), {}).json
    assert (found["stored"], found["differences"]) == (found["tried"], [])


def test_a_span_counts_what_overlaps_it(api: Api, monitor: Monitor) -> None:
    found = api.post(path(monitor), {"from": ms(22.5), "to": ms(30)}).json
    assert (found["stored"]["outages"], found["stored"]["down_sec"], found["stored"]["alerts"]) == (1, 30, 0)
    assert (found["checks"], found["stored"]["avg_detection_sec"]) == (7, None)


def test_an_outage_that_is_not_over(api: Api, monitor: Monitor) -> None:
    found = api.post(path(monitor), {"recover_threshold": 100}).json["tried"]
    assert (found["outages"], found["down_sec"], found["alerts"]) == (1, 40 * 60, 1)


def test_maintenance_is_left_out(api: Api, monitor: Monitor) -> None:
    times = {"started_at": NOON + minutes(5), "ended_at": NOON + minutes(21.5)}
    MaintenanceSpan.objects.create(monitor=monitor, **times)
    found = api.post(path(monitor), {"fail_threshold": 2}).json["tried"]
    assert (found["outages"], found["down_sec"], found["alerts"]) == (2, 90, 1)


def test_no_history(api: Api, user: User) -> None:
    found = api.post(path(MonitorFactory(owner=user)), {"fail_threshold": 1}).json
    assert (found["checks"], found["history_from"], found["tried"]["outages"]) == (0, None, 0)
    assert [each["code"] for each in found["unanswered"]] == ["no_checks"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        *((pair, next(iter(pair))) for name in ("fail_threshold", "recover_threshold") for pair in ({name: 0},)),
        ({"fail_threshold": None}, "fail_threshold"),
        ({"fail_threshold": "3"}, "fail_threshold"),
        ({"fail_threshold": 2**31}, "fail_threshold"),
        ({"slow_ms": -1}, "slow_ms"),
        ({"confirmation_sec": 3_601}, "confirmation_sec"),
        ({"confirmation_sec": True}, "confirmation_sec"),
        ({"timeout_ms": 30_000}, "timeout_ms"),
        ({"from": -1}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"from": to_ms(NOW), "to": to_ms(NOW)}, "from"),
        ({"from": to_ms(NOW) + 1}, "from"),
        ({"from": to_ms(NOW - timedelta(days=91))}, "from"),
    ],
)
def test_other_bodies_are_refused(api: Api, monitor: Monitor, given: dict[str, Any], field: str) -> None:
    answer = api.post(path(monitor), given)
    assert (answer.status, answer.error.split()[:2]) == (422, ["validation_error", f"{field}:"])


def test_a_heartbeat_has_no_thresholds(api: Api, user: User) -> None:
    answer = api.post(path(MonitorFactory(owner=user, heartbeat=True)), {"recover_threshold": 2})
    assert (answer.status, answer.json["error"]) == (409, "no_thresholds")


def test_readers_and_strangers(monitor: Monitor, user: User) -> None:
    project = ProjectFactory(owner=user)
    shared = MonitorFactory(owner=user, project=project)
    viewer = UserFactory()
    MembershipFactory(project=project, user=viewer, role="viewer")
    token = Api.with_token(user, project, access="read")
    body = {"fail_threshold": 2}
    assert [each.post(path(shared), body).status for each in (Api.signed_in(viewer), token)] == [200, 200]
    assert [each.post(path(monitor), body).status for each in (Api.signed_in(viewer), token)] == [404, 404]
    assert Api.signed_in(UserFactory()).post(path(monitor), {"nonsense": 1}).status == 404


def test_what_the_history_cannot_answer(api: Api, user: User, monitor: Monitor, settings: Settings) -> None:
    parent = MonitorFactory(owner=user)
    update_monitor(Caller(user), monitor.public_id, {"fail_threshold": 4, "depends_on": [parent.public_id]}, now=NOW)
    Monitor.objects.update(created_at=NOON - timedelta(days=99))
    settings.AUDIT_KEPT_DAYS = 30
    with time_machine.travel(NOW + minutes(1), tick=False):
        found = api.post(path(monitor), {"confirmation_sec": 60}).json
    codes = [each["code"] for each in found["unanswered"]]
    expected = ["results_deleted", "checks_not_made", "timeouts", "settings_changed", "dependencies", "mutes_unknown"]
    assert codes == expected
    scheduler = MonitorFactory(owner=user, scheduler=True)
    codes = [each["code"] for each in api.post(path(scheduler), {"confirmation_sec": 60}).json["unanswered"]]
    assert codes == ["no_checks", "not_confirmed"]


def test_of_too_many_checks_the_newest_count(api: Api, monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    for minute in (-70, -60):
        add_result(monitor, minute + 100, NOON + minutes(minute), UP)
    monkeypatch.setattr(backtest, "MAX_CHECKS", 40)
    roll_up_past(NOON - minutes(120), NOON + minutes(60))
    found = api.post(path(monitor), {}).json
    assert (found["from"], found["checks"]) == (ms(0), 40)
    assert found["unanswered"][0]["code"] == "too_many_checks"


def test_queries(api: Api, monitor: Monitor) -> None:
    with CaptureQueriesContext(connection) as captured:
        api.post(path(monitor), {"fail_threshold": 2})
    assert len(captured) <= 14, "\n".join(query["sql"] for query in captured)


@pytest.mark.django_db(transaction=True)
def test_one_at_a_time(api: Api, user: User, monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SEC", 0.01)
    with waiting.limit_waiting(Caller(user).account, most=1, kind="backtest"):
        assert api.post(path(monitor), {}).status == 429
    assert api.post(path(monitor), {}).status == 200


def test_who_asks_too_often(api: Api, monitor: Monitor, settings: Settings) -> None:
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = settings.THROTTLES | {"backtest": (1, 60)}
    flush_broker()
    assert [api.post(path(monitor), {}).status for _ in range(2)] == [200, 429]

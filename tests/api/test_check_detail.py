"""GET /v1/monitors/<id>/checks/<check id>: one check, with the evidence of a failure."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from accounts.models import User
from checks.probes.http.evidence import HttpEvidence
from checks.results.models import CheckResult
from checks.spec import CheckOutcome, Verdict
from core.clock import to_ms
from monitors.check_ids import CheckIds
from monitors.models import Monitor
from monitors.recording import record
from monitors.recording.batch import CheckRecord
from tests.api.client import Api
from tests.factories import MonitorFactory
from tests.helpers import NOON, minutes, outcome
from tests.targets.server import TargetServer, answer

EVIDENCE = HttpEvidence(
    address="192.0.2.1:443",
    tls_version="TLSv1.3",
    tls_issuer="CN = Authority",
    status_line="HTTP/1.1 503 Busy",
    headers=(("server", "nginx"),),
    body="Sorry",
    redirects=((301, "https://shop.example/"),),
)


@pytest.fixture
def monitor(user: User) -> Monitor:
    return MonitorFactory(owner=user, up=True)


def add(monitor: Monitor, found: CheckOutcome, *, claim: int = 2) -> str:
    """Record the outcome. Return the path of the check."""
    record([CheckRecord(monitor.pk, claim, 1, found)], now=found.checked_at)
    public_id = CheckIds(monitor.public_id).encode(claim, found.checked_at)
    return f"/v1/monitors/{monitor.public_id}/checks/{public_id}"


def test_a_failure_with_its_evidence(api: Api, monitor: Monitor) -> None:
    path = add(monitor, replace(outcome(Verdict.DOWN, at=NOON + minutes(1)), evidence=EVIDENCE))
    answer = api.get(path)
    assert answer.status == 200
    assert answer.json == {
        "id": path.rpartition("/")[2],
        "checked_at": to_ms(NOON + minutes(1)),
        "status": "down",
        "latency_ms": None,
        "connect_ms": None,
        "ttfb_ms": None,
        "http_status": None,
        "loss": None,
        "reason_code": "http_failure",
        "detail": "Answered 500.",
        "location": "default",
        "confirmed": None,
        "evidence": {
            "address": "192.0.2.1:443",
            "tls_version": "TLSv1.3",
            "tls_issuer": "CN = Authority",
            "status_line": "HTTP/1.1 503 Busy",
            "headers": [{"name": "server", "value": "nginx"}],
            "body": "Sorry",
            "redirects": [{"status": 301, "url": "https://shop.example/"}],
            "facts": [],
        },
    }


def test_a_failure_that_saw_nothing(api: Api, monitor: Monitor) -> None:
    path = add(monitor, replace(outcome(Verdict.DOWN, at=NOON + minutes(1)), evidence=HttpEvidence()))
    assert api.get(path).json["evidence"] == {
        "address": None,
        "tls_version": None,
        "tls_issuer": None,
        "status_line": None,
        "headers": [],
        "body": None,
        "redirects": [],
        "facts": [],
    }


def test_a_pass_has_none(api: Api, monitor: Monitor) -> None:
    assert api.get(add(monitor, outcome(Verdict.UP, at=NOON + minutes(1)))).json["evidence"] is None


def test_every_check_of_the_list_can_be_read(api: Api, monitor: Monitor) -> None:
    add(monitor, outcome(Verdict.DOWN, at=NOON + minutes(1)))
    add(monitor, outcome(Verdict.UP, at=NOON + minutes(2)), claim=3)
    listed = api.get(f"/v1/monitors/{monitor.public_id}/checks").json
    assert len(listed) == 3
    for row in listed:
        detail = api.get(f"/v1/monitors/{monitor.public_id}/checks/{row['id']}").json
        assert detail.pop("evidence", "missing") is None
        assert detail == row


def test_of_another_monitor_it_is_not_found(api: Api, user: User, monitor: Monitor) -> None:
    other = MonitorFactory(owner=user, up=True)
    check_id = CheckIds(monitor.public_id).encode(1, NOON)
    assert api.get(f"/v1/monitors/{monitor.public_id}/checks/{check_id}").status == 200
    assert api.get(f"/v1/monitors/{other.public_id}/checks/{check_id}").error.startswith("not_found")


@pytest.mark.parametrize("check_id", ["chk_", "1", "chk_" + "a" * 26, "chk_" + "=" * 26, "x" * 64, "%00"])
def test_what_is_no_id_is_not_found(api: Api, monitor: Monitor, check_id: str) -> None:
    assert api.get(f"/v1/monitors/{monitor.public_id}/checks/{check_id}").status == 404


def test_an_id_of_a_check_that_is_gone(api: Api, monitor: Monitor) -> None:
    path = add(monitor, outcome(Verdict.UP, at=NOON + minutes(1)))
    CheckResult.objects.all().delete()
    assert api.get(path).status == 404


@pytest.mark.usefixtures("worker")
def test_what_a_real_check_saw(api: Api, user: User) -> None:
    """From socket to API: bytes that PostgreSQL cannot store are removed, and the monitor's secret is redacted."""
    page = b"\x00broken\xff \xed\xa0\x80 key=top-secret-value <b>\x1b[31m"
    with TargetServer() as targets:
        site = targets.serve([answer(500, page, "Set-Cookie: a=b", "Server: nginx\xff")])
        created = api.post(
            "/v1/monitors",
            {"url": site.url(), "method": "GET", "request_headers": [{"name": "X-Key", "value": "top-secret-value"}]},
        ).json
    assert created["status"] == "down"
    checks = f"/v1/monitors/{created['id']}/checks"
    evidence = api.get(f"{checks}/{api.get(checks).json[0]['id']}").json["evidence"]
    assert evidence["address"] == f"127.0.0.1:{site.port}"
    assert evidence["status_line"] == "HTTP/1.1 500 Whatever"
    assert {"name": "set-cookie", "value": "a=***"} in evidence["headers"]
    assert "broken\ufffd" in evidence["body"]
    assert "top-secret" not in str(evidence)

"""The queue of results, the requests that send them, and the pauses between requests."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import msgspec
import pytest

from checks.agent_protocol import MAX_RESULTS, MAX_RESULTS_BYTES, Found, Results
from checks.evidence import Evidence
from checks.spec import CheckOutcome, ReasonCode, Verdict
from core.clock import EPOCH
from pulsekeeper.agent import outbox as outbox_module
from pulsekeeper.agent.agent import Contact
from pulsekeeper.agent.outbox import Outbox, Result, request_of
from pulsekeeper.agent.server import MAX_ANSWER_BYTES, MAX_WAIT_SEC, Server, Trouble
from tests.targets.certificates import Certificates
from tests.targets.server import TargetServer, answer


def result(lease: str, *, ended_at: float = 0.0, **found: object) -> Result:
    return Result(lease, CheckOutcome(Verdict.UP, EPOCH, **found), 0.0, ended_at)  # type: ignore[arg-type]


def sent(*results: Result, now: float = 0.0) -> list[Found]:
    body, count = request_of(results, now=now)
    found = list(msgspec.json.decode(body, type=Results).results)
    assert len(found) == count
    return found


def test_the_oldest_leave_first(caplog: pytest.LogCaptureFixture) -> None:
    outbox = Outbox(most=3)
    for number in range(5):
        outbox.put(result(str(number)))
    outbox.close()
    taken = outbox.take()
    assert [each.lease for each in taken] == ["2", "3", "4"]
    for number in range(5, 7):
        outbox.put(result(str(number)))
    outbox.put_back(taken)
    assert [each.lease for each in outbox.take()] == ["4", "5", "6"]
    assert outbox.take() == []
    assert [record.getMessage().partition(" dropped")[0] for record in caplog.records] == [
        "1 result",
        "2 results",
        "4 results",
    ]


def test_a_full_request_is_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "LINGER_SEC", 60.0)
    outbox = Outbox()
    for number in range(MAX_RESULTS):
        outbox.put(result(str(number)))
    start = time.monotonic()
    assert len(outbox.take()) == MAX_RESULTS
    assert time.monotonic() - start < 30.0


def test_a_request_has_what_fits() -> None:
    outbox = Outbox()
    for number in range(MAX_RESULTS + 1):
        outbox.put(result(f"{number}", detail="d" * 2_000 if number else "d" * 10))
    outbox.close()
    assert len(outbox.take()) == MAX_RESULTS
    many = [result(str(number), answer=("r" * 4_000,) * 100) for number in range(4)]
    body, count = request_of(many, now=0.0)
    assert (count, len(body) <= MAX_RESULTS_BYTES) == (2, True)


def test_what_cannot_be_sent() -> None:
    (large,) = sent(result("large", evidence=Evidence(body="b" * 40_000), reason_code=ReasonCode.TIMEOUT))
    assert (large.verdict, large.evidence) == (Verdict.UP, None)
    for outcome in (result("a", answer=("r" * 4_000,) * 1_000), result("b", detail="\ud800")):
        (lost,) = sent(outcome)
        assert (lost.lease, lost.verdict, lost.retry_ms) == (outcome.lease, None, None)
        assert "its result cannot be sent" in (lost.detail or "")


def test_ages_are_those_of_the_sending() -> None:
    (found,) = sent(result("a", ended_at=2.0), now=12.5)
    assert (found.age_ms, found.took_ms) == (10_500, 12_500)
    (old,) = sent(result("a"), now=1e12)
    assert old.age_ms == 2_147_483_647


def test_pauses_grow(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    contact = Contact("results")
    pauses = [contact.failed(Trouble("it is away")) for _ in range(8)]
    for pause, planned in zip(pauses, [1, 2, 4, 8, 16, 30, 30, 30], strict=True):
        assert planned * 0.75 <= pause <= planned * 1.25
    assert contact.failed(Trouble("it is away", wait_sec=90.0)) == 90.0
    contact.accepted()
    contact.accepted()
    assert contact.failed(Trouble("it is away")) < 2
    assert [record.getMessage() for record in caplog.records] == [
        "the server accepts no results: it is away",
        "the server accepts results again",
        "the server accepts no results: it is away",
    ]


@pytest.mark.parametrize(
    ("status", "header", "seconds"), [(503, "7", 7), (429, "100000", MAX_WAIT_SEC), (503, "soon", 0), (500, "7", 0)]
)
def test_the_time_that_the_server_asks_for(targets: TargetServer, status: int, header: str, seconds: float) -> None:
    site = targets.serve([answer(status, b"", f"Retry-After: {header}")])
    with pytest.raises(Trouble) as raised:
        Server(site.url(""), ca_file=None).post("/", b"{}", Results, timeout_sec=30)
    assert raised.value.wait_sec == seconds


def test_an_endless_answer(targets: TargetServer) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
    site = targets.serve([head, *[b"x" * 1_048_576] * 40])
    with pytest.raises(Trouble, match=f"larger than {MAX_ANSWER_BYTES:,} bytes"):
        Server(site.url(""), ca_file=None).post("/", b"{}", Results, timeout_sec=60)


def test_a_proxy_is_not_given_what_is_not_encrypted(targets: TargetServer, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, site = targets.serve([answer(500)]), targets.serve([answer(200, b'{"results": []}')])
    monkeypatch.setenv("http_proxy", proxy.url())
    monkeypatch.setenv("https_proxy", proxy.url())
    Server(site.url(""), ca_file=None, credential="pka_x").post("/", b"{}", Results, timeout_sec=30)
    assert proxy.seen == []
    with pytest.raises(Trouble, match="cannot be reached"):
        Server("https://status.example", ca_file=None, credential="pka_x").post("/", b"{}", Results, timeout_sec=30)
    (connect,) = proxy.seen
    assert (connect.method, connect.header("authorization")) == ("CONNECT", None)


def test_the_certificate_of_the_server_is_verified(targets: TargetServer, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    site = targets.serve([answer(200, b'{"results": []}')], tls=certificates.self_signed())
    with pytest.raises(Trouble, match=r"cannot be reached: .*certificate"):
        Server(site.url(""), ca_file=certificates.ca_file).post("/", b"{}", Results, timeout_sec=30)
    assert site.seen == []

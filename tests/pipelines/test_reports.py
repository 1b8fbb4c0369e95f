"""Reports for pipelines: lines, JSON and JUnit of the same findings, also with malicious names."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase
from msgspec.structs import replace
from rich.console import Console

from checks.spec import Verdict
from core.cli import UsageError
from pulsekeeper.check import junit, reports
from pulsekeeper.check.findings import (
    Exit,
    Finding,
    FindingStatus,
    Target,
    by_threshold,
    choose,
    exit_code,
    without_check,
)
from tests.helpers import examples

SHOP = Target("mon_1", "Shop", "http", "https://shop.example/health?token=hunter2", "prj_1", True, Verdict.UP, 10_000)
UP = Finding(SHOP, FindingStatus.UP, latency_ms=182, http_status=200, checked_at=1)
SLOW = Finding(SHOP, FindingStatus.SLOW, latency_ms=2000, http_status=200, detail="Slow.", checked_at=1)
DOWN = Finding(
    SHOP,
    FindingStatus.DOWN,
    http_status=503,
    reason_code="http_failure",
    detail="Answered with status 503.",
    checked_at=1,
    evidence={
        "address": "192.0.2.1:443",
        "tls_version": "TLSv1.3",
        "tls_issuer": None,
        "status_line": "HTTP/1.1 503 Busy",
        "headers": [{"name": "server", "value": "nginx"}],
        "body": "Sorry\n::error::no ]]> here",
        "redirects": [{"status": 301, "url": "https://shop.example/"}],
    },
)
LATE = Finding(SHOP, FindingStatus.NOT_CHECKED, detail="No worker made the check in time.")
PAUSED = without_check(replace(SHOP, enabled=False))
WAITING = without_check(replace(SHOP, type="heartbeat", status=None))
MISSED = without_check(replace(SHOP, type="heartbeat", status=Verdict.DOWN, url=""))


def parsed(*findings: Finding, fail_on: Verdict = Verdict.DOWN) -> list[TestCase]:
    document = JUnitXml.fromstring(junit.report(findings, fail_on=fail_on))
    (suite,) = list(document)
    return list(suite)


@pytest.mark.parametrize(
    ("findings", "fail_on", "code"),
    [
        ([UP, SLOW, PAUSED, WAITING], Verdict.DOWN, Exit.PASSED),
        ([UP, SLOW], Verdict.SLOW, Exit.FAILED),
        ([UP, DOWN], Verdict.DOWN, Exit.FAILED),
        ([UP, DOWN], Verdict.SLOW, Exit.FAILED),
        ([MISSED], Verdict.DOWN, Exit.FAILED),
        ([UP, LATE], Verdict.DOWN, Exit.NOT_CHECKED),
        ([DOWN, LATE], Verdict.DOWN, Exit.FAILED),
    ],
)
def test_exit_codes(findings: list[Finding], fail_on: Verdict, code: Exit) -> None:
    assert exit_code(findings, fail_on=fail_on) is code


def test_a_threshold_of_the_pipeline_goes_before_the_monitors() -> None:
    assert by_threshold(SLOW, slow_ms=2001).status is FindingStatus.UP
    assert by_threshold(UP, slow_ms=182).status is FindingStatus.SLOW
    assert by_threshold(DOWN, slow_ms=1) is DOWN
    assert by_threshold(UP, slow_ms=None) is UP


def test_choosing() -> None:
    blog = replace(SHOP, id="mon_2", name="Blog")
    assert choose([SHOP, blog], ids=[], names=["B*", "X*"]) == [blog]
    assert choose([SHOP, blog], ids=["mon_1"], names=[]) == [SHOP]
    with pytest.raises(UsageError, match="mon_3"):
        choose([SHOP], ids=["mon_1", "mon_3"], names=[])
    with pytest.raises(UsageError, match="nothing to check"):
        choose([SHOP], ids=[], names=["shop"])


def test_junit() -> None:
    down, up, slow, late, paused, waiting = parsed(DOWN, UP, SLOW, LATE, PAUSED, WAITING)
    (failure,) = down.result
    assert isinstance(failure, Failure)
    assert (failure.message, failure.type) == ("Answered with status 503.", "http_failure")
    assert "answer: HTTP/1.1 503 Busy\nserver: nginx\nbody: Sorry\n::error::no ]]> here" in failure.text
    assert (up.name, up.classname, up.time, up.result) == ("Shop", "monitors.mon_1", 0.182, [])
    assert (slow.result, slow.system_out) == ([], "Slow.")
    assert [type(case.result[0]) for case in (late, paused, waiting)] == [Error, Skipped, Skipped]
    (slow,) = parsed(SLOW, fail_on=Verdict.SLOW)
    assert (slow.result[0].message, slow.result[0].type) == ("Slow.", "slow")
    counted = JUnitXml.fromstring(junit.report([DOWN, UP, LATE, PAUSED], fail_on=Verdict.DOWN))
    assert (counted.tests, counted.failures, counted.errors, counted.skipped) == (4, 1, 1, 1)


@pytest.mark.parametrize("finding", [UP, DOWN, SLOW, MISSED])
def test_no_report_shows_a_querys_values(finding: Finding) -> None:
    written = StringIO()
    Console(file=written, width=200).print(reports.table([finding]))
    for text in (
        reports.as_text(finding),
        reports.as_json([finding], code=Exit.PASSED),
        junit.report([finding], fail_on=Verdict.DOWN).decode(),
        written.getvalue(),
    ):
        assert "Shop" in text
        assert "hunter2" not in text


def test_the_secret_of_a_heartbeat_is_in_no_report() -> None:
    texts = [
        reports.as_text(MISSED),
        reports.as_json([MISSED], code=Exit.FAILED),
        junit.report([MISSED], fail_on=Verdict.DOWN).decode(),
    ]
    assert all("Shop" in text and "mon_1" not in text for text in texts)


@hypothesis_settings(max_examples=examples(30))
@given(name=st.text(max_size=40), detail=st.text(max_size=40))
def test_the_report_can_be_parsed_with_any_name(name: str, detail: str) -> None:
    name, detail = name + "\x00]]>\x1b[31m", detail + "<&\ud800"
    finding = replace(DOWN, target=replace(SHOP, name=name), detail=detail, evidence=None)
    (case,) = parsed(finding)
    assert case.name is not None
    assert "]]>" in case.name
    (line,) = reports.as_text(finding).encode("utf-8", "replace").decode().splitlines()
    assert "\x1b" not in line


def test_nothing_that_a_target_sent_begins_a_line() -> None:
    """GitHub treats a line that begins with `::` or `  ::` as a command."""
    head, *seen = reports.as_text(DOWN).splitlines()
    assert head.startswith("DOWN ")
    assert all(line.startswith("  | ") for line in seen)
    assert "  | ::error::no ]]> here" in seen


def test_markup_in_a_name_is_text() -> None:
    written = StringIO()
    named = replace(UP, target=replace(SHOP, name="[red]Shop[/nonsense]"))
    Console(file=written, width=200).print(reports.table([named]))
    assert "[red]Shop[/nonsense]" in written.getvalue()


def test_json() -> None:
    told: dict[str, Any] = json.loads(reports.as_json([UP, DOWN, MISSED], code=Exit.FAILED))
    assert (told["exit_code"], told["counts"]) == (1, {"up": 1, "down": 2})
    up, down, missed = told["monitors"]
    assert (up["id"], up["status"], up["checked"], up["latency_ms"]) == ("mon_1", "up", True, 182)
    assert down["evidence"]["status_line"] == "HTTP/1.1 503 Busy"
    assert (missed["status"], missed["checked"]) == ("down", False)


def test_a_report_is_utf_8() -> None:
    xml = junit.report([replace(UP, target=replace(SHOP, name="Café 商店"))], fail_on=Verdict.DOWN)
    assert "Café 商店".encode() in xml

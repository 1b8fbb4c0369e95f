"""Findings as a JUnit report: one test case a monitor, which CI servers show and compare from run to run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from checks.spec import Verdict
from monitors.pipelines.findings import Finding, Standing, failing
from monitors.pipelines.reports import address, evidence_lines

SUITE = "Pulsekeeper"
_DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>\n'

# What XML 1.0 has no way to say, not even escaped: a parser refuses the whole report for one of them.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def report(findings: Sequence[Finding], *, fail_on: Verdict) -> bytes:
    """The XML, UTF-8. Of one that is down, the reason is the failure's message and the evidence its text."""
    suite = TestSuite(SUITE)
    failures = failing(fail_on)
    for finding in findings:
        suite.add_testcase(_case(finding, failed=finding.standing in failures))
    document = JUnitXml(SUITE)
    document.add_testsuite(suite)
    xml: bytes = document.tostring()  # type: ignore[no-untyped-call]
    return _DECLARATION + xml


def _case(finding: Finding, *, failed: bool) -> TestCase:
    seconds = 0.0 if finding.latency_ms is None else finding.latency_ms / 1000
    # Names need not be unique; the id is, and keeps a monitor's history together when it is renamed.
    unique = finding.target.shown_id or finding.target.type
    case = TestCase(_text(finding.target.name), f"monitors.{_text(unique)}", seconds)
    told = _text(finding.detail or "")
    if failed:
        failure = Failure(told, finding.reason_code or finding.standing.value)
        failure.text = _text("\n".join([address(finding), told, *evidence_lines(finding.evidence)]))
        case.result = [failure]
    elif finding.standing is Standing.NOT_CHECKED:
        case.result = [Error(told, "not_checked")]
    elif finding.standing in (Standing.PAUSED, Standing.WAITING):
        case.result = [Skipped(told or "The monitor is paused.")]
    elif told:
        case.system_out = told
    return case


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)

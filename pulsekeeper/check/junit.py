"""Findings as a JUnit report: one test case per monitor, which CI servers show and compare between runs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from checks.spec import Verdict
from pulsekeeper.check.findings import Finding, FindingStatus, failing
from pulsekeeper.check.reports import address, evidence_lines

SUITE = "Pulsekeeper"
_DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>\n'

# Characters that XML 1.0 cannot contain, even escaped: a parser rejects the whole report for one of them.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def report(findings: Sequence[Finding], *, fail_on: Verdict) -> bytes:
    """Return the report as UTF-8 XML. A failure's message is the reason, and its text has the evidence."""
    suite = TestSuite(SUITE)
    failures = failing(fail_on)
    for finding in findings:
        suite.add_testcase(_case(finding, failed=finding.status in failures))
    document = JUnitXml(SUITE)
    document.add_testsuite(suite)
    xml: bytes = document.tostring()  # type: ignore[no-untyped-call]
    return _DECLARATION + xml


def _case(finding: Finding, *, failed: bool) -> TestCase:
    seconds = 0.0 if finding.latency_ms is None else finding.latency_ms / 1000
    # Names may repeat. The id is unique, and keeps a monitor's history together after a rename.
    unique = finding.target.shown_id or finding.target.type
    case = TestCase(_text(finding.target.name), f"monitors.{_text(unique)}", seconds)
    message = _text(finding.detail or "")
    if failed:
        failure = Failure(message, finding.reason_code or finding.status.value)
        failure.text = _text("\n".join([address(finding), message, *evidence_lines(finding.evidence)]))
        case.result = [failure]
    elif finding.status is FindingStatus.NOT_CHECKED:
        case.result = [Error(message, "not_checked")]
    elif finding.status in (FindingStatus.PAUSED, FindingStatus.WAITING):
        case.result = [Skipped(message or "The monitor is paused.")]
    elif message:
        case.system_out = message
    return case


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)

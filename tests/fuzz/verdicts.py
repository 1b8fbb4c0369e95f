"""Faults of outcomes of any protocol, for any answer of the target."""

from __future__ import annotations

import unicodedata

from checks.spec import CheckOutcome, ReasonCode, Verdict
from core.text import DETAIL_CHARS

# Caused by our own faults only, or specific to heartbeats.
NEVER = {ReasonCode.WORKER_LOST, ReasonCode.HEARTBEAT_MISSED, ReasonCode.HEARTBEAT_FAILED}
UNCLEAN = {"Cc", "Cs", "Zl", "Zp"}
SECRET = "secret-7f3a"  # no outcome may reveal it


def find_faults(outcome: CheckOutcome) -> list[str]:
    detail, reason = outcome.detail, outcome.reason_code
    known = [time for time in (outcome.connect_ms, outcome.ttfb_ms, outcome.latency_ms) if time is not None]
    rules = {
        "a reason beside a pass, or none beside a failure": (reason is None) is not outcome.passed,
        "no reason that a target can give": reason in NEVER,
        "a detail beside up, or none beside the rest": (detail is None) is not (outcome.verdict is Verdict.UP),
        "passed without a latency": outcome.passed and outcome.latency_ms is None,
        "times out of order": known != sorted(known) or any(time < 0 for time in known),
    }
    if detail is not None:
        rules |= {
            "the detail is too long": len(detail) > DETAIL_CHARS,
            "the detail is not a sentence": not detail[:1].isupper() or detail[-1:] not in {".", "…"},
            "the detail is unclean": any(unicodedata.category(char) in UNCLEAN for char in detail),
            "the detail contains a secret": SECRET in detail,
        }
    return [name for name, broken in rules.items() if broken]

"""Specs of stored monitors, read without the ORM: the same as a config's."""

from __future__ import annotations

from typing import Any

import pytest

from monitors.probing.jobs import load_jobs, run_id_of
from monitors.scheduling import claim_due
from tests.factories import MonitorFactory
from tests.helpers import NOON, minutes, state_of

HEADERS = [{"name": "X-Key", "value": "s3cret", "type": "apikey"}, {"name": "X-Empty"}]
RULES = [
    {"type": "text_contains", "value": "a"},
    {"type": "json_field", "path": "a.b", "equals": ""},
    {"type": "json_field", "path": "c"},
]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"method": "POST", "request_body": "{}", "request_headers": HEADERS, "expect_status": 418},
        {"content_rules": RULES, "follow_redirects": True, "check_ssl": True, "timeout_ms": 5_000, "slow_ms": 0},
        {"type": "api", "content_rules": RULES[1:2]},
        {"type": "keyword", "content_rules": RULES[:1]},
        {"type": "scheduler"},
        {"type": "scheduler", "request_headers": HEADERS, "request_body": "x"},
    ],
    ids=str,
)
def test_a_stored_monitor_is_checked_as_its_draft_would_be(given: dict[str, Any]) -> None:
    monitor = MonitorFactory(url="https://shop.example/health", **given)
    (claim,) = claim_due(NOON + minutes(30), limit=1)
    (job,) = load_jobs([(claim.monitor_id, claim.number)])
    run_id = run_id_of(monitor.public_id, state_of(monitor).slot_at)
    assert job.spec == monitor.kind.spec(monitor.full_config, run_id=run_id)
    assert (job.monitor_id, job.claim) == (monitor.pk, claim.number)

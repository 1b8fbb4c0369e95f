"""Specs of stored monitors, read without the ORM, equal those of their configs."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import Fernet
from pytest_django.fixtures import Settings

from monitors.checking.jobs import load_jobs, run_id_of
from monitors.models import Monitor
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


@pytest.mark.django_db
@pytest.mark.parametrize(
    "stored", [{"url": "tcp://db.example"}, {"config": {"content_rules": 5}}, {"type": "newer"}], ids=str
)
def test_a_stored_config_that_is_not_valid_any_more_stops_no_other(
    stored: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = (MonitorFactory(type="port", url="tcp://db.example:1") for _ in range(2))
    Monitor.objects.filter(pk=bad.pk).update(**stored)
    claims = claim_due(NOON + minutes(30), limit=2)
    assert [job.monitor_id for job in load_jobs([claim.key for claim in claims])] == [good.pk]
    (logged,) = caplog.records
    assert bad.public_id in logged.getMessage()
    assert "its stored settings are no longer valid" in (state_of(bad).fault or "")


@pytest.mark.django_db
def test_a_removed_key_is_the_reason_why_a_monitor_is_not_checked(settings: Settings) -> None:
    bad, good = MonitorFactory(request_headers=HEADERS), MonitorFactory()
    settings.ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)
    claims = claim_due(NOON + minutes(30), limit=2)
    assert [job.monitor_id for job in load_jobs([claim.key for claim in claims])] == [good.pk]
    assert "its request headers cannot be decrypted" in (state_of(bad).fault or "")
    assert claim_due(NOON + minutes(60), limit=2), "the leases are over"
    assert "its request headers cannot be decrypted" in (state_of(bad).fault or "")

"""`check_domain`, up to the expiry in the API and the warning, with tasks that beat sends to real workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django.fixtures import Settings

from accounts.models import User
from config.celery import app
from core.clock import to_ms
from monitors.models import ExpiryWarning
from tests.api.client import Api
from tests.factories import MonitorFactory
from tests.processes.waiting import until
from tests.registry import Registry


def send_as_beat(name: str) -> None:
    entry = app.conf.beat_schedule[name]
    app.send_task(entry["task"], **entry["options"])


@pytest.mark.django_db(transaction=True)
def test_a_registration_that_ends_is_shown_and_warned_about(
    worker: None, api: Api, user: User, settings: Settings
) -> None:
    monitor = MonitorFactory(owner=user, url="https://shop.example.com/", check_domain=True)
    path = f"/v1/monitors/{monitor.public_id}"
    assert api.get(path).json["domain_expires_at"] is None
    expiry = (datetime.now(UTC) + timedelta(days=5)).replace(microsecond=0)
    with Registry.serving() as registry:
        settings.RDAP_BOOTSTRAP_URL = registry.bootstrap_url
        registry.expires("example.com", expiry.isoformat())
        send_as_beat("refresh-registrations")
        until(lambda: api.get(path).json["domain_expires_at"], 20, "the lookup is shown")
    assert api.get(path).json["domain_expires_at"] == to_ms(expiry)
    send_as_beat("warn-of-expiries")
    until(ExpiryWarning.objects.exists, 20, "the warning")
    warning = ExpiryWarning.objects.get()
    assert (warning.monitor_id, warning.subject, warning.expires_at, warning.threshold_days) == (
        monitor.pk,
        "domain",
        expiry,
        7,
    )
    moved = api.patch(path, {"url": "https://shop.example.org/"}).json
    assert moved["domain_expires_at"] is None

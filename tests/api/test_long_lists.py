"""Long lists: only a few rows are in memory at a time, regardless of their number, size and owner."""

from __future__ import annotations

import json
import tracemalloc
from threading import Thread
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from alerts.models import Delivery, DeliveryItem
from audit.models import Entry
from core import waiting
from core.api import query
from incidents.models import Incident
from monitors.configuration import build, config_columns
from monitors.models import Monitor, MonitorState
from tests.api.client import Api
from tests.factories import ChannelFactory, UserFactory
from tests.helpers import NOON

pytestmark = pytest.mark.django_db

ROWS = 151
HEAVY = [50, 100, ROWS - 1]
"""Lengths of pages that would not fit into memory at once."""
LONG = {"url": "http://127.0.0.1:9/", "method": "POST", "interval_sec": 60, "request_body": "\U0001f600" + '"' * 8_000}


@pytest.fixture
def api() -> Api:
    user = UserFactory()
    columns = config_columns(build(LONG))
    made = Monitor.objects.bulk_create(Monitor(owner=user, created_at=NOON, **columns) for _ in range(ROWS))
    MonitorState.objects.bulk_create(MonitorState(monitor=monitor) for monitor in made)
    return Api.signed_in(user)


def ask(api: Api, path: str) -> Any:
    return Client().get(path, headers={"Authorization": f"Bearer {api.token}"})


def test_a_long_list_is_sent_in_small_parts(api: Api) -> None:
    response = ask(api, "/v1/monitors")
    assert response.streaming
    parts = list(response.streaming_content)
    assert max(map(len, parts)) < 2 * query.HEAVY_BYTES
    assert len(parts) > 2
    found = json.loads(b"".join(parts))
    assert [row["id"] for row in found] == list(Monitor.objects.order_by("pk").values_list("public_id", flat=True))
    assert "Link" not in response
    assert response["Content-Type"] == "application/json"


@pytest.mark.parametrize("limit", [1, *HEAVY])
def test_pages_of_any_length_lead_to_the_next_one(api: Api, limit: int) -> None:
    expected = list(Monitor.objects.order_by("pk").values_list("public_id", flat=True))
    response = ask(api, f"/v1/monitors?limit={limit}")
    first = [row["id"] for row in json.loads(b"".join(response))]
    link = response["Link"].partition("<")[2].partition(">")[0]
    rest = [row["id"] for row in json.loads(b"".join(ask(api, link)))]
    assert len(first) == limit
    assert (first + rest)[:ROWS] == expected[: len(first + rest)]


def test_the_last_page_of_a_long_list_has_no_link(api: Api) -> None:
    for limit in (ROWS, ROWS + 1, 1_000):
        response = ask(api, f"/v1/monitors?limit={limit}")
        assert "Link" not in response
        assert len(json.loads(b"".join(response))) == ROWS


def test_incidents_are_read_without_the_settings_of_their_monitors(api: Api) -> None:
    user, monitors = User.objects.get(), Monitor.objects.all()
    rows = (Incident(owner=user, monitor=one, name="n", detail="d" * 500, started_at=NOON) for one in monitors)
    Incident.objects.bulk_create(rows)
    assert peak_of(api, "/v1/incidents?limit=1000") < 5_000_000  # of 15 MB


def test_long_entries_of_the_audit_log_are_sent_in_parts(api: Api) -> None:
    text = "\U0001f600" * 200
    entry = {"action": "monitor.released", "actor_type": "user", "actor_id": User.objects.get().pk}
    long = {"target_name": text, "user_agent": text, "details": {"before": text, "after": text}}
    Entry.objects.bulk_create(Entry(at=NOON, **entry, **long) for _ in range(1_000))
    assert peak_of(api, "/v1/account/audit-log?limit=1000") < 12_000_000  # of 14 MB


def test_a_page_of_deliveries_ends_before_too_many_events(api: Api) -> None:
    channel = ChannelFactory(owner=User.objects.get())
    rows = [Delivery(channel=channel, created_at=NOON, next_try_at=NOON, give_up_at=NOON) for _ in range(200)]
    payload = {"event_type": "down", "at": 0, "monitor_id": None, "monitor": "\U0001f600" * 200}
    DeliveryItem.objects.bulk_create(
        DeliveryItem(delivery=one, channel=channel, source=f"{one.pk} {number}", at=NOON, payload=payload)
        for one in Delivery.objects.bulk_create(rows)
        for number in range(10)
    )
    path, found = f"/v1/alert-channels/{channel.public_id}/deliveries?limit=1000", []
    while path:
        response = ask(api, path)
        page = response.json()
        assert len(page) <= query.MAX_PAGE_CHARS / 5_000
        found += [row["id"] for row in page]
        path = response.headers.get("Link", "").partition("<")[2].partition(">")[0]
    assert sorted(found) == sorted(row.public_id for row in rows)


def peak_of(api: Api, path: str) -> int:
    b"".join(ask(api, path))  # imports and caches
    tracemalloc.start()
    try:
        for _ in ask(api, path):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("impatient")
def test_an_account_reads_few_long_lists_at_the_same_time(api: Api) -> None:
    unread = [ask(api, "/v1/monitors") for _ in range(query.LONG_LISTS)]
    refused = ask(api, "/v1/monitors")
    assert refused.status_code == 429
    assert refused.json()["error"] == "rate_limited"
    assert ask(api, "/v1/monitors?limit=1").status_code == 200  # short ones need no place
    for response in unread:
        response.close()
    last = ask(api, "/v1/monitors")
    assert last.status_code == 200
    last.close()


@pytest.mark.django_db(transaction=True)
def test_another_thread_may_send_the_last_part(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_PRESENT", 2)
    for _ in range(3):
        response = ask(api, "/v1/monitors")
        assert response.status_code == 200
        thread = Thread(target=response.close)
        thread.start()
        thread.join()


def test_short_rows_are_sent_at_once(api: Api) -> None:
    Monitor.objects.update(**config_columns(build({"url": "http://127.0.0.1:9/", "interval_sec": 60})))
    assert not ask(api, "/v1/monitors").streaming

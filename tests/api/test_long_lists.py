"""Long lists: a few rows are in memory at a time, whoever has how many of them, and of whatever size."""

from __future__ import annotations

import json
from threading import Thread
from typing import Any

import pytest
from django.test import Client

from core import waiting
from core.api import query
from monitors.configuration import build, config_columns
from monitors.models import Monitor, MonitorState
from tests.api.client import Api
from tests.factories import UserFactory
from tests.helpers import NOON

pytestmark = pytest.mark.django_db

ROWS = 151
HEAVY = [50, 100, ROWS - 1]
"""Lengths of pages that memory would not hold at once."""
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


@pytest.mark.django_db(transaction=True)
def test_an_account_reads_few_long_lists_at_the_same_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SEC", 0.01)
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

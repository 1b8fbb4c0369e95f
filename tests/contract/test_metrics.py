"""`GET /v1/metrics`, which the contract does not describe: a customer's Prometheus reads monitors from it."""

from __future__ import annotations

import subprocess
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from pytest_django.fixtures import Settings

from accounts.models import User
from core.clock import utc_now
from monitors import exposition
from monitors.configuration import build, config_columns
from monitors.exposition import LABELS, STATUSES
from monitors.models import Monitor, MonitorState
from projects.models import Project
from tests.api.client import Answer, Api
from tests.factories import MonitorFactory, ProjectFactory, StatusChangeFactory, UserFactory
from tests.helpers import keep_checked
from tests.wrapper.conftest import require

pytestmark = pytest.mark.django_db

PATH = "/v1/metrics"
HOSTILE = 'a"b\\c\\n\nd\r} 1\n# TYPE x gauge\nx{y="☃\u2028"} 1\U0001f600'
Samples = dict[str, dict[str, float]]
"""Values by the name of a monitor, then by metric, with the value of `status`."""


def scraped(answer: Answer | str, parse: Callable[[str], Any] = parse_text) -> Samples:
    found: Samples = {}
    for family in parse(answer if isinstance(answer, str) else answer.text):
        for sample in family.samples:
            status = sample.labels.get("status")
            key = sample.name.removeprefix("pulsekeeper_monitor_") + (f":{status}" if status else "")
            assert set(sample.labels) == {*LABELS, *(["status"] if status else [])}
            found.setdefault(sample.labels["name"], {})[key] = sample.value
    return found


def status_in(samples: dict[str, float]) -> list[str]:
    assert {name.partition(":")[2] for name in samples if name.startswith("status:")} == set(STATUSES)
    return [name.partition(":")[2] for name, value in samples.items() if name.startswith("status:") and value]


def test_the_values_are_those_of_the_monitor(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user, name="Shop")
    before = utc_now() - timedelta(minutes=10)
    monitor = MonitorFactory(project=project, name="Orders", interval_sec=3600, up=True, created_at=before)
    expiry = datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)
    keep_checked(utc_now() + timedelta(hours=1))
    MonitorState.objects.update(last_latency_ms=1250, cert_expires_at=expiry, domain_expires_at=expiry)
    answer = api.get(PATH)
    assert answer.status == 200
    labels = f'id="{monitor.public_id}",name="Orders",project="Shop",type="http"'
    assert f"pulsekeeper_monitor_latency_seconds{{{labels}}} 1.25\n" in answer.text
    shown = api.get(f"/v1/monitors/{monitor.public_id}").json
    samples = scraped(answer)["Orders"]
    assert status_in(samples) == ["up"]
    assert {name: value for name, value in samples.items() if not name.startswith("status:")} == {
        "latency_seconds": 1.25,
        "last_check_timestamp_seconds": shown["last_checked_at"] / 1000,
        "uptime_24h_ratio": shown["uptime_24h"] / 100,
        "certificate_expiry_timestamp_seconds": expiry.timestamp(),
        "domain_expiry_timestamp_seconds": expiry.timestamp(),
    }


def test_a_monitor_without_a_result_is_not_up(api: Api, user: User) -> None:
    MonitorFactory(owner=user, name="new")
    for status in ("up", "slow", "down"):
        MonitorFactory(owner=user, name=status, created_at=utc_now(), **{status: True})
    MonitorFactory(owner=user, name="paused", created_at=utc_now(), up=True)
    held_back = MonitorFactory(owner=user, name="held back", heartbeat=True)
    Monitor.objects.filter(name="paused").update(enabled=False)
    MonitorState.objects.filter(pk=held_back.pk).update(status="up", armed_at=utc_now() + timedelta(hours=1))
    MonitorState.objects.exclude(monitor__name="new").update(last_latency_ms=5)
    keep_checked(utc_now() + timedelta(hours=1))
    found = scraped(api.get(PATH))
    assert {name: status_in(samples) for name, samples in found.items()} == {
        "new": ["unknown"],
        "up": ["up"],
        "slow": ["slow"],
        "down": ["down"],
        "paused": ["paused"],
        "held back": ["unknown"],
    }
    assert {name for name, samples in found.items() if "latency_seconds" in samples} == {"up", "slow", "down"}
    assert "uptime_24h_ratio" not in found["new"]


def test_names_are_escaped_in_both_formats(api: Api, user: User) -> None:
    MonitorFactory(project=ProjectFactory(owner=user), up=True)
    Monitor.objects.update(name=HOSTILE)
    Project.objects.update(name=HOSTILE)
    text, open_metrics = fetch(api, "*/*"), fetch(api, "application/openmetrics-text;version=1.0.0,text/plain;q=0.1")
    assert list(scraped(text.content.decode())) == list(scraped(open_metrics.content.decode(), parse_open_metrics))
    assert list(scraped(text.content.decode())) == [HOSTILE]
    require("promtool")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text.content, capture_output=True, timeout=60)
    assert (checked.returncode, checked.stderr) == (0, b"")


def fetch(api: Api, accept: str) -> Any:
    return Client().get(PATH, headers={"Authorization": f"Bearer {api.token}", "Accept": accept})


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_many_monitors_are_sent_in_pieces(api: Api, user: User, accept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    long = {"url": "http://127.0.0.1:9/", "method": "POST", "interval_sec": 60}
    columns = config_columns(build(long | {"name": HOSTILE, "request_body": "\U0001f600" + '"' * 8_000}))
    made = Monitor.objects.bulk_create(Monitor(owner=user, created_at=utc_now(), **columns) for _ in range(201))
    MonitorState.objects.bulk_create(MonitorState(monitor=monitor) for monitor in made)
    list(fetch(api, accept).streaming_content)  # imports and caches
    tracemalloc.start()
    try:
        response = fetch(api, accept)
        pieces = list(response.streaming_content)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000  # of 20 MB
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(exposition, "FEW", 1_000)
    assert b"".join(pieces) == fetch(api, accept).content
    assert len(pieces) > 6


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/json", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=abc", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ("application/openmetrics-text;version=é", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    ],
)
def test_the_format_follows_the_accept_header(api: Api, accept: str, content_type: str) -> None:
    answer = fetch(api, accept)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith(content_type)
    assert answer.content.endswith(b"# EOF\n") == content_type.startswith("application/openmetrics")


def test_a_token_shows_its_project_and_a_session_all_that_it_can_read(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    MonitorFactory(owner=user, name="mine")
    MonitorFactory(project=project, name="shared")
    MonitorFactory(owner=UserFactory(), name="foreign")
    assert set(scraped(api.get(PATH))) == {"mine", "shared"}
    assert set(scraped(Api.with_token(user, project).get(PATH))) == {"shared"}
    assert scraped(Api.signed_in(UserFactory()).get(PATH)) == {}
    refused = Api().get(PATH)
    assert (refused.status, refused.json["error"]) == (401, "unauthorized")


def test_as_many_queries_for_many_monitors_as_for_one(api: Api, user: User) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get(PATH).status == 200
        return len(captured)

    def add() -> None:
        monitor = MonitorFactory(project=ProjectFactory(owner=user), up=True)
        StatusChangeFactory(monitor=monitor, at=utc_now(), before="up", after="down")

    add()
    queries()  # notes that the session was used
    one = queries()
    for _ in range(20):
        add()
    assert queries() == one <= 4


def test_it_has_a_limit_of_its_own(api: Api, settings: Settings) -> None:
    settings.THROTTLES = settings.THROTTLES | {"metrics": (1, 60)}
    settings.THROTTLE_SCALE = 1
    assert [api.get(path).status for path in (PATH, PATH, "/v1/monitors")] == [200, 429, 200]


def test_tags_are_one_label_if_asked_for(api: Api, user: User) -> None:
    MonitorFactory(owner=user, name="Orders", tags=["web", "Größe: XL", 'a"b\\c', "production"], up=True)
    MonitorFactory(owner=user, name="Plain", up=True)
    plain, found = api.get(PATH), api.get(f"{PATH}?tags=true")
    samples = [sample for family in parse_text(found.text) for sample in family.samples]
    labels = {sample.labels["name"]: sample.labels["tags"] for sample in samples}
    assert labels == {"Orders": ',a"b\\c,Größe: XL,production,web,', "Plain": ""}
    assert len(samples) == len([sample for family in parse_text(plain.text) for sample in family.samples])
    assert 'tags="' not in plain.text
    assert api.get(f"{PATH}?tags=false").text == plain.text
    assert api.get(f"{PATH}?tags=yes").status == 422

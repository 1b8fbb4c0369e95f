"""What Sentry and a collector of traces get from a failing process, and what happens while they are unreachable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from config.sentry import _sample_rate
from tests.reporting.receiver import Receiver, receiver

ROOT = Path(__file__).parents[2]
SECRET = "hunter22"


def crash(**variables: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The response, and the log."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.reporting.crashing", SECRET],
        cwd=ROOT,
        env=os.environ | {"LOG_FORMAT": "json"} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    seen = json.loads(done.stdout)
    assert [status for status, _ in seen["seen"].values()] == [500, 200]
    assert SECRET not in done.stderr
    return seen, lines


def dsn(host: str) -> str:
    return f"http://public-key@{host}/1"


def by_message(received: Receiver) -> dict[str, dict[str, Any]]:
    events = received.items("event")
    found = {event["exception"]["values"][-1]["value"]: event for event in events}
    assert len(found) == len(events), "each is reported once"
    return found


VIEW, TASK = "the view broke: password=[masked]", "the task broke: token: [masked]"


@pytest.mark.parametrize("rate", ["0", "1"])
def test_sentry(rate: str) -> None:
    with receiver() as received:
        seen, _ = crash(SENTRY_DSN=dsn(received.host), SENTRY_RELEASE="1.2.3", SENTRY_TRACES_SAMPLE_RATE=rate)
    assert seen["loaded"] == ["sentry_sdk"]
    events = by_message(received)
    assert set(events) == {VIEW, TASK}, "without the outage of PostgreSQL"
    assert {event["environment"] for event in events.values()} == {"production"}
    assert {event["release"] for event in events.values()} == {"1.2.3"}
    assert events[VIEW]["tags"].items() >= {"process": "web", "request_id": seen["seen"]["/crash"][1]}.items()
    assert events[TASK]["tags"]["request_id"] == seen["seen"]["/work"][1]
    assert events[TASK]["tags"]["task"] == "tests.broken"
    assert SECRET not in received.text
    transactions = {each["transaction"] for each in received.items("transaction")}
    assert transactions == ({"/crash", "/work", "tests.broken", "tests.disconnected"} if rate == "1" else set())


def test_of_pings_there_are_no_traces(settings: Any) -> None:
    settings.SENTRY_TRACES_SAMPLE_RATE = 0.5
    assert _sample_rate({"wsgi_environ": {"PATH_INFO": "/v1/heartbeats/mon_x/ping"}}) == 0
    assert _sample_rate({"wsgi_environ": {"PATH_INFO": "/v1/monitors"}}) == 0.5
    assert _sample_rate({}) == 0.5


def test_traces() -> None:
    with receiver() as received:
        seen, lines = crash(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{received.host}", OTEL_RESOURCE_ATTRIBUTES="a=b")
    assert seen["loaded"] == ["opentelemetry.sdk"]
    assert {service for service, _ in received.spans()} == {"pulsekeeper-web"}
    spans = {span.name: span for _, span in received.spans()}
    assert set(spans) >= {"GET crash", "GET work", "SELECT", "run/tests.broken"}
    work, statement = spans["GET work"], spans["SELECT"]
    assert work.kind == Span.SPAN_KIND_SERVER
    assert statement.parent_span_id == work.span_id
    assert SECRET not in received.text
    assert "'alone'" not in received.text
    (said,) = [line for line in lines if line["event"] == "at work"]
    assert (said["trace_id"], said["span_id"]) == (work.trace_id.hex(), work.span_id.hex())
    middleware = seen["middleware"]
    traced = next(place for place, name in enumerate(middleware) if "opentelemetry" in name)
    assert middleware.index("config.middleware.pings") < traced < middleware.index("config.access.log_requests")


def test_unreachable_receivers() -> None:
    away = "127.0.0.1:1"
    seen, _ = crash(SENTRY_DSN=dsn(away), OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{away}")
    assert seen["loaded"] == ["sentry_sdk", "opentelemetry.sdk"]

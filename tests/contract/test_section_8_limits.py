"""Section 8, "Limits": each at its boundary and one beyond.

Elsewhere: timeout_ms and interval_sec, which are clamped and floored instead of rejected, in
test_section_2_resources.py; mute duration and token ttl_seconds in test_section_4_endpoints.py; the monitor cap in
test_section_7_errors.py, under concurrent creation in tests/api/test_monitors.py; "status page history: 90 days" in
tests/statuspages; "rate limits: not shown" in tests/api/test_throttles.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accounts.models import User
from monitors.models import Monitor
from tests.api.client import Api
from tests.factories import MonitorFactory


def rules(count: int) -> list[dict[str, str]]:
    return [{"type": "text_contains", "value": str(number)} for number in range(count)]


def headers(count: int) -> list[dict[str, str]]:
    return [{"name": f"X-{number}", "value": "v"} for number in range(count)]


def text(length: int, of: str = "x") -> str:
    return of * length


LIMITS = {
    "content_rules per monitor | 4": ({"content_rules": rules(4)}, {"content_rules": rules(5)}),
    "request_headers per monitor | 4": ({"request_headers": headers(4)}, {"request_headers": headers(5)}),
    "request_body length | 8192 characters": (
        {"method": "POST", "request_body": text(8192)},
        {"method": "POST", "request_body": text(8193)},
    ),
    "request_body length | 8192 characters, not bytes": (
        {"method": "POST", "request_body": text(8192, "☃")},
        {"method": "POST", "request_body": text(8193, "☃")},
    ),
    "content rule value length | 256 characters": (
        {"content_rules": [{"type": "text_contains", "value": text(256, "é")}]},
        {"content_rules": [{"type": "text_contains", "value": text(257, "é")}]},
    ),
    "content rule value length | 256 characters, text_absent": (
        {"content_rules": [{"type": "text_absent", "value": text(256)}]},
        {"content_rules": [{"type": "text_absent", "value": text(257)}]},
    ),
    "content rule equals length | 256 characters": (
        {"content_rules": [{"type": "json_field", "path": "a", "equals": text(256)}]},
        {"content_rules": [{"type": "json_field", "path": "a", "equals": text(257)}]},
    ),
    "content rule path length | 128 characters": (
        {"content_rules": [{"type": "json_field", "path": text(128)}]},
        {"content_rules": [{"type": "json_field", "path": text(129)}]},
    ),
}


@pytest.mark.parametrize(("within", "beyond"), LIMITS.values(), ids=LIMITS.keys())
def test_limit(api: Api, user: User, within: dict[str, Any], beyond: dict[str, Any]) -> None:
    """Limit | Value"""
    field = list(within)[-1]
    monitor = MonitorFactory(owner=user)
    path = f"/v1/monitors/{monitor.public_id}"
    kept = api.patch(path, within)
    assert kept.status == 200
    shown = [{"name": header["name"]} for header in within[field]] if field == "request_headers" else within[field]
    assert kept.json[field] == shown, "kept whole"
    before = Monitor.objects.values().get()
    for answered in (
        api.patch(path, beyond),
        api.post("/v1/monitors", {"url": "http://shop.example/"} | beyond),
        api.post("/v1/monitors/test", {"url": "http://shop.example/"} | beyond),
    ):
        assert answered.status == 422
        assert answered.error.startswith(f"validation_error {field}")
    assert Monitor.objects.values().get() == before, "nothing stored"


@pytest.mark.parametrize(
    ("schema", "field", "keyword", "value"),
    [
        ("MonitorInput", "content_rules", "maxItems", 4),
        ("MonitorInput", "request_headers", "maxItems", 4),
        ("MonitorInput", "request_body", "maxLength", 8192),
        ("MonitorPatch", "content_rules", "maxItems", 4),
        ("MonitorPatch", "request_headers", "maxItems", 4),
        ("MonitorPatch", "request_body", "maxLength", 8192),
        ("ContentRule", "value", "maxLength", 256),
        ("ContentRule", "equals", "maxLength", 256),
        ("ContentRule", "path", "maxLength", 128),
        ("TokenInput", "ttl_seconds", "minimum", 60),
        ("TokenInput", "ttl_seconds", "maximum", 7_776_000),
    ],
)
def test_the_description_says_so(snapshot: Path, schema: str, field: str, keyword: str, value: int) -> None:
    """Limit | Value"""
    described = json.loads(snapshot.read_text())["components"]["schemas"][schema]["properties"][field]
    assert described[keyword] == value

"""openapi.json for readers and for code generators, and the page that shows it."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator

from config.openapi_examples import SAMPLES
from core.api.exposition import OPEN_METRICS, TEXT
from core.api.fields import validated
from monitors import configuration
from monitors.serializers import MonitorPatchSerializer
from tests.api.client import SCHEMA, Api

DOCUMENT: dict[str, Any] = json.loads(SCHEMA.read_text())
OPERATIONS: dict[str, dict[str, Any]] = {
    operation["operationId"]: operation | {"path": path, "method": method}
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


@pytest.fixture(params=sorted(OPERATIONS))
def operation(request: pytest.FixtureRequest) -> dict[str, Any]:
    return OPERATIONS[request.param]


def contents(operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = {f"answer {status}": answer["content"] for status, answer in operation["responses"].items()}
    if "requestBody" in operation:
        found["request"] = operation["requestBody"]["content"]
    return found


def test_every_body_has_an_example_that_its_schema_admits(operation: dict[str, Any]) -> None:
    for where, content in contents(operation).items():
        is_metrics = operation is OPERATIONS["get_metrics"] and where == "answer 200"
        assert list(content) == ([TEXT, OPEN_METRICS] if is_metrics else ["application/json"]), where
        for media in content.values():
            assert "example" in media, where
            schema = media["schema"] | {"components": DOCUMENT["components"]}
            Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(media["example"])


def test_a_monitor_that_is_shown_can_be_sent_back() -> None:
    shown = OPERATIONS["create_monitor"]["responses"]["201"]["content"]["application/json"]["example"]
    given = validated(MonitorPatchSerializer, shown)
    configuration.complete(given, configuration.Limits(floor_sec=1, permits_host=lambda _: True))
    ping = given | {"type": "ping", "url": "icmp://shop.example", "content_rules": []}
    configuration.complete(ping, configuration.Limits(floor_sec=1, permits_host=lambda _: True))


def test_counts_of_a_dns_change_are_those_of_its_lists() -> None:
    (operation,) = (each for each in OPERATIONS.values() if each["path"].endswith("/dns-changes"))
    (change,) = operation["responses"]["200"]["content"]["application/json"]["example"]
    assert (change["added_count"], change["removed_count"]) == (len(change["added"]), len(change["removed"]))
    assert change["added_count"], "and of a change"


def test_no_sample_is_left_over() -> None:
    components = {name: set(schema.get("properties", ())) for name, schema in DOCUMENT["components"]["schemas"].items()}
    fields = {f"{name}.{field}" for name, properties in components.items() for field in properties}
    names = {field for properties in components.values() for field in properties}
    assert set(SAMPLES) - {*components, *fields, *names, *OPERATIONS} == set()


def test_every_operation_says_what_it_is(operation: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)+", operation["operationId"])
    assert operation["summary"]
    assert len(operation["tags"]) == 1
    assert all(answer["description"] for answer in operation["responses"].values())


def test_tags_are_described() -> None:
    used = {operation["tags"][0] for operation in OPERATIONS.values()}
    assert {tag["name"] for tag in DOCUMENT["tags"]} == used
    assert all(tag["description"] for tag in DOCUMENT["tags"])


def test_errors_that_every_operation_can_meet(operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    assert {"422", "429", "default"} <= set(answers)
    assert ("401" in answers) == (bool(operation["security"]) or operation["path"] == "/v1/sessions")
    assert ("404" in answers) == ("{" in operation["path"])
    assert ("413" in answers) == ("415" in answers) == ("requestBody" in operation)
    for status, answer in answers.items():
        if not status.startswith("2"):
            assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}


def test_headers_are_described(operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    headers = {(status, name) for status, answer in answers.items() for name in answer.get("headers", {})}
    assert ("429", "Retry-After") in headers
    assert (("401", "WWW-Authenticate") in headers) == ("401" in answers)
    paged = any(parameter["name"] == "cursor" for parameter in operation.get("parameters", []))
    assert (("200", "Link") in headers) == paged


def test_every_list_is_paged_but_short_ones() -> None:
    lists = {
        name
        for name, operation in OPERATIONS.items()
        if operation["method"] == "get"
        and operation["operationId"] != "get_metrics"
        and operation["responses"]["200"]["content"]["application/json"]["schema"].get("type") == "array"
    }
    paged = {
        name
        for name, operation in OPERATIONS.items()
        if {"limit", "cursor"} <= {parameter["name"] for parameter in operation.get("parameters", [])}
    }
    assert lists - paged == {"list_monitor_uptime", "list_shifts", "list_tags"}


def test_schemas_have_names_that_read_well() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert not [name for name in schemas if re.search(r"Enum|Serializer|Patched|\\d", name)]
    assert {"MonitorStatus", "MonitorType", "HttpMethod", "ReasonCode", "RuleType", "HeaderType"} <= set(schemas)
    inline = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, inner in schema.get("properties", {}).items()
        if "enum" in inner
    ]
    assert inline == []


def test_bodies_take_no_unknown_fields() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name, operation in OPERATIONS.items():
        if "requestBody" in operation:
            used = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/")[-1]
            closed = schemas[used].get("additionalProperties") is False or "propertyNames" in schemas[used]
            assert closed, f"{used} of {name}"


def test_every_field_of_what_is_answered_is_there() -> None:
    """Section 2 of the specification: all fields of a Monitor are always present."""
    for name in (
        "Monitor",
        "Channel",
        "Delivery",
        "DeliveryItem",
        "Connector",
        "ImportableProject",
        "ImportResult",
        "Check",
        "CheckResult",
        "Token",
        "Project",
        "ListedProject",
        "UptimeDay",
        "StatusPage",
        "Note",
        "Subscriber",
        "Badge",
    ):
        schema = DOCUMENT["components"]["schemas"][name]
        assert sorted(schema["required"]) == sorted(schema["properties"]), name


def test_security_is_bearer() -> None:
    assert DOCUMENT["components"]["securitySchemes"]["Bearer"]["scheme"] == "bearer"
    public = {name for name, operation in OPERATIONS.items() if operation["security"] == []}
    assert public == {
        "create_session",
        "join_location",
        "ping_heartbeat",
        "ping_heartbeat_by_get",
        "signal_heartbeat",
        "signal_heartbeat_by_get",
    }
    assert all(operation["security"] in ([], [{"Bearer": []}]) for operation in OPERATIONS.values())


def test_the_page_loads_nothing_from_elsewhere() -> None:
    client = Client()
    page = client.get("/docs")
    assert page.status_code == 200
    html = page.content.decode()
    policy = page.headers["Content-Security-Policy"].split("; ")  # in any order
    assert {"default-src 'none'", "script-src 'self'"} <= set(policy)
    assert "<script>" not in html
    assert "http" not in html.replace("<!DOCTYPE html>", "").replace("html", "")
    loaded = re.findall(r'(?:src|href|data-schema)="([^"]+)"', html)
    assert len(loaded) == 5
    for address in loaded:
        answer = client.get(address)
        assert answer.status_code == 200, address
        assert b"".join(answer) if answer.streaming else answer.content


def test_the_page_is_for_everybody() -> None:
    assert Api().get("/openapi.json").status == 200


def test_the_document_is_generated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generating it takes longer than any other response without a credential."""
    generated = []

    class Counted(SchemaGenerator):
        def __init__(self) -> None:
            generated.append(self)
            super().__init__()  # type: ignore[no-untyped-call]

    monkeypatch.setattr("drf_spectacular.generators.SchemaGenerator", Counted)
    client = Client()
    answers = [client.get("/openapi.json", {"version": str(number)}) for number in range(5)]
    assert len({answer.content for answer in answers}) == 1
    assert len(generated) <= 1


def test_who_has_the_document_gets_304_and_others_may_have_it_packed() -> None:
    client = Client()
    plain = client.get("/openapi.json")
    packed = client.get("/openapi.json", headers={"accept-encoding": "gzip, br"})
    assert gzip.decompress(packed.content) == plain.content
    assert (packed["Content-Encoding"], packed["Vary"], packed["ETag"]) == ("gzip", "Accept-Encoding", plain["ETag"])
    again = client.get("/openapi.json", headers={"accept-encoding": "gzip, br"})
    assert again.content == packed.content, "packed once"
    known = client.get("/openapi.json", headers={"if-none-match": f'W/"other", {plain["ETag"]}'})
    assert (known.status_code, known.content, known["ETag"]) == (304, b"", plain["ETag"])
    assert (client.head("/openapi.json").content, client.post("/openapi.json").status_code) == (b"", 405)

"""Every error below /v1 is JSON in the shape of the Error object."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django.fixtures import Settings

from tests.api.client import SCHEMA, Api


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v1/nothing", "/v1/monitors/", "/v1/monitors/a/b", "/v1/monitors/mon_%00", "/v1/\x00"]
)
@pytest.mark.parametrize("method", ["get", "post", "delete", "options"])
def test_unknown_routes(db: None, method: str, path: str) -> None:
    answer = Api().send(method, path)
    assert (answer.status, answer.json["error"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path"), [("put", "/v1/monitors"), ("post", "/v1/monitors/mon_x"), ("get", "/v1/monitors/test/")]
)
def test_wrong_method(api: Api, method: str, path: str) -> None:
    answer = api.send(method, path)
    assert (answer.status, answer.json["error"]) in [(405, "method_not_allowed"), (404, "not_found")]
    if not path.endswith("/"):
        assert answer.status == 405


@pytest.mark.parametrize("method", ["put", "patch", "delete", "trace"])
@pytest.mark.parametrize("path", ["/v1/heartbeats/mon_x/ping", "/v1/heartbeats/mon_x/ping/start", "/v1/sessions"])
def test_a_wrong_method_without_credentials(db: None, method: str, path: str) -> None:
    answer = Api().send(method, path)
    assert (answer.status, answer.json["error"]) in [(405, "method_not_allowed"), (401, "unauthorized")]


def test_wrong_content_type(api: Api) -> None:
    answer = api.send("post", "/v1/monitors", "url=x", content_type="application/x-www-form-urlencoded")
    assert (answer.status, answer.json["error"]) == (415, "unsupported_media_type")


def test_a_body_beyond_any_valid_one(api: Api) -> None:
    answer = api.send("post", "/v1/projects", b'{"name": "' + b"a" * 300_000 + b'"}')
    assert (answer.status, answer.json["error"]) == (413, "body_too_large")


def test_a_wrong_host_header(db: None, settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["pulsekeeper.example"]
    answer = Api().get("/v1/monitors")
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


def test_a_crash_is_logged_and_hidden(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE monitors_monitor RENAME COLUMN name TO gone")
    answer = api.get("/v1/monitors")
    assert (answer.status, answer.json["error"]) == (500, "internal_error")
    assert "monitors_monitor" not in answer.text
    assert "unhandled error in Monitor" in caplog.text


def test_the_committed_description_is_the_served_one(db: None, tmp_path: Path) -> None:
    generated = tmp_path / "openapi.json"
    call_command("spectacular", "--format", "openapi-json", "--validate", "--fail-on-warn", "--file", str(generated))
    assert generated.read_text() == SCHEMA.read_text().rstrip("\n"), "run: python -m tests.generated"
    served = Api().get("/openapi.json")
    assert (served.status, served.json["info"]["version"], len(served.json["servers"])) == (200, "1.0.0", 2)
    assert served.json["components"]["securitySchemes"]["Bearer"]["scheme"] == "bearer"

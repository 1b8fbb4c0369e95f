"""Log lines of requests: one for each, found by its id, and without secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.test import Client, RequestFactory

from config.errors import server_error
from core import logs
from core.logs import Formatter
from monitors import views
from tests.api.client import Api
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import PASSWORD

pytestmark = pytest.mark.django_db

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def logged(settings: Any) -> Iterator[Lines]:
    """Capture all output at LOG_LEVEL=DEBUG, with the libraries' levels of production."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Formatter(json=True))
    root = logging.getLogger()
    root.addHandler(handler)
    ours = {name: logging.getLogger(name) for name in settings.LOGGING["loggers"] if "." not in name}
    levels = {name: each.level for name, each in ours.items()}
    for each in ours.values():
        each.setLevel(logging.DEBUG)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    for name, each in ours.items():
        each.setLevel(levels[name])
    root.removeHandler(handler)


def requests_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["logger"] == "config.access"]


def test_a_request_is_a_line(logged: Lines) -> None:
    user = UserFactory()
    project = ProjectFactory(owner=user)
    api = Api.with_token(user, project)
    answer = api.get("/v1/monitors?limit=5&name=private")
    (line,) = requests_of(logged())
    assert line.pop("duration_ms") >= 0
    assert line.pop("timestamp")
    assert line == {
        "event": "request",
        "level": "info",
        "logger": "config.access",
        "request_id": answer.headers["X-Request-ID"],
        "method": "GET",
        "path": "/v1/monitors",
        "status": 200,
        "client": "127.0.0.1",
        "user": user.public_id,
        "project": project.public_id,
    }


def test_a_page_names_who_asked(logged: Lines) -> None:
    user = UserFactory()
    client = Client()
    client.force_login(user)
    client.get("/monitors")
    Client().get("/docs")
    named, unnamed = requests_of(logged())
    assert named["user"] == user.public_id
    assert "user" not in unnamed


def test_pings_status_pages_and_files_have_none(logged: Lines) -> None:
    heartbeat = MonitorFactory(heartbeat=True)
    client = Client()
    paths = [f"/v1/heartbeats/{heartbeat.public_id}/ping", "/status/none", "/badge/none", "/static/none.css"]
    assert [client.get(path).status_code for path in paths] == [200, 404, 404, 404]
    assert [line["path"] for line in requests_of(logged())] == ["/static/none.css"]  # which is not there


@pytest.mark.parametrize(
    ("trusted", "given", "taken"),
    [
        ("127.0.0.1/32", "abc-123.DEF_4", True),
        ("192.0.2.0/24", "abc-123.DEF_4", False),
        ("127.0.0.1/32", "short", False),
        ("127.0.0.1/32", "x" * 65, False),
        ("127.0.0.1/32", "abc 12345678", False),
        ("127.0.0.1/32", 'abc"12345678\n', False),
    ],
)
def test_an_id_is_taken_from_our_own_proxies(settings: Any, trusted: str, given: str, taken: bool) -> None:
    from core.egress import parse_networks

    settings.TRUSTED_PROXIES = parse_networks(trusted)
    found = Client(headers={"X-Request-ID": given}).get("/docs").headers["X-Request-ID"]
    assert (found == given) is taken
    assert len(found) >= 8


@pytest.mark.parametrize(("trusted", "secure"), [("127.0.0.1/32", True), ("192.0.2.0/24", False)])
def test_tls_is_believed_of_our_own_proxies(settings: Any, trusted: str, secure: bool) -> None:
    from core.egress import parse_networks

    settings.TRUSTED_PROXIES = parse_networks(trusted)
    response = Client(headers={"X-Forwarded-Proto": "https"}).get("/docs")
    assert response.wsgi_request.is_secure() is secure
    assert ("Strict-Transport-Security" in response.headers) is secure


def test_a_page_that_broke_shows_its_number() -> None:
    with logs.bound(request_id="abc-123.DEF_4"):
        assert b"logged as abc-123.DEF_4." in server_error(RequestFactory().get("/monitors")).content
    assert b"It has been logged. Try again" in server_error(RequestFactory().get("/monitors")).content


SECRETS = {
    "password": PASSWORD,
    "wrong password": "a wrong password from a user",
    "header": "header-value-8d2f",
    "body": "request-body-77aa",
    "webhook": "webhook-secret-51cc",
    "query": "query-value-90be",
    "cookie": "cookie-value-13fa",
    "crash": "crash-detail-27ab",
}


def test_no_secret_is_written(logged: Lines, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    user = UserFactory()
    project = ProjectFactory(owner=user)
    anonymous, api = Api(), Api.signed_in(user)
    secrets = [*SECRETS.values(), settings.SECRET_KEY, *settings.ENCRYPTION_KEYS, str(api.token)]

    for password in (PASSWORD, SECRETS["wrong password"]):
        answer = anonymous.post("/v1/sessions", {"email": user.email, "password": password})
        secrets += [answer.json["token"]] if answer.status == 201 else []
    secrets.append(api.post("/v1/tokens", {"project_id": project.public_id, "name": "ci"}).json["token"])
    Api("ses_" + "a" * 70).get(f"/v1/monitors?token={SECRETS['query']}")
    monitor = {
        "method": "POST",
        "request_headers": [{"name": "X-Key", "value": SECRETS["header"]}],
        "request_body": SECRETS["body"],
    }
    made = api.patch(f"/v1/monitors/{MonitorFactory(owner=user).public_id}", monitor)
    assert made.status == 200, made.text
    heartbeat = MonitorFactory(owner=user, heartbeat=True)
    anonymous.post(f"/v1/heartbeats/{heartbeat.public_id}/ping")
    api.get(f"/v1/monitors/{heartbeat.public_id}")
    api.post("/v1/monitors/nothing/mute", {"minutes": SECRETS["body"]})
    secrets.append(heartbeat.public_id)
    api.post(
        "/v1/alert-channels",
        {"kind": "webhook", "url": f"https://example.com/?key={SECRETS['query']}", "secret": SECRETS["webhook"]},
    )
    links = [
        "a",
        "calendar",
        "invitations",
        "alert-channels/confirm",
        "status-subscriptions/confirm",
        "account/confirm-email",
    ]
    browser = Client(raise_request_exception=False)
    browser.cookies["sessionid"] = SECRETS["cookie"]
    for link in links:
        secret = "link-" + "q" * 40
        browser.get(f"/{link}/{secret}")
        browser.get(f"/{link}/{secret}/")
        secrets.append(secret)
    browser.post("/account/login/", {"login": user.email, "password": SECRETS["wrong password"]})

    def crash(*_: object, **__: object) -> None:
        raise RuntimeError(f"password={SECRETS['crash']} of Bearer {api.token}")

    monkeypatch.setattr(views.MonitorViewSet, "list", crash)
    broken = api.get(f"/v1/monitors?code={SECRETS['query']}")
    assert broken.status == 500

    lines = logged()
    said = "\n".join(map(json.dumps, lines))
    assert [secret for secret in secrets if secret in said] == []
    (crashed,) = [line for line in lines if "exception" in line]
    assert crashed["request_id"] == broken.headers["X-Request-ID"]
    assert "RuntimeError: password=[masked] of Bearer [masked]" in crashed["exception"]

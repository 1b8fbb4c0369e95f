"""ETag and If-Match: a client does not overwrite or delete settings that it has not read."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from accounts.models import User
from core.clock import to_ms, utc_now
from core.errors import ValidationFailed
from core.etags import parse_if_match
from tests.api.client import Answer, Api
from tests.factories import MonitorFactory
from tests.helpers import run_concurrently
from tests.statuspages.making import picture

HOUR_MS = 3_600_000


def _monitor(user: User) -> tuple[str, dict[str, Any]]:
    return "/v1/monitors", {"type": "heartbeat", "interval_sec": 300}


def _channel(user: User) -> tuple[str, dict[str, Any]]:
    return "/v1/alert-channels", {"kind": "webhook", "url": "http://127.0.0.1:9/hook"}


def _window(user: User) -> tuple[str, dict[str, Any]]:
    start = to_ms(utc_now()) + HOUR_MS
    return "/v1/maintenance-windows", {
        "name": "Deploy",
        "starts_at": start,
        "ends_at": start + HOUR_MS,
        "monitors": "chosen",
        "monitor_ids": [MonitorFactory(owner=user).public_id for _ in range(3)],
    }


def _page(user: User) -> tuple[str, dict[str, Any]]:
    return "/v1/status-pages", {"name": "Shop", "slug": "shop"}


def _project(user: User) -> tuple[str, dict[str, Any]]:
    return "/v1/projects", {"name": "Shop"}


def _location(user: User) -> tuple[str, dict[str, Any]]:
    return "/v1/locations", {"name": "Office"}


KINDS = [_monitor, _channel, _window, _page, _project, _location]


def _tag(answer: Answer) -> str:
    assert answer.status in (200, 201), answer.text
    tag: str = answer.headers["ETag"]
    assert tag.startswith('"')
    assert tag.endswith('"')
    assert len(tag) > 20
    return tag


@pytest.mark.django_db
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_or_deletion_with_an_outdated_tag_is_refused(
    api: Api, user: User, kind: Callable[[User], tuple[str, dict[str, Any]]]
) -> None:
    path, body = kind(user)
    made = api.post(path, body, key="once")
    path = f"{path}/{made.json['id']}"
    first = _tag(made)
    assert _tag(api.get(path)) == first
    second = _tag(api.send("patch", path, {"name": "Second"}, if_match=first))
    assert second != first
    assert _tag(api.get(path)) == second

    for method, change in (("patch", {"name": "Third"}), ("delete", None)):
        for outdated in (first, f"W/{second}", f'{first}, "x"'):
            refused = api.send(method, path, change, if_match=outdated)
            assert (refused.status, refused.json["error"]) == (412, "changed_meanwhile")
        assert api.send(method, path, change, if_match=second[1:]).error.startswith("validation_error If-Match: ")
        assert api.send(method, f"{path[:-3]}abc", change, if_match=first).status == 404
    assert api.get(path).json["name"] == "Second"

    assert _tag(api.send("patch", path, {"name": "Second"}, if_match=f"{first} ,, {second}")) == second, "no change"
    assert _tag(api.send("patch", path, {"name": "Third"}, if_match="*")) == _tag(api.get(path))
    assert _tag(api.patch(path, {"name": "Fourth"})), "without the header as before"
    gone = api.send("delete", path, if_match=_tag(api.get(path)))
    assert gone.status == 200
    assert "ETag" not in gone.headers


@pytest.mark.django_db
@pytest.mark.parametrize("kind", [_channel, _project])
def test_a_repeated_creation_has_the_tag_of_its_body(
    api: Api, user: User, kind: Callable[[User], tuple[str, dict[str, Any]]]
) -> None:
    path, body = kind(user)
    made = api.post(path, body, key="once")
    api.patch(f"{path}/{made.json['id']}", {"name": "Changed"})
    again = api.post(path, body, key="once")
    assert (again.text, _tag(again)) == (made.text, _tag(made))


@pytest.mark.django_db
def test_secrets_change_the_tag(api: Api) -> None:
    header = {"name": "Authorization", "value": "a secret"}
    made = api.post("/v1/monitors", {"type": "heartbeat", "interval_sec": 300})
    path = f"/v1/monitors/{made.json['id']}"
    monitor = MonitorFactory(owner__email="other@example.com")
    other = Api.signed_in(monitor.owner)
    of = f"/v1/monitors/{monitor.public_id}"
    tags = [_tag(other.patch(of, {"request_headers": [header | {"value": text}]})) for text in ("a", "b", "b")]
    assert tags[0] != tags[1] == tags[2]
    assert api.get(of).status == 404
    assert "ETag" not in api.get(of).headers
    channel = api.post("/v1/alert-channels", {"kind": "webhook", "url": "http://127.0.0.1:9/hook"})
    of = f"/v1/alert-channels/{channel.json['id']}"
    assert _tag(api.patch(of, {"url": "http://127.0.0.1:9/other"})) != _tag(channel)
    page = api.post("/v1/status-pages", {"name": "Shop", "slug": "shop", "password": "12345678"})
    of = f"/v1/status-pages/{page.json['id']}"
    assert _tag(api.patch(of, {"password": "87654321"})) != _tag(page)
    assert _tag(api.get(path)) == _tag(made)


@pytest.mark.django_db
def test_state_does_not_change_the_tag(api: Api) -> None:
    made = api.post("/v1/monitors", {"type": "heartbeat", "interval_sec": 300})
    path = f"/v1/monitors/{made.json['id']}"
    assert Api().post(f"/v1/heartbeats/{made.json['id']}/ping").status == 200
    assert _tag(api.post(f"{path}/mute", {"minutes": 5})) == _tag(made)
    assert api.get(path).json["last_ping_at"] is not None
    assert _tag(api.get(path)) == _tag(made)
    assert _tag(api.patch(path, {"enabled": False})) != _tag(made)


@pytest.mark.django_db
def test_the_logo_belongs_to_its_page(api: Api) -> None:
    made = api.post("/v1/status-pages", {"name": "Shop", "slug": "shop"})
    path = f"/v1/status-pages/{made.json['id']}"
    image = {"image": b64encode(picture()).decode()}
    logo = api.send("put", f"{path}/logo", image, if_match=_tag(made))
    assert _tag(logo) == _tag(api.get(path)) != _tag(made)
    assert api.send("put", f"{path}/logo", image, if_match=_tag(made)).status == 412
    assert api.send("delete", f"{path}/logo", if_match=_tag(made)).status == 412
    assert _tag(api.send("delete", f"{path}/logo", if_match=_tag(logo))) == _tag(made)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", KINDS)
def test_one_of_two_simultaneous_changes_is_refused(
    api: Api, user: User, kind: Callable[[User], tuple[str, dict[str, Any]]]
) -> None:
    path, body = kind(user)
    made = api.post(path, body)
    path, tag = f"{path}/{made.json['id']}", _tag(made)
    for number in range(4):
        names = f"A{number}", f"B{number}"
        answers: list[Any] = run_concurrently(
            *(partial(api.send, "patch", path, {"name": name}, if_match=tag) for name in names)
        )
        assert sorted(answer.status for answer in answers) == [200, 412]
        stored = next(name for name, answer in zip(names, answers, strict=True) if answer.status == 200)
        read = api.get(path)
        assert read.json["name"] == stored
        tag = _tag(read)


@pytest.mark.parametrize(
    ("header", "tags"),
    [
        (None, None),
        ("*", None),
        (" * ", None),
        ('"a"', {'"a"'}),
        ('"a", W/"b",\t"c,d" ,,""', {'"a"', '"c,d"', '""'}),
        ('W/"a"', set()),
    ],
)
def test_if_match(header: str | None, tags: set[str] | None) -> None:
    assert parse_if_match(header) == tags


@pytest.mark.parametrize(
    "header", ["", " ", ",", "a", '"a', '"a" "b"', '*, "a"', 'w/"a"', '"a b"', '"a"' + " " * 60_000 + "x"]
)
def test_a_malformed_if_match(header: str) -> None:
    with pytest.raises(ValidationFailed, match="If-Match"):
        parse_if_match(header)

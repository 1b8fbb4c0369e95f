"""Bad input of every kind: an error in the right shape, nothing stored, and never a 500.

The wrong values are generated from docs/openapi.json, so that fields added later are covered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from accounts.models import User
from core.clock import to_ms, utc_now
from incidents.services import declare
from incidents.windows import create_window
from projects.access import Caller
from statuspages.badges import create_badge
from statuspages.services import create_note
from tests.api.client import SCHEMA, Answer, Api
from tests.factories import ChannelFactory, DeliveryFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import PASSWORD
from tests.statuspages.making import make_page
from tokens.models import ProjectToken

pytestmark = pytest.mark.django_db

Json = Any
NUMBERS = ["1e400", "-1e400", str(2**64), str(-(2**64)), "9" * 39, "9" * 5000, "1e-400", "0.1", "-0.0"]
WRONG: dict[str, list[Json]] = {
    "string": [5, 1.5, True, ["x"], {"x": "y"}, [], "a\x00b"],
    "integer": ["5", 1.5, 5.0, True, [5], {"x": 5}, "", []],
    "number": ["5", True, [5], {"x": 5}],
    "boolean": ["true", 1, 0, "", [True], {}],
    "array": ["x", 5, True, {}, {"0": "x"}],
    "object": ["x", 5, True, ["x"], []],
}
SOON = to_ms(utc_now() + timedelta(days=1))
# Valid bodies to which a wrong field is added. They contain the fields that are validated first.
SOUND: dict[str, dict[str, Json]] = {
    "/v1/monitors": {"type": "heartbeat"},
    "/v1/monitors/test": {"url": "http://127.0.0.1:9/"},
    "/v1/alert-channels": {"kind": "webhook", "url": "https://hooks.example.com/"},
    "/v1/tokens": {"project_id": "{project}", "name": "t"},
    "/v1/incidents": {"title": "t", "text": "t"},
    "/v1/maintenance-windows": {"name": "t", "starts_at": SOON, "ends_at": SOON + 60_000, "monitors": "all"},
}
# Fields that the specification clamps, floors or caps instead of rejecting them.
BENT = {"interval_sec", "timeout_ms", "minutes"}


@cache
def document() -> dict[str, Any]:
    described: dict[str, Any] = json.loads(SCHEMA.read_text())
    return described


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    for inner in ([schema["$ref"]] if "$ref" in schema else []) + [
        part["$ref"] for part in schema.get("allOf", []) if "$ref" in part
    ]:
        found: dict[str, Any] = document()["components"]["schemas"][inner.rsplit("/", 1)[1]]
        return resolve(found) | {k: v for k, v in schema.items() if k not in ("$ref", "allOf")}
    return schema


def types_of(schema: dict[str, Any]) -> set[str]:
    given = resolve(schema)
    if "oneOf" in given or "anyOf" in given:
        return set().union(*(types_of(part) for part in given.get("oneOf", given.get("anyOf", []))))
    found = given.get("type", "null" if given.get("enum") == [None] else "string")
    return set(found) if isinstance(found, list) else {found}


def wrong_values(schema: dict[str, Any]) -> Iterator[Json]:
    """Yield values of wrong types for a schema, at the top and at each place within it."""
    given = resolve(schema)
    types = types_of(schema)
    if "null" not in types:
        yield None
    yield from WRONG[min(types - {"null"})]
    if "enum" in given:
        yield from ("", "nothing", "http ", 0)
    if "array" in types:
        yield [None]
        yield [[]]
        yield [5] * 1000
        for inner in wrong_values(given["items"]):
            yield [inner]
    for name, field in given.get("properties", {}).items():
        for inner in wrong_values(field):
            yield smallest(given) | {name: inner}
    if "properties" in given:
        yield smallest(given) | {"unknown_field": 1}


def smallest(schema: dict[str, Any]) -> dict[str, Json]:
    """Return an object with the required fields and a plausible value for each."""
    properties = schema.get("properties", {})
    return {n: resolve(properties[n]).get("enum", ["x"])[0] for n in schema.get("required", [])}


def bodies() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and schema of every operation that takes a body."""
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                yield method, path, resolve(content["application/json"]["schema"])


BODIES = [pytest.param(*body, id=f"{body[0]} {body[1]}") for body in bodies()]


@pytest.fixture(scope="module")
def user(module_db: None) -> User:
    return UserFactory()


@pytest.fixture(scope="module")
def names(user: User) -> dict[str, str]:
    """Create the user's objects. Return their ids for paths and bodies."""
    project = ProjectFactory(owner=user)
    Api.with_token(user, project)
    monitor = MonitorFactory(owner=user, up=True, project=project)
    channel = ChannelFactory(owner=user, project=project)
    caller, now = Caller(user), utc_now()
    create_badge(caller, monitor.public_id, now=now)
    page = make_page(user, [monitor])
    note = {"title": "Late", "text": "Late.", "status": "identified"}
    update = {"name": "Update", "starts_at": now, "ends_at": now + timedelta(hours=1), "monitors": "all"}
    return {
        "channel_id": channel.public_id,
        "delivery_id": DeliveryFactory(channel=channel, dead=True).public_id,
        "monitor_id": monitor.public_id,
        "incident_id": declare(caller, {"title": "Late", "text": "Late."}, now=now).public_id,
        "window_id": create_window(caller, update, now=now).public_id,
        "project_id": project.public_id,
        "page_id": page.public_id,
        "note_id": create_note(caller, page.public_id, note, now=now).public_id,
        "token_id": ProjectToken.objects.get().public_id,
    }


def placed(path: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def sound(path: str, names: dict[str, str]) -> dict[str, Json]:
    return {
        field: names["project_id"] if value == "{project}" else value for field, value in SOUND.get(path, {}).items()
    }


def everything() -> dict[str, int]:
    """Return the number of rows of each table, and the content of the rows that requests could change."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        tables = [table for (table,) in cursor.fetchall()]
        union = " UNION ALL ".join(
            f"SELECT '{table}', coalesce(sum(hashtextextended(t::text, 0)), 0) FROM {table} AS t"
            for table in tables
            if table not in ("tokens_session",)  # which notes its use
        )
        cursor.execute(union)
        return dict(cursor.fetchall())


def assert_error(answered: Answer, *statuses: int, what: object) -> None:
    assert answered.status in statuses, f"{answered.status} for {str(what)[:200]}: {answered.text[:200]}"
    assert set(answered.json) <= {"error", "reason", "limit", "problems"}
    assert isinstance(answered.json["error"], str)


@pytest.mark.parametrize(("method", "path", "schema"), BODIES)
def test_wrong_types_in_every_field(
    api: Api, names: dict[str, str], method: str, path: str, schema: dict[str, Any]
) -> None:
    """Each wrong value in each field at each depth is an error that stores nothing."""
    address, base = placed(path, names), sound(path, names)
    before = everything()
    for whole in [*WRONG["object"], None, [], [base]]:
        # If no project_id can be parsed, the answer is 400.
        assert_error(api.send(method, address, json.dumps(whole)), 400, 401, 404, 422, what=whole)
    for name, field in schema["properties"].items():
        for value in wrong_values(field):
            body = base | {name: value}
            answered = api.send(method, address, body)
            if value in (None, "", [], {}, 0, False) and name == "project_id" and path == "/v1/tokens":
                assert_error(answered, 400, what=body)
            else:
                assert_error(answered, 401, 404, 422, what=body)
    assert_error(api.send(method, address, base | {"unknown_field": 1}), 404, 422, what="unknown_field")
    assert everything() == before


@pytest.mark.parametrize(("method", "path", "schema"), BODIES)
def test_numbers_and_strings_that_fit_nowhere(
    api: Api, names: dict[str, str], method: str, path: str, schema: dict[str, Any]
) -> None:
    """Sent as raw JSON: numbers beyond 64 bits and floats beyond any, NULs and lone surrogates."""
    address, base = placed(path, names), sound(path, names)
    before = everything()
    for name, field in schema["properties"].items():
        types = types_of(field)
        values = [r'"\u0000"', r'"a\ud800"', r'"\udc00\ud800"', r'["\ud800"]', r'{"\ud800": 1}', r'{"\u0000": 1}']
        if not types & {"integer", "number"} or name not in BENT:
            values += NUMBERS
        elif name in BENT:
            values += [number for number in NUMBERS if set(number) & set("e.")]
        for value in values:
            rest = json.dumps({n: v for n, v in base.items() if n != name})[1:-1]
            raw = "{" + f'"{name}": {value}' + (f", {rest}" if rest else "") + "}"
            answered = api.send(method, address, raw)
            assert_error(answered, 400, 401, 404, 422, what=raw)
    assert everything() == before


@pytest.mark.parametrize(("method", "path", "schema"), BODIES)
def test_bodies_that_are_hardly_json(
    api: Api, names: dict[str, str], method: str, path: str, schema: dict[str, Any]
) -> None:
    """Deep nesting, huge lists, truncated bodies, invalid UTF-8, invalid JSON."""
    address, before = placed(path, names), everything()
    raw: list[bytes] = [
        b"{",
        b'{"a": ',
        b"[" * 100_000,
        b'{"a":' * 20_000,
        b"[" * 500 + b"]" * 500,
        b'{"name": ' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"name": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b"[" + b"1," * 100_000 + b"1]",
        b'{"content_rules": [' + b"{}," * 50_000 + b"{}]}",
        b'{"name": NaN}',
        b'{"name": Infinity}',
        b'{"name": "\xff"}',
        b"\xff\xfe{\x00}\x00",
        b'\xef\xbb\xbf{"name": 5}',
        b"{'name': 'x'}",
        b'{"name": "x",}',
        b'{"name": "\n"}',
        b"{} {}",
        b"\x00",
        b'{"' + b"a" * 10_000 + b'": 1}',
        b'{"__proto__": {}, "__class__": 1}',
    ]
    if method != "patch" and not path.endswith(("/copy", "/backtest")):  # an empty body changes nothing
        raw.append(b"")
    for body in raw:
        assert_error(api.send(method, address, body), 400, 401, 404, 413, 422, what=body[:60])
    assert everything() == before


def test_items_of_a_list_that_is_too_long_are_not_validated(api: Api) -> None:
    answered = api.post("/v1/monitors", {"content_rules": [{}] * 50_000})
    assert answered.error == "validation_error content_rules: Ensure this field has no more than 4 elements."


def test_of_duplicate_keys_the_last_wins_or_none(api: Api, names: dict[str, str]) -> None:
    path = f"/v1/monitors/{names['monitor_id']}"
    answered = api.send("patch", path, '{"name": "first", "name": "last"}')
    assert answered.status in (200, 422)
    assert api.get(path).json["name"] == ("last" if answered.status == 200 else "Untitled")
    assert_error(api.send("patch", path, '{"name": "fine", "name": 5}'), 422, what="a bad one last")
    assert api.send("patch", path, '{"slow_ms": "bad", "slow_ms": 5}').status in (200, 422)


HEADERS = ["", " ", "a b", "a:b", "a\r\nb", "a\r\nX-Injected: y", "a\nb", "a\x00b", "é", "☃", "(a)", "a\x7f", "X" * 257]


@pytest.mark.parametrize("name", HEADERS, ids=repr)
def test_header_names_that_are_none(api: Api, names: dict[str, str], name: str) -> None:
    """header names with CRLF"""
    before = everything()
    body = {"request_headers": [{"name": name, "value": "x"}]}
    for answered in (
        api.patch(f"/v1/monitors/{names['monitor_id']}", body),
        api.post("/v1/monitors", {"type": "heartbeat"} | body),
        api.post("/v1/monitors/test", {"url": "http://127.0.0.1:9/"} | body),
    ):
        assert_error(answered, 422, what=body)
        assert "request_headers[0].name" in answered.json["reason"]
    assert everything() == before


@pytest.mark.parametrize("value", ["a\r\nb", "a\r\nX-Injected: y", "a\nb", "a\rb", "a\x00b", "\x7f", "\x1b"], ids=repr)
def test_header_values_that_would_end_the_line(api: Api, names: dict[str, str], value: str) -> None:
    before = everything()
    body = {"request_headers": [{"name": "X", "value": value}]}
    answered = api.patch(f"/v1/monitors/{names['monitor_id']}", body)
    assert_error(answered, 422, what=body)
    assert everything() == before


@pytest.mark.parametrize(
    "name",
    [
        *("content-length", "Content-Length", "TRANSFER-ENCODING", "Connection", "Keep-Alive", "Proxy-Connection"),
        *("Proxy-Authorization", "TE", "Trailer", "Upgrade"),
    ],
)
def test_headers_of_the_connection_itself(api: Api, names: dict[str, str], name: str) -> None:
    """Content-Length, Transfer-Encoding, Connection and other hop-by-hop names → 422."""
    answered = api.patch(f"/v1/monitors/{names['monitor_id']}", {"request_headers": [{"name": name, "value": "1"}]})
    assert_error(answered, 422, what=name)


def test_host_may_be_set(api: Api, names: dict[str, str]) -> None:
    body = {"request_headers": [{"name": "Host", "value": "shop.example"}]}
    assert api.patch(f"/v1/monitors/{names['monitor_id']}", body).status == 200


# --- addresses, queries and headers of the request -------------------------------------------------------

ODD = [
    *("%00", "a%00b", "%ED%A0%80", "%ff", "%F0%9F%92%A9", "..", "%2e%2e", "%2F", "a%2Fb", "%0d%0aX: y", "'--", "{}"),
    *("null", "0", "-1", str(2**70), "a" * 65, "a" * 5000, "%25", "%", "*", "mon_", "mon_%20"),
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd[:12])
def test_odd_ids(api: Api, names: dict[str, str], odd: str) -> None:
    """In every path of openapi.json, with each of its methods: not found, in the Error shape."""
    before = everything()
    for path, operations in document()["paths"].items():
        if "{" not in path:
            continue
        first = path[: path.index("{")] + odd + path[path.index("}") + 1 :]
        for method in operations:
            assert_error(api.send(method, placed(first, names), {}), 404, 405, what=first)
    assert everything() == before


GETS = [path for path, operations in document()["paths"].items() if "get" in operations and "heartbeats" not in path]
ODD_VALUES = [*ODD, "", "1e9", "+1", " 1", "1_0", "٣", "9" * 5000, "MQ==", "LTE=", "//8=", "AAAA"]


@pytest.mark.parametrize("path", GETS)
def test_odd_queries(api: Api, names: dict[str, str], path: str) -> None:
    """NUL, lone surrogates, huge numbers and repeated names in every parameter of every GET."""
    address = placed(path, names)
    if "{" in address:
        return
    given = [p["name"] for p in document()["paths"][path]["get"].get("parameters", []) if p["in"] == "query"]
    others = {"limit", "cursor", "unknown"} - set(given)  # which nothing reads: one request with all of them
    asked = [(name,) for name in given] + [tuple(sorted(others))]
    queries = ["&".join(f"{name}={value}" for name in each) for each in asked for value in ODD_VALUES]
    queries += ["&".join(f"{name}=1&{name}=x&{name}" for name in each) for each in asked]
    for query in [*queries, "%00=%00&=&&&%ff=%ff"]:
        answered = api.get(f"{address}?{query}")
        assert answered.status in (200, 422), (query, answered.text[:200])
        if answered.status == 422:
            assert_error(answered, 422, what=query)


@pytest.mark.parametrize(
    "value",
    [
        "\x00",
        "a\x00b",
        "\xed\xa0\x80",  # as WSGI gives the bytes of a lone surrogate
        "é",
        "\xe2\x98\x83",
        "a" * 300,
        "a" * 60_000,
        "a\r\nX: y",
        "\xff",
        " ",
        "",
        "a b",
        "\x7f",
        ",",
        '"a"',
    ],
    ids=lambda value: ascii(value)[:14],
)
def test_odd_request_headers(api: Api, names: dict[str, str], value: str) -> None:
    """401 for Authorization; for Idempotency-Key, Accept and the others no 500, and at most one row."""
    client = Client(raise_request_exception=False)

    def send(method: str, path: str, body: str = "", **headers: str) -> Answer:
        meta = {f"HTTP_{name}": text for name, text in ({"AUTHORIZATION": f"Bearer {api.token}"} | headers).items()}
        return Answer(client.generic(method, path, body, content_type="application/json", **meta))  # type: ignore[arg-type]

    before = everything()
    for authorization in (value, f"Bearer {value}", f"Bearer {api.token}{value.strip() or 'x'}"):
        assert_error(send("GET", "/v1/monitors", AUTHORIZATION=authorization), 401, what=authorization)
    assert everything() == before
    for header in ("ACCEPT", "ACCEPT_LANGUAGE", "ACCEPT_ENCODING", "USER_AGENT", "X_FORWARDED_FOR", "COOKIE"):
        assert send("GET", "/v1/monitors", **{header: value}).status == 200, header
    assert everything() == before
    made = send("POST", "/v1/projects", '{"name": "x"}', IDEMPOTENCY_KEY=value)
    assert made.status in (201, 422), made.text[:200]
    again = send("POST", "/v1/projects", '{"name": "x"}', IDEMPOTENCY_KEY=value)
    assert again.status == made.status


def test_ids_of_others_and_of_the_wrong_kind(api: Api, names: dict[str, str]) -> None:
    """Ids of other tenants or of the wrong kind: 404 or 422, wherever an id is accepted."""
    stranger = UserFactory()
    theirs = ProjectFactory(owner=stranger)
    foreign_token = Api.with_token(stranger, theirs)
    foreign = MonitorFactory(owner=stranger, project=theirs)
    assert foreign_token.get(f"/v1/monitors/{foreign.public_id}").status == 200
    foreign_names = [foreign.public_id, theirs.public_id, ProjectToken.objects.latest("pk").public_id]
    before = everything()
    for path, operations in document()["paths"].items():
        if "{" not in path or "heartbeats" in path:
            continue
        (first, *_) = [part for part in path.split("/") if part.startswith("{")]
        wrong = [value for name, value in names.items() if name != first[1:-1]] + foreign_names
        for name in wrong:
            for method in operations:
                answered = api.send(method, placed(path.replace(first, name), names), {})
                assert_error(answered, 404, what=(method, path, name))
    for project_id in [names["monitor_id"], names["token_id"], *foreign_names]:
        for answered in (
            api.post("/v1/monitors", {"type": "heartbeat", "project_id": project_id}),
            api.patch(f"/v1/monitors/{names['monitor_id']}", {"project_id": project_id}),
        ):
            assert_error(answered, 422, what=project_id)
        assert_error(api.post("/v1/tokens", {"project_id": project_id, "name": "x"}), 400, what=project_id)
    assert everything() == before


@pytest.mark.parametrize(
    "body",
    [
        {"email": "\x00", "password": PASSWORD},
        {"email": "user@example.com", "password": "\x00"},
        {"email": "☃" * 254, "password": "☃" * 1024},
        {"email": "a" * 255, "password": "x"},
        {"email": "", "password": ""},
        {"email": ["user@example.com"], "password": {"$ne": ""}},
    ],
    ids=lambda body: ascii(body)[:40],
)
def test_hostile_signing_in(body: dict[str, Json]) -> None:
    assert_error(Api().post("/v1/sessions", body), 401, 422, what=body)

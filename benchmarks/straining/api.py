"""Inputs of the API: every route and field of openapi.json at its limits, and what schemathesis makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, cast
from urllib.parse import quote, urlencode

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis import GenerationMode

from benchmarks.straining.measuring import Input
from benchmarks.straining.values import SHORT, shapes, texts, values
from checks.agent_protocol import LEASES, MAX_RESULTS, MAX_RESULTS_BYTES, RESULTS

Document = dict[str, Any]
Names = Mapping[str, str]

SOON = 1_900_000_000_000
# Bodies to which fields are added, so that they are read to the end.
SOUND: dict[str, list[dict[str, Any]]] = {
    "post /v1/monitors": [
        {"type": "heartbeat"}, {"url": "http://a.invalid/"}, {"type": "dns", "url": "dns:a.invalid?type=TXT"},
        {"type": "scheduler", "url": "http://a.invalid/", "schedule": "0 0 1 1 *"},
    ],
    "post /v1/monitors/test": [{"url": "http://a.invalid/"}],
    "post /v1/alert-channels": [{"kind": "webhook", "url": "https://hooks.example.com/"}],
    "post /v1/tokens": [{"project_id": "{project_id}", "name": "t"}],
    "post /v1/locations": [{"name": "t", "project_id": "{project_id}"}],
    "post /v1/agent/join": [{"token": "{join_token}", "name": "t", "version": "1", "protocol": 1}],
    "post /v1/incidents": [{"title": "t", "text": "t"}],
    "post /v1/maintenance-windows": [
        {"name": "t", "starts_at": SOON, "ends_at": SOON + 60_000, "monitors": "all", "rrule": "FREQ=DAILY;COUNT=3"}
    ],
    "post /v1/status-pages": [{"name": "t", "slug": "t-{unique}"}],
    "post /v1/status-pages/{page_id}/notes": [{"title": "t", "text": "t", "status": "investigating"}],
    "post /v1/projects/{project_id}/members": [{"email": "a{unique}@example.com", "role": "member"}],
    "post /v1/imports": [{"monitors": [{"name": "t", "body": {"type": "heartbeat"}}], "dry_run": True}],
    "put /v1/manifest": [{"manifest": {"version": 1, "monitors": []}, "dry_run": True}],
}  # fmt: skip


def resolve(document: Document, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without references, down to three levels."""
    found = dict(schema)
    for part in [*([schema] if "$ref" in schema else []), *schema.get("allOf", [])]:
        if "$ref" in part:
            found |= resolve(document, document["components"]["schemas"][part["$ref"].rsplit("/", 1)[1]])
    for part in [*schema.get("oneOf", []), *schema.get("anyOf", [])]:
        if part.get("type") != "null":
            found |= resolve(document, part)
    return found


class Sender:
    """Makes requests of one caller."""

    def __init__(self, who: str, names: Names, credential: str | None) -> None:
        self.who, self.names, self._credential = who, names, credential
        self._made = 0

    def place(self, text: str) -> str:
        self._made += 1
        for name, value in {**self.names, "signal": "log", "provider": "vercel", "check_id": "1"}.items():
            text = text.replace(f"{{{name}}}", value)
        return text.replace("{unique}", str(self._made))

    def request(
        self, method: str, path: str, body: bytes | None = None, *, query: str = "", title: str = "", **headers: str
    ) -> Input:
        lines = [f"{method.upper()} {self.place(path)}{'?' + query if query else ''} HTTP/1.1", "Host: localhost"]
        if self._credential is not None:
            lines.append(f"Authorization: Bearer {self._credential}")
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, "Connection: close", "", ""])
        return Input(self.who, f"{method} {path} {title}".strip(), head.encode("utf-8", "replace") + (body or b""))


def operations(document: Document) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        yield from ((method, path, operation) for method, operation in methods.items())


def reads(document: Document, sender: Sender) -> Iterator[Input]:
    """Every GET with each parameter at its limits, alone and many times."""
    for method, path, operation in operations(document):
        if method != "get":
            continue
        yield sender.request(method, path)
        given = [part for part in operation.get("parameters", []) if part["in"] == "query"]
        for part in given:
            name, schema = part["name"], resolve(document, part["schema"])
            for title, value in values(schema | {"maxLength": 2_000}):
                text = (value if isinstance(value, str) else json.dumps(value))[:SHORT]
                yield sender.request(
                    method, path, query=f"{name}={quote(text[:SHORT])[:SHORT]}", title=f"{name}: {title}"
                )
            yield sender.request(method, path, query="&".join([f"{name}=1"] * 5_000), title=f"{name} 5,000 times")
        if any(part["name"] == "limit" for part in given):
            yield sender.request(method, path, query="limit=1000", title="limit=1000")
            yield sender.request(method, path, query="limit=1", title="limit=1")
    yield from _odd_queries(sender)


def _odd_queries(sender: Sender) -> Iterator[Input]:
    for title, query in (
        ("20,000 parameters", "&".join(f"{number:x}" for number in range(12_000))),
        ("ampersands", "&" * SHORT),
        ("percent", "%" * SHORT),
        ("encoded", "q=" + "%F0%9F%98%80" * 5_000),
        ("invalid", "q=" + "%ff" * 20_000),
        ("plus", "q=" + "+" * SHORT),
    ):
        yield sender.request("get", "/v1/monitors", query=query, title=title)
        yield sender.request("get", "/v1/incidents", query="limit=1&" + query, title=f"Link, {title}")


def writes(document: Document, sender: Sender) -> Iterator[Input]:
    """Every other operation except DELETE: shapes of bodies, and each field at its limits."""
    for method, path, operation in operations(document):
        if method in ("get", "delete") or "heartbeats" in path:
            continue
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            yield sender.request(method, path)
            continue
        schema = resolve(document, content["schema"])
        limit = 1_048_576 if "manifest" in path or "imports" in path or "logo" in path else 262_144
        for title, body in shapes(limit):
            yield sender.request(method, path, body, title=title)
        for sound in SOUND.get(f"{method} {path}", [{}]):
            yield from _fields(document, sender, method, path, schema, sound)


def _fields(
    document: Document, sender: Sender, method: str, path: str, schema: dict[str, Any], sound: dict[str, Any]
) -> Iterator[Input]:
    def send(title: str, body: dict[str, Any]) -> Input:
        text = sender.place(json.dumps(sound | body, ensure_ascii=False))
        return sender.request(method, path, text.encode("utf-8", "replace"), title=title)

    yield send("sound", {})
    yield send("unknown fields", {f"x{number}": 1 for number in range(15_000)})
    for name, field in schema.get("properties", {}).items():
        resolved = resolve(document, field)
        for title, value in values(resolved):
            yield send(f"{name}: {title}", {name: value})
        items = resolve(document, resolved.get("items", {}))
        if "properties" in items:
            yield from _items(document, send, name, items, min(resolved.get("maxItems", 1_000), 2_000))


def _items(document: Document, send: Any, name: str, items: dict[str, Any], most: int) -> Iterator[Input]:
    """Return as many objects as fit, with each field at its limit."""
    least = {
        key: (resolve(document, items["properties"][key]).get("enum") or ["a"])[0] for key in items.get("required", [])
    }
    for inner, field in items["properties"].items():
        for title, value in values(resolve(document, field), depth=1):
            entry = least | {inner: value}
            fits = max(1, min(most, 200_000 // len(json.dumps(entry))))
            yield send(f"{name}.{inner}: {fits} times {title}", {name: [entry] * fits})


def deletions(document: Document, sender: Sender) -> Iterator[Input]:
    """Every DELETE, the small things first."""
    found = [(path, operation) for method, path, operation in operations(document) if method == "delete"]
    for path, operation in sorted(found, key=lambda item: (-item[0].count("/"), item[0])):
        if path.startswith(("/v1/sessions", "/v1/account")):
            continue
        body = b"{}" if "requestBody" in operation else None
        yield sender.request("delete", path, body)


def agent(sender: Sender) -> Iterator[Input]:
    """Requests of an agent for leases, and results at their limits whose leases are forged."""
    poll = {"room": 1_000_000, "version": "1", "wait_sec": 0}
    yield sender.request("post", LEASES, json.dumps(poll).encode(), title="sound")
    for path in (LEASES, RESULTS):
        for title, body in shapes(MAX_RESULTS_BYTES):
            yield sender.request("post", path, body, title=title)
    down = {"verdict": "down", "reason_code": "timeout", "age_ms": 0, "took_ms": 1}
    for title, found in (
        ("small", {"detail": "t"}),
        ("details", {"detail": '"' * 2_000}),
        ("facts", {"detail": "t", "evidence": {"facts": [["a", "b"]] * 4_000}}),
        ("answers", {"detail": "t", "answer": ["a"] * 1_000}),
    ):
        one = {"lease": "1.1.1.0.1.." + "a" * 20} | down | found
        count = min(MAX_RESULTS, MAX_RESULTS_BYTES // (len(json.dumps(one)) + 2))
        yield sender.request("post", RESULTS, json.dumps({"results": [one] * count}).encode(), title=title)


def strategies(document: Document, sender: Sender, *, count: int) -> Iterator[Input]:
    """`count` examples for each operation that schemathesis makes of its schema, valid ones and invalid ones."""
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        operation = cast("Any", found).ok()
        if operation.method == "delete" or "heartbeats" in operation.path:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            for number, case in enumerate(_examples(operation, mode, count)):
                body = case.body
                has_body = not isinstance(body, schemathesis.core.NotSet)
                text = json.dumps(body, default=str).encode("utf-8", "replace") if has_body else None
                query = urlencode(dict(case.query or {}), doseq=True, errors="replace")[:SHORT]
                title = f"{mode.value} example {number}"
                yield sender.request(operation.method, operation.path, text, query=query, title=title)


def _examples(operation: Any, mode: GenerationMode, count: int) -> list[Any]:
    made: list[Any] = []

    @hypothesis.settings(
        max_examples=count, database=None, derandomize=True, phases=[Phase.generate], deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @hypothesis.given(operation.as_strategy(generation_mode=mode))
    def collect(case: Any) -> None:
        made.append(case)

    # Nothing may be invalid, e.g. for an operation without parameters.
    with suppress(hypothesis.errors.Unsatisfiable, hypothesis.errors.InvalidArgument):
        collect()
    return made


def public(document: Document, sender: Sender) -> Iterator[Input]:
    """Requests without a credential: signing in, the signals of heartbeats, and refusals of everything else."""
    for method, path, operation in operations(document):
        if method != "delete":
            body = b"{}" if "requestBody" in operation else None
            yield sender.request(method, path, body, title="without a credential")
    for title, body in shapes(262_144):
        yield sender.request("post", "/v1/sessions", body, title=title)
    for field, other in (("email", "password"), ("password", "email"), ("code", "email")):
        for title, text in texts(1_024):
            body = json.dumps({"password": "x", other: "a@example.com", field: text}, ensure_ascii=False).encode()
            yield sender.request("post", "/v1/sessions", body, title=f"{field}: {title}")
    for end in ("", "/start", "/fail", "/log", "/0", "/" + "9" * 50_000, "/" + "%F0%9F%98%80" * 4_000):
        path = "/v1/heartbeats/{heartbeat_id}/ping" + end
        for title, text in (("nothing", ""), ("10 KB", "x" * 10_000), ("emoji", "\U0001f600" * 2_500)):
            yield sender.request("post", path, text.encode(), title=title)
        yield sender.request("post", path, b"\xff" * 1_500_000, title="1.5 MB")
        yield sender.request("get", path, query="rid=" + "a" * SHORT, title="rid", User_Agent="é" * 30_000)
        yield sender.request("get", path, query="&".join(["rid=1"] * 8_000), title="many rids")

"""The configuration of Gatus: YAML with `endpoints` and their conditions, and `external-endpoints`, which are pushed.

The values of environment variables (`${NAME}`) are unknown here and must be filled in before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from manifests.importers.mapped import (
    MappedMonitor,
    MonitorBuilder,
    UnreadableFileError,
    UnsupportedError,
    expect,
    map_items,
)

_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_VARIABLE = re.compile(r"(?<!\$)(?:\$\$)*\$\{?([A-Za-z_]\w*)")
_PLACEHOLDER = re.compile(r"\[(?:ENDPOINT_NAME|ENDPOINT_GROUP|ENDPOINT_URL|LOCAL_ADDRESS|RANDOM_STRING_\d+|CONTEXT)\]")
_MAX_CONDITION = 1_000
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>")
_HAS = re.compile(r"has\(\[BODY\]\.(.+)\)")
_JSON_PATH = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+|\[\d+\])*|(?:\[\d+\])(?:\.[A-Za-z0-9_-]+|\[\d+\])*")
_CONTAINS = re.compile(r"pat\(\*([^*?\[\]]+)\*\)")
_EXPIRY_NOTE = "warnings are sent 30, 14, 7, 3 and 1 days before expiry, and the monitor stays up"
_IGNORED = {
    "maintenance-windows": "maintenance windows are not imported",
    "extra-labels": "labels are not supported",
}
_CLIENT_IGNORED = {
    "dns-resolver": "the name servers of this deployment are used",
    "proxy-url": "proxies are not supported",
    "network": "IPv4 and IPv6 are both used",
    "tunnel": "tunnels are not supported",
}


def read(text: str) -> list[MappedMonitor]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError):
        raise UnreadableFileError("the file is not YAML") from None
    if not isinstance(found, Mapping) or not {"endpoints", "external-endpoints", "suites"} & set(found):
        raise UnreadableFileError("the file has no endpoints")
    return [
        *map_items(_list(found, "endpoints"), _map, name=_name),
        *map_items(_list(found, "external-endpoints"), _map_external, name=_name),
        *map_items(_list(found, "suites"), _map_suite, name=_name),
    ]


def _list(found: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    items = found.get(key) or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise UnreadableFileError(f"{key} is not a list of objects")
    yield from items


def _name(item: Mapping[str, Any]) -> object:
    name, group = item.get("name"), item.get("group")
    return f"{group} / {name}" if group else name


def _map_suite(builder: MonitorBuilder) -> None:
    raise UnsupportedError("suites", "suites are not supported")


def _map_external(builder: MonitorBuilder) -> None:
    heartbeat = builder.source.get("heartbeat")
    interval = duration(heartbeat.get("interval")) if isinstance(heartbeat, Mapping) else None
    if not interval:
        raise UnsupportedError("heartbeat", "an interval is required")
    builder.body |= {"type": "heartbeat", "interval_sec": round(interval), "grace_sec": 0}
    builder.note("token", "the ping URL changes")
    builder.enabled = builder.source.get("enabled") is not False
    builder.note_ignored({"alerts": "alert channels are not imported"})


def _map(builder: MonitorBuilder) -> None:
    body = builder.body
    url = _filled(builder, "url")
    scheme, there, _ = url.partition("://")
    if scheme.lower() not in ("http", "https"):
        raise UnsupportedError("url", f"{scheme[:30] if there else 'a URL without http://'} is not supported")
    builder.url("url", url)
    body["method"] = (builder.text("method") or "GET").upper()
    body["interval_sec"] = round(_duration_of(builder, "interval") or 60)
    body["slow_ms"] = 60_000  # unless a condition sets it
    _client(builder)
    _headers_and_body(builder)
    _alerts(builder)
    conditions = builder.source.get("conditions") or []
    if not isinstance(conditions, list):
        raise UnsupportedError("conditions", "is not a list")
    if not all(isinstance(condition, str) for condition in conditions):
        raise UnsupportedError("conditions", "has an item that is not text")
    for condition in conditions:
        _apply_condition(builder, condition)
    if "expect_status" not in body and not any("[STATUS]" in condition for condition in conditions):
        builder.note("conditions", "no condition uses [STATUS]; only 2xx and 3xx are accepted")
    builder.set_type()
    builder.enabled = builder.source.get("enabled") is not False
    builder.note_ignored(_IGNORED)


def _client(builder: MonitorBuilder) -> None:
    client = builder.source.get("client") or {}
    if not isinstance(client, Mapping):
        raise UnsupportedError("client", "is not an object")
    for name in ("oauth2", "identity-aware-proxy", "tls"):
        if client.get(name):
            raise UnsupportedError(f"client.{name}", "is not supported")
    if client.get("insecure"):
        builder.note("client.insecure", "certificates are always verified")
    for name, why in _CLIENT_IGNORED.items():
        if client.get(name):
            builder.note(f"client.{name}", why)
    builder.body["follow_redirects"] = not client.get("ignore-redirect")
    timeout = duration(client.get("timeout"))
    if timeout:
        builder.timeout("client.timeout", timeout)


def _headers_and_body(builder: MonitorBuilder) -> None:
    headers = builder.source.get("headers") or {}
    if not isinstance(headers, Mapping):
        raise UnsupportedError("headers", "is not an object of headers")
    for name, value in headers.items():
        if isinstance(value, Mapping | list):  # aliases may make it a cycle
            raise UnsupportedError("headers", "has an invalid header")
        builder.header("headers", str(name), _without_variables("headers", str(value)))
    text = _filled(builder, "body")
    if _PLACEHOLDER.search(text):
        raise UnsupportedError("body", "has placeholders, which are not supported")
    if builder.source.get("graphql"):
        text = json.dumps({"query": text})
    builder.set_body("body", text, content_type="application/json" if builder.source.get("graphql") else "text/plain")


def _alerts(builder: MonitorBuilder) -> None:
    alerts = builder.source.get("alerts") or []
    if not isinstance(alerts, list) or not all(isinstance(alert, Mapping) for alert in alerts):
        raise UnsupportedError("alerts", "is not a list of objects")
    if not alerts:
        return
    builder.note("alerts", "alert channels are not imported")
    for field, ours, default in (
        ("failure-threshold", "fail_threshold", 3),
        ("success-threshold", "recover_threshold", 2),
    ):
        counts = {alert.get(field) or default for alert in alerts}
        numbers = [count for count in counts if isinstance(count, int) and not isinstance(count, bool)]
        builder.body[ours] = min(numbers, default=default)
        if len(counts) > 1:
            builder.note(f"alerts[].{field}", f"the smallest, {builder.body[ours]}, is taken for all")


def _filled(builder: MonitorBuilder, field: str) -> str:
    return _without_variables(field, builder.text(field))


def _without_variables(field: str, text: str) -> str:
    """Unescape `$$`. Raises UnsupportedError if the text uses a variable."""
    if found := _VARIABLE.search(text):
        raise UnsupportedError(field, f"uses the variable ${found[1]}; replace it with its value")
    return text.replace("$$", "$")


def _duration_of(builder: MonitorBuilder, field: str) -> float | None:
    value = builder.source.get(field)
    seconds = duration(value)
    if value is not None and seconds is None:
        raise UnsupportedError(field, "is not a duration like 1m30s")
    return seconds


def duration(text: object) -> float | None:
    """Return the seconds of a Go duration like `1h30m`, or None."""
    if not isinstance(text, str) or len(text) > 50 or not re.fullmatch(f"(?:{_DURATION.pattern})+", text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))


def _apply_condition(builder: MonitorBuilder, condition: str) -> None:
    """Apply a condition like `[STATUS] == 200`, or note that it is not supported."""
    found = _OPERATOR.search(condition, 1) if len(condition) <= _MAX_CONDITION else None
    if found is None or not _apply_to(
        builder, condition, condition[: found.start()].strip(), found[0], condition[found.end() :].strip()
    ):
        builder.note("conditions", f"{condition[:200]} is not supported and is skipped")


def _apply_to(builder: MonitorBuilder, condition: str, left: str, operator: str, right: str) -> bool:
    if left == "[STATUS]":
        return _status(builder, condition, operator, right)
    if left == "[RESPONSE_TIME]":
        return _response_time(builder, condition, operator, right)
    if left == "[CONNECTED]":
        return (operator, right) == ("==", "true")  # this is always checked
    if left in ("[CERTIFICATE_EXPIRATION]", "[DOMAIN_EXPIRATION]"):
        builder.body["check_ssl" if left.startswith("[CERT") else "check_domain"] = True
        builder.note("conditions", f"{condition[:200]}: {_EXPIRY_NOTE}")
        return operator in (">", ">=")
    return _body(builder, left, operator, right)


def _status(builder: MonitorBuilder, condition: str, operator: str, right: str) -> bool:
    if not (right.isascii() and right.isdigit()) or len(right) > 3:
        return False
    code = int(right)
    if operator == "==":
        builder.body["expect_status"] = code
        return True
    if operator not in ("<", "<="):
        return False
    end = code + (operator == "<=")
    if end not in (300, 400):
        return False
    expect(builder, "conditions", set(range(200, end)))
    return True


def _response_time(builder: MonitorBuilder, condition: str, operator: str, right: str) -> bool:
    if not (right.isascii() and right.isdigit()) or len(right) > 6 or operator not in ("<", "<="):
        return False
    builder.body["slow_ms"] = int(right) + (operator == "<=")
    builder.note("conditions", f"{condition[:200]}: slower answers make it slow, not down")
    return True


def _body(builder: MonitorBuilder, left: str, operator: str, right: str) -> bool:
    if left == "[BODY]" and (found := _CONTAINS.fullmatch(right)):
        if operator not in ("==", "!="):
            return False
        builder.rule("conditions", type="text_contains" if operator == "==" else "text_absent", value=found[1])
        return True
    if (found := _HAS.fullmatch(left)) and (operator, right) in (("==", "true"), ("!=", "false")):
        path = _dotted(found[1])
        if path is not None:
            builder.rule("conditions", type="json_field", path=path)
        return path is not None
    if not left.startswith(("[BODY].", "[BODY][")) or operator != "==":
        return False
    path = _dotted(left.removeprefix("[BODY]").removeprefix("."))
    if path is None or re.match(r"(pat|any|len|has)\(|\[[A-Z_]+\]", right):
        return False
    builder.rule("conditions", type="json_field", path=path, equals=right)
    return True


def _dotted(path: str) -> str | None:
    """Return `data[0].id` as `data.0.id`, or None for other expressions."""
    if not _JSON_PATH.fullmatch(path):
        return None
    return re.sub(r"\[(\d+)\]", r".\1", path).removeprefix(".")

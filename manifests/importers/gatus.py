"""The configuration of Gatus: YAML with `endpoints` and their conditions, and `external-endpoints`, which are pushed.

The values of environment variables (`${NAME}`) are unknown here and must be filled in before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from manifests.importers import rows
from manifests.importers.mapped import MappedMonitor, MonitorBuilder, Table, UnreadableFileError, map_items

_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_VARIABLE = re.compile(r"(?<!\$)(?:\$\$)*\$\{?([A-Za-z_]\w*)")
_PLACEHOLDER = re.compile(r"\[(?:ENDPOINT_NAME|ENDPOINT_GROUP|ENDPOINT_URL|LOCAL_ADDRESS|RANDOM_STRING_\d+|CONTEXT)\]")
_MAX_CONDITION = 1_000
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>")


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
        mapped
        for key, mapper in (("endpoints", _map), ("external-endpoints", _map_external), ("suites", _map_suite))
        for mapped in map_items(found.get(key) or [], mapper, what=key, name=_name, builder_class=GatusBuilder)
    ]


class GatusBuilder(MonitorBuilder):
    def clean(self, field: str, text: str) -> str:
        """Unescape `$$`. Raises UnsupportedError if the text uses a variable."""
        if found := _VARIABLE.search(text):
            self.reject(field, f"uses the variable ${found[1]}; replace it with its value")
        return text.replace("$$", "$")


def _name(item: Mapping[str, Any]) -> object:
    name, group = item.get("name"), item.get("group")
    return f"{group} / {name}" if group else name


def _map_suite(builder: MonitorBuilder) -> None:
    builder.reject("suites", "suites are not supported")


def _map_external(builder: MonitorBuilder) -> None:
    heartbeat = builder.source.get("heartbeat")
    interval = duration(heartbeat.get("interval")) if isinstance(heartbeat, Mapping) else None
    if not interval:
        builder.reject("heartbeat", "an interval is required")
    builder.body |= {"type": "heartbeat", "interval_sec": round(interval), "grace_sec": 0}
    builder.note("token", "the ping URL changes")
    builder.enabled = builder.source.get("enabled") is not False
    builder.apply({"alerts": "alert channels are not imported"})


def _map(builder: MonitorBuilder) -> None:
    scheme, there, _ = builder.text("url").partition("://")
    builder.apply_type("url", scheme.lower()[:30] if there else "a URL without http://", _SCHEMES)
    builder.enabled = builder.source.get("enabled") is not False
    builder.apply(_IGNORED)


def _interval(builder: MonitorBuilder, field: str) -> None:
    value = builder.source.get(field)
    seconds = duration(value)
    if value is not None and seconds is None:
        builder.reject(field, "is not a duration like 1m30s")
    builder.body["interval_sec"] = round(seconds or 60)


def _client(builder: MonitorBuilder, field: str) -> None:
    client = builder.source.get(field) or {}
    if not isinstance(client, Mapping):
        builder.reject(field, "is not an object")
    for name, why in _CLIENT.items():
        if not client.get(name):
            continue
        if why is None:
            builder.reject(f"{field}.{name}", "is not supported")
        builder.note(f"{field}.{name}", why)
    builder.body["follow_redirects"] = not client.get("ignore-redirect")
    if timeout := duration(client.get("timeout")):
        builder.set_timeout(f"{field}.timeout", timeout)


def _request_body(builder: MonitorBuilder, field: str) -> None:
    text, is_query = builder.text(field), builder.source.get("graphql")
    if _PLACEHOLDER.search(text):
        builder.reject(field, "has placeholders, which are not supported")
    if is_query:
        text = json.dumps({"query": text})
    builder.set_body(field, text, content_type="application/json" if is_query else "text/plain")


def _alerts(builder: MonitorBuilder, field: str) -> None:
    alerts = builder.source.get(field) or []
    if not isinstance(alerts, list) or not all(isinstance(alert, Mapping) for alert in alerts):
        builder.reject(field, "is not a list of objects")
    if not alerts:
        return
    builder.note(field, "alert channels are not imported")
    for name, ours, default in (
        ("failure-threshold", "fail_threshold", 3),
        ("success-threshold", "recover_threshold", 2),
    ):
        counts = {alert.get(name) or default for alert in alerts}
        builder.body[ours] = min((count for count in counts if type(count) is int), default=default)
        if len(counts) > 1:
            builder.note(f"alerts[].{name}", f"the smallest, {builder.body[ours]}, is taken for all")


def _conditions(builder: MonitorBuilder, field: str) -> None:
    conditions = builder.source.get(field) or []
    if not isinstance(conditions, list):
        builder.reject(field, "is not a list")
    if not all(isinstance(condition, str) for condition in conditions):
        builder.reject(field, "has an item that is not text")
    for condition in conditions:
        _apply_condition(builder, condition)
    if "expect_status" not in builder.body and not any("[STATUS]" in condition for condition in conditions):
        builder.note(field, "no condition uses [STATUS]; only 2xx and 3xx are accepted")


_HTTP: Table = {
    "url": rows.url,
    "method": rows.method("GET"),
    "interval": _interval,
    "name": rows.constants(slow_ms=60_000),  # unless a condition sets it
    "client": _client,
    "headers": rows.headers,
    "body": _request_body,
    "alerts": _alerts,
    "conditions": _conditions,
}
_SCHEMES: Mapping[str, Table] = {"http": _HTTP, "https": _HTTP}
_CLIENT = {
    "oauth2": None,  # not supported
    "identity-aware-proxy": None,
    "tls": None,
    "insecure": "certificates are always verified",
    "dns-resolver": "the name servers of this deployment are used",
    "proxy-url": "proxies are not supported",
    "network": "IPv4 and IPv6 are both used",
    "tunnel": "tunnels are not supported",
}
_IGNORED: Table = {
    "maintenance-windows": "maintenance windows are not imported",
    "extra-labels": "labels are not supported",
}


def duration(text: object) -> float | None:
    """Return the seconds of a Go duration like `1h30m`, or None."""
    if not isinstance(text, str) or len(text) > 50 or not re.fullmatch(f"(?:{_DURATION.pattern})+", text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))


def _apply_condition(builder: MonitorBuilder, condition: str) -> None:
    """Apply a condition like `[STATUS] == 200`, or note that it is not supported."""
    found = _OPERATOR.search(condition, 1) if len(condition) <= _MAX_CONDITION else None
    if found is not None:
        parts = f"{condition[: found.start()].strip()} {found[0]} {condition[found.end() :].strip()}"
        for pattern, apply in _CONDITIONS.items():
            if match := pattern.fullmatch(parts):
                apply(builder, match)
                return
    builder.note("conditions", f"{condition[:200]} is not supported and is skipped")


def _response_time(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    builder.body["slow_ms"] = int(condition[2]) + (condition[1] == "<=")
    builder.note("conditions", f"{condition[0]}: slower answers make it slow, not down")


def _expiry(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    builder.body["check_ssl" if condition[1] == "CERTIFICATE" else "check_domain"] = True
    note = "warnings are sent 30, 14, 7, 3 and 1 days before expiry, and the monitor stays up"
    builder.note("conditions", f"{condition[0][:200]}: {note}")


def _text(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    kind = "text_contains" if condition[1] == "==" else "text_absent"
    builder.add_rule("conditions", type=kind, value=condition[2])


def _json_field(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    path = re.sub(r"\[(\d+)\]", r".\1", condition["path"]).removeprefix(".")
    expected = {"equals": condition["equals"]} if "equals" in condition.groupdict() else {}
    builder.add_rule("conditions", type="json_field", path=path, **expected)


_PATH = r"(?P<path>(?:[A-Za-z0-9_-]+|\[[0-9]+\])(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])*)"
_CONDITIONS: Mapping[re.Pattern[str], Callable[[MonitorBuilder, re.Match[str]], None]] = {
    re.compile(r"\[STATUS\] == ([0-9]{1,3})"): lambda builder, found: builder.expect("conditions", {int(found[1])}),
    re.compile(r"\[STATUS\] (?:< 300|<= 299)"): lambda builder, _: builder.expect("conditions", {*range(200, 300)}),
    re.compile(r"\[STATUS\] (?:< 400|<= 399)"): lambda builder, _: builder.expect("conditions", {*range(200, 400)}),
    re.compile(r"\[CONNECTED\] == true"): lambda _, __: None,  # this is always checked
    re.compile(r"\[RESPONSE_TIME\] (<=?) ([0-9]{1,6})"): _response_time,
    re.compile(r"\[(CERTIFICATE|DOMAIN)_EXPIRATION\] >=? .*"): _expiry,
    re.compile(r"\[BODY\] (==|!=) pat\(\*([^*?\[\]]+)\*\)"): _text,
    re.compile(rf"has\(\[BODY\]\.{_PATH}\) (?:== true|!= false)"): _json_field,
    re.compile(
        rf"\[BODY\](?:\.|(?=\[)){_PATH} == (?!(?:pat|any|len|has)\(|\[[A-Z_]+\])(?P<equals>.*)", re.DOTALL
    ): _json_field,
}

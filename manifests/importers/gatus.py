"""Gatus' configuration: YAML with `endpoints`, each with conditions, and `external-endpoints`, which are pushed.

What Gatus would take from its environment (`${NAME}`) is not known here, so it has to be filled in before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from manifests.importers.conditions import apply_condition
from manifests.importers.mapped import Making, Mapped, Refused, UnreadableFileError

_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_VARIABLE = re.compile(r"(?<!\$)(?:\$\$)*\$\{?([A-Za-z_]\w*)")
_PLACEHOLDER = re.compile(
    r"\[(?:ENDPOINT_NAME|ENDPOINT_GROUP|ENDPOINT_URL|LOCAL_ADDRESS|RANDOM_STRING_\d+|CONTEXT)\]"
)
_ELSEWHERE = {
    "maintenance-windows": "maintenance windows are not imported",
    "extra-labels": "there are no labels here",
}
_CLIENT_ELSEWHERE = {
    "dns-resolver": "names are resolved by the name servers of this deployment",
    "proxy-url": "nothing is checked through a proxy here",
    "network": "IPv4 and IPv6 are both tried here",
    "tunnel": "nothing is checked through a tunnel here",
}


def read(text: str) -> list[Mapped]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError):
        raise UnreadableFileError("the file is no YAML") from None
    if not isinstance(found, Mapping) or not {"endpoints", "external-endpoints", "suites"} & set(found):
        raise UnreadableFileError("the file has no endpoints")
    return [
        *(_one(item, _map) for item in _list(found, "endpoints")),
        *(_one(item, _map_external) for item in _list(found, "external-endpoints")),
        *(_one(item, _map_suite) for item in _list(found, "suites")),
    ]


def _list(found: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    items = found.get(key) or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise UnreadableFileError(f"{key} is no list of objects")
    yield from items


def _one(item: Mapping[str, Any], mapping: Any) -> Mapped:
    name, group = item.get("name"), item.get("group")
    making = Making(item, name=f"{group} / {name}" if group else name)
    try:
        mapping(making)
    except Refused as refusal:
        return making.left_out(refusal)
    return making.mapped()


def _map_suite(making: Making) -> None:
    raise Refused("suites", "steps that build on one another are not checked here")


def _map_external(making: Making) -> None:
    heartbeat = making.source.get("heartbeat")
    interval = duration(heartbeat.get("interval")) if isinstance(heartbeat, Mapping) else None
    if not interval:
        raise Refused("heartbeat", "without an interval, nothing is expected to come")
    making.given |= {"type": "heartbeat", "interval_sec": round(interval), "grace_sec": 0}
    making.note("token", "the address to ping is another one")
    making.enabled = making.source.get("enabled") is not False
    making.note_if_there({"alerts": "alert channels are not imported"})


def _map(making: Making) -> None:
    given = making.given
    url = _filled(making, "url")
    scheme, there, _ = url.partition("://")
    if scheme.lower() not in ("http", "https"):
        raise Refused("url", f"{scheme[:30] if there else 'what has no http://'} is not probed here")
    making.url("url", url)
    given["method"] = (making.text("method") or "GET").upper()
    given["interval_sec"] = round(_duration_of(making, "interval") or 60)
    given["slow_ms"] = 60_000  # slowness is what a condition says, and else nothing
    _client(making)
    _headers_and_body(making)
    _alerts(making)
    conditions = making.source.get("conditions") or []
    if not isinstance(conditions, list):
        raise Refused("conditions", "is no list")
    if not all(isinstance(condition, str) for condition in conditions):
        raise Refused("conditions", "holds what is no text")
    for condition in conditions:
        apply_condition(making, condition)
    if "expect_status" not in given and not any("[STATUS]" in condition for condition in conditions):
        making.note("conditions", "none is about [STATUS]; 2xx and 3xx alone pass here")
    making.settle_type()
    making.enabled = making.source.get("enabled") is not False
    making.note_if_there(_ELSEWHERE)


def _client(making: Making) -> None:
    client = making.source.get("client") or {}
    if not isinstance(client, Mapping):
        raise Refused("client", "is no object")
    for name in ("oauth2", "identity-aware-proxy", "tls"):
        if client.get(name):
            raise Refused(f"client.{name}", "is not spoken here")
    if client.get("insecure"):
        making.note("client.insecure", "certificates are always verified here")
    for name, why in _CLIENT_ELSEWHERE.items():
        if client.get(name):
            making.note(f"client.{name}", why)
    making.given["follow_redirects"] = not client.get("ignore-redirect")
    timeout = duration(client.get("timeout"))
    if timeout:
        making.timeout("client.timeout", timeout)


def _headers_and_body(making: Making) -> None:
    headers = making.source.get("headers") or {}
    if not isinstance(headers, Mapping):
        raise Refused("headers", "is no object of headers")
    for name, value in headers.items():
        if isinstance(value, Mapping | list):  # aliases may make it endless as text
            raise Refused("headers", "holds what is no header")
        making.header("headers", str(name), _without_variables("headers", str(value)))
    text = _filled(making, "body")
    if _PLACEHOLDER.search(text):
        raise Refused("body", "has placeholders, which nobody fills in here")
    if making.source.get("graphql"):
        text = json.dumps({"query": text})
    making.body(
        "body", text, content_type="application/json" if making.source.get("graphql") else "text/plain"
    )


def _alerts(making: Making) -> None:
    alerts = making.source.get("alerts") or []
    if not isinstance(alerts, list) or not all(isinstance(alert, Mapping) for alert in alerts):
        raise Refused("alerts", "is no list of objects")
    if not alerts:
        return
    making.note("alerts", "alert channels are not imported")
    for field, ours, default in (
        ("failure-threshold", "fail_threshold", 3),
        ("success-threshold", "recover_threshold", 2),
    ):
        counts = {alert.get(field) or default for alert in alerts}
        numbers = [count for count in counts if isinstance(count, int) and not isinstance(count, bool)]
        making.given[ours] = min(numbers, default=default)
        if len(counts) > 1:
            making.note(f"alerts[].{field}", f"the smallest, {making.given[ours]}, is taken for all")


def _filled(making: Making, field: str) -> str:
    return _without_variables(field, making.text(field))


def _without_variables(field: str, text: str) -> str:
    """The text with `$$` undone; raises Refused where it needs the environment."""
    if found := _VARIABLE.search(text):
        raise Refused(field, f"needs ${found[1]} of the environment; put its value into the file")
    return text.replace("$$", "$")


def _duration_of(making: Making, field: str) -> float | None:
    value = making.source.get(field)
    seconds = duration(value)
    if value is not None and seconds is None:
        raise Refused(field, "is no duration like 1m30s")
    return seconds


def duration(text: object) -> float | None:
    """Seconds of a duration as Go spells it, like `1h30m`; None for what is none."""
    if not isinstance(text, str) or len(text) > 50 or not re.fullmatch(f"(?:{_DURATION.pattern})+", text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))

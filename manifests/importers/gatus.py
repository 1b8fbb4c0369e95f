"""The configuration of Gatus: YAML with `endpoints` and their conditions, and `external-endpoints`, which are pushed.

The values of environment variables (`${NAME}`) are unknown here and must be filled in before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from manifests.importers import rows
from manifests.importers.addresses import dns_url, server_url, split_resolver
from manifests.importers.gatus_conditions import OF_ALL, OF_DNS, OF_HTTP, OF_TEXT, OF_TLS, conditions
from manifests.importers.mapped import MappedMonitor, MonitorBuilder, Table, UnreadableFileError, map_items

_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_VARIABLE = re.compile(r"(?<!\$)(?:\$\$)*\$\{?([A-Za-z_]\w*)")
_PLACEHOLDER = re.compile(r"\[(?:ENDPOINT_NAME|ENDPOINT_GROUP|ENDPOINT_URL|LOCAL_ADDRESS|RANDOM_STRING_\d+|CONTEXT)\]")


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
    if isinstance(query := builder.source.get("dns"), Mapping):  # its URL is a resolver, without a scheme
        builder.source = {**builder.source, **{f"dns.{name}": value for name, value in query.items()}}
        builder.apply(_DNS)
    else:
        scheme, there, _ = builder.text("url").partition("://")
        builder.apply_type("url", scheme.lower()[:30] if there else "a URL without http://", _SCHEMES)
    builder.enabled = builder.source.get("enabled") is not False
    builder.apply(_IGNORED)


def _address(builder: MonitorBuilder, field: str) -> None:
    scheme, _, server = builder.text(field).partition("://")
    builder.body["url"] = server_url(scheme.lower(), server)


def _starttls(builder: MonitorBuilder, field: str) -> None:
    builder.body["url"] = f"{server_url('tls', builder.text(field).partition('://')[2])}?starttls=smtp"


def _query(builder: MonitorBuilder, field: str) -> None:
    name, resolver = builder.text("dns.query-name"), split_resolver(builder.text(field))
    if not name:
        builder.reject("dns.query-name", "is missing")
    if resolver is None:
        builder.reject(field, "must name a resolver by its IP address")
    server, port = resolver
    builder.body["url"] = dns_url(name, builder.text("dns.query-type"), server=server, port=port)


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
    if timeout := duration(client.get("timeout")):
        builder.set_timeout(f"{field}.timeout", timeout)


def _http_client(builder: MonitorBuilder, field: str) -> None:
    _client(builder, field)
    builder.body["follow_redirects"] = not (builder.source.get(field) or {}).get("ignore-redirect")


def _sent(builder: MonitorBuilder, field: str) -> str:
    """Return the body. Raises UnsupportedError for one that differs from check to check."""
    text = builder.text(field)
    if _PLACEHOLDER.search(text):
        builder.reject(field, "has placeholders, which are not supported")
    return text


def _payload(builder: MonitorBuilder, field: str) -> None:
    if text := _sent(builder, field):
        builder.body["request_body"] = text


def _tcp_payload(builder: MonitorBuilder, field: str) -> None:
    _payload(builder, field)
    if "request_body" in builder.body and "content_rules" not in builder.body:
        builder.note(field, "is sent, and no reply is awaited, as no condition uses [BODY]")


def _datagram(builder: MonitorBuilder, field: str) -> None:
    _payload(builder, field)
    if "request_body" not in builder.body:
        builder.reject(field, "is required: without it Gatus sends nothing, and no reply can be expected")


def _request_body(builder: MonitorBuilder, field: str) -> None:
    text, is_query = _sent(builder, field), builder.source.get("graphql")
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


_COMMON: Table = {
    "interval": _interval,
    "name": rows.constants(slow_ms=60_000),  # unless a condition sets it
    "client": _client,
    "alerts": _alerts,
}
_HTTP: Table = {
    "url": rows.url,
    "method": rows.method("GET"),
    **_COMMON,
    "client": _http_client,
    "headers": rows.headers,
    "body": _request_body,
    "conditions": conditions(
        OF_HTTP, without="[STATUS]", note="no condition uses [STATUS]; only 2xx and 3xx are accepted"
    ),
}
_HTTP_ONLY: Table = {
    "method": "is for http only",
    "headers": "are for http only",
    "graphql": "is for http only",
}
_NOT_SENT: Table = {**_HTTP_ONLY, "body": "is not sent"}
_TCP: Table = {
    "type": rows.constants(type="port"),
    "url": _address,
    **_COMMON,
    "conditions": conditions(OF_TEXT),
    "body": _tcp_payload,
    **_HTTP_ONLY,
}
_SCHEMES: Mapping[str, Table] = {
    "http": _HTTP,
    "https": _HTTP,
    "tcp": _TCP,
    "tls": {**_TCP, "conditions": conditions({**OF_TEXT, **OF_TLS})},
    "starttls": {
        "type": rows.constants(type="port"),
        "url": _starttls,
        **_COMMON,
        "conditions": conditions({**OF_ALL, **OF_TLS}),
        **_NOT_SENT,
    },
    "udp": {**_TCP, "type": rows.constants(type="udp"), "body": _datagram},
    "icmp": {
        "type": rows.constants(type="ping", packets=1),
        "url": _address,
        **_COMMON,
        "conditions": conditions(OF_ALL),
        **_NOT_SENT,
    },
}
_DNS: Table = {
    "type": rows.constants(type="dns"),
    "url": _query,
    **_COMMON,
    "conditions": conditions(
        OF_DNS, without="[DNS_RCODE]", note="no condition uses [DNS_RCODE]; NOERROR and a record are expected"
    ),
    **_NOT_SENT,
}

"""The configuration of Gatus: YAML with `endpoints` and their conditions, and `external-endpoints`, which are pushed.

The values of environment variables (`${NAME}`) are unknown here and must be filled in before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from checks.addresses import dns_url, server_url, split_resolver
from pulsekeeper.importers.channels import ChannelFields, map_channel, with_channels
from pulsekeeper.importers.mapped import (
    Builder,
    MappedChannel,
    MappedFile,
    MonitorBuilder,
    UnreadableFileError,
    map_items,
    short_name,
)

_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_VARIABLE = re.compile(r"(?<!\$)(?:\$\$)*\$\{?([A-Za-z_]\w*)")
_PLACEHOLDER = re.compile(r"\[(?:ENDPOINT_NAME|ENDPOINT_GROUP|ENDPOINT_URL|LOCAL_ADDRESS|RANDOM_STRING_\d+|CONTEXT)\]")
_MAX_CONDITION = 1_000
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>")
_WHOLE_RECORDS = {"A", "AAAA", "CNAME", "PTR"}  # Gatus compares the whole record
_NAMES_IN_RECORDS = {"MX", "NS"}  # Gatus compares the name, and there are usually several records

_Conditions = Mapping[re.Pattern[str], Callable[[MonitorBuilder, re.Match[str]], None]]


def read(text: str) -> MappedFile:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, LookupError, RecursionError):
        raise UnreadableFileError("the file is not YAML") from None
    if not isinstance(found, Mapping) or not {"endpoints", "external-endpoints", "suites"} & set(found):
        raise UnreadableFileError("the file has no endpoints")
    monitors = [
        mapped
        for key, mapper in (("endpoints", _map), ("external-endpoints", _map_external), ("suites", _map_suite))
        for mapped in map_items(found.get(key) or [], mapper, what=key, name=_name, builder_class=GatusBuilder)
    ]
    return with_channels(monitors, _channels(found.get("alerting")), field="alerts")


def _channels(providers: object) -> list[MappedChannel]:
    """Return a channel for each provider. Their types are their keys."""
    found: list[MappedChannel] = []
    for name, provider in providers.items() if isinstance(providers, Mapping) else ():
        if isinstance(provider, Mapping) and isinstance(name, str):
            builder = ChannelBuilder(provider, name=name)
            found += map_channel(builder, short_name(name), name, _CHANNELS)
    return found


class _Unescaping(Builder):
    def clean(self, field: str, text: str) -> str:
        """Unescape `$$`. Raises UnsupportedError if the text uses a variable."""
        if found := _VARIABLE.search(text):
            self.reject(field, f"uses the variable ${found[1]}; replace it with its value")
        return text.replace("$$", "$")


class GatusBuilder(_Unescaping, MonitorBuilder):
    """Builds a monitor of an endpoint."""


class ChannelBuilder(_Unescaping):
    """Builds a channel of a provider."""


def _name(item: Mapping[str, Any]) -> object:
    return item.get("name")


def _map_suite(builder: MonitorBuilder) -> None:
    builder.reject("suites", "suites are not supported")


def _map_external(builder: MonitorBuilder) -> None:
    builder.set_group(builder.source.get("group"))
    heartbeat = builder.source.get("heartbeat")
    interval = duration(heartbeat.get("interval")) if isinstance(heartbeat, Mapping) else None
    if not interval:
        builder.reject("heartbeat", "an interval is required")
    builder.body |= {"type": "heartbeat", "interval_sec": round(interval), "grace_sec": 0}
    builder.note("token", "the ping URL changes")
    builder.enabled = builder.source.get("enabled") is not False
    _notified(builder)


def _map(builder: MonitorBuilder) -> None:
    builder.set_group(builder.source.get("group"))
    if isinstance(query := builder.source.get("dns"), Mapping):  # its URL is a resolver, without a scheme
        builder.source = {**builder.source, **{f"dns.{name}": value for name, value in query.items()}}
        _dns(builder)
    else:
        scheme, there, _ = builder.text("url").partition("://")
        builder.map_type("url", scheme.lower()[:30] if there else "a URL without http://", _SCHEMES)
    builder.enabled = builder.source.get("enabled") is not False
    if isinstance(labels := builder.source.get("extra-labels"), Mapping):
        builder.set_tags("extra-labels", (f"{name}: {value}" for name, value in labels.items()))
    builder.note_ignored(_IGNORED)


def _common(builder: MonitorBuilder) -> None:
    interval = builder.source.get("interval")
    seconds = duration(interval)
    if interval is not None and seconds is None:
        builder.reject("interval", "is not a duration like 1m30s")
    builder.body |= {"interval_sec": round(seconds or 60), "slow_ms": 60_000}  # unless a condition sets it
    client = builder.source.get("client") or {}
    if not isinstance(client, Mapping):
        builder.reject("client", "is not an object")
    for name, why in _CLIENT.items():
        if not client.get(name):
            continue
        if why is None:
            builder.reject(f"client.{name}", "is not supported")
        builder.note(f"client.{name}", why)
    if client.get("insecure"):
        builder.body["tls_verify"] = False
    builder.set_timeout("client.timeout", duration(client.get("timeout")))
    _alerts(builder)


def _http(builder: MonitorBuilder) -> None:
    builder.set_url("url")
    builder.set_method("method", "GET")
    _common(builder)
    builder.body["follow_redirects"] = not (builder.source.get("client") or {}).get("ignore-redirect")
    builder.add_headers("headers")
    text, is_query = _sent(builder), builder.source.get("graphql")
    if is_query:
        text = json.dumps({"query": text})
    builder.set_body("body", text, content_type="application/json" if is_query else "text/plain")
    note = "no condition uses [STATUS]; only 2xx and 3xx are accepted"
    _map_conditions(builder, _OF_HTTP, without="[STATUS]", note=note)


def _tcp(builder: MonitorBuilder, *, conditions: _Conditions) -> None:
    _socket(builder, "port", conditions)
    if text := _sent(builder):
        builder.body["request_body"] = text
        if "content_rules" not in builder.body:
            builder.note("body", "is sent, and no reply is awaited, as no condition uses [BODY]")
    builder.note_ignored(_HTTP_ONLY)


def _udp(builder: MonitorBuilder) -> None:
    _socket(builder, "udp", _OF_TEXT)
    builder.body["request_body"] = _sent(builder)
    if not builder.body["request_body"]:
        builder.reject("body", "is required: without it Gatus sends nothing, and no reply can be expected")
    builder.note_ignored(_HTTP_ONLY)


def _starttls(builder: MonitorBuilder) -> None:
    _socket(builder, "port", {**_OF_ALL, **_OF_TLS})
    builder.body["url"] = f"{builder.body['url'].removeprefix('start')}?starttls=smtp"
    builder.note_ignored(_NOT_SENT)


def _icmp(builder: MonitorBuilder) -> None:
    builder.body["packets"] = 1
    _socket(builder, "ping", _OF_ALL)
    builder.note_ignored(_NOT_SENT)


def _socket(builder: MonitorBuilder, kind: str, conditions: _Conditions) -> None:
    scheme, _, server = builder.text("url").partition("://")
    builder.body |= {"type": kind, "url": server_url(scheme.lower(), server)}
    _common(builder)
    _map_conditions(builder, conditions)


def _dns(builder: MonitorBuilder) -> None:
    builder.body["type"] = "dns"
    name, resolver = builder.text("dns.query-name"), split_resolver(builder.text("url"))
    if not name:
        builder.reject("dns.query-name", "is missing")
    if resolver is None:
        builder.reject("url", "must name a resolver by its IP address")
    server, port = resolver
    builder.body["url"] = dns_url(name, builder.text("dns.query-type"), server=server, port=port)
    _common(builder)
    note = "no condition uses [DNS_RCODE]; NOERROR and a record are expected"
    _map_conditions(builder, _OF_DNS, without="[DNS_RCODE]", note=note)
    builder.note_ignored(_NOT_SENT)


def _sent(builder: MonitorBuilder) -> str:
    """Return the body. Raises UnsupportedError for one that differs from check to check."""
    text = builder.text("body")
    if _PLACEHOLDER.search(text):
        builder.reject("body", "has placeholders, which are not supported")
    return text


def _alerts(builder: MonitorBuilder) -> None:
    alerts = builder.source.get("alerts") or []
    if not isinstance(alerts, list) or not all(isinstance(alert, Mapping) for alert in alerts):
        builder.reject("alerts", "is not a list of objects")
    if not alerts:
        return
    _notified(builder)
    for name, ours, default in (
        ("failure-threshold", "fail_threshold", 3),
        ("success-threshold", "recover_threshold", 2),
    ):
        counts = [alert.get(name) or default for alert in alerts]
        builder.body[ours] = min((count for count in counts if type(count) is int), default=default)
        if any(count != counts[0] for count in counts):
            builder.note(f"alerts[].{name}", f"the smallest, {builder.body[ours]}, is taken for all")


def _notified(builder: MonitorBuilder) -> None:
    """Set the channels to the types of the alerts."""
    alerts = builder.source.get("alerts")
    listed = [alert for alert in alerts if isinstance(alert, Mapping)] if isinstance(alerts, list) else []
    builder.set_channels(alert.get("type") for alert in listed if alert.get("enabled") is not False)
    if any(alert.get("provider-override") for alert in listed):
        builder.note("alerts[].provider-override", "is not used: the settings of the provider are")


def _map_conditions(builder: MonitorBuilder, supported: _Conditions, *, without: str = "", note: str = "") -> None:
    """Map conditions like `[STATUS] == 200`. If no condition has the placeholder `without`, add the note."""
    found = builder.source.get("conditions") or []
    if not isinstance(found, list):
        builder.reject("conditions", "is not a list")
    if not all(isinstance(condition, str) for condition in found):
        builder.reject("conditions", "has an item that is not text")
    for condition in found:
        _apply(builder, condition, supported)
    if note and not any(without in condition for condition in found):
        builder.note("conditions", note)


def _apply(builder: MonitorBuilder, condition: str, supported: _Conditions) -> None:
    """Apply a condition, or note that it is not supported."""
    found = _OPERATOR.search(condition, 1) if len(condition) <= _MAX_CONDITION else None
    if found is not None:
        parts = f"{condition[: found.start()].strip()} {found[0]} {condition[found.end() :].strip()}"
        for pattern, apply in supported.items():
            if match := pattern.fullmatch(parts):
                apply(builder, match)
                return
    _skip(builder, condition)


def _skip(builder: MonitorBuilder, condition: str) -> None:
    builder.note("conditions", f"{condition[:200]} is not supported and is skipped")


def _inverted(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    builder.reject("conditions", f"{condition[0][:200]}: inverted monitors are not supported")


def _response_time(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    builder.body["slow_ms"] = int(condition[2]) + (condition[1] == "<=")
    builder.note("conditions", f"{condition[0]}: slower answers make it slow, not down")


def _expiry(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    if condition[1] == "DOMAIN":
        builder.body["check_domain"] = True
    else:  # without verification, the warnings do not need it
        builder.body["check_ssl"] = builder.body.get("tls_verify", True)
    note = "warnings are sent 30, 14, 7, 3 and 1 days before expiry, and the monitor stays up"
    builder.note("conditions", f"{condition[0][:200]}: {note}")


def _text(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    kind = "text_contains" if condition[1] == "==" else "text_absent"
    builder.add_rule("conditions", type=kind, value=condition[2])


def _json_field(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    path = re.sub(r"\[(\d+)\]", r".\1", condition["path"]).removeprefix(".")
    expected = {"equals": condition["equals"]} if "equals" in condition.groupdict() else {}
    builder.add_rule("conditions", type="json_field", path=path, **expected)


def _exact_text(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    builder.add_rule("conditions", type="text_contains", value=condition[1])
    builder.note("conditions", f"{condition[0][:200]}: an answer that contains it passes")


def _exact_record(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    record_type = builder.text("dns.query-type")
    if record_type in _WHOLE_RECORDS and "records" not in builder.body:
        builder.body["records"] = [condition[1]]
        builder.note("conditions", f"{condition[0][:200]}: it must be the only record; Gatus compares the last one")
    elif record_type in _NAMES_IN_RECORDS:
        builder.add_rule("conditions", type="text_contains", value=condition[1])
        builder.note("conditions", f"{condition[0][:200]}: any record that contains it passes; Gatus compares the last")
    else:
        _skip(builder, condition[0])


def _record_text(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    if builder.text("dns.query-type") not in _WHOLE_RECORDS | _NAMES_IN_RECORDS:
        _skip(builder, condition[0])
        return
    _text(builder, condition)
    wanted = "any record may contain it" if condition[1] == "==" else "no record may contain it"
    builder.note("conditions", f"{condition[0][:200]}: {wanted}; Gatus compares the last one")


def _noerror(builder: MonitorBuilder, condition: re.Match[str]) -> None:
    builder.note("conditions", f"{condition[0]}: an answer without a record of the type fails too")


_PATH = r"(?P<path>(?:[A-Za-z0-9_-]+|\[[0-9]+\])(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])*)"
_LITERAL = r"(?!(?:pat|any|len|has)\(|\[[A-Z_]+\])"
_OF_ALL: _Conditions = {
    re.compile(r"\[CONNECTED\] (?:== true|!= false)"): lambda _, __: None,  # this is always checked
    re.compile(r"\[CONNECTED\] (?:== false|!= true)"): _inverted,
    re.compile(r"\[RESPONSE_TIME\] (<=?) ([0-9]{1,6})"): _response_time,
    re.compile(r"\[(DOMAIN)_EXPIRATION\] >=? .*"): _expiry,
}
_OF_TLS: _Conditions = {re.compile(r"\[(CERTIFICATE)_EXPIRATION\] >=? .*"): _expiry}
_PATTERN = re.compile(r"\[BODY\] (==|!=) pat\(\*([^*?\[\]]+)\*\)")
_EQUAL = re.compile(rf"\[BODY\] == {_LITERAL}(.+)", re.DOTALL)
_OF_HTTP: _Conditions = {
    **_OF_ALL,
    **_OF_TLS,
    re.compile(r"\[STATUS\] == ([0-9]{1,3})"): lambda builder, found: builder.expect("conditions", {int(found[1])}),
    re.compile(r"\[STATUS\] (?:< 300|<= 299)"): lambda builder, _: builder.expect("conditions", {*range(200, 300)}),
    re.compile(r"\[STATUS\] (?:< 400|<= 399)"): lambda builder, _: builder.expect("conditions", {*range(200, 400)}),
    _PATTERN: _text,
    re.compile(rf"has\(\[BODY\]\.{_PATH}\) (?:== true|!= false)"): _json_field,
    re.compile(rf"\[BODY\](?:\.|(?=\[)){_PATH} == {_LITERAL}(?P<equals>.*)", re.DOTALL): _json_field,
}
_OF_TEXT: _Conditions = {**_OF_ALL, _PATTERN: _text, _EQUAL: _exact_text}
_OF_DNS: _Conditions = {
    **_OF_ALL,
    re.compile(r"\[DNS_RCODE\] == NOERROR"): _noerror,
    re.compile(r"\[DNS_RCODE\] (?:!= NOERROR|== [A-Z0-9]+)"): _inverted,
    _PATTERN: _record_text,
    _EQUAL: _exact_record,
}
_CLIENT = {
    "oauth2": None,  # not supported
    "identity-aware-proxy": None,
    "tls": None,
    "dns-resolver": "the name servers of this deployment are used",
    "proxy-url": "proxies are not supported",
    "network": "IPv4 and IPv6 are both used",
    "tunnel": "tunnels are not supported",
}
_IGNORED = {
    "maintenance-windows": "maintenance windows are not imported",
}


def duration(text: object) -> float | None:
    """Return the seconds of a Go duration like `1h30m`, or None."""
    if not isinstance(text, str) or len(text) > 50 or not re.fullmatch(f"(?:{_DURATION.pattern})+", text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))


_HTTP_ONLY = {
    "method": "is for http only",
    "headers": "are for http only",
    "graphql": "is for http only",
}
_NOT_SENT = {**_HTTP_ONLY, "body": "is not sent"}
_SCHEMES: Mapping[str, Callable[[MonitorBuilder], None]] = {
    "http": _http,
    "https": _http,
    "tcp": partial(_tcp, conditions=_OF_TEXT),
    "tls": partial(_tcp, conditions={**_OF_TEXT, **_OF_TLS}),
    "starttls": _starttls,
    "udp": _udp,
    "icmp": _icmp,
}
_GROUPS = {"overrides": "of groups are not used: the settings of the provider are"}
_CHANNELS = {
    "email": ChannelFields(
        "email",
        {"address": "to"},
        {"host": "is not used: mail is sent by the server of this deployment", **_GROUPS},
    ),
    "custom": ChannelFields(
        "webhook",
        {"url": "url"},
        {
            "body": "is not sent: requests have Pulsekeeper's JSON",
            "headers": "are not sent: requests have a signature",
            **_GROUPS,
        },
    ),
    "slack": ChannelFields("slack", {"url": "webhook-url"}, _GROUPS),
    "discord": ChannelFields("discord", {"url": "webhook-url"}, _GROUPS),
    "teams": ChannelFields("teams", {"url": "webhook-url"}, _GROUPS),
    "teams-workflows": ChannelFields("teams", {"url": "webhook-url"}, _GROUPS),
    "telegram": ChannelFields(
        "telegram",
        {"bot_token": "token", "chat_id": "id"},
        _GROUPS,
        {"api-url": ["https://api.telegram.org"]},
    ),
    "ntfy": ChannelFields(
        "ntfy",
        {"topic": "topic", "server": "url", "access_token": "token"},
        {"priority": "is not imported; set it in the channel", **_GROUPS},
    ),
    "pushover": ChannelFields(
        "pushover",
        {"user_key": "user-key", "app_token": "application-token"},
        {"priority": "is not imported; set it in the channel", **_GROUPS},
    ),
    "pagerduty": ChannelFields("pagerduty", {"integration_key": "integration-key"}, _GROUPS),
}

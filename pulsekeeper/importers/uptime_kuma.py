"""A backup of Uptime Kuma version 1: `{"version": …, "notificationList": […], "monitorList": […]}`.

Version 2 has no export. Tools that save its data write only the list, or an object of monitors by id. Groups are
monitors of the type `group`, which their members name as `parent`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from checks.addresses import dns_url, split_resolver
from checks.probes.ping.spec import MAX_PACKETS
from core.text import shorten
from pulsekeeper.importers.channels import ChannelFields, map_channel, with_channels
from pulsekeeper.importers.mapped import (
    Builder,
    MappedChannel,
    MappedFile,
    MonitorBuilder,
    UnreadableFileError,
    load_json,
    map_items,
)

_CONTENT_TYPES = {"xml": "text/xml; charset=utf-8", "form": "application/x-www-form-urlencoded"}
_METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
_STARTTLS = {25: "smtp", 587: "smtp", 143: "imap"}  # Uptime Kuma follows what the server says
_PACKET_SIZE = 56  # the default of Uptime Kuma
_RECORD_CONDITIONS = {
    "contains": ("text_contains", "any record may contain it, each condition on its own"),
    "equals": ("text_contains", "any record that contains it passes; set records to expect the exact set"),
    "not_contains": ("text_absent", "no record may contain it; Uptime Kuma passes if one does not"),
}
_PATH = re.compile(r"\$?\.?([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+|\[\d+\])*)")


def read(text: str) -> MappedFile:
    found = load_json(text)
    channels: list[MappedChannel] = []
    if isinstance(found, Mapping) and "monitorList" in found:
        channels = _channels(found.get("notificationList"))
        found = found["monitorList"]
    elif isinstance(found, Mapping) and not all(isinstance(item, Mapping) for item in found.values()):
        raise UnreadableFileError("the file has no monitorList")
    items = list(found.values()) if isinstance(found, Mapping) else found
    groups: dict[str, Mapping[str, Any]] = {}
    if isinstance(items, list):
        groups = {str(item.get("id")): item for item in items if _is_group(item)}
        items = [item for item in items if not _is_group(item)]
    monitors = map_items(items, partial(_map, groups), what="monitorList", name=lambda item: item.get("name"))
    return with_channels(monitors, channels, field="notificationIDList")


def _channels(items: object) -> list[MappedChannel]:
    """Return the channels. Each has its settings as JSON text."""
    found: list[MappedChannel] = []
    for item in items if isinstance(items, list) else ():
        if not isinstance(item, Mapping):
            continue
        config = item.get("config")
        if isinstance(config, str):
            try:
                config = json.loads(config)
            except (ValueError, RecursionError):
                config = None
        builder = Builder(config if isinstance(config, Mapping) else {}, name=item.get("name"), unnamed="Channel")
        builder.enabled = bool(item.get("active", True))
        found += map_channel(builder, str(item.get("id")), builder.source.get("type"), _CHANNELS)
    return found


def _is_group(item: object) -> bool:
    return isinstance(item, Mapping) and item.get("type") == "group"


def _path(groups: Mapping[str, Mapping[str, Any]], parent: object) -> list[object]:
    """Return the names of the groups that a monitor is in, the outermost first."""
    names: list[object] = []
    seen: set[str] = set()
    while (key := str(parent)) in groups and key not in seen:
        seen.add(key)
        names.insert(0, groups[key].get("name"))
        parent = groups[key].get("parent")
    return names


def _tag(tag: Mapping[str, Any]) -> object:
    """Return a tag as its list shows it: `name: value`, or the name alone."""
    name, value = tag.get("name"), tag.get("value")
    return f"{name}: {value}" if isinstance(name, str) and isinstance(value, str) and value.strip() else name


def _map(groups: Mapping[str, Mapping[str, Any]], builder: MonitorBuilder) -> None:
    builder.set_group(*_path(groups, builder.source.get("parent")))
    if builder.source.get("upsideDown"):
        builder.reject("upsideDown", "inverted monitors are not supported")
    builder.map_type("type", builder.text("type"), _TYPES)
    builder.enabled = bool(builder.source.get("active", True))
    used, tags = builder.source.get("notificationIDList"), builder.source.get("tags")
    builder.set_channels([key for key, is_used in used.items() if is_used] if isinstance(used, Mapping) else ())
    if isinstance(tags, list):
        builder.set_tags("tags", (_tag(tag) for tag in tags if isinstance(tag, Mapping)))
    builder.note_ignored(_IGNORED)


def _common(builder: MonitorBuilder) -> None:
    builder.copy_number("interval", "interval_sec")
    retries, pause = round(builder.number("maxretries") or 0), builder.number("retryInterval")
    builder.body["fail_threshold"] = retries + 1
    if retries > 0 and pause is not None and pause != builder.number("interval"):
        builder.set_confirmation("retryInterval", retries * pause)
    builder.copy_flag("domainExpiryNotification", "check_domain")


def _http(builder: MonitorBuilder) -> None:
    builder.set_url("url")
    builder.set_method("method", "GET", _METHODS)
    _common(builder)
    # Version 1 has no timeout and uses 0.8 of the interval.
    builder.set_timeout("timeout", builder.number("timeout") or 0.8 * (builder.number("interval") or 0))
    most = builder.number("maxredirects")
    builder.body["follow_redirects"] = most is None or most > 0
    if most is not None and most > 0 and most != 10:
        builder.note("maxredirects", "at most 10 redirects are followed")
    builder.expect_listed("accepted_statuscodes", "200-299")
    if builder.source.get("ignoreTls"):
        builder.body["tls_verify"] = False
    else:
        builder.copy_flag("expiryNotification", "check_ssl")
    way = builder.text("authMethod")
    if way == "mtls" and not (builder.text("tlsCert") or builder.text("tlsKey")):
        if authority := builder.text("tlsCa"):
            builder.body["ca_certificate"] = authority
    elif way not in ("", "basic"):
        builder.reject("authMethod", f"{way} is not supported")
    user, password = builder.text("basic_auth_user"), builder.text("basic_auth_pass")
    if user or password:
        builder.add_basic_auth("basic_auth_user", user, password)
    builder.add_headers("headers")
    builder.set_body("body", builder.text("body"), content_type=_CONTENT_TYPES.get(builder.text("httpBodyEncoding")))


def _keyword(builder: MonitorBuilder) -> None:
    _http(builder)
    rule = "text_absent" if builder.source.get("invertKeyword") else "text_contains"
    builder.add_rule("keyword", type=rule, value=builder.text("keyword"))


def _json_query(builder: MonitorBuilder) -> None:
    _http(builder)
    operator = builder.text("jsonPathOperator") or "=="
    path = _PATH.fullmatch(builder.text("jsonPath").strip())
    if path is None:
        builder.reject("jsonPath", "is not a plain path of keys and indexes")
    if operator != "==":
        builder.reject("jsonPathOperator", f"only == is supported, not {operator}")
    dotted = re.sub(r"\[(\d+)\]", r".\1", path[1])
    expected = builder.source.get("expectedValue")
    builder.add_rule("jsonPath", type="json_field", path=dotted, equals="" if expected is None else str(expected))


def _port(builder: MonitorBuilder) -> None:
    """Map a port. Uptime Kuma uses TLS only if both a security and the expiry of the certificate are set."""
    builder.body |= {"type": "port", "timeout_ms": 5_000}  # that of Uptime Kuma, which ignores the field
    if builder.text("expectedTlsAlert") not in ("", "none"):
        builder.reject("expectedTlsAlert", "monitors that expect a TLS alert are not supported")
    builder.set_server("tcp", "hostname", port="port")
    security, watched = builder.text("smtpSecurity"), builder.source.get("expiryNotification")
    encrypted = security in ("secure", "starttls")
    if encrypted and watched:
        url = f"tls{builder.body['url'].removeprefix('tcp')}"
        if security == "starttls":
            if (dialogue := _STARTTLS.get(builder.port("port") or 0)) is None:
                ports = ", ".join(map(str, _STARTTLS))
                builder.reject("smtpSecurity", f"starttls is supported on ports {ports} only")
            url += f"?starttls={dialogue}"
        builder.body |= {"url": url, "check_ssl": True, "timeout_ms": 10_000}
    elif watched:
        builder.note("expiryNotification", "is skipped: the port is checked without TLS")
    elif encrypted:
        builder.note("smtpSecurity", "is skipped: without expiryNotification the port is checked without TLS")
    _common(builder)


def _ping(builder: MonitorBuilder) -> None:
    builder.body["type"] = "ping"
    builder.set_server("icmp", "hostname")
    _common(builder)
    if "ping_count" in builder.source:  # version 1 waits 10 s, our default, and does not use the field
        builder.set_timeout("timeout", builder.number("timeout"))
    count = round(builder.number("ping_count") or 1)
    builder.body["packets"] = min(count, MAX_PACKETS)
    if count > MAX_PACKETS:
        builder.note("ping_count", f"{count} becomes {MAX_PACKETS}, the maximum")
    if builder.number("packetSize") not in (None, _PACKET_SIZE):
        builder.note("packetSize", "is not supported: all packets have the same size")
    skipped = "is skipped: a reply counts until the timeout of the whole check"
    builder.note_ignored({"ping_per_request_timeout": skipped})


def _dns(builder: MonitorBuilder) -> None:
    """Map a DNS query. Uptime Kuma takes several resolvers, by name too."""
    builder.body["type"] = "dns"
    name, servers = builder.text("hostname"), "dns_resolve_server"
    found = [split_resolver(each) for each in builder.text(servers).replace(" ", "").split(",")]
    known = [each for each in found if each is not None]
    if not name.strip():
        builder.reject("hostname", "is missing")
    if not known:
        builder.reject(servers, "must name a resolver by its IP address")
    server, port = known[0]
    if len(found) > 1:
        builder.note(servers, f"only {server} is asked")
    port = port or builder.port("port")
    builder.body["url"] = dns_url(name, builder.text("dns_resolve_type") or "A", server=server, port=port)
    _common(builder)
    builder.set_timeout("timeout", builder.number("timeout"))
    _records(builder, "conditions")
    builder.note_ignored({"dns_last_result": "is not imported; set records to expect a certain answer"})


def _records(builder: MonitorBuilder, field: str) -> None:
    """Map the conditions of some record of the answer to rules about all of them."""
    conditions = builder.source.get(field) or []
    if not isinstance(conditions, list) or not all(isinstance(condition, Mapping) for condition in conditions):
        builder.reject(field, "is not a list of objects")
    if any(condition.get("type") != "expression" for condition in conditions) or any(
        condition.get("andOr") == "or" for condition in conditions[1:]
    ):
        builder.note(field, "are skipped: or and groups are not supported")
        return
    for condition in conditions:
        operator, value = str(condition.get("operator")), condition.get("value")
        shown = shorten(f"record {operator} {value}", limit=200)
        if operator in _RECORD_CONDITIONS and isinstance(value, str) and value:
            rule, note = _RECORD_CONDITIONS[operator]
            builder.add_rule(field, type=rule, value=value)
            builder.note(field, f"{shown}: {note}")
        else:
            builder.note(field, f"{shown} is not supported and is skipped")


def _push(builder: MonitorBuilder) -> None:
    builder.body["type"] = "heartbeat"
    builder.copy_number("interval", "interval_sec")
    builder.body["grace_sec"] = round((builder.number("maxretries") or 0) * (builder.number("retryInterval") or 0))
    builder.note("pushToken", "the ping URL changes")


_TYPES = {
    "http": _http,
    "keyword": _keyword,
    "json-query": _json_query,
    "port": _port,
    "ping": _ping,
    "dns": _dns,
    "push": _push,
}
_IGNORED = {
    "description": "descriptions are not supported",
    "proxyId": "proxies are not supported",
    "ipFamily": "IPv4 and IPv6 are both used",
    "resendInterval": "reminders are a setting of alert channels",
}
_OWN_TEXT = "is not used: the text of messages is Pulsekeeper's"
_CHANNELS = {
    "smtp": ChannelFields(
        "email",
        {"address": "smtpTo"},
        {
            "smtpHost": "is not used: mail is sent by the server of this deployment",
            "smtpCC": "gets no mail: create a channel for each address",
            "smtpBCC": "gets no mail: create a channel for each address",
        },
    ),
    "webhook": ChannelFields(
        "webhook",
        {"url": "webhookURL"},
        {
            "webhookContentType": "the body is Pulsekeeper's JSON: the receiver must be changed",
            "webhookAdditionalHeaders": "are not sent: requests have a signature",
        },
    ),
    "slack": ChannelFields("slack", {"url": "slackwebhookURL"}),
    "discord": ChannelFields("discord", {"url": "discordWebhookUrl"}),
    "teams": ChannelFields("teams", {"url": "webhookUrl"}),
    "telegram": ChannelFields(
        "telegram",
        {"bot_token": "telegramBotToken", "chat_id": "telegramChatID"},
        {
            "telegramMessageThreadID": "is not used: messages go to the chat, not to a topic of it",
            "telegramTemplate": _OWN_TEXT,
        },
        {"telegramServerUrl": ["https://api.telegram.org"]},
    ),
    "ntfy": ChannelFields(
        "ntfy",
        {"topic": "ntfytopic", "server": "ntfyserverurl", "access_token": "ntfyaccesstoken"},
        {"ntfyPriority": "is not imported; set it in the channel"},
        {"ntfyAuthenticationMethod": ["none", "accessToken"]},
    ),
    "pushover": ChannelFields(
        "pushover",
        {"user_key": "pushoveruserkey", "app_token": "pushoverapptoken"},
        {
            "pushoverpriority": "is not imported; set it in the channel",
            "pushoverdevice": "is not used: all devices are notified",
        },
    ),
    "PagerDuty": ChannelFields("pagerduty", {"integration_key": "pagerdutyIntegrationKey"}),
    "apprise": ChannelFields("apprise", {"apprise_url": "appriseURL"}),
}

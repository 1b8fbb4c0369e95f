"""Monitors of UptimeRobot, as returned by `getMonitors` (v2) and `GET /monitors` (v3).

Version 2 is converted to version 3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from checks.addresses import dns_url
from checks.probes.dns.spec import RECORD_TYPES
from pulsekeeper.importers.channels import ChannelFields, map_channel, with_channels
from pulsekeeper.importers.mapped import (
    Builder,
    MappedChannel,
    MappedFile,
    MappedMonitor,
    MonitorBuilder,
    Note,
    UnreadableFileError,
    load_json,
    map_items,
)

_TYPE_NAMES = {1: "HTTP", 2: "KEYWORD", 3: "PING", 4: "PORT", 5: "HEARTBEAT"}
_METHODS = {1: "HEAD", 2: "GET", 3: "POST", 4: "PUT", 5: "PATCH", 6: "DELETE", 7: "OPTIONS"}
_AUTH = {1: "HTTP_BASIC", 2: "DIGEST"}
_KEYWORDS = {1: "ALERT_EXISTS", 2: "ALERT_NOT_EXISTS"}
_PORTS = {"1": 80, "2": 443, "3": 21, "4": 25, "5": 110, "6": 143}  # of sub types; 99 is a custom port
_SAME = {
    "url": "url",
    "interval": "interval",
    "timeout": "timeout",
    "friendly_name": "friendlyName",
    "keyword_value": "keywordValue",
    "keyword_case_type": "keywordCaseType",
    "http_username": "httpUsername",
    "http_password": "httpPassword",
    "custom_http_headers": "customHttpHeaders",
    "post_value": "postValueData",
    "alert_contacts": "assignedAlertContacts",
    "mwindows": "maintenanceWindows",
    "tags": "tags",
}


def read(text: str) -> MappedFile:
    found = load_json(text)
    if isinstance(found, Mapping):
        if found.get("stat") == "fail":
            raise UnreadableFileError("the file is an error response of UptimeRobot")
        key = "monitors" if "monitors" in found else "data"
        if key not in found:
            raise UnreadableFileError("the file has neither monitors nor data")
        return _map_list(found[key], _further(found, found[key]))
    return _map_list(found)


def _map_list(items: object, further: Sequence[MappedMonitor] = ()) -> MappedFile:
    monitors = map_items(items, _map, what="the list of monitors", name=_name)
    return with_channels([*monitors, *further], _channels(items), field="alert contacts")


def _contacts(item: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the alert contacts of a monitor by id. Only those of version 2 have a type and a value."""
    found = item.get("alert_contacts") or item.get("assignedAlertContacts")
    contacts = [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
    return {
        str(key): contact
        for contact in contacts
        if isinstance(key := contact.get("id", contact.get("alertContactId")), str | int)
    }


def _channels(items: object) -> list[MappedChannel]:
    listed = items.values() if isinstance(items, Mapping) else items if isinstance(items, list) else ()
    contacts = {key: contact for item in listed for key, contact in _contacts(item).items() if "value" in contact}
    return [
        channel
        for key, contact in contacts.items()
        for channel in map_channel(
            Builder(contact, name=f"Alert contact {key}"), key, _CONTACTS.get(str(contact.get("type"))), _CHANNELS
        )
    ]


def _further(page: Mapping[str, Any], items: Any) -> list[MappedMonitor]:
    """Return an unsupported item that stands for the monitors on other pages."""
    pagination = page.get("pagination")
    total = pagination.get("total") if isinstance(pagination, Mapping) else None
    if isinstance(total, int) and total > len(items):
        name, field = f"{total - len(items)} more monitors", "pagination"
        text = f"the file has {len(items)} of {total}; import the API's address, or each page"
    elif page.get("nextLink"):
        name, field = "More monitors", "nextLink"
        text = "they are on further pages; import the API's address, or each page"
    else:
        return []
    return [MappedMonitor(name, None, notes=(Note(field, text),))]


def _name(item: Mapping[str, Any]) -> object:
    return item.get("friendlyName", item.get("friendly_name"))


def _as_v3(old: Mapping[str, Any]) -> dict[str, Any]:
    kind = _coded(old, "type", _TYPE_NAMES)
    ssl, statuses = old.get("ssl"), old.get("custom_http_statuses")
    ignored = old.get("ignore_ssl_errors") or (isinstance(ssl, Mapping) and ssl.get("ignore_errors"))
    if isinstance(statuses, Mapping):
        statuses = {name: codes for name, codes in statuses.items() if codes}
    return {
        **{new: old[name] for name, new in _SAME.items() if name in old},
        "type": kind,
        "port": old.get("port") or _PORTS.get(str(old.get("sub_type"))),
        # UptimeRobot's defaults.
        "httpMethodType": _coded(old, "http_method", _METHODS) or ("GET" if kind == "KEYWORD" else "HEAD"),
        "authType": _coded(old, "http_auth_type", _AUTH) or ("HTTP_BASIC" if old.get("http_username") else "NONE"),
        "keywordType": _coded(old, "keyword_type", _KEYWORDS),
        "postValueType": "KEY_VALUE" if old.get("post_type") in (1, "1") else "RAW_JSON",
        "status": "PAUSED" if old.get("status") in (0, "0") else "UP",
        "checkSSLErrors": ignored in (None, 0, "0", False),
        "custom_http_statuses": statuses,
    }


def _coded(old: Mapping[str, Any], field: str, names: Mapping[int, str]) -> str | None:
    """Return the name of a code, which is a number or its text. A code without name is returned unchanged."""
    value = old.get(field)
    if value in (None, "", 0, "0"):
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
    return names.get(number, str(number)) if isinstance(number, int) else str(number)


def _map(builder: MonitorBuilder) -> None:
    if "friendly_name" in builder.source:
        builder.source = _as_v3(builder.source)
    builder.map_type("type", builder.text("type"), _TYPES)
    builder.enabled = builder.text("status").upper() != "PAUSED"
    builder.set_channels(_contacts(builder.source))
    tags = builder.source.get("tags")
    names = (tag.get("name") if isinstance(tag, Mapping) else tag for tag in tags) if isinstance(tags, list) else ()
    builder.set_tags("tags", names)
    builder.note_ignored(_IGNORED)
    options = builder.source.get("config")
    for name, why in _UNSUPPORTED_OPTIONS.items():
        if isinstance(options, Mapping) and options.get(name) not in (None, "", []):
            builder.note(f"config.{name}", why)


def _common(builder: MonitorBuilder) -> None:
    builder.body["fail_threshold"] = 1
    builder.copy_number("interval", "interval_sec")
    builder.set_timeout("timeout", builder.number("timeout"))
    if builder.number("responseTimeThreshold"):
        builder.copy_number("responseTimeThreshold", "slow_ms")
    builder.copy_flag("domainExpirationReminder", "check_domain")


def _http(builder: MonitorBuilder) -> None:
    builder.set_url("url")
    builder.set_method("httpMethodType", "HEAD", _METHODS.values())
    builder.body |= {"check_ssl": False, "check_domain": False}
    _common(builder)
    builder.body["follow_redirects"] = bool(builder.source.get("followRedirections", True))
    builder.expect_listed("successHttpResponseCodes", "2xx", "3xx")
    if builder.source.get("checkSSLErrors") is False:
        builder.body["tls_verify"] = False  # warnings before the expiry stay
    else:
        builder.copy_flag("sslExpirationReminder", "check_ssl")
    way, user, password = builder.text("authType"), builder.text("httpUsername"), builder.text("httpPassword")
    if way == "HTTP_BASIC":
        builder.add_basic_auth("httpUsername", user, password)
        if not password:
            builder.note("httpPassword", "is not in the file; set it in the Authorization header")
    elif way not in ("", "NONE"):
        builder.reject("authType", f"{way} is not supported; use a request header")
    builder.add_headers("customHttpHeaders")
    data = builder.source.get("postValueData")
    if data in (None, "", {}, []):
        return
    form = builder.text("postValueType") == "KEY_VALUE"
    if form and not isinstance(data, str):
        builder.note("postValueData", "its fields are sent as JSON")
        form = False
    text = data if isinstance(data, str) else json.dumps(data)
    builder.set_body("postValueData", text, content_type="application/x-www-form-urlencoded" if form else None)


def _keyword(builder: MonitorBuilder) -> None:
    _http(builder)
    alert = builder.text("keywordType")
    if alert not in _KEYWORDS.values():
        builder.reject("keywordType", "does not say whether the keyword must be present")
    rule = "text_absent" if alert == "ALERT_EXISTS" else "text_contains"
    builder.add_rule("keywordValue", type=rule, value=builder.text("keywordValue"))
    if str(builder.source.get("keywordCaseType")) in ("1", "CaseInsensitive"):
        builder.note("keywordCaseType", "keywords are case-sensitive")


def _port(builder: MonitorBuilder) -> None:
    builder.body["type"] = "port"
    builder.set_server("tcp", "url", port="port")
    _common(builder)


def _ping(builder: MonitorBuilder) -> None:
    builder.body["type"] = "ping"
    builder.set_server("icmp", "url")
    _common(builder)


def _udp(builder: MonitorBuilder) -> None:
    builder.body["type"] = "udp"
    builder.set_server("udp", "url", port="port")
    _common(builder)
    options = _option(builder, "udp")
    if not isinstance(payload := options.get("payload"), str) or not payload:
        builder.reject("config.udp.payload", "is required: what UptimeRobot sends without one is unknown")
    builder.body["request_body"] = payload
    builder.note("config.udp.payload", "is sent as text; if it is hex, set request_body_encoding")
    if options.get("packetLossThreshold") is not None:
        builder.note("config.udp.packetLossThreshold", "is not supported: one reply to three datagrams passes")
    if keyword := builder.text("keywordValue"):
        builder.add_rule("keywordValue", type="text_contains", value=keyword)


def _dns(builder: MonitorBuilder) -> None:
    """Map a DNS query. Its type is the only one of which records are listed."""
    builder.body["type"] = "dns"
    _common(builder)
    listed = {name: records for name, records in _option(builder, "dnsRecords").items() if records}
    if len(listed) != 1:
        builder.reject("config.dnsRecords", f"must list records of one type; {len(listed)} types are listed")
    ((record_type, records),) = listed.items()
    if record_type not in RECORD_TYPES:
        builder.reject("config.dnsRecords", f"{str(record_type)[:30]} is not supported")
    if not isinstance(records, list) or not all(isinstance(record, str) for record in records):
        builder.reject(f"config.dnsRecords.{record_type}", "is not a list of texts")
    builder.body |= {"url": dns_url(builder.text("url"), record_type), "records": records}
    builder.note("config.dnsRecords", "an answer must consist of exactly these records")


def _heartbeat(builder: MonitorBuilder) -> None:
    builder.body["type"] = "heartbeat"
    builder.copy_number("interval", "interval_sec")
    builder.copy_number("gracePeriod", "grace_sec")
    builder.note("url", "the ping URL changes")


def _option(builder: MonitorBuilder, name: str) -> Mapping[str, Any]:
    options = builder.source.get("config")
    found = options.get(name) if isinstance(options, Mapping) else None
    return found if isinstance(found, Mapping) else {}


_TYPES = {
    "HTTP": _http,
    "KEYWORD": _keyword,
    "PORT": _port,
    "PING": _ping,
    "UDP": _udp,
    "DNS": _dns,
    "HEARTBEAT": _heartbeat,
}
_UNSUPPORTED_OPTIONS = {
    "ipVersion": "IPv4 and IPv6 are both used",
    "sslExpirationPeriodDays": "warnings are sent 30, 14, 7, 3 and 1 days before expiry",
    "applicationErrorRetries": "failures are checked again after the interval",
}
_IGNORED = {
    "maintenanceWindows": "maintenance windows are not imported",
    "customFields": "custom fields are not supported",
    "groupId": "groups are not imported; use --project",
    "regionalData": "checks run from this deployment",
    "custom_http_statuses": "is not supported; any 2xx or 3xx is accepted instead",
}
_CONTACTS = {"2": "e-mail", "5": "webhook", "11": "Slack"}
_CHANNELS = {
    "e-mail": ChannelFields("email", {"address": "value"}),
    "webhook": ChannelFields("webhook", {"url": "value"}, {"value": "the body is Pulsekeeper's JSON"}),
    "Slack": ChannelFields("slack", {"url": "value"}),
}

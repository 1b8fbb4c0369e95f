"""Monitors of UptimeRobot, as returned by `getMonitors` (v2) and `GET /monitors` (v3).

Version 2 is converted to version 3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from checks.probes.dns.spec import RECORD_TYPES
from manifests.importers import rows
from manifests.importers.addresses import dns_url
from manifests.importers.mapped import (
    MappedMonitor,
    MonitorBuilder,
    Note,
    Table,
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


def read(text: str) -> list[MappedMonitor]:
    found = load_json(text)
    if isinstance(found, Mapping):
        if found.get("stat") == "fail":
            raise UnreadableFileError("the file is an error response of UptimeRobot")
        key = "monitors" if "monitors" in found else "data"
        if key not in found:
            raise UnreadableFileError("the file has neither monitors nor data")
        return [*_map_list(found[key]), *_further(found, found[key])]
    return _map_list(found)


def _map_list(items: object) -> list[MappedMonitor]:
    return map_items(items, _map, what="the list of monitors", name=_name)


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
    builder.apply_type("type", builder.text("type"), _TYPES)
    builder.enabled = builder.text("status").upper() != "PAUSED"
    builder.apply(_IGNORED)


def _redirects(builder: MonitorBuilder, field: str) -> None:
    builder.body["follow_redirects"] = bool(builder.source.get(field, True))


def _verification(builder: MonitorBuilder, field: str) -> None:
    if builder.source.get(field) is False:
        builder.note(field, "certificates are always verified")


def _authenticate(builder: MonitorBuilder, field: str) -> None:
    way = builder.text(field) or "NONE"
    user, password = builder.text("httpUsername"), builder.text("httpPassword")
    if way == "HTTP_BASIC":
        builder.add_basic_auth("httpUsername", user, password)
        if not password:
            builder.note("httpPassword", "is not in the file; set it in the Authorization header")
    elif way != "NONE":
        builder.reject(field, f"{way} is not supported; use a request header")


def _body(builder: MonitorBuilder, field: str) -> None:
    data = builder.source.get(field)
    if data in (None, "", {}, []):
        return
    form = builder.text("postValueType") == "KEY_VALUE"
    if form and not isinstance(data, str):
        builder.note(field, "its fields are sent as JSON")
        form = False
    text = data if isinstance(data, str) else json.dumps(data)
    builder.set_body(field, text, content_type="application/x-www-form-urlencoded" if form else None)


def _keyword(builder: MonitorBuilder, field: str) -> None:
    alert = builder.text("keywordType")
    if alert not in _KEYWORDS.values():
        builder.reject("keywordType", "does not say whether the keyword must be present")
    rule = "text_absent" if alert == "ALERT_EXISTS" else "text_contains"
    builder.add_rule(field, type=rule, value=builder.text(field))
    if str(builder.source.get("keywordCaseType")) in ("1", "CaseInsensitive"):
        builder.note("keywordCaseType", "keywords are case-sensitive")


def _datagram(builder: MonitorBuilder, field: str) -> None:
    options = _option(builder, field, "udp")
    if not isinstance(payload := options.get("payload"), str) or not payload:
        builder.reject(f"{field}.udp.payload", "is required: what UptimeRobot sends without one is unknown")
    builder.body["request_body"] = payload
    builder.note(f"{field}.udp.payload", "is sent as text; if it is hex, set request_body_encoding")
    if options.get("packetLossThreshold") is not None:
        builder.note(f"{field}.udp.packetLossThreshold", "is not supported: one reply to three datagrams passes")


def _reply(builder: MonitorBuilder, field: str) -> None:
    if keyword := builder.text(field):
        builder.add_rule(field, type="text_contains", value=keyword)


def _records(builder: MonitorBuilder, field: str) -> None:
    """Set the address and the records. The type is the only one of which records are listed."""
    listed = {name: records for name, records in _option(builder, field, "dnsRecords").items() if records}
    if len(listed) != 1:
        builder.reject(f"{field}.dnsRecords", f"must list records of one type; {len(listed)} types are listed")
    ((record_type, records),) = listed.items()
    if record_type not in RECORD_TYPES:
        builder.reject(f"{field}.dnsRecords", f"{str(record_type)[:30]} is not supported")
    if not isinstance(records, list) or not all(isinstance(record, str) for record in records):
        builder.reject(f"{field}.dnsRecords.{record_type}", "is not a list of texts")
    builder.body |= {"url": dns_url(builder.text("url"), record_type), "records": records}
    builder.note(f"{field}.dnsRecords", "an answer must consist of exactly these records")


def _option(builder: MonitorBuilder, field: str, name: str) -> Mapping[str, Any]:
    options = builder.source.get(field)
    found = options.get(name) if isinstance(options, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _options(builder: MonitorBuilder, field: str) -> None:
    """Note the options that no type supports."""
    options = builder.source.get(field)
    for name, why in _UNSUPPORTED_OPTIONS.items():
        if isinstance(options, Mapping) and options.get(name) not in (None, "", []):
            builder.note(f"{field}.{name}", why)


_UNSUPPORTED_OPTIONS = {
    "ipVersion": "IPv4 and IPv6 are both used",
    "sslExpirationPeriodDays": "warnings are sent 30, 14, 7, 3 and 1 days before expiry",
    "applicationErrorRetries": "failures are checked again after the interval",
}
_COMMON: Table = {
    "interval": rows.whole_number("interval_sec"),
    "timeout": rows.timeout,
    "responseTimeThreshold": rows.whole_number("slow_ms", ignore_zero=True),
    "domainExpirationReminder": rows.flag("check_domain"),
}
_HTTP: Table = {
    "url": rows.url,
    "httpMethodType": rows.method("HEAD", _METHODS.values()),
    "type": rows.constants(fail_threshold=1, check_ssl=False, check_domain=False),
    **_COMMON,
    "followRedirections": _redirects,
    "successHttpResponseCodes": rows.status_codes("2xx", "3xx"),
    "checkSSLErrors": _verification,
    "sslExpirationReminder": rows.flag("check_ssl"),
    "authType": _authenticate,
    "customHttpHeaders": rows.headers,
    "postValueData": _body,
}
_TYPES: Mapping[str, Table] = {
    "HTTP": _HTTP,
    "KEYWORD": {**_HTTP, "keywordValue": _keyword},
    "PORT": {
        "type": rows.constants(type="port", fail_threshold=1),
        "url": rows.server("tcp", port="port"),
        **_COMMON,
    },
    "PING": {"type": rows.constants(type="ping", fail_threshold=1), "url": rows.server("icmp"), **_COMMON},
    "UDP": {
        "type": rows.constants(type="udp", fail_threshold=1),
        "url": rows.server("udp", port="port"),
        **_COMMON,
        "config": _datagram,
        "keywordValue": _reply,
    },
    "DNS": {"type": rows.constants(type="dns", fail_threshold=1), **_COMMON, "config": _records},
    "HEARTBEAT": {
        "type": rows.constants(type="heartbeat"),
        "interval": rows.whole_number("interval_sec"),
        "gracePeriod": rows.whole_number("grace_sec"),
        "url": rows.notice("the ping URL changes"),
    },
}
_IGNORED: Table = {
    "assignedAlertContacts": "alert channels are not imported",
    "maintenanceWindows": "maintenance windows are not imported",
    "tags": "tags are not supported",
    "config": _options,
    "customFields": "custom fields are not supported",
    "groupId": "groups are not imported; use --project",
    "regionalData": "checks run from this deployment",
    "custom_http_statuses": "is not supported; any 2xx or 3xx is accepted instead",
}

"""Monitors of UptimeRobot, as returned by `getMonitors` (v2) and `GET /monitors` (v3).

`_as_v3` converts v2 to v3, which is then mapped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from manifests.importers.mapped import (
    MappedMonitor,
    MonitorBuilder,
    UnreadableFileError,
    UnsupportedError,
    expect,
    items_of,
    load_json,
    map_items,
    status_codes,
)

_TYPES = {1: "HTTP", 2: "KEYWORD", 3: "PING", 4: "PORT", 5: "HEARTBEAT"}
_METHODS = {1: "HEAD", 2: "GET", 3: "POST", 4: "PUT", 5: "PATCH", 6: "DELETE", 7: "OPTIONS"}
_AUTH = {1: "HTTP_BASIC", 2: "DIGEST"}
_KEYWORDS = {1: "ALERT_EXISTS", 2: "ALERT_NOT_EXISTS"}
_SAME = {
    "url": "url",
    "interval": "interval",
    "timeout": "timeout",
    "friendly_name": "friendlyName",
    "keyword_value": "keywordValue",
    "http_username": "httpUsername",
    "http_password": "httpPassword",
    "custom_http_headers": "customHttpHeaders",
    "post_value": "postValueData",
    "alert_contacts": "assignedAlertContacts",
    "mwindows": "maintenanceWindows",
    "tags": "tags",
}
_IGNORED = {
    "assignedAlertContacts": "alert channels are not imported",
    "maintenanceWindows": "maintenance windows are not imported",
    "tags": "tags are not supported",
    "regionalData": "checks run from this deployment",
    "custom_http_statuses": "is not supported; any 2xx or 3xx is accepted instead",
}


def read(text: str) -> list[MappedMonitor]:
    found = load_json(text)
    if isinstance(found, Mapping):
        if found.get("stat") == "fail":
            raise UnreadableFileError("the file is an error response of UptimeRobot")
        key = "monitors" if "monitors" in found else "data"
        if key not in found:
            raise UnreadableFileError("the file has neither monitors nor data")
        found = found[key]
    items = [_as_v3(item) if "friendly_name" in item else item for item in items_of(found, what="the list of monitors")]
    return map_items(items, _map, name=lambda item: item.get("friendlyName"))


def _as_v3(old: Mapping[str, Any]) -> dict[str, Any]:
    new = {ours: old[name] for name, ours in _SAME.items() if name in old}
    kind = _coded(old, "type", _TYPES)
    new |= {
        "type": kind,
        # UptimeRobot's defaults.
        "httpMethodType": _coded(old, "http_method", _METHODS) or ("GET" if kind == "KEYWORD" else "HEAD"),
        "authType": _coded(old, "http_auth_type", _AUTH) or ("HTTP_BASIC" if old.get("http_username") else "NONE"),
        "keywordType": _coded(old, "keyword_type", _KEYWORDS),
        "keywordCaseType": old.get("keyword_case_type"),
        "postValueType": "KEY_VALUE" if old.get("post_type") in (1, "1") else "RAW_JSON",
        "status": "PAUSED" if old.get("status") in (0, "0") else "UP",
        "followRedirections": True,
        "successHttpResponseCodes": ["2xx", "3xx"],
    }
    ssl = old.get("ssl")
    ignored = old.get("ignore_ssl_errors") or (isinstance(ssl, Mapping) and ssl.get("ignore_errors"))
    new["checkSSLErrors"] = ignored in (None, 0, "0", False)
    statuses = old.get("custom_http_statuses")
    if isinstance(statuses, Mapping):
        statuses = {name: codes for name, codes in statuses.items() if codes}
    new["custom_http_statuses"] = statuses
    return new


def _coded(old: Mapping[str, Any], field: str, names: Mapping[int, str]) -> str | None:
    """Return the name of a code, which is a number or its text. A code without name is returned unchanged."""
    value = old.get(field)
    if value in (None, "", 0, "0"):
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
    return names.get(number, str(number)) if isinstance(number, int) else str(number)


def _map(builder: MonitorBuilder) -> None:
    kind = builder.text("type")
    builder.body["type"] = "http"
    builder.seconds("interval", to="interval_sec")
    if kind == "HEARTBEAT":
        builder.body["type"] = "heartbeat"
        builder.seconds("gracePeriod", to="grace_sec")
        builder.note("url", "the ping URL changes")
    elif kind in ("HTTP", "KEYWORD"):
        _http(builder, kind)
    else:
        raise UnsupportedError("type", f"{kind or 'nothing'} is not supported")
    builder.enabled = builder.text("status").upper() != "PAUSED"
    builder.note_ignored(_IGNORED)


def _http(builder: MonitorBuilder, kind: str) -> None:
    body, source = builder.body, builder.source
    builder.url("url", builder.text("url"))
    body["method"] = (builder.text("httpMethodType") or "HEAD").upper()
    if body["method"] not in _METHODS.values():
        raise UnsupportedError("httpMethodType", "is not a supported method")
    body["fail_threshold"] = 1
    timeout = builder.number("timeout")
    if timeout:
        builder.timeout("timeout", timeout)
    slow = builder.number("responseTimeThreshold")
    if slow:
        body["slow_ms"] = round(slow)
    body["follow_redirects"] = bool(source.get("followRedirections", True))
    codes = source.get("successHttpResponseCodes")
    expect(
        builder,
        "successHttpResponseCodes",
        status_codes(codes or ["2xx", "3xx"]) if _is_list(codes) else None,
    )
    if source.get("checkSSLErrors") is False:
        builder.note("checkSSLErrors", "certificates are always verified")
    body["check_ssl"] = bool(source.get("sslExpirationReminder"))
    body["check_domain"] = bool(source.get("domainExpirationReminder"))
    _authenticate(builder)
    builder.headers("customHttpHeaders")
    _body(builder)
    if kind == "KEYWORD":
        _keyword(builder)
    builder.set_type()


def _is_list(codes: object) -> bool:
    return codes is None or isinstance(codes, list)


def _authenticate(builder: MonitorBuilder) -> None:
    way = builder.text("authType") or "NONE"
    user, password = builder.text("httpUsername"), builder.text("httpPassword")
    if way == "HTTP_BASIC":
        builder.basic_auth("httpUsername", user, password)
        if not password:
            builder.note("httpPassword", "is not in the file; set it in the Authorization header")
    elif way != "NONE":
        raise UnsupportedError("authType", f"{way} is not supported; use a request header")


def _body(builder: MonitorBuilder) -> None:
    data = builder.source.get("postValueData")
    if data in (None, "", {}, []):
        return
    text = data if isinstance(data, str) else json.dumps(data)
    form = builder.text("postValueType") == "KEY_VALUE"
    if form and not isinstance(data, str):
        builder.note("postValueData", "its fields are sent as JSON")
        form = False
    builder.set_body("postValueData", text, content_type="application/x-www-form-urlencoded" if form else None)


def _keyword(builder: MonitorBuilder) -> None:
    alert = builder.text("keywordType")
    if alert not in _KEYWORDS.values():
        raise UnsupportedError("keywordType", "does not say whether the keyword must be present")
    rule = "text_absent" if alert == "ALERT_EXISTS" else "text_contains"
    builder.rule("keywordValue", type=rule, value=builder.text("keywordValue"))
    if str(builder.source.get("keywordCaseType")) in ("1", "CaseInsensitive"):
        builder.note("keywordCaseType", "keywords are case-sensitive")

"""What UptimeRobot answers to `getMonitors` (v2: `{"monitors": […]}`) and to `GET /monitors` (v3: `{"data": […]}`).

The two name the same things differently; `_as_v3` turns the first into the second, which is then mapped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from manifests.importers.mapped import (
    Making,
    Mapped,
    Refused,
    UnreadableFileError,
    expect,
    items_of,
    load_json,
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
_ELSEWHERE = {
    "assignedAlertContacts": "alert channels are not imported",
    "maintenanceWindows": "maintenance windows are not imported",
    "tags": "there are no tags here",
    "regionalData": "the place that checks is this deployment",
    "custom_http_statuses": "cannot be said here, where it is one code or any 2xx and 3xx; the latter is set",
}


def read(text: str) -> list[Mapped]:
    found = load_json(text)
    if isinstance(found, Mapping):
        if found.get("stat") == "fail":
            raise UnreadableFileError("the file is an error that UptimeRobot answered with")
        key = "monitors" if "monitors" in found else "data"
        if key not in found:
            raise UnreadableFileError("the file has neither monitors nor data")
        found = found[key]
    return [_one(item) for item in items_of(found, what="the list of monitors")]


def _one(item: Mapping[str, Any]) -> Mapped:
    if "friendly_name" in item:
        item = _as_v3(item)
    making = Making(item, name=item.get("friendlyName"))
    try:
        _map(making)
    except Refused as refusal:
        return making.left_out(refusal)
    return making.mapped()


def _as_v3(old: Mapping[str, Any]) -> dict[str, Any]:
    new = {ours: old[name] for name, ours in _SAME.items() if name in old}
    kind = _coded(old, "type", _TYPES)
    new |= {
        "type": kind,
        # What it sends unless told otherwise.
        "httpMethodType": _coded(old, "http_method", _METHODS) or ("GET" if kind == "KEYWORD" else "HEAD"),
        "authType": _coded(old, "http_auth_type", _AUTH)
        or ("HTTP_BASIC" if old.get("http_username") else "NONE"),
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
    """The name of a number, which may come as a text; the number itself where it has none."""
    value = old.get(field)
    if value in (None, "", 0, "0"):
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
    return names.get(number, str(number)) if isinstance(number, int) else str(number)


def _map(making: Making) -> None:
    kind = making.text("type")
    making.given["type"] = "http"
    making.seconds("interval", to="interval_sec")
    if kind == "HEARTBEAT":
        making.given["type"] = "heartbeat"
        making.seconds("gracePeriod", to="grace_sec")
        making.note("url", "the address to ping is another one")
    elif kind in ("HTTP", "KEYWORD"):
        _http(making, kind)
    else:
        raise Refused("type", f"{kind or 'nothing'} is not probed here")
    making.enabled = making.text("status").upper() != "PAUSED"
    making.note_if_there(_ELSEWHERE)


def _http(making: Making, kind: str) -> None:
    given, source = making.given, making.source
    making.url("url", making.text("url"))
    given["method"] = (making.text("httpMethodType") or "HEAD").upper()
    if given["method"] not in _METHODS.values():
        raise Refused("httpMethodType", "is none that is sent here")
    given["fail_threshold"] = 1
    timeout = making.number("timeout")
    if timeout:
        making.timeout("timeout", timeout)
    slow = making.number("responseTimeThreshold")
    if slow:
        given["slow_ms"] = round(slow)
    given["follow_redirects"] = bool(source.get("followRedirections", True))
    codes = source.get("successHttpResponseCodes")
    expect(
        making, "successHttpResponseCodes", status_codes(codes or ["2xx", "3xx"]) if _is_list(codes) else None
    )
    if source.get("checkSSLErrors") is False:
        making.note("checkSSLErrors", "certificates are always verified here")
    given["check_ssl"] = bool(source.get("sslExpirationReminder"))
    given["check_domain"] = bool(source.get("domainExpirationReminder"))
    _authenticate(making)
    making.headers("customHttpHeaders")
    _body(making)
    if kind == "KEYWORD":
        _keyword(making)
    making.settle_type()


def _is_list(codes: object) -> bool:
    return codes is None or isinstance(codes, list)


def _authenticate(making: Making) -> None:
    way = making.text("authType") or "NONE"
    user, password = making.text("httpUsername"), making.text("httpPassword")
    if way == "HTTP_BASIC":
        making.basic_auth("httpUsername", user, password)
        if not password:
            making.note("httpPassword", "is not in the file, so an empty one is set; change the header")
    elif way != "NONE":
        raise Refused("authType", f"{way} is not spoken here; a request header may do")


def _body(making: Making) -> None:
    data = making.source.get("postValueData")
    if data in (None, "", {}, []):
        return
    text = data if isinstance(data, str) else json.dumps(data)
    form = making.text("postValueType") == "KEY_VALUE"
    if form and not isinstance(data, str):
        making.note("postValueData", "its fields are sent as JSON here")
        form = False
    making.body("postValueData", text, content_type="application/x-www-form-urlencoded" if form else None)


def _keyword(making: Making) -> None:
    alert = making.text("keywordType")
    if alert not in _KEYWORDS.values():
        raise Refused("keywordType", "does not say whether the keyword must be there")
    rule = "text_absent" if alert == "ALERT_EXISTS" else "text_contains"
    making.rule("keywordValue", type=rule, value=making.text("keywordValue"))
    if str(making.source.get("keywordCaseType")) in ("1", "CaseInsensitive"):
        making.note("keywordCaseType", "capital and small letters are different ones here")

"""A backup of Uptime Kuma version 1: `{"version": …, "monitorList": […]}`.

Version 2 has no export. Tools that save its data write only the list, or an object of monitors by id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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

_CONTENT_TYPES = {"xml": "text/xml; charset=utf-8", "form": "application/x-www-form-urlencoded"}
_METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
_PATH = re.compile(r"\$?\.?([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+|\[\d+\])*)")
_IGNORED = {
    "notificationIDList": "alert channels are not imported",
    "tags": "tags are not supported",
    "description": "descriptions are not supported",
    "proxyId": "proxies are not supported",
    "parent": "groups are not imported; use --project",
    "resendInterval": "reminders are a setting of alert channels",
}


def read(text: str) -> list[MappedMonitor]:
    found = load_json(text)
    if isinstance(found, Mapping) and "monitorList" in found:
        found = found["monitorList"]
    elif isinstance(found, Mapping) and not all(isinstance(item, Mapping) for item in found.values()):
        raise UnreadableFileError("the file has no monitorList")
    return map_items(items_of(found, what="monitorList"), _map, name=lambda item: item.get("name"))


def _map(builder: MonitorBuilder) -> None:
    kind = builder.text("type")
    if builder.source.get("upsideDown"):
        raise UnsupportedError("upsideDown", "inverted monitors are not supported")
    if kind == "push":
        _push(builder)
    elif kind in ("http", "keyword", "json-query"):
        _http(builder, kind)
    else:
        raise UnsupportedError("type", f"{kind or 'nothing'} is not supported")
    builder.enabled = bool(builder.source.get("active", True))
    builder.note_ignored(_IGNORED)


def _push(builder: MonitorBuilder) -> None:
    builder.body["type"] = "heartbeat"
    builder.seconds("interval", to="interval_sec")
    retries, pause = builder.number("maxretries") or 0, builder.number("retryInterval") or 0
    builder.body["grace_sec"] = round(retries * pause)
    builder.note("pushToken", "the ping URL changes")


def _http(builder: MonitorBuilder, kind: str) -> None:
    body = builder.body
    builder.url("url", builder.text("url"))
    body["method"] = (builder.text("method") or "GET").upper()
    if body["method"] not in _METHODS:
        raise UnsupportedError("method", "is not a supported method")
    builder.seconds("interval", to="interval_sec")
    # Version 1 has no such field and uses 0.8 of the interval.
    timeout = builder.number("timeout") or 0.8 * (builder.number("interval") or 0)
    if timeout:
        builder.timeout("timeout", timeout)
    body["fail_threshold"] = round(builder.number("maxretries") or 0) + 1
    pause = builder.number("retryInterval")
    if body["fail_threshold"] > 1 and pause is not None and pause != builder.number("interval"):
        builder.note("retryInterval", "failures are checked again after the interval")
    _redirects_and_codes(builder)
    _trust(builder)
    _authenticate(builder)
    builder.headers("headers")
    encoding = builder.text("httpBodyEncoding")
    builder.set_body("body", builder.text("body"), content_type=_CONTENT_TYPES.get(encoding))
    if kind == "keyword":
        rule = "text_absent" if builder.source.get("invertKeyword") else "text_contains"
        builder.rule("keyword", type=rule, value=builder.text("keyword"))
    elif kind == "json-query":
        _json_query(builder)
    builder.set_type()


def _redirects_and_codes(builder: MonitorBuilder) -> None:
    most = builder.number("maxredirects")
    builder.body["follow_redirects"] = most is None or most > 0
    if most is not None and most > 0 and most != 10:
        builder.note("maxredirects", "at most 10 redirects are followed")
    codes = builder.source.get("accepted_statuscodes")
    expect(builder, "accepted_statuscodes", status_codes(codes if isinstance(codes, list) else ["200-299"]))


def _trust(builder: MonitorBuilder) -> None:
    if builder.source.get("ignoreTls"):
        builder.note("ignoreTls", "certificates are always verified")
    if builder.source.get("expiryNotification"):
        builder.body["check_ssl"] = True
    if builder.source.get("domainExpiryNotification"):
        builder.body["check_domain"] = True


def _authenticate(builder: MonitorBuilder) -> None:
    way = builder.text("authMethod")
    if way in ("", "basic"):
        user, password = builder.text("basic_auth_user"), builder.text("basic_auth_pass")
        if user or password:
            builder.basic_auth("basic_auth_user", user, password)
    else:
        raise UnsupportedError("authMethod", f"{way} is not supported")


def _json_query(builder: MonitorBuilder) -> None:
    operator = builder.text("jsonPathOperator") or "=="
    path = _PATH.fullmatch(builder.text("jsonPath").strip())
    if path is None:
        raise UnsupportedError("jsonPath", "is not a plain path of keys and indexes")
    if operator != "==":
        raise UnsupportedError("jsonPathOperator", f"only == is supported, not {operator}")
    dotted = re.sub(r"\[(\d+)\]", r".\1", path[1])
    expected = builder.source.get("expectedValue")
    builder.rule("jsonPath", type="json_field", path=dotted, equals="" if expected is None else str(expected))

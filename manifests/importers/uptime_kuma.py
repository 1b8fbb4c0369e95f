"""A backup of Uptime Kuma version 1: `{"version": …, "monitorList": […]}`.

Version 2 has no export. Tools that save its data write only the list, or an object of monitors by id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from manifests.importers import rows
from manifests.importers.mapped import MappedMonitor, MonitorBuilder, Table, UnreadableFileError, load_json, map_items

_CONTENT_TYPES = {"xml": "text/xml; charset=utf-8", "form": "application/x-www-form-urlencoded"}
_METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
_PATH = re.compile(r"\$?\.?([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+|\[\d+\])*)")


def read(text: str) -> list[MappedMonitor]:
    found = load_json(text)
    if isinstance(found, Mapping) and "monitorList" in found:
        found = found["monitorList"]
    elif isinstance(found, Mapping) and not all(isinstance(item, Mapping) for item in found.values()):
        raise UnreadableFileError("the file has no monitorList")
    return map_items(found, _map, what="monitorList", name=lambda item: item.get("name"))


def _map(builder: MonitorBuilder) -> None:
    builder.apply({"upsideDown": rows.unsupported("inverted monitors are not supported")})
    builder.apply_type("type", builder.text("type"), _TYPES)
    builder.enabled = bool(builder.source.get("active", True))
    builder.apply(_IGNORED)


def _grace(builder: MonitorBuilder, field: str) -> None:
    builder.body["grace_sec"] = round((builder.number(field) or 0) * (builder.number("retryInterval") or 0))


def _timeout(builder: MonitorBuilder, field: str) -> None:
    # Version 1 has no such field and uses 0.8 of the interval.
    if seconds := builder.number(field) or 0.8 * (builder.number("interval") or 0):
        builder.set_timeout(field, seconds)


def _retries(builder: MonitorBuilder, field: str) -> None:
    builder.body["fail_threshold"] = round(builder.number(field) or 0) + 1
    pause = builder.number("retryInterval")
    if builder.body["fail_threshold"] > 1 and pause is not None and pause != builder.number("interval"):
        builder.note("retryInterval", "failures are checked again after the interval")


def _redirects(builder: MonitorBuilder, field: str) -> None:
    most = builder.number(field)
    builder.body["follow_redirects"] = most is None or most > 0
    if most is not None and most > 0 and most != 10:
        builder.note(field, "at most 10 redirects are followed")


def _authenticate(builder: MonitorBuilder, field: str) -> None:
    way = builder.text(field)
    if way not in ("", "basic"):
        builder.reject(field, f"{way} is not supported")
    user, password = builder.text("basic_auth_user"), builder.text("basic_auth_pass")
    if user or password:
        builder.add_basic_auth("basic_auth_user", user, password)


def _body(builder: MonitorBuilder, field: str) -> None:
    builder.set_body(field, builder.text(field), content_type=_CONTENT_TYPES.get(builder.text("httpBodyEncoding")))


def _keyword(builder: MonitorBuilder, field: str) -> None:
    rule = "text_absent" if builder.source.get("invertKeyword") else "text_contains"
    builder.add_rule(field, type=rule, value=builder.text(field))


def _json_query(builder: MonitorBuilder, field: str) -> None:
    operator = builder.text("jsonPathOperator") or "=="
    path = _PATH.fullmatch(builder.text(field).strip())
    if path is None:
        builder.reject(field, "is not a plain path of keys and indexes")
    if operator != "==":
        builder.reject("jsonPathOperator", f"only == is supported, not {operator}")
    dotted = re.sub(r"\[(\d+)\]", r".\1", path[1])
    expected = builder.source.get("expectedValue")
    builder.add_rule(field, type="json_field", path=dotted, equals="" if expected is None else str(expected))


_HTTP: Table = {
    "url": rows.url,
    "method": rows.method("GET", _METHODS),
    "interval": rows.whole_number("interval_sec"),
    "timeout": _timeout,
    "maxretries": _retries,
    "maxredirects": _redirects,
    "accepted_statuscodes": rows.status_codes("200-299"),
    "ignoreTls": "certificates are always verified",
    "expiryNotification": rows.flag("check_ssl"),
    "domainExpiryNotification": rows.flag("check_domain"),
    "authMethod": _authenticate,
    "headers": rows.headers,
    "body": _body,
}
_TYPES: Mapping[str, Table] = {
    "http": _HTTP,
    "keyword": {**_HTTP, "keyword": _keyword},
    "json-query": {**_HTTP, "jsonPath": _json_query},
    "push": {
        "type": rows.constants(type="heartbeat"),
        "interval": rows.whole_number("interval_sec"),
        "maxretries": _grace,
        "pushToken": rows.notice("the ping URL changes"),
    },
}
_IGNORED: Table = {
    "notificationIDList": "alert channels are not imported",
    "tags": "tags are not supported",
    "description": "descriptions are not supported",
    "proxyId": "proxies are not supported",
    "parent": "groups are not imported; use --project",
    "resendInterval": "reminders are a setting of alert channels",
}

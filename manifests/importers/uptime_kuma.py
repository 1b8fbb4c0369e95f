"""Uptime Kuma's backup: `{"version": …, "monitorList": […]}`, which version 1 exports.

Version 2 exports none; what it sends its pages, and tools that save it, is the list by itself, or an object by id.
"""

from __future__ import annotations

import re
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

_CONTENT_TYPES = {"xml": "text/xml; charset=utf-8", "form": "application/x-www-form-urlencoded"}
_METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
_PATH = re.compile(r"\$?\.?([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+|\[\d+\])*)")
_ELSEWHERE = {
    "notificationIDList": "alert channels are not imported",
    "tags": "there are no tags here",
    "description": "there is no description here",
    "proxyId": "nothing is checked through a proxy here",
    "parent": "groups are not imported; use --project",
    "resendInterval": "reminders are a setting of alert channels here",
}


def read(text: str) -> list[Mapped]:
    found = load_json(text)
    if isinstance(found, Mapping) and "monitorList" in found:
        found = found["monitorList"]
    elif isinstance(found, Mapping) and not all(isinstance(item, Mapping) for item in found.values()):
        raise UnreadableFileError("the file has no monitorList")
    return [_one(item) for item in items_of(found, what="monitorList")]


def _one(item: Mapping[str, Any]) -> Mapped:
    making = Making(item, name=item.get("name"))
    try:
        _map(making)
    except Refused as refusal:
        return making.left_out(refusal)
    return making.mapped()


def _map(making: Making) -> None:
    kind = making.text("type")
    if making.source.get("upsideDown"):
        raise Refused("upsideDown", "nothing is up here because its target is not")
    if kind == "push":
        _push(making)
    elif kind in ("http", "keyword", "json-query"):
        _http(making, kind)
    else:
        raise Refused("type", f"{kind or 'nothing'} is not probed here")
    making.enabled = bool(making.source.get("active", True))
    making.note_if_there(_ELSEWHERE)


def _push(making: Making) -> None:
    making.given["type"] = "heartbeat"
    making.seconds("interval", to="interval_sec")
    retries, pause = making.number("maxretries") or 0, making.number("retryInterval") or 0
    making.given["grace_sec"] = round(retries * pause)
    making.note("pushToken", "the address to ping is another one")


def _http(making: Making, kind: str) -> None:
    given = making.given
    making.url("url", making.text("url"))
    given["method"] = (making.text("method") or "GET").upper()
    if given["method"] not in _METHODS:
        raise Refused("method", "is none that is sent here")
    making.seconds("interval", to="interval_sec")
    # Version 1 had no field for it, and waited for 0.8 of the interval.
    timeout = making.number("timeout") or 0.8 * (making.number("interval") or 0)
    if timeout:
        making.timeout("timeout", timeout)
    given["fail_threshold"] = round(making.number("maxretries") or 0) + 1
    pause = making.number("retryInterval")
    if given["fail_threshold"] > 1 and pause is not None and pause != making.number("interval"):
        making.note("retryInterval", "failures are looked at again after the interval here")
    _redirects_and_codes(making)
    _trust(making)
    _authenticate(making)
    making.headers("headers")
    encoding = making.text("httpBodyEncoding")
    making.body("body", making.text("body"), content_type=_CONTENT_TYPES.get(encoding))
    if kind == "keyword":
        rule = "text_absent" if making.source.get("invertKeyword") else "text_contains"
        making.rule("keyword", type=rule, value=making.text("keyword"))
    elif kind == "json-query":
        _json_query(making)
    making.settle_type()


def _redirects_and_codes(making: Making) -> None:
    most = making.number("maxredirects")
    making.given["follow_redirects"] = most is None or most > 0
    if most is not None and most > 0 and most != 10:
        making.note("maxredirects", "10 are the most here")
    codes = making.source.get("accepted_statuscodes")
    expect(making, "accepted_statuscodes", status_codes(codes if isinstance(codes, list) else ["200-299"]))


def _trust(making: Making) -> None:
    if making.source.get("ignoreTls"):
        making.note("ignoreTls", "certificates are always verified here")
    if making.source.get("expiryNotification"):
        making.given["check_ssl"] = True
    if making.source.get("domainExpiryNotification"):
        making.given["check_domain"] = True


def _authenticate(making: Making) -> None:
    way = making.text("authMethod")
    if way in ("", "basic"):
        user, password = making.text("basic_auth_user"), making.text("basic_auth_pass")
        if user or password:
            making.basic_auth("basic_auth_user", user, password)
    else:
        raise Refused("authMethod", f"{way} is not spoken here")


def _json_query(making: Making) -> None:
    operator = making.text("jsonPathOperator") or "=="
    path = _PATH.fullmatch(making.text("jsonPath").strip())
    if path is None:
        raise Refused("jsonPath", "is more than a path of keys and indexes")
    if operator != "==":
        raise Refused("jsonPathOperator", f"a field is compared with == here, not with {operator}")
    dotted = re.sub(r"\[(\d+)\]", r".\1", path[1])
    expected = making.source.get("expectedValue")
    making.rule("jsonPath", type="json_field", path=dotted, equals="" if expected is None else str(expected))

"""A backup of Uptime Kuma version 1: `{"version": …, "monitorList": […]}`.

Version 2 has no export. Tools that save its data write only the list, or an object of monitors by id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from checks.probes.ping.spec import MAX_PACKETS
from core.text import shorten
from manifests.importers import rows
from manifests.importers.addresses import dns_url, split_resolver
from manifests.importers.mapped import MappedMonitor, MonitorBuilder, Table, UnreadableFileError, load_json, map_items

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


def _port(builder: MonitorBuilder, field: str) -> None:
    """Set the address. Uptime Kuma uses TLS only if both a security and the expiry of the certificate are set."""
    rows.server("tcp", port="port")(builder, field)
    security, watched = builder.text("smtpSecurity"), builder.source.get("expiryNotification")
    encrypted = security in ("secure", "starttls")
    if encrypted and watched:
        dialogue = f"?starttls={_starttls(builder)}" if security == "starttls" else ""
        url = f"tls{builder.body['url'].removeprefix('tcp')}{dialogue}"
        builder.body |= {"url": url, "check_ssl": True, "timeout_ms": 10_000}
    elif watched:
        builder.note("expiryNotification", "is skipped: the port is checked without TLS")
    elif encrypted:
        builder.note("smtpSecurity", "is skipped: without expiryNotification the port is checked without TLS")


def _starttls(builder: MonitorBuilder) -> str:
    port = rows.port_number(builder, "port")
    if port not in _STARTTLS:
        builder.reject("smtpSecurity", f"starttls is supported on ports {', '.join(map(str, _STARTTLS))} only")
    return _STARTTLS[port]


def _tls_alert(builder: MonitorBuilder, field: str) -> None:
    if builder.text(field) not in ("", "none"):
        builder.reject(field, "monitors that expect a TLS alert are not supported")


def _ping_timeout(builder: MonitorBuilder, field: str) -> None:
    if "ping_count" in builder.source:  # version 1 waits 10 s, our default, and does not use the field
        rows.timeout(builder, field)


def _packets(builder: MonitorBuilder, field: str) -> None:
    count = round(builder.number(field) or 1)
    builder.body["packets"] = min(count, MAX_PACKETS)
    if count > MAX_PACKETS:
        builder.note(field, f"{count} becomes {MAX_PACKETS}, the maximum")


def _packet_size(builder: MonitorBuilder, field: str) -> None:
    if builder.number(field) not in (None, _PACKET_SIZE):
        builder.note(field, "is not supported: all packets have the same size")


def _dns(builder: MonitorBuilder, field: str) -> None:
    """Set the address. Uptime Kuma takes several resolvers, by name too."""
    name, servers = builder.text(field), "dns_resolve_server"
    found = [split_resolver(each) for each in builder.text(servers).replace(" ", "").split(",")]
    known = [each for each in found if each is not None]
    if not name.strip():
        builder.reject(field, "is missing")
    if not known:
        builder.reject(servers, "must name a resolver by its IP address")
    server, port = known[0]
    if len(found) > 1:
        builder.note(servers, f"only {server} is asked")
    port = port or rows.port_number(builder, "port")
    builder.body["url"] = dns_url(name, builder.text("dns_resolve_type") or "A", server=server, port=port)


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


_COMMON: Table = {
    "interval": rows.whole_number("interval_sec"),
    "maxretries": _retries,
    "domainExpiryNotification": rows.flag("check_domain"),
}
_HTTP: Table = {
    "url": rows.url,
    "method": rows.method("GET", _METHODS),
    **_COMMON,
    "timeout": _timeout,
    "maxredirects": _redirects,
    "accepted_statuscodes": rows.status_codes("200-299"),
    "ignoreTls": "certificates are always verified",
    "expiryNotification": rows.flag("check_ssl"),
    "authMethod": _authenticate,
    "headers": rows.headers,
    "body": _body,
}
_TYPES: Mapping[str, Table] = {
    "http": _HTTP,
    "keyword": {**_HTTP, "keyword": _keyword},
    "json-query": {**_HTTP, "jsonPath": _json_query},
    "port": {
        "type": rows.constants(type="port", timeout_ms=5_000),  # that of Uptime Kuma, which ignores the field
        "expectedTlsAlert": _tls_alert,
        "hostname": _port,
        **_COMMON,
    },
    "ping": {
        "type": rows.constants(type="ping"),
        "hostname": rows.server("icmp"),
        **_COMMON,
        "timeout": _ping_timeout,
        "ping_count": _packets,
        "packetSize": _packet_size,
        "ping_per_request_timeout": "is skipped: a reply counts until the timeout of the whole check",
    },
    "dns": {
        "type": rows.constants(type="dns"),
        "hostname": _dns,
        **_COMMON,
        "timeout": rows.timeout,
        "conditions": _records,
        "dns_last_result": "is not imported; set records to expect a certain answer",
    },
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
    "ipFamily": "IPv4 and IPv6 are both used",
    "resendInterval": "reminders are a setting of alert channels",
}

"""What a monitor may be: defaults, clamps, floors, HEAD -> GET, and what does not go together. Pure.

A config is the whole of a monitor's configuration. Create makes one from the body and the defaults, PATCH
from the stored monitor and the body, so both are judged as the merged monitor they would leave (decision 14).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from checks.domains import registrable_domain
from checks.probes.http.spec import RuleType
from checks.probes.http.target import BadAddressError, BadRequestError, Target, host_of, parse_target
from core.errors import ValidationFailed

MAX_BODY = 8_192
MAX_RULES = 4
MAX_HEADERS = 4
MIN_TIMEOUT_MS, MAX_TIMEOUT_MS = 1_000, 60_000
MAX_INTERVAL_SEC = 2_147_483_647  # what the column holds
METHODS = ("HEAD", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BODY_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
HEADER_TYPES = ("bearer", "apikey", "custom")


class MonitorType(StrEnum):
    HTTP = "http"
    KEYWORD = "keyword"
    API = "api"
    HEARTBEAT = "heartbeat"
    SCHEDULER = "scheduler"
    DNS = "dns"
    PORT = "port"
    PING = "ping"
    UDP = "udp"


CREATABLE_TYPES = (
    MonitorType.HTTP,
    MonitorType.HEARTBEAT,
    MonitorType.SCHEDULER,
    MonitorType.API,
    MonitorType.KEYWORD,
)
PLANNED_TYPES = (MonitorType.DNS, MonitorType.PORT, MonitorType.PING, MonitorType.UDP)
HTTP_TYPES = frozenset(
    {MonitorType.HTTP, MonitorType.API, MonitorType.KEYWORD}
)  # a PATCH may change among them
DEFAULT_METHODS = {MonitorType.API: "GET", MonitorType.KEYWORD: "GET", MonitorType.SCHEDULER: "POST"}
RUN_ID_HEADER = "Pulsekeeper-Run-Id"

# RFC 9110 5.6.2; what is refused belongs to the connection or the framing, which are the prober's own.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_FORBIDDEN_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        RUN_ID_HEADER.lower(),
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


@dataclass(frozen=True, slots=True)
class Header:
    """A request header; `value` is plaintext. `type` is a display hint.

    `dropped`: a value was stored and is not any more, because it was meant for another server or owner.
    """

    name: str
    value: str = field(repr=False)
    type: str | None = None
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    type: RuleType
    value: str | None = None
    path: str | None = None
    equals: str | None = None


@dataclass(frozen=True, slots=True)
class MonitorConfig:
    """A monitor's configuration, with the specification's defaults."""

    interval_sec: int
    type: MonitorType = MonitorType.HTTP
    name: str = "Untitled"
    url: str = ""
    method: str = "HEAD"
    grace_sec: int = 60
    slow_ms: int = 1_500
    timeout_ms: int = 10_000
    expect_status: int | None = None
    follow_redirects: bool = False
    check_ssl: bool = False
    check_domain: bool = False
    content_rules: tuple[Rule, ...] = ()
    request_headers: tuple[Header, ...] = ()
    request_body: str | None = None
    fail_threshold: int = 3
    recover_threshold: int = 1


FIELDS = tuple(f.name for f in fields(MonitorConfig))

# A change to one of these makes a result that was under way a result of an older configuration.
PROBED_FIELDS = frozenset(FIELDS) - {
    "name",
    "interval_sec",
    "grace_sec",
    "check_domain",
    "fail_threshold",
    "recover_threshold",
}

Permits = Callable[[str], bool]
"""Whether a host, where it is a literal address, may be reached; names are judged when the socket opens."""


def complete(
    given: Mapping[str, Any], *, floor_sec: int, permits_host: Permits, default_sec: int | None = None
) -> MonitorConfig:
    """Return a new monitor's config from the given fields; raises ValidationFailed.

    `floor_sec` and `default_sec` are the plan's shortest interval and the one that it uses where none is given.
    """
    taken = _plain(given, stored=())
    taken.setdefault("method", DEFAULT_METHODS.get(taken.get("type", MonitorType.HTTP), "HEAD"))
    return settle(
        replace(MonitorConfig(interval_sec=default_sec or floor_sec), **taken),
        floor_sec=floor_sec,
        permits_host=permits_host,
    )


def patch(
    stored: MonitorConfig, given: Mapping[str, Any], *, floor_sec: int, permits_host: Permits
) -> MonitorConfig:
    """Return the merged config that a PATCH would leave; raises ValidationFailed."""
    stored = keepable(stored, given)
    merged = replace(stored, **_plain(given, stored=stored.request_headers))
    check_type(stored.type, merged.type)
    return settle(merged, floor_sec=floor_sec, permits_host=permits_host)


def keepable(stored: MonitorConfig, given: Mapping[str, Any]) -> MonitorConfig:
    """Return what a change may keep of a config: no header values if the request would go to another server.

    They are write-only: a member who changes the URL must not learn them from a server of their own.
    """
    merged = replace(stored, **_plain(given, stored=stored.request_headers))
    return stored if _destination(merged) == _destination(stored) else without_header_values(stored)


def _destination(config: MonitorConfig) -> tuple[object, ...]:
    """Scheme, host and port of the URL, and the Host header, which a shared front such as a CDN forwards by."""
    try:
        origin: object = parse_target(config.url).origin
    except BadRequestError:  # a heartbeat's URL is empty; any other is refused when the config is settled
        origin = None
    hosts = (header.value for header in config.request_headers if header.name.lower() == "host")
    return origin, *(host.strip().lower() for host in hosts)


def without_header_values(config: MonitorConfig) -> MonitorConfig:
    """Return the config with its header names and no values."""
    headers = (
        replace(header, value="", dropped=header.dropped or header.value != "")
        for header in config.request_headers
    )
    return replace(config, request_headers=tuple(headers))


def without_secrets(config: MonitorConfig) -> MonitorConfig:
    """Return what another owner may get of a config: neither header values nor the request body."""
    return replace(without_header_values(config), request_body=None)


def dropped_headers(config: MonitorConfig) -> list[str]:
    """Return the names of headers whose value has to be entered again."""
    return [header.name for header in config.request_headers if header.dropped]


def check_type(before: MonitorType, after: MonitorType) -> None:
    """Raises ValidationFailed where a monitor cannot become one of the other type."""
    if before != after and not {before, after} <= HTTP_TYPES:
        raise ValidationFailed(f"a {before} monitor cannot become {after}.", field="type")


def _plain(given: Mapping[str, Any], *, stored: Sequence[Header]) -> dict[str, Any]:
    """The given fields of the API as fields of a MonitorConfig."""
    taken = {name: given[name] for name in FIELDS if name in given}
    if "type" in taken:
        taken["type"] = MonitorType(taken["type"])
    if "content_rules" in taken:
        taken["content_rules"] = tuple(
            Rule(RuleType(r["type"]), r.get("value"), r.get("path"), r.get("equals"))
            for r in taken["content_rules"]
        )
    if "request_headers" in taken:
        kept = {header.name.lower(): header for header in stored}
        taken["request_headers"] = tuple(
            _header(h, kept.get(h["name"].lower())) for h in taken["request_headers"]
        )
    return taken


def _header(given: Mapping[str, Any], stored: Header | None) -> Header:
    if "value" in given or stored is None:
        return Header(given["name"], given.get("value", ""), given.get("type"))
    return replace(stored, name=given["name"], type=given.get("type"))


def settle(config: MonitorConfig, *, floor_sec: int, permits_host: Permits) -> MonitorConfig:
    """The config with clamps, floors and forced methods applied, once everything about it holds."""
    if config.url or config.type is not MonitorType.HEARTBEAT:
        _check_url(config, permits_host)
    _check_rules(config)
    _check_headers(config)
    method = "GET" if config.content_rules and config.method == "HEAD" else config.method
    # As given: a HEAD that rules would turn into GET is none that a scheduler takes.
    if config.type is MonitorType.SCHEDULER and config.method in {"HEAD", "OPTIONS"}:
        raise ValidationFailed(f"a scheduler cannot trigger with {config.method}.", field="method")
    if config.request_body is not None:
        if len(config.request_body) > MAX_BODY:
            raise ValidationFailed(f"must be at most {MAX_BODY} characters.", field="request_body")
        if method not in BODY_METHODS:
            raise ValidationFailed(f"cannot be sent with {method}.", field="request_body")
    return replace(
        config,
        method=method,
        interval_sec=min(max(config.interval_sec, floor_sec), MAX_INTERVAL_SEC),
        timeout_ms=min(max(config.timeout_ms, MIN_TIMEOUT_MS), MAX_TIMEOUT_MS),
        expect_status=config.expect_status or None,
    )


def _check_url(config: MonitorConfig, permits_host: Permits) -> None:
    if not config.url:
        raise ValidationFailed(f"is required for a monitor of type {config.type}.", field="url")
    try:
        host = host_of(config.url, instead="use a request header")
    except BadAddressError as error:
        raise ValidationFailed(str(error), field="url") from None
    if config.type is not MonitorType.HEARTBEAT and not permits_host(host):
        raise ValidationFailed(
            "is a private or reserved address, which Pulsekeeper does not probe.", field="url"
        )


def _check_rules(config: MonitorConfig) -> None:
    if len(config.content_rules) > MAX_RULES:
        raise ValidationFailed(f"at most {MAX_RULES} rules.", field="content_rules")
    kinds = {rule.type for rule in config.content_rules}
    if config.type is MonitorType.API and RuleType.JSON_FIELD not in kinds:
        raise ValidationFailed("an api monitor needs at least one json_field rule.", field="content_rules")
    if config.type is MonitorType.KEYWORD and not kinds - {RuleType.JSON_FIELD}:
        raise ValidationFailed(
            "a keyword monitor needs at least one text_contains or text_absent rule.", field="content_rules"
        )
    for index, rule in enumerate(config.content_rules):
        where = f"content_rules[{index}]"
        if rule.type is RuleType.JSON_FIELD:
            if not rule.path:
                raise ValidationFailed("is required for json_field.", field=f"{where}.path")
        elif not rule.value:
            raise ValidationFailed(f"is required for {rule.type}.", field=f"{where}.value")


def _check_headers(config: MonitorConfig) -> None:
    if len(config.request_headers) > MAX_HEADERS:
        raise ValidationFailed(f"at most {MAX_HEADERS} headers.", field="request_headers")
    seen: set[str] = set()
    for index, header in enumerate(config.request_headers):
        where = f"request_headers[{index}]"
        name = header.name.lower()
        if not _TOKEN.fullmatch(header.name):
            raise ValidationFailed("is not a valid header name.", field=f"{where}.name")
        if name in _FORBIDDEN_HEADERS:
            raise ValidationFailed(f"{header.name} is set by the prober itself.", field=f"{where}.name")
        if name in seen:
            raise ValidationFailed(f"{header.name} is named twice.", field=f"{where}.name")
        seen.add(name)
        if _CONTROL.search(header.value):
            raise ValidationFailed("must hold no control characters.", field=f"{where}.value")


Origin = tuple[str, str, int]


def origin_of(config: MonitorConfig) -> Origin | None:
    """Scheme, host and port that are probed; None for what probes nothing."""
    target = _target(config)
    return None if target is None else target.origin


def watched_domain(config: MonitorConfig) -> str | None:
    """The registrable domain whose expiry is to be watched, if it is and there is one."""
    target = _target(config) if config.check_domain else None
    return None if target is None or target.host is None else registrable_domain(target.host)


def _target(config: MonitorConfig) -> Target | None:
    if config.type is MonitorType.HEARTBEAT:
        return None
    try:
        return parse_target(config.url)
    except BadRequestError:  # stored under older rules than today's
        return None

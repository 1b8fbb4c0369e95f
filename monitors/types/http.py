"""Monitors that send an HTTP request: their common part, and the plain `http` type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Self

import msgspec

from checks.probes.http.spec import HttpSpec
from core.errors import ValidationFailed
from monitors.types.base import MonitorType, Permits
from monitors.types.encryption import CA_FILE, TlsSettings, check_tls
from monitors.types.schedule import UTC, Expression, TimeZone
from monitors.types.settings import MonitorConfig, Setting

METHODS = ("HEAD", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
BODY_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
MISSED = ("skip", "once")
HEADER_TYPES = ("bearer", "apikey", "custom")
MAX_HEADERS = 4
MAX_HEADER_NAME, MAX_HEADER_VALUE = 256, 4096
RUN_ID_HEADER = "Pulsekeeper-Run-Id"

# RFC 9110 5.6.2. The forbidden headers belong to the connection or the framing, which the prober controls.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
FORBIDDEN_HEADERS = frozenset(
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


class Header(msgspec.Struct, frozen=True, omit_defaults=True, rename={"dropped": "value_dropped"}):
    """A request header; `value` is plaintext. `type` is a display hint.

    `dropped`: the stored value was deleted, because the server or the owner changed.
    """

    name: str
    value: str = ""
    type: str | None = None
    dropped: bool = False

    def __repr__(self) -> str:
        return f"Header({self.name!r})"


class HttpSettings(TlsSettings, frozen=True, kw_only=True):
    method: Annotated[
        str,
        Setting(
            description="Default: HEAD, GET for api and keyword, POST for a scheduler, which rejects HEAD and "
            "OPTIONS. HEAD becomes GET when content rules are set.",
            help="HEAD is the lightest, and becomes GET if the body has to be read.",
            position=10,
            choices=METHODS,
        ),
    ] = "HEAD"
    expect_status: Annotated[
        int | None,
        Setting(
            description="null or 0: any 2xx or 3xx.",
            label="Expected status",
            help="Exactly this status. Empty: any 2xx or 3xx, for a scheduler any 2xx.",
            placeholder="any 2xx or 3xx",
            position=60,
            minimum=0,
            maximum=999,
        ),
    ] = None
    follow_redirects: Annotated[
        bool,
        Setting(
            help="Judge the page that redirects lead to, after at most 10 of them. Otherwise a redirect is a response.",
            position=70,
        ),
    ] = False
    request_headers: Annotated[tuple[Header, ...], Setting(position=110, max_length=MAX_HEADERS)] = ()
    schedule: Expression = None
    timezone: TimeZone = UTC
    missed: Annotated[
        str,
        Setting(
            description="scheduler: what to do about runs that were missed while Pulsekeeper was stopped: nothing, or "
            "one run at once.",
            label="Missed runs",
            help="When Pulsekeeper itself was stopped: skip them, or run once after it has started again.",
            position=23,
            section="when",
            choices=MISSED,
            probed=False,
        ),
    ] = "skip"

    def settle(self, kind: MonitorType) -> Self:
        settled = super().settle(kind)
        self._check_headers()
        expect_status = self.expect_status or None
        if not isinstance(kind, HttpType):
            return msgspec.structs.replace(settled, expect_status=expect_status)
        # Check the submitted method: rules would turn HEAD into GET and hide the error.
        if self.method in kind.refused_methods:
            raise ValidationFailed(f"a {kind.name} cannot use {self.method}.", field="method")
        method = "GET" if self.content_rules and self.method == "HEAD" else self.method
        if self.request_body is not None and method not in BODY_METHODS:
            raise ValidationFailed(f"cannot be sent with {method}.", field="request_body")
        return msgspec.structs.replace(settled, method=method, expect_status=expect_status)

    def stored(self) -> tuple[dict[str, Any], list[str]]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found, [header.pop("value", "") for header in found["request_headers"]]

    def with_secrets(self, secrets: Sequence[str]) -> Self:
        headers = (
            msgspec.structs.replace(header, value=value)
            for header, value in zip(self.request_headers, secrets, strict=True)
        )
        return msgspec.structs.replace(self, request_headers=tuple(headers))

    def without_secrets(self, *, moved: bool) -> Self:
        headers = tuple(
            msgspec.structs.replace(header, value="", dropped=header.dropped or header.value != "")
            for header in self.request_headers
        )
        return msgspec.structs.replace(super().without_secrets(moved=moved), request_headers=headers)

    def dropped_secrets(self) -> list[str]:
        return [header.name for header in self.request_headers if header.dropped]

    def _check_headers(self) -> None:
        if len(self.request_headers) > MAX_HEADERS:
            raise ValidationFailed(f"at most {MAX_HEADERS} headers.", field="request_headers")
        seen: set[str] = set()
        for index, header in enumerate(self.request_headers):
            where = f"request_headers[{index}]"
            name = header.name.lower()
            if not _TOKEN.fullmatch(header.name):
                raise ValidationFailed("is not a valid header name.", field=f"{where}.name")
            if name in FORBIDDEN_HEADERS:
                raise ValidationFailed(f"{header.name} is set by Pulsekeeper.", field=f"{where}.name")
            if name in seen:
                raise ValidationFailed(f"{header.name} is repeated.", field=f"{where}.name")
            seen.add(name)
            if _CONTROL.search(header.value):
                raise ValidationFailed("cannot contain control characters.", field=f"{where}.value")


class HttpType(MonitorType):
    """A type that sends an HTTP request."""

    settings = HttpSettings
    unasked = frozenset({"request_body_encoding", "schedule", "timezone", "missed"})
    body_encodings = ("text",)
    refused_methods: ClassVar[frozenset[str]] = frozenset()

    @property
    def family(self) -> str:
        return "http" if self.polls else self.name

    def check_target(self, config: MonitorConfig, permits_host: Permits) -> None:
        super().check_target(config, permits_host)
        check_tls(config)

    def destination(self, config: MonitorConfig) -> tuple[object, ...]:
        """Return the origin and the Host header, by which a shared front end such as a CDN routes the request."""
        hosts = (header.value for header in _own(config).request_headers if header.name.lower() == "host")
        return self.origin(config), *(host.strip().lower() for host in hosts)

    def spec(self, config: MonitorConfig, *, run_id: str) -> HttpSpec:
        own = _own(config)
        headers = [(header.name, header.value) for header in own.request_headers]
        if self.fires:
            headers.append((RUN_ID_HEADER, run_id))
        return HttpSpec(
            url=config.url,
            method=own.method,
            headers=tuple(headers),
            only_2xx=self.fires,
            body=own.request_body,
            timeout_ms=config.timeout_ms,
            slow_ms=config.slow_ms,
            expect_status=own.expect_status,
            follow_redirects=own.follow_redirects,
            check_ssl=config.check_ssl,
            tls_verify=own.tls_verify,
            ca_certificate=own.ca_certificate,
            rules=own.probe_rules(),
        )

    def reproduce(self, config: MonitorConfig) -> str:
        own = _own(config)
        lines = ["curl", "--verbose", f"--max-time {config.timeout_ms / 1000:g}"]
        lines.append("--head" if own.method == "HEAD" else f"--request {own.method}")
        if own.follow_redirects:
            lines.append("--location")
        if config.url.lower().startswith("https:") or own.follow_redirects:
            if not own.tls_verify:
                lines.append("--insecure")
            elif own.ca_certificate is not None:
                lines.append(f"--cacert {CA_FILE}")
        lines += [f"--header {shlex.quote(f'{header.name}: VALUE')}" for header in own.request_headers]
        if own.request_body is not None:
            lines.append(f"--data-raw {shlex.quote(own.request_body)}")
        # --globoff: brackets in the URL are not a pattern. --url: the URL may start with a hyphen.
        lines += ["--globoff", f"--url {shlex.quote(config.url)}"]
        return " \\\n  ".join(lines)


def _own(config: MonitorConfig) -> HttpSettings:
    assert isinstance(config.own, HttpSettings)
    return config.own


class Http(HttpType):
    name = "http"
    label = "Website"
    icon = "globe"
    description = "Calls an address and judges its response: status, time, certificate."

"""The base class of monitor types: everything that differs by type is a field or a method here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import urlsplit

from checks.addresses import BeginsTls, server_url, split_server, web_url
from checks.probes.http.request import host_of, parse_target
from checks.probes.target import BadAddressError
from checks.spec import CheckSpec, RuleType
from core.errors import PrivateAddress, ValidationFailed
from monitors.types.settings import MonitorConfig, Setting, Settings, settings_of

Permits = Callable[[str], bool]
"""Whether probes may connect to a host if it is a literal address. Names are checked when the socket opens."""

Origin = tuple[str, str, int]
"""Scheme, host and port."""


class Execution(StrEnum):
    """How a monitor gets its results."""

    POLLS = "polls"  # a worker checks the target, and may repeat a check
    WAITS = "waits"  # an external job sends signals, and a deadline passes without one
    FIRES = "fires"  # a worker calls the target to trigger an action: at most once per slot


class MonitorType(ABC):
    """A monitor type. `settings` are its own settings, `unasked` the common settings that it does not use.

    `schemes` are those of its addresses, and `example` is one of these. `helps` are help texts of the form in place of
    those of the settings. `takes_host`: the form asks for a host or name, labelled `url_label`, and for `parts`, and
    makes the address of them.

    Types of one `family` have the same settings, and a monitor may change between them. `has_secret_id`: the id is
    enough to send the monitor's signals, so no log or report shows it. `notes_changes`: its checks note what changed in
    the answer. `rule_types`, `body_encodings` and `max_body_bytes` (None: only the common limit) are what it accepts of
    content rules and body. A monitor needs a rule of one of the `required_rules`, if any.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    icon: ClassVar[str]
    description: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]] = ("http", "https")
    example: ClassVar[str] = "https://shop.example/health"
    takes_host: ClassVar[bool] = False
    url_label: ClassVar[str] = "Address"
    parts: ClassVar[tuple[str, ...]] = ()
    helps: ClassVar[Mapping[str, str]] = {}
    execution: ClassVar[Execution] = Execution.POLLS
    settings: ClassVar[type[Settings]]
    defaults: ClassVar[Mapping[str, Any]] = {}
    unasked: ClassVar[frozenset[str]] = frozenset()
    has_secret_id: ClassVar[bool] = False
    notes_changes: ClassVar[bool] = False
    interval_label: ClassVar[str] = "Check every"
    result_noun: ClassVar[str] = "check"
    panel: ClassVar[str] = "dashboard/monitors/latency.html"
    rule_types: ClassVar[frozenset[RuleType]] = frozenset(RuleType)
    required_rules: ClassVar[frozenset[RuleType]] = frozenset()
    rules_help: ClassVar[str] = "Optional: what the response must contain, in addition to the status."
    first_rule: ClassVar[RuleType] = RuleType.TEXT_CONTAINS
    body_encodings: ClassVar[tuple[str, ...]] = ("text", "hex", "base64")
    max_body_bytes: ClassVar[int | None] = None

    @property
    def polls(self) -> bool:
        return self.execution is Execution.POLLS

    @property
    def waits(self) -> bool:
        return self.execution is Execution.WAITS

    @property
    def fires(self) -> bool:
        return self.execution is Execution.FIRES

    @property
    def family(self) -> str:
        return self.name

    @property
    def opens_in_browser(self) -> bool:
        """Return whether addresses of this type are pages that a browser opens."""
        return "https" in self.schemes

    @cached_property
    def asked(self) -> Mapping[str, Setting]:
        """Return the settings that monitors of this type use, in the order of their positions."""
        common = {name: one for name, one in settings_of(MonitorConfig).items() if name not in self.unasked}
        own = {name: one for name, one in settings_of(self.settings).items() if name not in self.unasked}
        return dict(sorted((common | own).items(), key=lambda item: item[1].position))

    def parse(self, url: str) -> Origin:
        """Return the server that an address names. Raises BadAddressError for one that this type cannot use."""
        host_of(url, instead="use a request header")
        return parse_target(url).origin

    def split(self, text: str) -> dict[str, str]:
        """Return the parts that a typed or stored address names. `url` is the host where the form asks for one."""
        return {"url": text}

    def complete(self, parts: Mapping[str, str], begins_tls: BeginsTls) -> str:
        """Return the address of these parts. What cannot be completed stays, for `check_target` to refuse.

        Raises ValidationFailed for another part than `url`, and UntestedError.
        """
        return web_url(parts["url"], begins_tls)

    @property
    def placeholder(self) -> str:
        """Return what the form shows in place of an address."""
        return self.split(self.example)["url"]

    def title(self, url: str) -> str | None:
        """Return a name for a monitor of this address, or None if it is not a valid address."""
        try:
            return urlsplit(url).hostname
        except ValueError:
            return None

    def check_target(self, config: MonitorConfig, permits_host: Permits) -> None:
        """Raise ValidationFailed for an address that this type cannot use."""
        if not config.url:
            raise ValidationFailed(f"is required for a monitor of type {self.name}.", field="url")
        try:
            _, host, _ = self.parse(config.url)
        except BadAddressError as error:
            raise ValidationFailed(str(error), field="url") from None
        if not permits_host(host):
            raise PrivateAddress("is a private or reserved address, which Pulsekeeper does not probe.", field="url")

    def origin(self, config: MonitorConfig) -> Origin | None:
        """Return scheme, host and port of the probed address, or None."""
        try:
            return self.parse(config.url)
        except BadAddressError:  # none that was checked
            return None

    def destination(self, config: MonitorConfig) -> tuple[object, ...]:
        """Return what identifies the server that secrets are sent to."""
        return (self.origin(config),)

    @abstractmethod
    def spec(self, config: MonitorConfig, *, run_id: str) -> CheckSpec:
        """Return the spec for a probe. `run_id` identifies the slot to the target of a type that fires."""

    def reproduce(self, config: MonitorConfig) -> str:
        """Return a shell command that makes the same check, without secrets; empty if there is none."""
        return ""


class ServerType(MonitorType):
    """A type whose addresses name a host and, if `port` is one of its parts, a port."""

    takes_host = True
    url_label = "Host"
    parts: ClassVar[tuple[str, ...]] = ("port",)

    def split(self, text: str) -> dict[str, str]:
        server = split_server(text, schemes=self.schemes)
        if server is None or server.starttls or (server.port and "port" not in self.parts):
            return {"url": text}
        return {"url": server.host} | ({"port": server.port} if server.port else {})

    def complete(self, parts: Mapping[str, str], begins_tls: BeginsTls) -> str:
        host, port = parts["url"], parts.get("port")
        if not host or "://" in host:
            return host
        if port == "":
            raise ValidationFailed("must be a number from 1 to 65535.", field="port")
        return server_url(self.schemes[0], host, port)

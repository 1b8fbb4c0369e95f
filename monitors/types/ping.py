from __future__ import annotations

import shlex
from typing import Annotated, Self

from checks.probes.ping.spec import MAX_PACKETS, PingSpec, parse_ping
from core.errors import ValidationFailed
from monitors.types.base import MonitorType, Origin, ServerType
from monitors.types.settings import MonitorConfig, Setting, Settings


class PingSettings(Settings, frozen=True, kw_only=True):
    packets: Annotated[
        int,
        Setting(
            description="Echo requests of one ping.",
            help="Echo requests of one check.",
            position=135,
            section="when",
            minimum=1,
            maximum=MAX_PACKETS,
        ),
    ] = 3
    min_replies: Annotated[
        int,
        Setting(
            description="Replies that a ping needs to pass, at most packets.",
            label="Replies needed",
            help="The check passes with this many or more.",
            position=136,
            section="when",
            minimum=1,
            maximum=MAX_PACKETS,
        ),
    ] = 1

    def settle(self, kind: MonitorType) -> Self:
        if kind.settings is PingSettings and self.min_replies > self.packets:
            raise ValidationFailed(f"must be at most packets, which is {self.packets}.", field="min_replies")
        return self


class Ping(ServerType):
    name = "ping"
    label = "Ping"
    icon = "activity"
    description = "Sends ICMP echo requests to a host, and measures round trips and loss."
    schemes = ("icmp",)
    example = "icmp://router.example"
    parts = ()
    helps = {  # noqa: RUF012
        "url": "A name or an IP address, without a port.",
        "slow_ms": "A mean round trip of this length counts as slow.",
    }
    settings = PingSettings
    unasked = frozenset({"check_ssl"})
    rule_types = frozenset()
    max_body_bytes = 0

    def parse(self, url: str) -> Origin:
        return parse_ping(url).origin

    def spec(self, config: MonitorConfig, *, run_id: str) -> PingSpec:
        assert isinstance(config.own, PingSettings)
        return PingSpec(
            host=parse_ping(config.url).host,
            timeout_ms=config.timeout_ms,
            slow_ms=config.slow_ms,
            packets=config.own.packets,
            min_replies=config.own.min_replies,
        )

    def reproduce(self, config: MonitorConfig) -> str:
        return f"ping -c {config['packets']} {shlex.quote(parse_ping(config.url).host)}"

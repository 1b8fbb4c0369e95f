from __future__ import annotations

from typing import Annotated, Self

import msgspec

from checks.spec import CheckSpec
from core.errors import ValidationFailed
from monitors.types.base import Execution, MonitorType, Origin, Permits
from monitors.types.schedule import UTC, Expression, TimeZone
from monitors.types.settings import MonitorConfig, Setting, Settings

MAX_DURATION_SEC = 30 * 86_400


class HeartbeatSettings(Settings, frozen=True, kw_only=True):
    schedule: Expression = None
    timezone: TimeZone = UTC
    grace_sec: Annotated[
        int,
        Setting(
            label="Grace",
            description="How late a ping may be; without max_duration_sec also how long a started run may take.",
            help="How late a ping may be before the monitor is down. A started run may take as long too, unless "
            "Longest run is set.",
            position=30,
            section="when",
            minimum=0,
            unit="s",
            suggestions=("1m", "5m", "15m", "1h"),
            probed=False,
        ),
    ] = 60
    min_duration_sec: Annotated[
        int | None,
        Setting(
            description="A shorter run is a failure, if its start is signalled; null or 0: any.",
            label="Shortest run",
            help="A run that ends sooner is a failure. Empty: any.",
            placeholder="any",
            position=35,
            minimum=0,
            maximum=MAX_DURATION_SEC,
            unit="s",
            probed=False,
        ),
    ] = None
    max_duration_sec: Annotated[
        int | None,
        Setting(
            description="How long a started run may take, in place of grace_sec; null or 0: grace_sec counts.",
            label="Longest run",
            help="How long a run may take after its start signal before the monitor is down. Empty: as long as "
            "the grace.",
            placeholder="the grace",
            position=36,
            minimum=0,
            maximum=MAX_DURATION_SEC,
            unit="s",
            probed=False,
        ),
    ] = None
    max_pings_per_hour: Annotated[
        int | None,
        Setting(
            description="More successes and failures within an hour are reported; null: no limit.",
            label="Most pings per hour",
            help="More are reported, and sent to channels with these alerts. Empty: no limit.",
            placeholder="any number",
            position=37,
            minimum=1,
            maximum=100_000,
            probed=False,
        ),
    ] = None

    def settle(self, kind: MonitorType) -> Self:
        shortest, longest = self.min_duration_sec or None, self.max_duration_sec or None
        if kind.settings is HeartbeatSettings and shortest is not None and longest is not None and shortest > longest:
            raise ValidationFailed(f"must be at most max_duration_sec, which is {longest}.", field="min_duration_sec")
        return msgspec.structs.replace(self, min_duration_sec=shortest, max_duration_sec=longest)


class Heartbeat(MonitorType):
    """The id is the secret of the public ping URL. A missed deadline is down at once, because it includes the grace."""

    name = "heartbeat"
    label = "Heartbeat"
    icon = "heart-pulse"
    description = "Your job calls Pulsekeeper, which alerts you when the calls stop."
    execution = Execution.WAITS
    settings = HeartbeatSettings
    unasked = frozenset(
        {
            *("url", "slow_ms", "timeout_ms", "check_ssl", "check_domain", "fail_threshold", "confirmation_sec"),
            *("locations", "quorum"),
        }
    )
    has_secret_id = True
    interval_label = "A ping comes every"
    result_noun = "ping"
    panel = "dashboard/monitors/ping.html"

    def check_target(self, config: MonitorConfig, permits_host: Permits) -> None:
        if config.url:  # it is stored and never called
            super().check_target(config, lambda _: True)

    def origin(self, config: MonitorConfig) -> Origin | None:
        return None

    def spec(self, config: MonitorConfig, *, run_id: str) -> CheckSpec:
        raise NotImplementedError  # nothing is probed

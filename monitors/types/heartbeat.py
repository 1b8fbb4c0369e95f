from __future__ import annotations

from typing import Annotated

from monitors.types.base import Execution, MonitorType, Origin, Permits
from monitors.types.settings import MonitorConfig, Setting, Settings


class HeartbeatSettings(Settings, frozen=True, kw_only=True):
    grace_sec: Annotated[
        int,
        Setting(
            label="Grace",
            help="How late a ping may be.",
            position=30,
            section="when",
            minimum=0,
            unit="s",
            suggestions=("1m", "5m", "15m", "1h"),
            probed=False,
        ),
    ] = 60


class Heartbeat(MonitorType):
    """The id is the secret of the public ping URL. A missed deadline is down at once, because it includes the grace."""

    name = "heartbeat"
    label = "Heartbeat"
    icon = "heart-pulse"
    description = "Your job calls Pulsekeeper, which alerts you when the calls stop."
    execution = Execution.WAITS
    settings = HeartbeatSettings
    unasked = frozenset({"url", "slow_ms", "timeout_ms", "check_ssl", "check_domain", "fail_threshold"})
    has_secret_id = True
    interval_label = "A ping comes every"
    result_noun = "ping"
    panel = "dashboard/monitors/ping.html"

    def check_target(self, url: str, permits_host: Permits) -> None:
        if url:  # it is stored and never called
            super().check_target(url, lambda _: True)

    def origin(self, config: MonitorConfig) -> Origin | None:
        return None

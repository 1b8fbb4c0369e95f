"""The settings of a monitor as its page shows them, and examples that ping a heartbeat."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

from dashboard.durations import MS_OF, format_duration
from monitors.models import Monitor
from monitors.types.http import Header, Rule
from monitors.types.settings import Setting

_TEMPLATES = {Rule: "dashboard/monitors/facts_rules.html", Header: "dashboard/monitors/facts_headers.html"}
_SHOWN_ABOVE = ("name", "url")
_UNIT = "[Unit]\nDescription=A job that Pulsekeeper watches\n\n[Service]\nType=oneshot\nExecStart=/path/to/job\n"
_PING = "curl -fsS -m 10 --retry 5 -o /dev/null"


class Fact(NamedTuple):
    """A setting. `text` is its value in words; a `template` renders a value that has several parts."""

    label: str
    text: str
    value: Any
    template: str | None = None


def facts_of(monitor: Monitor) -> list[Fact]:
    """Return a fact for each setting that has a value and that the monitor's type uses."""
    config = monitor.public_config
    return [
        Fact(
            monitor.kind.interval_label if setting.name == "interval_sec" else setting.label,
            _text(setting, config[name]),
            config[name],
            _TEMPLATES.get(setting.item),
        )
        for name, setting in monitor.kind.asked.items()
        if name not in _SHOWN_ABOVE and (config[name] or setting.placeholder or setting.type in (bool, int))
    ]


def _text(setting: Setting, value: Any) -> str:
    if value is None:
        return setting.placeholder or "none"
    if setting.unit is not None:
        return format_duration(value * MS_OF[setting.unit])
    if setting.type is bool:
        return "yes" if value else "no"
    if setting.item is not None:
        return ", ".join(map(str, value))
    return f"{len(value)} characters" if setting.multiline else str(value)


def ping_snippets(url: str, *, interval_sec: int) -> list[tuple[str, str, str]]:
    """Return the names, explanations and texts of examples that ping a heartbeat."""
    return [
        ("curl", "At the end of a script, once the work is done.", f"{_PING} {shlex.quote(url)}"),
        (
            "cron",
            "The ping goes out only when the job succeeds.",
            f"{_cron(interval_sec)} /path/to/job && {_PING} {shlex.quote(url)}",
        ),
        (
            "Python",
            "With nothing but the standard library.",
            f"import urllib.request\n\nurllib.request.urlopen({url!r}, timeout=10)",
        ),
        (
            "systemd service",
            "ExecStartPost runs only when ExecStart succeeded. In /etc/systemd/system/job.service:",
            f"{_UNIT}ExecStartPost=/usr/bin/{_PING} {url}",
        ),
        (
            "systemd timer",
            "In /etc/systemd/system/job.timer; then: systemctl enable --now job.timer",
            f"[Timer]\nOnBootSec=1min\nOnUnitActiveSec={interval_sec}s\n\n[Install]\nWantedBy=timers.target",
        ),
    ]


def _cron(interval_sec: int) -> str:
    """Return the closest cron schedule whose interval is not longer than the heartbeat's, if possible."""
    minutes = max(1, interval_sec // 60)
    if minutes < 60:
        return f"*/{minutes} * * * *" if minutes > 1 else "* * * * *"
    hours = minutes // 60
    if hours < 24:
        return f"0 */{hours} * * *" if hours > 1 else "0 * * * *"
    return "0 3 * * *"

"""The settings of a monitor as its page shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dashboard.durations import MS_OF, format_duration
from monitors.models import Monitor
from monitors.types.http import Header, Rule
from monitors.types.settings import Setting

_TEMPLATES = {Rule: "dashboard/monitors/facts_rules.html", Header: "dashboard/monitors/facts_headers.html"}
_SHOWN_ABOVE = ("name", "url")


@dataclass(frozen=True, slots=True)
class Fact:
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

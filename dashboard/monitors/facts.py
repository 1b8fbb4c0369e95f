"""The settings of a monitor as its page shows them."""

from __future__ import annotations

from typing import Any, NamedTuple

from dashboard.durations import MS_OF, format_duration
from dashboard.monitors import schedules
from monitors.models import Monitor
from monitors.types.content import Rule
from monitors.types.http import Header
from monitors.types.settings import Setting

_TEMPLATES = {Rule: "dashboard/monitors/facts_rules.html", Header: "dashboard/monitors/facts_headers.html"}


class Fact(NamedTuple):
    """A setting. `text` is its value in words; a `template` renders a value that has several parts."""

    label: str
    text: str
    value: Any
    template: str | None = None


def facts_of(monitor: Monitor) -> list[Fact]:
    """Return a fact for each setting that has a value and that the monitor's type uses."""
    config = monitor.public_config
    hidden, schedule = {"name", "url"}, None  # the page shows these above
    if "schedule" in monitor.kind.asked:
        hidden |= schedules.unused(schedules.of(config["schedule"]))
        schedule = monitor.schedule
    return [
        Fact(
            monitor.kind.interval_label if setting.name == "interval_sec" else setting.label,
            _text(setting, config[name]) + (f"\n{schedule.in_words()}" if schedule and name == "schedule" else ""),
            config[name],
            _TEMPLATES.get(setting.item),
        )
        for name, setting in monitor.kind.asked.items()
        if name not in hidden and (config[name] or setting.placeholder or setting.type in (bool, int))
    ]


def _text(setting: Setting, value: Any) -> str:
    if value is None:
        return setting.placeholder or "none"
    if setting.unit is not None:
        return format_duration(value * MS_OF[setting.unit])
    if setting.type is bool:
        return "yes" if value else "no"
    if setting.item is not None:
        return "\n".join(map(str, value))
    return f"{len(value)} characters" if setting.multiline else str(value)

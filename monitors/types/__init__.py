"""The monitor types. Other modules ask a type what they need to know, and never compare its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from monitors.types.api import JsonApi
from monitors.types.base import MonitorType
from monitors.types.heartbeat import Heartbeat
from monitors.types.http import Http
from monitors.types.keyword import Keyword
from monitors.types.scheduler import Scheduler
from monitors.types.settings import MonitorConfig, Setting, Settings, settings_of

REGISTRY: dict[str, MonitorType] = {}
PLANNED = ("dns", "port", "ping", "udp")
"""Types of the contract that cannot be created yet."""
DEFAULT = Http.name


def register(kind: MonitorType) -> None:
    REGISTRY[kind.name] = kind
    _forget()


def unregister(kind: MonitorType) -> None:
    del REGISTRY[kind.name]
    _forget()


def get(name: str) -> MonitorType:
    return REGISTRY[name]


def names() -> list[str]:
    """Return the types that can be created."""
    return list(REGISTRY)


def all_names() -> list[str]:
    return [*REGISTRY, *(name for name in PLANNED if name not in REGISTRY)]


def polling() -> list[str]:
    return [name for name, kind in REGISTRY.items() if kind.polls]


def waiting() -> list[str]:
    return [name for name, kind in REGISTRY.items() if kind.waits]


def firing() -> list[str]:
    return [name for name, kind in REGISTRY.items() if kind.fires]


def with_secret_ids() -> list[str]:
    return [name for name, kind in REGISTRY.items() if kind.has_secret_id]


def family(kind: MonitorType) -> list[str]:
    """Return the types that a monitor of this one may change to, itself included."""
    return [name for name, other in REGISTRY.items() if other.family == kind.family]


@cache
def groups() -> tuple[type[Settings], ...]:
    """Return the structs of settings, each once."""
    return tuple(dict.fromkeys(kind.settings for kind in REGISTRY.values()))


@cache
def settings() -> Mapping[str, Setting]:
    """Return all settings of all types, by their names, in the order of their positions."""
    found = dict(settings_of(MonitorConfig))
    for group in groups():
        found |= settings_of(group)
    return dict(sorted(found.items(), key=lambda item: item[1].position))


@cache
def option_defaults() -> Mapping[str, Any]:
    """Return the defaults of the settings that types own, in their stored form."""
    return {
        name: [] if setting.item is not None and not setting.default else setting.default
        for name, setting in settings().items()
        if name not in MonitorConfig.columns
    }


def _forget() -> None:
    for cached in (groups, settings, option_defaults):
        cached.cache_clear()


for _type in (Http, Keyword, JsonApi, Heartbeat, Scheduler):
    register(_type())

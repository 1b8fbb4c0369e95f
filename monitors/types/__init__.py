"""The monitor types. Other modules ask a type what they need to know, and never compare its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from core.registry import NameTakenError, Registry
from monitors.types.api import JsonApi
from monitors.types.base import MonitorType
from monitors.types.dns import Dns
from monitors.types.heartbeat import Heartbeat
from monitors.types.http import Http
from monitors.types.keyword import Keyword
from monitors.types.ping import Ping
from monitors.types.port import Port
from monitors.types.scheduler import Scheduler
from monitors.types.settings import MonitorConfig, Setting, Settings, settings_of
from monitors.types.udp import Udp


class _Types(Registry[MonitorType]):
    def check(self, entry: MonitorType) -> None:
        """Raise NameTakenError for a setting of the new type that another type, or every type, defines otherwise.

        Settings of all types share the fields of the API, the forms and YAML: one definition each.
        """
        own, common = settings_of(entry.settings), ("type", *settings_of(MonitorConfig))
        for name in own.keys() & set(common):
            raise NameTakenError(f"the type {entry.name!r} defines {name!r}, which is a setting of every type.")
        for other in self.values():
            theirs = settings_of(other.settings)
            for name in own.keys() & theirs.keys():
                if own[name] != theirs[name]:
                    raise NameTakenError(
                        f"the types {other.name!r} and {entry.name!r} both define {name!r}, in different ways."
                    )


REGISTRY = _Types(
    kind()
    for kind in (
        Http,
        Keyword,
        JsonApi,
        Port,
        Udp,
        Ping,
        Dns,
        Heartbeat,
        Scheduler,
    )
)
DEFAULT = Http.name


def get(name: str) -> MonitorType:
    return REGISTRY[name]


def names() -> list[str]:
    return list(REGISTRY)


def polling() -> list[str]:
    return [name for name, kind in REGISTRY.items() if kind.polls]


def waiting() -> list[str]:
    return [name for name, kind in REGISTRY.items() if kind.waits]


def firing() -> list[str]:
    return [name for name, kind in REGISTRY.items() if kind.fires]


def of_scheme(scheme: str) -> MonitorType | None:
    """Return the first type that checks addresses of this scheme."""
    return next((kind for kind in REGISTRY.values() if kind.polls and scheme in kind.schemes), None)


def schemes() -> list[str]:
    """Return the schemes of all addresses that are checked."""
    return list(dict.fromkeys(scheme for kind in REGISTRY.values() if kind.polls for scheme in kind.schemes))


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
        name: list(setting.default) if isinstance(setting.default, tuple) else setting.default
        for name, setting in settings().items()
        if name not in MonitorConfig.columns
    }

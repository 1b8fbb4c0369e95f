"""From what is given to a monitor's configuration, and between the configuration and its stored form. Pure.

Create makes a configuration from the body and the defaults, PATCH from the stored one and the body. Both are
validated as the merged monitor that they would leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from checks.domains import registrable_domain
from core.errors import ValidationFailed
from monitors import types
from monitors.types.base import MonitorType, Permits
from monitors.types.http import Header
from monitors.types.settings import MonitorConfig, Setting, Settings, settings_of


def build(given: Mapping[str, Any]) -> MonitorConfig:
    """Return a configuration of these fields and the defaults of its type, not validated."""
    kind = types.get(given.get("type", types.DEFAULT))
    bare = MonitorConfig(
        type=kind.name, interval_sec=0, own=kind.settings(), unused=tuple(group() for group in _others(kind))
    )
    return merge(bare, {**kind.defaults, **given})


def merge(config: MonitorConfig, given: Mapping[str, Any]) -> MonitorConfig:
    """Return the configuration with the given fields of the API changed, not validated."""
    kind = types.get(given.get("type", config.type))
    own, unused = (_changed(one, given) for one in ([config.own], config.unused))
    common = {
        name: given[name] for name in settings_of(MonitorConfig) if name in given and name in config.columns
    }
    return msgspec.structs.replace(config, type=kind.name, own=own[0], unused=tuple(unused), **common)


def complete(
    given: Mapping[str, Any], *, floor_sec: int, permits_host: Permits, default_sec: int | None = None
) -> MonitorConfig:
    """Return a new monitor's configuration from the given fields; raises ValidationFailed.

    `floor_sec` and `default_sec` are the plan's shortest interval and the one that it uses where none is given.
    """
    config = build({"interval_sec": default_sec or floor_sec, **given})
    return settle(config, floor_sec=floor_sec, permits_host=permits_host)


def patch(
    stored: MonitorConfig, given: Mapping[str, Any], *, floor_sec: int, permits_host: Permits
) -> MonitorConfig:
    """Return the merged configuration that a PATCH would leave; raises ValidationFailed."""
    check_type(stored.type, given.get("type", stored.type))
    return settle(merge(keepable(stored, given), given), floor_sec=floor_sec, permits_host=permits_host)


def settle(config: MonitorConfig, *, floor_sec: int, permits_host: Permits) -> MonitorConfig:
    """Return the configuration with clamps, floors and forced values applied; raises ValidationFailed."""
    kind = types.get(config.type)
    kind.check_target(config.url, permits_host)
    own = config.own.settle(kind)
    unused = tuple(group.settle(kind) for group in config.unused)
    clamped = {
        name: setting.clamp(getattr(config, name))
        for name, setting in settings_of(MonitorConfig).items()
        if setting.clamped
    }
    clamped["interval_sec"] = max(clamped["interval_sec"], floor_sec)
    return msgspec.structs.replace(config, own=own, unused=unused, **clamped)


def check_type(before: str, after: str) -> None:
    """Raise ValidationFailed where a monitor cannot become one of the other type."""
    if before != after and after not in types.family(types.get(before)):
        raise ValidationFailed(f"a {before} monitor cannot become {after}.", field="type")


def keepable(stored: MonitorConfig, given: Mapping[str, Any]) -> MonitorConfig:
    """Return what a change may keep of a configuration: no secrets if the request would go to another server.

    They are write-only: a member who changes the URL must not learn them from a server of their own.
    """
    kind, merged = types.get(stored.type), merge(stored, given)
    return stored if kind.destination(merged) == kind.destination(stored) else without_secrets(stored)


def without_secrets(config: MonitorConfig, *, moved: bool = False) -> MonitorConfig:
    """Return what another server may get of a configuration, or, where the monitor is `moved`, another owner."""
    return msgspec.structs.replace(
        config,
        own=config.own.without_secrets(moved=moved),
        unused=tuple(group.without_secrets(moved=moved) for group in config.unused),
    )


def watched_domain(config: MonitorConfig) -> str | None:
    """Return the registrable domain whose expiry is monitored, if it is and there is one."""
    origin = types.get(config.type).origin(config) if config.check_domain else None
    return None if origin is None else registrable_domain(origin[1])


def differs(before: MonitorConfig, after: MonitorConfig) -> bool:
    """Return whether a result that was under way is one of an older configuration."""
    return before.type != after.type or any(
        before[name] != after[name] for name, setting in types.settings().items() if setting.probed
    )


def _others(kind: MonitorType) -> list[type[Settings]]:
    return [group for group in types.groups() if group is not kind.settings]


def _changed(groups: Sequence[Settings], given: Mapping[str, Any]) -> list[Settings]:
    return [
        msgspec.structs.replace(
            group,
            **{
                name: _value(setting, given[name], getattr(group, name))
                for name, setting in settings_of(type(group)).items()
                if name in given
            },
        )
        for group in groups
    ]


def _value(setting: Setting, given: Any, stored: Any) -> Any:
    """Return a field of the API as it is in the struct."""
    if setting.item is Header:
        kept = {header.name.lower(): header for header in stored}
        return tuple(_header(each, kept) for each in given)
    if setting.item is None:
        return given
    return tuple(msgspec.convert(each, setting.item) for each in given)


def _header(given: Mapping[str, Any] | Header, kept: Mapping[str, Header]) -> Header:
    """A header without a value keeps the value that is stored under its name."""
    if isinstance(given, Header):
        return given
    stored = kept.get(given["name"].lower())
    if "value" in given or stored is None:
        return Header(given["name"], given.get("value", ""), given.get("type"))
    return msgspec.structs.replace(stored, name=given["name"], type=given.get("type"))


# The stored form: the common settings are columns; the column `config` has those of the type, and those of other types
# that are not the default. Values of headers are apart, because they are encrypted.


def columns(config: MonitorConfig) -> tuple[dict[str, Any], list[str]]:
    """Return the columns of a configuration, `config` as JSON values, and the secrets to encrypt."""
    stored, secrets = config.own.stored()
    for group in config.unused:
        if group != type(group)():
            values, others = group.stored()
            stored |= values
            secrets += others
    return {name: getattr(config, name) for name in MonitorConfig.columns} | {"config": stored}, secrets


def load(
    common: Sequence[Any], stored: str | Mapping[str, Any], secrets: Sequence[str], *, whole: bool = True
) -> MonitorConfig:
    """Return a stored configuration. `common` are the values of MonitorConfig.columns, `stored` those of `config`.

    Without `whole`, settings of other types are left out: a worker has no use for them.
    """
    kind = types.get(common[0])
    groups = [kind.settings, *(_others(kind) if whole else ())]
    own, *unused = (
        _decoder(group).decode(stored) if isinstance(stored, str) else msgspec.convert(stored, group)
        for group in groups
    )
    if secrets:
        own, *unused = (group.with_secrets(secrets) for group in (own, *unused))
    return MonitorConfig(
        **dict(zip(MonitorConfig.columns, common, strict=True)), own=own, unused=tuple(unused)
    )


@cache
def _decoder(struct: type[Settings]) -> msgspec.json.Decoder[Settings]:
    return msgspec.json.Decoder(struct)

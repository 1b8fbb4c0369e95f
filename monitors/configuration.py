"""Build a monitor's configuration from submitted fields, and convert it to and from its stored form. Pure.

Create merges the body with the defaults, PATCH merges it with the stored configuration. Both validate the merged
result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from checks.domains import registrable_domain
from core.errors import ValidationFailed
from core.text import quote
from monitors import types
from monitors.types.base import MonitorType, Permits
from monitors.types.http import Header
from monitors.types.schedule import settle_schedule
from monitors.types.settings import (
    DEFAULT_LOCATION,
    MAX_LOCATIONS,
    MonitorConfig,
    Setting,
    Settings,
    settings_of,
)
from monitors.types.tags import settle_tags, tag_key


def build(given: Mapping[str, Any]) -> MonitorConfig:
    """Return an unvalidated configuration from these fields and the defaults of the type."""
    kind = types.get(given.get("type", types.DEFAULT))
    bare = MonitorConfig(
        type=kind.name, interval_sec=0, own=kind.settings(), unused=tuple(group() for group in _others(kind))
    )
    return merge(bare, {**kind.defaults, **given})


def merge(config: MonitorConfig, given: Mapping[str, Any]) -> MonitorConfig:
    """Return the configuration with these API fields applied, unvalidated."""
    kind = types.get(given.get("type", config.type))
    common = {
        name: _value(setting, given[name], getattr(config, name))
        for name, setting in settings_of(MonitorConfig).items()
        if name in given
    }
    return _replace(config, lambda group: _changed(group, given), type=kind.name, **common)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the place of a monitor allows.

    `floor_sec` is the plan's minimum interval, `default_sec` the interval of a monitor without one. `locations` are
    those that the monitor may name, and whether they are private; `preselected` are those of a monitor without any.
    """

    floor_sec: int
    permits_host: Permits
    default_sec: int | None = None
    locations: Mapping[str, bool] = field(default_factory=lambda: {DEFAULT_LOCATION: False})
    preselected: Sequence[str] = (DEFAULT_LOCATION,)


def complete(given: Mapping[str, Any], limits: Limits) -> MonitorConfig:
    """Return a new monitor's configuration from API fields. Raises ValidationFailed."""
    usual = {"interval_sec": limits.default_sec or limits.floor_sec, "locations": limits.preselected}
    return settle(build({**usual, **given}), limits)


def patch(stored: MonitorConfig, given: Mapping[str, Any], limits: Limits) -> MonitorConfig:
    """Return the merged configuration that a PATCH would leave; raises ValidationFailed."""
    check_type(stored.type, given.get("type", stored.type))
    return settle(merge(keepable(stored, given, limits), given), limits)


def settle(config: MonitorConfig, limits: Limits) -> MonitorConfig:
    """Return the configuration with clamps, floors and forced values applied; raises ValidationFailed."""
    kind = types.get(config.type)
    _check_locations(config, limits.locations)
    # The agents of private locations may probe what their own operators allow.
    is_private = all(limits.locations[name] for name in config.locations)
    kind.check_target(config, _any_host if is_private else limits.permits_host)
    clamped = {
        name: setting.clamp(getattr(config, name))
        for name, setting in settings_of(MonitorConfig).items()
        if setting.clamped
    }
    settled = _replace(config, lambda group: group.settle(kind), **clamped, tags=settle_tags(config.tags))
    return apply_floor(settled, floor_sec=limits.floor_sec)


def _check_locations(config: MonitorConfig, usable: Mapping[str, bool]) -> None:
    names = config.locations
    if not names:
        raise ValidationFailed("needs at least one location.", field="locations")
    if len(names) > MAX_LOCATIONS:
        raise ValidationFailed(f"at most {MAX_LOCATIONS} locations.", field="locations")
    if len(set(names)) < len(names):
        raise ValidationFailed("names a location more than once.", field="locations")
    if unknown := [name for name in names if name not in usable]:
        raise ValidationFailed(f"this monitor cannot be checked from {quote(unknown[0])}.", field="locations")
    if config.quorum is not None and config.quorum > len(names):
        raise ValidationFailed("is more than the number of locations.", field="quorum")


def _any_host(_: str) -> bool:
    return True


def apply_floor(config: MonitorConfig, *, floor_sec: int) -> MonitorConfig:
    """Return the configuration with at least this interval. Raises ValidationFailed for a schedule that is closer."""
    schedule = settle_schedule(config, types.get(config.type), floor_sec=floor_sec)
    return merge(config, {**schedule, "interval_sec": max(config.interval_sec, floor_sec)})


def check_type(before: str, after: str) -> None:
    """Raise ValidationFailed if a monitor cannot change from the first type to the second."""
    if before != after and after not in types.family(types.get(before)):
        raise ValidationFailed(f"a {before} monitor cannot become {after}.", field="type")


def keepable(stored: MonitorConfig, given: Mapping[str, Any], limits: Limits) -> MonitorConfig:
    """Return the stored configuration, without secrets if the change sends them elsewhere.

    Secrets are write-only: a member must not obtain them by changing the URL to a server of their own, or by a private
    location, whose agent gets them.
    """
    kind, merged = types.get(stored.type), merge(stored, given)
    added = set(merged.locations) - set(stored.locations)
    is_same = kind.destination(merged) == kind.destination(stored) and not any(map(limits.locations.get, added))
    return stored if is_same else without_secrets(stored)


def without_secrets(config: MonitorConfig, *, moved: bool = False) -> MonitorConfig:
    """Return the configuration without the secrets that another server, or if `moved` another owner, must not get."""
    return _replace(config, lambda group: group.without_secrets(moved=moved))


def watched_domain(config: MonitorConfig) -> str | None:
    """Return the registrable domain whose expiry is monitored, or None."""
    origin = types.get(config.type).origin(config) if config.check_domain else None
    return None if origin is None else registrable_domain(origin[1])


def differs(before: MonitorConfig, after: MonitorConfig) -> bool:
    """Return whether the change makes the results of running checks outdated."""
    return before.type != after.type or any(
        before[name] != after[name] for name, setting in types.settings().items() if setting.probed
    )


def _replace(config: MonitorConfig, change: Callable[[Settings], Settings], **common: Any) -> MonitorConfig:
    """Return the configuration with every group of settings changed, those of other types too."""
    own, *unused = map(change, (config.own, *config.unused))
    return msgspec.structs.replace(config, own=own, unused=tuple(unused), **common)


def _others(kind: MonitorType) -> list[type[Settings]]:
    return [group for group in types.groups() if group is not kind.settings]


def _changed(group: Settings, given: Mapping[str, Any]) -> Settings:
    changed = {
        name: _value(setting, given[name], getattr(group, name))
        for name, setting in settings_of(type(group)).items()
        if name in given
    }
    return msgspec.structs.replace(group, **changed)


def _value(setting: Setting, given: Any, stored: Any) -> Any:
    """Convert the API value of a setting to the type of its struct field."""
    if setting.item is Header:
        kept = {header.name.lower(): header for header in stored}
        return tuple(_header(each, kept) for each in given)
    if setting.item is None or given is None:
        return given
    return tuple(msgspec.convert(each, setting.item) for each in given)


def _header(given: Mapping[str, Any] | Header, kept: Mapping[str, Header]) -> Header:
    """Return the header to store. Without a value it keeps the stored value of the same name."""
    if isinstance(given, Header):
        return given
    stored = kept.get(given["name"].lower())
    if "value" in given or stored is None:
        return Header(given["name"], given.get("value", ""), given.get("type"))
    return msgspec.structs.replace(stored, name=given["name"], type=given.get("type"))


# The stored form: common settings are columns. The column `config` has the settings of the type, and the settings of
# other types that differ from their defaults. Header values are stored separately because they are encrypted.


def config_columns(config: MonitorConfig) -> dict[str, Any]:
    """Return a configuration as columns of Monitor."""
    stored, secrets = config.own.stored()
    for group in config.unused:
        if group != type(group)():
            values, others = group.stored()
            usual, _ = type(group)().stored()
            stored |= {name: value for name, value in values.items() if value != usual[name]}
            secrets += others
    common = {name: getattr(config, name) for name in MonitorConfig.columns}
    lists = {
        "locations": [*config.locations],
        "tags": [*config.tags],
        "tag_keys": [tag_key(tag) for tag in config.tags],
    }
    return {**common, **lists, "config": stored, "header_values": secrets or None}


def load(
    common: Sequence[Any], stored: str | Mapping[str, Any], secrets: Sequence[str], *, whole: bool = True
) -> MonitorConfig:
    """Return a stored configuration. `common` are the values of MonitorConfig.columns, `stored` those of `config`.

    Without `whole`, settings of other types are left out, and `common` are the values of `checked_columns`: workers do
    not need more.
    """
    kind = types.get(common[0])
    groups = [kind.settings, *(_others(kind) if whole else ())]
    own, *unused = (
        _decoder(group).decode(stored) if isinstance(stored, str) else msgspec.convert(stored, group)
        for group in groups
    )
    if secrets:
        own, *unused = (group.with_secrets(secrets) for group in (own, *unused))
    names = MonitorConfig.columns if whole else MonitorConfig.checked_columns
    columns = dict(zip(names, common, strict=True))
    columns |= {name: tuple(columns[name]) for name in ("locations", "tags") if name in columns}
    return MonitorConfig(**columns, own=own, unused=tuple(unused))


@cache
def _decoder(struct: type[Settings]) -> msgspec.json.Decoder[Settings]:
    return msgspec.json.Decoder(struct)

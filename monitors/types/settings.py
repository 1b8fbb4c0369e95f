"""Settings of monitors: each is one annotated field of a struct, and everything else is derived from it."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

import msgspec

from monitors.types.tags import MAX_TAGS

if TYPE_CHECKING:
    from monitors.types.base import MonitorType

MAX_INTERVAL_SEC = 2_147_483_647  # the maximum of the column
MAX_NAME, MAX_URL = 200, 2_048
MAX_LOCATIONS = 16
DEFAULT_LOCATION = "default"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Metadata of a field, in addition to its type and default. `settings_of` fills in `name` to `nullable`.

    `description` is for readers of the API, `label` and `help` are for the form. A `clamped` value is moved into its
    range, others are rejected. `item_max_length` limits each text of a list. A change of a `probed` setting makes the
    results of running checks outdated. Checks do not load a setting that is not `checked`. The audit log has the values
    of texts only if they are `public`. `inline`: the form has the texts of a list in one line, separated by commas.
    """

    description: str = ""
    label: str = ""
    help: str = ""
    position: int = 100
    section: Literal["target", "rules", "when", "advanced"] = "advanced"
    minimum: int | None = None
    maximum: int | None = None
    clamped: bool = False
    max_length: int | None = None
    item_max_length: int | None = None
    choices: tuple[str, ...] = ()
    blank: bool = False
    multiline: bool = False
    unit: Literal["s", "ms"] | None = None
    suggestions: tuple[str, ...] = ()
    placeholder: str = ""
    inline: bool = False
    probed: bool = True
    checked: bool = True
    public: bool = False

    name: str = ""
    type: Any = str
    item: Any = None
    default: Any = None
    nullable: bool = False

    @property
    def is_logged(self) -> bool:
        """Return whether the audit log has its values. Texts and lists may have secrets unless declared otherwise."""
        return self.public or bool(self.choices) or self.type in (bool, int)

    def clamp(self, value: int) -> int:
        if self.minimum is not None:
            value = max(value, self.minimum)
        return value if self.maximum is None else min(value, self.maximum)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one or more types, in addition to the common ones. They are stored in the column `config`."""

    def settle(self, kind: MonitorType) -> Self:
        """Return the settings with forced values applied; raises ValidationFailed. `kind` is the monitor's type."""
        return self

    def stored(self) -> tuple[dict[str, Any], list[str]]:
        """Return the settings as JSON values, and separately the secrets to encrypt."""
        return msgspec.to_builtins(self), []

    def with_secrets(self, secrets: Sequence[str]) -> Self:
        """Return the settings with the secrets that `stored` returned."""
        return self

    def without_secrets(self, *, moved: bool) -> Self:
        """Return the settings without the secrets that another server, or if `moved` another owner, must not get."""
        return self

    def dropped_secrets(self) -> list[str]:
        """Return the names of the secrets that must be entered again."""
        return []


class MonitorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The complete configuration of a monitor: the common settings, which are columns, and those of its type, `own`.

    `unused` are settings of other types. They are stored, so that a client can send back what it read. Checks load
    `checked_columns` only.
    """

    columns: ClassVar[tuple[str, ...]]
    checked_columns: ClassVar[tuple[str, ...]]

    type: str
    name: Annotated[
        str,
        Setting(
            position=2,
            section="target",
            max_length=MAX_NAME,
            probed=False,
            public=True,
            help="Empty: the host of the address.",
        ),
    ] = "Untitled"
    url: Annotated[
        str,
        Setting(
            description="The whole target. http types: http:// or https://; port: tcp:// or tls://; udp: udp://; ping: "
            "icmp://; dns: dns:.",
            label="Address",
            help="http:// or https://; without either, https is tried first. Put passwords into a request header.",
            position=1,
            section="target",
            max_length=MAX_URL,
            blank=True,
            public=True,
        ),
    ] = ""
    interval_sec: Annotated[
        int,
        Setting(
            description="Seconds; raised to the plan's minimum. Default: the plan's default interval, else its "
            "minimum.",
            label="Interval",
            position=20,
            section="when",
            minimum=1,
            maximum=MAX_INTERVAL_SEC,
            clamped=True,
            unit="s",
            suggestions=("10s", "30s", "1m", "5m", "10m", "30m", "1h"),
            probed=False,
        ),
    ]
    slow_ms: Annotated[
        int,
        Setting(
            description="Latency at or above it is slow.",
            label="Slow from",
            help="A response that takes this long counts as slow.",
            position=40,
            section="when",
            minimum=0,
            unit="ms",
            suggestions=("0.5s", "1s", "1.5s", "3s"),
        ),
    ] = 1_500
    timeout_ms: Annotated[
        int,
        Setting(
            label="Timeout",
            help="For the whole check: 1s to 1m.",
            position=50,
            section="when",
            minimum=1_000,
            maximum=60_000,
            clamped=True,
            unit="ms",
            suggestions=("5s", "10s", "30s", "1m"),
        ),
    ] = 10_000
    check_ssl: Annotated[
        bool,
        Setting(
            label="Warn before the certificate expires, and report certificate errors",
            help="Warns 30, 14, 7, 3 and 1 days before. An expired or wrong certificate is reported as an SSL "
            "problem, not as a failed connection. https:// only.",
            position=80,
        ),
    ] = False
    check_domain: Annotated[
        bool,
        Setting(
            label="Monitor the domain's registration",
            help="Looks up when the registration expires, and warns before it does.",
            position=90,
            probed=False,
        ),
    ] = False
    fail_threshold: Annotated[
        int,
        Setting(
            label="Failures before down",
            help="Consecutive failed checks.",
            position=130,
            section="when",
            minimum=1,
            suggestions=("1", "2", "3", "4", "5"),
            probed=False,
        ),
    ] = 3
    confirmation_sec: Annotated[
        int | None,
        Setting(
            description="The least age of an outage that counts. Failed checks are repeated early, at least 10 s "
            "apart. null: checks keep to their interval, and fail_threshold alone counts. Polled types only.",
            label="Confirm an outage for",
            help="Empty: checks keep to their interval. A time: failed checks are repeated early, at least 10 seconds "
            "apart, and the outage counts once it has lasted this long. Short: you hear of outages sooner. Long: "
            "brief problems cause no alert.",
            position=135,
            minimum=0,
            maximum=3_600,
            unit="s",
            suggestions=("0s", "30s", "1m", "5m"),
            probed=False,
        ),
    ] = None
    locations: Annotated[
        tuple[str, ...],
        Setting(
            description="Ids of locations. Each check is made from one of them in turn, and a failure is verified from "
            "the others. Default: those that are `preselected`. A scheduler fires from the first that is online.",
            label="Check from",
            help="Checks take turns, and a failure is verified from the other locations at once. One location: a "
            "network problem there looks like an outage. Two: both must see an outage. Three or more: more than half "
            "of them must.",
            position=25,
            section="when",
            max_length=MAX_LOCATIONS,
            item_max_length=40,
            public=True,
        ),
    ] = (DEFAULT_LOCATION,)
    quorum: Annotated[
        int | None,
        Setting(
            description="How many locations must see a failure, of those that are online. null: more than half.",
            label="Locations that must agree",
            help="Empty: more than half of those that answer.",
            placeholder="more than half",
            position=26,
            section="when",
            minimum=1,
            maximum=MAX_LOCATIONS,
            probed=False,
        ),
    ] = None
    recover_threshold: Annotated[
        int,
        Setting(
            label="Passes before up again",
            help="Consecutive passed checks or pings.",
            position=140,
            minimum=1,
            suggestions=("1", "2", "3"),
            probed=False,
        ),
    ] = 1

    tags: Annotated[
        tuple[str, ...],
        Setting(
            description="Labels to filter by: each 1 to 40 characters after trimming, without commas and control "
            "characters. Stored in NFC. Two that differ in case only are one tag, and 422. Default: none.",
            label="Tags",
            help="Separated by commas, for example production, web.",
            position=3,
            section="target",
            max_length=MAX_TAGS,
            inline=True,
            probed=False,
            checked=False,
            public=True,
        ),
    ] = ()

    own: Settings
    unused: tuple[Settings, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """Return the value of any setting of any type."""
        if name in self.columns:
            return getattr(self, name)
        for settings in (self.own, *self.unused):
            if name in settings.__struct_fields__:
                return getattr(settings, name)
        raise KeyError(name)


@cache
def settings_of(struct: type[msgspec.Struct]) -> Mapping[str, Setting]:
    """Return the settings of a struct by their names."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(struct)}
    found = {}
    for name, hint in get_type_hints(struct, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            continue
        kind, setting = get_args(hint)[:2]
        nullable = get_origin(kind) in (Union, types.UnionType)
        if nullable:
            (kind,) = (arg for arg in get_args(kind) if arg is not type(None))
        items = get_args(kind)
        default = defaults[name]
        found[name] = replace(
            setting,
            name=name,
            label=setting.label or name.replace("_", " ").capitalize(),
            type=kind,
            item=items[0] if items else None,
            default=None if default is msgspec.NODEFAULT else default,
            nullable=nullable,
        )
    return found


MonitorConfig.columns = ("type", *settings_of(MonitorConfig))
MonitorConfig.checked_columns = ("type", *(name for name, one in settings_of(MonitorConfig).items() if one.checked))

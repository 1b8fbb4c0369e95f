"""What a kind of channel is made of, and the outcome of a try. Plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.text import shorten

DETAIL_CHARS = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """`detail` is what came back: one line for a person, without secrets. `retry` where trying again may help."""

    delivered: bool
    detail: str
    retry: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", shorten(" ".join(self.detail.split()), limit=DETAIL_CHARS))


Config = Mapping[str, str]
"""What a channel sends with, as it is stored."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that a channel sends with: a field of the API, of the forms and of files.

    `check` returns the value to store, or raises ValueError with what is accepted. `stored` is its key in a Config.
    A setting that is not `secret` is shown in forms and written into exported files; the API returns none of them.
    `default` fills one that is left out.
    """

    name: str
    label: str
    check: Callable[[str], str]
    help: str
    example: str = ""
    stored: str = ""
    max_length: int = 200
    required: bool = True
    secret: bool = True
    choices: tuple[str, ...] = ()
    default: Callable[[], str] | None = None
    input_type: str = "text"

    @property
    def key(self) -> str:
        return self.stored or self.name


@dataclass(frozen=True, slots=True)
class ChannelKind:
    """A kind of channel: all that the API, the dashboard, files and senders know of it.

    `hint` returns enough of a Config to tell channels apart, and nothing that lets anybody send. `setup` says where
    the service shows what is asked for, and `page` is its own documentation.
    """

    name: str
    label: str
    icon: str
    about: str
    settings: tuple[Setting, ...]
    hint: Callable[[Config], str]
    setup: str = ""
    page: str = ""

    def default_name(self, config: Config) -> str:
        return self.hint(config)


@dataclass(frozen=True, slots=True)
class NativeService(ChannelKind):
    """A chat or on-call service with a form of its own, sent to through a plugin of Apprise.

    `scheme` names the plugin in `alerts.transports.apprise_services`, and `address` makes its URL of a Config. With
    `one_alert_each` news is never gathered: the service opens one alert for each incident and has to close it.
    """

    scheme: str = ""
    address: Callable[[Config], str] = str
    one_alert_each: bool = False

    def default_name(self, config: Config) -> str:
        return f"{self.label} {self.hint(config)}"

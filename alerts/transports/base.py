"""The interface of a kind of channel, and helpers to define one."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

from alerts.messages import Message
from audit import origin
from checks.probes.http.request import host_of
from checks.probes.target import MAX_URL, BadAddressError
from core.outbound import private_networks_advice
from core.text import shorten
from monitors.services import permits_host
from notifications.outbox import SendResult

MAX_HINT = 200

Config = Mapping[str, str]
"""The settings of a channel by name, as stored."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a kind: a field of the API, of the dashboard's forms and of YAML files.

    `check` returns the value to store, or raises ValueError with the accepted format. Forms and exports contain the
    value only if it is not `secret`; the API returns none of them. `default` fills an omitted setting. A setting
    named "secret" is returned once, in the response to the creation.
    """

    name: str
    label: str
    check: Callable[[str], str]
    help: str
    example: str = ""
    max_length: int = 200
    required: bool = True
    secret: bool = True
    choices: tuple[str, ...] = ()
    default: Callable[[], str] | None = None
    input_type: str = "text"
    strip: bool = True


UrlSetting = partial(Setting, max_length=MAX_URL, input_type="url")


class Variant(NamedTuple):
    """One of several services that a kind sends to. `example` is a setting's format, `page` its documentation."""

    key: str
    name: str
    example: str = ""
    page: str = ""


class ChannelKind(ABC):
    """A kind of channel. The API, the dashboard, YAML files, the admin and the workers are derived from it.

    `setup` says where the service shows its settings, and `page` is the service's documentation. `consent` names the
    setting with an e-mail address whose owner has to agree before anything is sent. With `one_alert_each` messages are
    never grouped: the service opens one alert per incident and closes it. `scheme` names the variant of the "apprise"
    kind for other ways to use the same service.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    icon: ClassVar[str]
    about: ClassVar[str]
    settings: ClassVar[tuple[Setting, ...]]
    setup: ClassVar[str] = ""
    page: ClassVar[str] = ""
    consent: ClassVar[str] = ""
    one_alert_each: ClassVar[bool] = False
    scheme: ClassVar[str] = ""

    @abstractmethod
    def hint(self, config: Config) -> str:
        """Return enough to distinguish channels, but nothing that allows sending."""

    @abstractmethod
    def send(self, config: Config, message: Message, *, key: str, now: datetime) -> SendResult:
        """Make one attempt of limited duration. Never raise for a receiver's fault.

        `key` identifies the delivery and is the same in each attempt.
        """

    def default_name(self, config: Config) -> str:
        return self.hint(config)

    def separated(self, given: Config) -> Config:
        """Split values that users paste with several settings in them, and return one value for each setting.

        Raises ValueError if they contradict each other.
        """
        return given

    def problem(self) -> str | None:
        """Return what prevents all messages of this kind from being sent, or None."""
        return None

    def variants(self) -> Sequence[Variant]:
        """Return the services to choose from, if the kind sends to several."""
        return ()

    def variant(self, key: str) -> Variant | None:
        """Return a variant with its example and page, or None if it does not exist."""
        return None


class AppriseService(ChannelKind):
    """A chat or on-call service that an Apprise plugin sends to. `scheme` names the plugin."""

    def apprise_url(self, config: Config) -> str:
        """Return the URL for the plugin: by default the one that the service itself shows."""
        return config["url"]

    def hint(self, config: Config) -> str:
        return last_characters(config[self.settings[0].name])

    def default_name(self, config: Config) -> str:
        return f"{self.label} {self.hint(config)}"

    def send(self, config: Config, message: Message, *, key: str, now: datetime) -> SendResult:
        from alerts.transports import apprise_plugins  # large: only workers load it

        return apprise_plugins.send(self.apprise_url(config), message, scheme=self.scheme, label=self.label)


def matching(pattern: str, accepted: str) -> Callable[[str], str]:
    """Return a check that a value matches `pattern` completely. `accepted` describes the format."""
    compiled = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"must be {accepted}.")
        return text

    return check


def choice(name: str, label: str, choices: Iterable[str], *, default: str, help_text: str) -> Setting:
    """Return an optional setting with one of these values."""
    values = tuple(choices)
    check = matching("|".join(values), f"one of {', '.join(values)}")
    return Setting(name, label, check, help_text, required=False, secret=False, choices=values, default=lambda: default)


def require_public_url(url: str, *, instead: str) -> str:
    """Return the URL. Raise ValueError if it is invalid or its host is a private address.

    `instead`: what to use instead of a user name in the URL.
    """
    try:
        host = host_of(url, instead=instead)
    except BadAddressError as error:
        raise ValueError(str(error)) from None
    if not permits_host(host):
        advice = private_networks_advice(staff=origin.is_staff())
        raise ValueError(f"is a private or reserved address, which Pulsekeeper does not connect to. {advice}")
    return url


def last_characters(text: str) -> str:
    """Return the last four characters of an identifier, as a hint."""
    return f"…{text[-4:]}"


def mask_address(address: str) -> str:
    """Return `a…@example.com`."""
    local, _, domain = address.rpartition("@")
    return shorten(f"{local[:1]}…@{domain}", limit=MAX_HINT)


def mask_url(url: str) -> str:
    """Return `https://hooks.example.com`: the path is often the secret."""
    parts = urlsplit(url)
    return shorten(f"{parts.scheme}://{parts.netloc}", limit=MAX_HINT)

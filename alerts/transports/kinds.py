"""Every kind of channel. The API, the dashboard, files and senders are derived from this table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from accounts.services import email_address
from alerts import hints
from alerts.transports import native
from alerts.transports.base import ChannelKind, Config, Setting
from checks.probes.http.addresses import MAX_URL, BadAddressError, host_of
from core.ids import random_text
from monitors.services import permits_host


def _webhook_url(url: str) -> str:
    try:
        host = host_of(url, instead="a receiver knows us by the signature")
    except BadAddressError as error:
        raise ValueError(str(error)) from None
    if not permits_host(host):
        raise ValueError("is a private or reserved address, to which Pulsekeeper sends nothing.")
    return url


def _apprise_url(url: str) -> str:
    # Imported here and below: it is large, and needed only where such a channel is set up.
    from alerts.transports import apprise_plugins

    apprise_plugins.check_url(url)
    return url


def _apprise_hint(config: Config) -> str:
    from alerts.transports import apprise_plugins

    return apprise_plugins.hint(config["url"])


EMAIL = ChannelKind(
    name="email",
    label="E-mail",
    icon="mail",
    about="Your own address, or another one whose owner agrees.",
    settings=(
        Setting(
            "address",
            "E-mail address",
            check=lambda text: email_address(text, field="address"),
            help="An address with which the caller does not sign in first gets a link by which its owner agrees; so "
            "does any that a project token enters.",
            max_length=254,
            input_type="email",
        ),
    ),
    hint=lambda config: hints.of_address(config["address"]),
)

WEBHOOK = ChannelKind(
    name="webhook",
    label="Webhook",
    icon="link",
    about="A signed POST with JSON to an address of yours.",
    settings=(
        Setting(
            "url",
            "URL",
            check=_webhook_url,
            help="https:// or http://. Each alert is a POST with a JSON body.",
            example="https://…",
            max_length=MAX_URL,
            input_type="url",
        ),
        Setting(
            "secret",
            "Secret",
            check=native.matching(r"[ -~]{16,200}", "16 to 200 printable ASCII characters"),
            help="Signs every request. Generated where it is left out. 16 to 200 characters.",
            required=False,
            default=lambda: f"whs_{random_text(32)}",
        ),
    ),
    hint=lambda config: hints.of_url(config["url"]),
)

APPRISE = ChannelKind(
    name="apprise",
    label="Service",
    icon="message-square",
    about="Any other chat or on-call service, by its Apprise URL.",
    settings=(
        Setting(
            "apprise_url",
            "Address",
            check=_apprise_url,
            help="The Apprise URL of a service.",
            stored="url",
            max_length=MAX_URL,
        ),
    ),
    hint=_apprise_hint,
)

KINDS: Mapping[str, ChannelKind] = MappingProxyType(
    {kind.name: kind for kind in (EMAIL, WEBHOOK, *native.SERVICES, APPRISE)}
)

SETTINGS: Mapping[str, tuple[tuple[ChannelKind, Setting], ...]] = MappingProxyType(
    {
        setting.name: tuple(
            (kind, s) for kind in KINDS.values() for s in kind.settings if s.name == setting.name
        )
        for kind in KINDS.values()
        for setting in kind.settings
    }
)
"""The settings of all kinds by name, each with the kinds that have it."""

SECRETS = tuple(name for name, found in SETTINGS.items() if any(setting.secret for _, setting in found))

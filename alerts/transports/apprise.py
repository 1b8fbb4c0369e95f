"""Other chat and on-call services, by their Apprise URLs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from alerts.messages import Message
from alerts.transports.apprise_services import BY_SCHEME, SERVICES, service_of
from alerts.transports.base import ChannelKind, Config, Setting, Variant
from checks.probes.target import MAX_URL
from notifications.outbox import SendResult


def _checked_url(url: str) -> str:
    from alerts.transports import apprise_plugins  # large: loaded only when needed

    apprise_plugins.check_url(url)
    return url


class Apprise(ChannelKind):
    name = "apprise"
    label = "Service"
    icon = "message-square"
    about = "Any other chat or on-call service, by its Apprise URL."
    settings = (
        Setting(
            "apprise_url", "Apprise URL", check=_checked_url, help="The Apprise URL of a service.", max_length=MAX_URL
        ),
    )

    def hint(self, config: Config) -> str:
        """Return for example `Slack (slack://)`."""
        service, scheme = service_of(config["apprise_url"])
        return f"{service.name} ({scheme}://)"

    def send(self, config: Config, message: Message, *, key: str, now: datetime) -> SendResult:
        from alerts.transports import apprise_plugins

        return apprise_plugins.send(config["apprise_url"], message)

    def variants(self) -> Sequence[Variant]:
        return [
            Variant(service.schemes[0], service.name)
            for service in sorted(SERVICES, key=lambda service: service.name.lower())
        ]

    def variant(self, key: str) -> Variant | None:
        from alerts.transports import apprise_plugins

        service = BY_SCHEME.get(key)
        if service is None:
            return None
        example, page = apprise_plugins.form_of(service, key)
        return Variant(key, service.name, example, page)

"""The kinds of channels: one module for each. A new kind is a module, and a line here that registers it."""

from __future__ import annotations

from alerts.transports.apprise import Apprise
from alerts.transports.base import ChannelKind, Setting
from alerts.transports.discord import Discord
from alerts.transports.email import Email
from alerts.transports.ntfy import Ntfy
from alerts.transports.pagerduty import PagerDuty
from alerts.transports.pushover import Pushover
from alerts.transports.slack import Slack
from alerts.transports.teams import Teams
from alerts.transports.telegram import Telegram
from alerts.transports.webhook import Webhook
from core.registry import Registry

KINDS: Registry[ChannelKind] = Registry(
    kind()
    for kind in (
        Email,
        Webhook,
        Slack,
        Discord,
        Teams,
        Telegram,
        Ntfy,
        Pushover,
        PagerDuty,
        Apprise,
    )
)
"""Every kind by name, in the order in which the dashboard offers them."""


def settings_by_name() -> dict[str, list[tuple[ChannelKind, Setting]]]:
    """Return the settings of all kinds by name, each with the kinds that have it."""
    found: dict[str, list[tuple[ChannelKind, Setting]]] = {}
    for kind in KINDS.values():
        for setting in kind.settings:
            found.setdefault(setting.name, []).append((kind, setting))
    return found


def secret_settings() -> tuple[str, ...]:
    """Return the names of settings that are secret for at least one kind."""
    return tuple(name for name, found in settings_by_name().items() if any(setting.secret for _, setting in found))

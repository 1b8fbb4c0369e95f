"""The kinds of channels: one module for each. A new kind is a module, and a line here that registers it."""

from __future__ import annotations

from alerts.transports import apprise, discord, email, ntfy, pagerduty, pushover, slack, teams, telegram, webhook
from alerts.transports.base import ChannelKind, Setting
from core.registry import Registry

_ALL: tuple[ChannelKind, ...] = (
    email.Email(),
    webhook.Webhook(),
    slack.Slack(),
    discord.Discord(),
    teams.Teams(),
    telegram.Telegram(),
    ntfy.Ntfy(),
    pushover.Pushover(),
    pagerduty.PagerDuty(),
    apprise.Apprise(),
)
KINDS = Registry(_ALL)
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

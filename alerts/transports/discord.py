from __future__ import annotations

import re

from alerts.transports.base import AppriseService, Config, UrlSetting, last_characters

_EXAMPLE = "https://discord.com/api/webhooks/000000000000000000/XXXX…"
_WEBHOOK = re.compile(
    r"https://(?:canary\.|ptb\.)?discord(?:app)?\.com(/api/webhooks/[0-9]{15,22}/[A-Za-z0-9_-]{60,90})", re.ASCII
)


def _webhook_url(url: str) -> str:
    found = _WEBHOOK.fullmatch(url)
    if found is None:
        raise ValueError(f"must be the URL of a webhook, for example {_EXAMPLE}")
    return f"https://discord.com{found[1]}"


class Discord(AppriseService):
    name = "discord"
    label = "Discord"
    icon = "message-square"
    about = "A message in a channel, through a webhook."
    settings = (
        UrlSetting(
            "url",
            "Webhook URL",
            check=_webhook_url,
            help="The URL of a webhook, as copied from Discord.",
            example=_EXAMPLE,
        ),
    )
    setup = "In Discord, open Edit Channel, Integrations, Webhooks, create a webhook and press Copy Webhook URL."
    page = "https://support.discord.com/hc/en-us/articles/228383668-Intro-to-Webhooks"
    scheme = "discord"

    def hint(self, config: Config) -> str:
        return last_characters(config["url"].split("/")[-2])

from __future__ import annotations

from datetime import datetime

from alerts.messages import Message
from alerts.transports.base import AppriseService, Config, Setting, matching
from notifications.outbox import SendResult


class Telegram(AppriseService):
    name = "telegram"
    label = "Telegram"
    icon = "send"
    about = "A message in a chat, from your own bot."
    settings = (
        Setting(
            "bot_token",
            "Bot token",
            check=matching(
                r"[0-9]{5,16}:[A-Za-z0-9_-]{30,64}",
                "the token that BotFather shows, for example 123456789:AAaabbccddeeffgghhiijjkkllmmnnooppq",
            ),
            help="The token that BotFather shows.",
            example="123456789:AAaabbccddeeffgghhiijjkkllmmnnooppq",
        ),
        Setting(
            "chat_id",
            "Chat ID",
            check=matching(
                r"-?[1-9][0-9]{0,20}|@[A-Za-z][A-Za-z0-9_]{3,31}",
                "the number of a chat or the @name of a public channel, for example -1001234567890 or @shop_status",
            ),
            help="The number of a chat or group, or the @name of a public channel. The bot must be a member.",
            example="-1001234567890",
            max_length=40,
            secret=False,
        ),
    )
    setup = (
        "Create a bot with @BotFather, add it to the chat, and send it a message. "
        "https://api.telegram.org/bot<token>/getUpdates then shows the chat ID."
    )
    page = "https://core.telegram.org/bots/features#botfather"
    scheme = "tgram"

    def hint(self, config: Config) -> str:
        return config["chat_id"]

    def apprise_url(self, config: Config) -> str:
        return f"tgram://{config['bot_token']}/{config['chat_id']}/"

    def send(self, config: Config, message: Message, *, key: str, now: datetime) -> SendResult:
        from alerts.transports import apprise_plugins

        url = self.apprise_url(config)
        if message.acknowledge:
            rows = [[{"text": label, "url": address}] for label, address in message.acknowledge]
            added = {"reply_markup": {"inline_keyboard": rows}}
            result = apprise_plugins.send(url, message, scheme=self.scheme, label=self.label, added=added)
            if "BUTTON" not in result.detail:  # Telegram refuses addresses that only a private network knows
                return result
        return super().send(config, message, key=key, now=now)

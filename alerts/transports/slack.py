from __future__ import annotations

from alerts.transports.base import AppriseService, Config, UrlSetting, last_characters, matching

_EXAMPLE = "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"


class Slack(AppriseService):
    name = "slack"
    label = "Slack"
    icon = "message-square"
    about = "A message in a channel, through an incoming webhook."
    settings = (
        UrlSetting(
            "url",
            "Webhook URL",
            check=matching(
                r"https://hooks\.slack(?:-gov)?\.com"
                r"/services/[TE][A-Z0-9]{2,32}/B[A-Z0-9]{2,32}/[A-Za-z0-9]{16,64}",
                f"the URL of an incoming webhook, for example {_EXAMPLE}",
            ),
            help="The URL of an incoming webhook, as shown by Slack.",
            example=_EXAMPLE,
        ),
    )
    setup = "In Slack, add the app Incoming Webhooks to the channel and copy its webhook URL."
    page = "https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks/"
    scheme = "slack"

    def hint(self, config: Config) -> str:
        return last_characters(config["url"].split("/")[-2])

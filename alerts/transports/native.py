"""Services that are set up with what they themselves show: a webhook address, or keys. One definition for each.

Messages go through the plugins of Apprise (`apprise_plugins`); what is accepted here is what those plugins can use, so
that no channel is stored that nothing can be sent to. Other forms of these services, such as Slack's bot tokens, are
channels of kind `apprise`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs, quote, urlsplit

from alerts.transports.base import Config, NativeService, Setting
from checks.probes.http.addresses import MAX_URL, BadAddressError, host_of
from monitors.services import permits_host

_SHOWN = 4
"""Characters of an identifier that are shown to tell channels apart."""


def matching(pattern: str, accepted: str) -> Callable[[str], str]:
    """Return a check for values that match `pattern` as a whole; `accepted` says what they look like."""
    compiled = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"must be {accepted}.")
        return text

    return check


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a check for one of a few words."""
    return matching("|".join(choices), f"one of {', '.join(choices)}")


def _end_of(text: str) -> str:
    return f"…{text[-_SHOWN:]}"


def _webhook(label: str, *, check: Callable[[str], str], help: str, example: str) -> tuple[Setting, ...]:  # noqa: A002
    return (Setting("url", label, check, help, example, max_length=MAX_URL, input_type="url"),)


# --- Slack

_SLACK = "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"

SLACK = NativeService(
    name="slack",
    label="Slack",
    icon="message-square",
    about="A message in a channel, by an incoming webhook.",
    settings=_webhook(
        "Webhook URL",
        check=matching(
            r"https://hooks\.slack(?:-gov)?\.com/services/[TE][A-Z0-9]{2,32}/B[A-Z0-9]{2,32}/[A-Za-z0-9]{16,64}",
            f"the URL of an incoming webhook, for example {_SLACK}",
        ),
        help="The URL of an incoming webhook, as Slack shows it.",
        example=_SLACK,
    ),
    hint=lambda config: _end_of(config["url"].split("/")[-2]),
    setup="In Slack, add the app Incoming Webhooks to the channel and copy its webhook URL.",
    page="https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks/",
    scheme="slack",
    address=lambda config: config["url"],
)

# --- Discord

_DISCORD = "https://discord.com/api/webhooks/000000000000000000/XXXX…"


def _discord(url: str) -> str:
    found = re.fullmatch(
        r"https://(?:canary\.|ptb\.)?discord(?:app)?\.com(/api/webhooks/[0-9]{15,22}/[A-Za-z0-9_-]{60,90})",
        url,
        re.ASCII,
    )
    if found is None:
        raise ValueError(f"must be the URL of a webhook, for example {_DISCORD}")
    return f"https://discord.com{found[1]}"


DISCORD = NativeService(
    name="discord",
    label="Discord",
    icon="message-square",
    about="A message in a channel, by a webhook.",
    settings=_webhook(
        "Webhook URL",
        check=_discord,
        help="The URL of a webhook, as Discord copies it.",
        example=_DISCORD,
    ),
    hint=lambda config: _end_of(config["url"].split("/")[-2]),
    setup="In Discord, open Edit Channel, Integrations, Webhooks, make a webhook and press Copy Webhook URL.",
    page="https://support.discord.com/hc/en-us/articles/228383668-Intro-to-Webhooks",
    scheme="discord",
    address=lambda config: config["url"],
)

# --- Microsoft Teams

_TEAMS = (
    "https://prod-00.westeurope.logic.azure.com:443/workflows/…/triggers/manual/paths/invoke"
    "?api-version=2016-06-01&sp=…&sv=1.0&sig=…"
)
_WORKFLOW = re.compile(
    r"https://[a-z0-9.-]{1,200}\.(?:logic\.azure\.com|logic\.azure\.us|api\.powerplatform\.com)(?::443)?"
    r"(?:/powerautomate/automations/direct(?:/cu/[0-9]{1,6})?)?"
    r"/workflows/[A-Za-z0-9_-]{1,100}/triggers/manual/paths/invoke",
    re.ASCII,
)


def _teams(url: str) -> str:
    """Return the address with the parameters that count; `sig` is its secret."""
    address, _, query = url.partition("?")
    address = address.removesuffix("/")
    if urlsplit(address).netloc.endswith(".webhook.office.com"):
        raise ValueError(
            "is of an Office 365 connector, which Microsoft has retired; make a workflow instead."
        )
    given = {name: values[-1] for name, values in parse_qs(query).items()}
    version, signature = given.get("api-version", ""), given.get("sig", "")
    if (
        not _WORKFLOW.fullmatch(address)
        or not re.fullmatch(r"[0-9a-z-]{1,40}", version)
        or not re.fullmatch(r"[A-Za-z0-9_-]{16,200}", signature)
    ):
        raise ValueError(f"must be the whole URL of a workflow's webhook, for example {_TEAMS}")
    return f"{address}?api-version={version}&sig={signature}"


TEAMS = NativeService(
    name="teams",
    label="Microsoft Teams",
    icon="users",
    about="A card in a channel or chat, by a workflow.",
    settings=_webhook(
        "Workflow URL",
        check=_teams,
        help="The URL of a workflow that posts to a channel or chat when a webhook request is received.",
        example=_TEAMS,
    ),
    hint=lambda config: _end_of(config["url"].partition("/workflows/")[2].partition("/")[0]),
    setup="In Teams, open the channel's menu, Workflows, choose the template that posts to a channel when a webhook "
    "request is received, and copy the URL that it ends with.",
    page="https://support.microsoft.com/en-us/office/create-incoming-webhooks-with-workflows-for-microsoft-teams-"
    "8ae491c7-0394-4861-ba59-055e33f75498",
    scheme="workflows",
    address=lambda config: config["url"],
)

# --- Telegram

TELEGRAM = NativeService(
    name="telegram",
    label="Telegram",
    icon="send",
    about="A message in a chat, by a bot of yours.",
    settings=(
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
            help="The number of a chat or group, or the @name of a public channel. The bot has to be a member.",
            example="-1001234567890",
            max_length=40,
            secret=False,
        ),
    ),
    hint=lambda config: config["chat_id"],
    setup="Write to @BotFather to make a bot, add the bot to the chat, and send it a message. The address "
    "https://api.telegram.org/bot<token>/getUpdates then shows the chat's id.",
    page="https://core.telegram.org/bots/features#botfather",
    scheme="tgram",
    address=lambda config: f"tgram://{config['bot_token']}/{config['chat_id']}/",
)

# --- ntfy

_NTFY_SERVER = "https://ntfy.sh"


def _server(url: str) -> str:
    try:
        host = host_of(url, instead="use an access token")
    except BadAddressError as error:
        raise ValueError(str(error)) from None
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(
            f"must be https:// and a host, for example {_NTFY_SERVER}; the topic has its own field."
        )
    if not permits_host(host):
        raise ValueError("is a private or reserved address, to which Pulsekeeper sends nothing.")
    return f"https://{parts.netloc.lower()}"


def _ntfy_address(config: Config) -> str:
    # In private mode also for ntfy.sh: the plugin's other mode drops the token.
    token = config.get("access_token")
    user, auth = (f"{token}@", "&auth=token") if token else ("", "")
    host = urlsplit(config["server"]).netloc
    return f"ntfys://{user}{host}/{config['topic']}?mode=private&priority={config['priority']}{auth}"


NTFY = NativeService(
    name="ntfy",
    label="ntfy",
    icon="bell",
    about="A push message to phones and desktops, by ntfy.sh or your own server.",
    settings=(
        Setting(
            "topic",
            "Topic",
            check=matching(
                r"[A-Za-z0-9_-]{1,64}", "1 to 64 letters, digits, - and _, for example shop-alerts-x7k2"
            ),
            help="The topic that you subscribe to. Without a token, everybody who knows its name can read it.",
            example="shop-alerts-x7k2",
            max_length=64,
        ),
        Setting(
            "server",
            "Server",
            check=_server,
            help="Where ntfy runs, https only.",
            example=_NTFY_SERVER,
            max_length=MAX_URL,
            required=False,
            secret=False,
            default=lambda: _NTFY_SERVER,
            input_type="url",
        ),
        Setting(
            "access_token",
            "Access token",
            check=matching(
                r"tk_[A-Za-z0-9]{29}",
                "tk_ and 29 letters and digits, for example tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2",
            ),
            help="For a topic that only some may publish to.",
            example="tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2",
            required=False,
        ),
        Setting(
            "priority",
            "Priority",
            check=one_of("min", "low", "default", "high", "max"),
            help="How loud the message is on a phone.",
            required=False,
            secret=False,
            choices=("min", "low", "default", "high", "max"),
            default=lambda: "default",
        ),
    ),
    # A topic is its own password.
    hint=lambda config: f"{urlsplit(config['server']).netloc}/{config['topic'][:2]}…",
    setup="Subscribe to a topic in the ntfy app, and name it here. Access tokens are made in the account settings of "
    "the server.",
    page="https://docs.ntfy.sh/publish/",
    scheme="ntfys",
    address=_ntfy_address,
)

# --- Pushover

_PUSHOVER = {"lowest": "-2", "low": "-1", "normal": "0", "high": "1"}


def _pushover_key(called: str) -> Callable[[str], str]:
    return matching(
        r"[A-Za-z0-9]{30}", f"{called}: 30 letters and digits, for example uQiRzpo4DXghDmr9QzzfQu27cmVRsG"
    )


PUSHOVER = NativeService(
    name="pushover",
    label="Pushover",
    icon="bell",
    about="A push message to your devices, or those of a group.",
    settings=(
        Setting(
            "user_key",
            "User key",
            check=_pushover_key("a user or group key"),
            help="The key of the user, or of a delivery group.",
            example="uQiRzpo4DXghDmr9QzzfQu27cmVRsG",
        ),
        Setting(
            "app_token",
            "API token",
            check=_pushover_key("the API token of an application"),
            help="The API token of an application of yours at Pushover.",
            example="azGDORePK8gMaC0QOYAMyEEuzJnyUi",
        ),
        Setting(
            "priority",
            "Priority",
            check=one_of(*_PUSHOVER),
            help="high passes quiet hours.",
            required=False,
            secret=False,
            choices=tuple(_PUSHOVER),
            default=lambda: "normal",
        ),
    ),
    hint=lambda config: _end_of(config["user_key"]),
    setup="The dashboard of pushover.net shows the user key. Make an application there to get its API token.",
    page="https://pushover.net/api",
    scheme="pover",
    address=lambda config: (
        f"pover://{config['user_key']}@{config['app_token']}?priority={_PUSHOVER[config['priority']]}"
    ),
)

# --- PagerDuty


def _pagerduty_address(config: Config) -> str:
    # The plugin asks for a REST key as well, which the Events API does not look at.
    key = quote(config["integration_key"], safe="")
    return f"pagerduty://{key}@{key}/Pulsekeeper/monitor?region={config['region']}"


PAGERDUTY = NativeService(
    name="pagerduty",
    label="PagerDuty",
    icon="triangle-alert",
    about="An incident for each outage, resolved when it is over.",
    settings=(
        Setting(
            "integration_key",
            "Integration key",
            check=matching(
                r"[A-Za-z0-9]{32}",
                "the integration key of the Events API v2: 32 letters and digits, for example "
                "R0ABCDEF0123456789ABCDEF01234567",
            ),
            help="The key of an Events API v2 integration of a service.",
            example="R0ABCDEF0123456789ABCDEF01234567",
        ),
        Setting(
            "region",
            "Region",
            check=one_of("us", "eu"),
            help="eu for accounts at eu.pagerduty.com.",
            required=False,
            secret=False,
            choices=("us", "eu"),
            default=lambda: "us",
        ),
    ),
    hint=lambda config: _end_of(config["integration_key"]),
    setup="In PagerDuty, open the service, Integrations, add Events API V2, and copy its integration key.",
    page="https://support.pagerduty.com/main/docs/services-and-integrations#add-integrations-to-an-existing-service",
    scheme="pagerduty",
    address=_pagerduty_address,
    one_alert_each=True,
)

SERVICES = (SLACK, DISCORD, TEAMS, TELEGRAM, NTFY, PUSHOVER, PAGERDUTY)

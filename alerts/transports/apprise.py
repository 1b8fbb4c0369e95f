"""Other chat and on-call services, by their Apprise URLs: only those with an https API.

Excluded on purpose: access to this machine or its network (syslog, dbus, exec, files), protocols other than http
(mqtt, smpp, irc, xmpp, growl), schemes without TLS, e-mail (kind `email`), and plain JSON, XML or forms (kind
`webhook`, which signs). docs/use/alerts.md lists the services; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from alerts.messages import Message
from alerts.transports.base import ChannelKind, Config, Setting, Variant
from checks.probes.target import MAX_URL
from notifications.outbox import SendResult

_OPEN_AND_CLOSE = MappingProxyType({"action": "map", "dedup": "{thread}"})


@dataclass(frozen=True, slots=True)
class Service:
    """A plugin. With `own_host` the URL contains the host to connect to.

    `defaults` are options that apply unless the URL sets them. With them an on-call service opens one alert for an
    outage and closes it at the end, instead of opening a second one. Opsgenie cannot: Apprise would look up its alerts
    in its own storage, which is disabled here.
    """

    name: str
    module: str
    schemes: tuple[str, ...]
    own_host: bool = False
    defaults: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


SERVICES = (
    Service("46elks", "fortysixelks", ("46elks", "elks")),
    Service("Bark", "bark", ("barks",), own_host=True),
    Service("Better Stack", "betterstack", ("betterstack",), own_host=True),
    Service("Cisco Webex Teams", "webexteams", ("webex", "wxteams")),
    Service("ClickSend", "clicksend", ("clicksend",)),
    Service("DingTalk", "dingtalk", ("dingtalk",)),
    Service("Discord", "discord", ("discord",)),
    Service("Feishu", "feishu", ("feishu",)),
    Service("FireHydrant", "firehydrant", ("firehydrant",), defaults=_OPEN_AND_CLOSE),
    Service("Flock", "flock", ("flock",)),
    Service("GoAlert", "goalert", ("goalerts",), own_host=True, defaults=_OPEN_AND_CLOSE),
    Service("Google Chat", "google_chat", ("gchat",)),
    Service("Gotify", "gotify", ("gotifys",), own_host=True),
    Service("GroupMe", "groupme", ("groupme",)),
    Service("HomeAssistant", "home_assistant", ("hassios",), own_host=True),
    Service("IFTTT", "ifttt", ("ifttt",)),
    Service("ilert", "ilert", ("ilert",), defaults=_OPEN_AND_CLOSE),
    Service("incident.io", "incidentio", ("incidentio",), defaults=_OPEN_AND_CLOSE),
    Service("Join", "join", ("join",)),
    Service("Lark (Feishu)", "lark", ("lark",)),
    Service("Line", "line", ("line",)),
    Service("Matrix", "matrix", ("matrixs",), own_host=True),
    Service("Mattermost", "mattermost", ("mmosts",), own_host=True),
    Service("MessageBird", "messagebird", ("msgbird",)),
    Service("Nextcloud Talk", "nextcloudtalk", ("nctalks",), own_host=True),
    Service("Notifiarr", "notifiarr", ("notifiarr",)),
    Service("ntfy", "ntfy", ("ntfys",), own_host=True),
    Service("Opsgenie", "opsgenie", ("opsgenie",), defaults={"action": "new"}),
    Service("Pager Duty", "pagerduty", ("pagerduty",), defaults=_OPEN_AND_CLOSE),
    Service("PagerTree", "pagertree", ("pagertree",), defaults={"action": "map", "thirdparty": "{thread}"}),
    Service("Plivo", "plivo", ("plivo",)),
    Service("Power Automate / Workflows (for MSTeams)", "workflows", ("workflows", "workflow"), own_host=True),
    Service("Prowl", "prowl", ("prowl",)),
    Service("PushDeer", "pushdeer", ("pushdeers",), own_host=True),
    Service("Pushbullet", "pushbullet", ("pbul",)),
    Service("Pushover", "pushover", ("pover",)),
    Service("Pushsafer", "pushsafer", ("psafers",)),
    Service("Revolt", "revolt", ("revolt",)),
    Service("Rocket.Chat", "rocketchat", ("rockets",), own_host=True),
    Service("Ryver", "ryver", ("ryver",)),
    Service("SIGNL4", "signl4", ("signl4",), defaults={"action": "map", "external_id": "{thread}"}),
    Service("Signal API", "signal_api", ("signals",), own_host=True),
    Service("Sinch", "sinch", ("sinch",)),
    Service("Slack", "slack", ("slack",)),
    Service("Spike.sh", "spike", ("spike",)),
    Service("Splunk On-Call", "splunk", ("splunk", "victorops"), defaults={"action": "map", "entity_id": "{thread}"}),
    Service("Squadcast", "squadcast", ("squadcast",), defaults=_OPEN_AND_CLOSE),
    Service("Stackfield", "stackfield", ("stackfield",)),
    Service("Synology Chat", "synology", ("synologys",), own_host=True),
    Service("Techulus Push", "techuluspush", ("push",)),
    Service("Telegram", "telegram", ("tgram",)),
    Service("Telnyx", "telnyx", ("telnyx",)),
    Service("Threema Gateway", "threema", ("threema",)),
    Service("Twilio", "twilio", ("twilio",)),
    Service("Viber", "viber", ("viber",)),
    Service("Vonage", "vonage", ("nexmo", "vonage")),
    Service("WeCom Bot", "wecombot", ("wecombot",)),
    Service("Zoho Cliq", "cliq", ("cliq", "zcliq", "zohocliq")),
    Service("Zoom", "zoom", ("zoom",)),
    Service("Zulip", "zulip", ("zulip",)),
    Service("seven", "seven", ("seven",)),
    Service("xMatters", "xmatters", ("xmatters",), own_host=True),
)
BY_SCHEME = {scheme: service for service in SERVICES for scheme in service.schemes}


def service_of(url: str) -> tuple[Service, str]:
    """Return the service of an Apprise URL, and its scheme. Raise ValueError for other URLs."""
    scheme = url.partition("://")[0].lower()
    service = BY_SCHEME.get(scheme)
    if service is None:
        raise ValueError(
            "The URL must begin with the scheme of one of the services that alerts can be sent to, "
            "for example slack:// or discord://."
        )
    return service, scheme


def _checked_url(url: str) -> str:
    from alerts.transports import apprise_plugins  # large: loaded only when needed

    apprise_plugins.plugin_for(url)
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

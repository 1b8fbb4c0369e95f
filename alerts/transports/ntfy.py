from __future__ import annotations

from datetime import datetime
from urllib.parse import urlsplit

from alerts.messages import Message
from alerts.transports.base import AppriseService, Config, Setting, UrlSetting, choice, matching, require_public_url
from checks.probes.target import MAX_URL
from core.egress import literal_address
from core.outbound import guard
from notifications.outbox import SendResult

_SERVER = "https://ntfy.sh"
_MOST_ACTIONS = 3


def _server(url: str) -> str:
    parts = urlsplit(require_public_url(url, instead="use an access token"))
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"must be https:// and a host, for example {_SERVER}; the topic has its own field.")
    if parts.scheme == "http" and not _is_own(parts.hostname or ""):
        raise ValueError(
            "must be https://. http:// is accepted for hosts in the private networks that the operator allows "
            "(ALLOWED_PRIVATE_NETWORKS)."
        )
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _is_own(host: str) -> bool:
    """Return whether a host may be in a private network that the operator allows.

    A name is resolved to send only: the socket is not opened if its address is public.
    """
    networks = guard().allowed
    address = literal_address(host)
    return bool(networks) if address is None else any(address in network for network in networks)


class Ntfy(AppriseService):
    name = "ntfy"
    label = "ntfy"
    icon = "bell"
    about = "A push message to phones and desktops, through ntfy.sh or your own server."
    settings = (
        Setting(
            "topic",
            "Topic",
            check=matching(
                r"[A-Za-z0-9_-]{1,64}",
                "1 to 64 letters, digits, - and _, for example shop-alerts-x7k2, or the URL of the topic",
            ),
            help="The topic that you subscribe to, or its URL. Without a token, anyone who knows its name can read it.",
            example="shop-alerts-x7k2",
            max_length=MAX_URL,
        ),
        UrlSetting(
            "server",
            "Server",
            check=_server,
            help="The address of the ntfy server. http only in private networks that the operator allows.",
            example=_SERVER,
            required=False,
            secret=False,
            default=lambda: _SERVER,
        ),
        Setting(
            "access_token",
            "Access token",
            check=matching(
                r"tk_[A-Za-z0-9]{29}", "tk_ and 29 letters and digits, for example tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2"
            ),
            help="Required if publishing to the topic is restricted.",
            example="tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2",
            required=False,
        ),
        choice(
            "priority",
            "Priority",
            ("min", "low", "default", "high", "max"),
            default="default",
            help_text="How loud the message is on a phone.",
        ),
    )
    setup = (
        "Subscribe to a topic in the ntfy app, and enter it here. Access tokens are created in the account settings "
        "of the server."
    )
    page = "https://docs.ntfy.sh/publish/"
    scheme = "ntfys"

    def separated(self, given: Config) -> Config:
        """Return the server and topic of a URL like https://ntfy.sh/topic or ntfy.example/topic."""
        url = given.get("topic", "").strip()
        if "/" not in url:
            return given
        scheme, _, rest = url.rpartition("://")
        host, _, topic = rest.partition("/")
        server = f"{scheme or 'https'}://{host}"
        if given.get("server", _SERVER).rstrip("/") not in (_SERVER, server):
            raise ValueError("is the URL of a topic on a different server.")
        return {**given, "server": server, "topic": topic.removesuffix("/")}

    def hint(self, config: Config) -> str:
        return f"{urlsplit(config['server']).netloc}/{config['topic'][:2]}…"  # a topic is its own password

    def apprise_url(self, config: Config) -> str:
        # Private mode also for ntfy.sh: the plugin's other mode ignores the token.
        token = config.get("access_token")
        user, auth = (f"{token}@", "&auth=token") if token else ("", "")
        scheme, host, *_ = urlsplit(config["server"])
        return f"{'ntfy' if scheme == 'http' else 'ntfys'}://{user}{host}/{config['topic']}?mode=private&priority={config['priority']}{auth}"

    def send(self, config: Config, message: Message, *, key: str, now: datetime) -> SendResult:
        from alerts.transports import apprise_plugins

        schemes = frozenset({urlsplit(config["server"]).scheme})
        url = self.apprise_url(config)
        # The app sends the request itself: one touch acknowledges.
        actions = [
            {"action": "http", "label": label, "url": address, "method": "POST", "clear": True}
            for label, address in message.acknowledge[:_MOST_ACTIONS]
        ]
        added = {"actions": actions} if actions else {}
        return apprise_plugins.send(url, message, scheme=self.scheme, label=self.label, schemes=schemes, added=added)

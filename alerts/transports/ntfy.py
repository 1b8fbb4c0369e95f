from __future__ import annotations

from urllib.parse import urlsplit

from alerts.transports.base import AppriseService, Config, Setting, UrlSetting, choice, matching, require_public_url

_SERVER = "https://ntfy.sh"


def _server(url: str) -> str:
    parts = urlsplit(require_public_url(url, instead="use an access token"))
    if parts.scheme != "https" or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"must be https:// and a host, for example {_SERVER}; the topic has its own field.")
    return f"https://{parts.netloc.lower()}"


class Ntfy(AppriseService):
    name = "ntfy"
    label = "ntfy"
    icon = "bell"
    about = "A push message to phones and desktops, through ntfy.sh or your own server."
    settings = (
        Setting(
            "topic",
            "Topic",
            check=matching(r"[A-Za-z0-9_-]{1,64}", "1 to 64 letters, digits, - and _, for example shop-alerts-x7k2"),
            help="The topic that you subscribe to. Without a token, anyone who knows its name can read it.",
            example="shop-alerts-x7k2",
            max_length=64,
        ),
        UrlSetting(
            "server",
            "Server",
            check=_server,
            help="The address of the ntfy server, https only.",
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

    def hint(self, config: Config) -> str:
        return f"{urlsplit(config['server']).netloc}/{config['topic'][:2]}…"  # a topic is its own password

    def apprise_url(self, config: Config) -> str:
        # Private mode also for ntfy.sh: the plugin's other mode ignores the token.
        token = config.get("access_token")
        user, auth = (f"{token}@", "&auth=token") if token else ("", "")
        host = urlsplit(config["server"]).netloc
        return f"ntfys://{user}{host}/{config['topic']}?mode=private&priority={config['priority']}{auth}"

from __future__ import annotations

from collections.abc import Callable

from alerts.transports.base import AppriseService, Config, Setting, choice, matching

_PRIORITIES = {"lowest": "-2", "low": "-1", "normal": "0", "high": "1"}


def _key(name: str) -> Callable[[str], str]:
    return matching(r"[A-Za-z0-9]{30}", f"{name}: 30 letters and digits, for example uQiRzpo4DXghDmr9QzzfQu27cmVRsG")


class Pushover(AppriseService):
    name = "pushover"
    label = "Pushover"
    icon = "bell"
    about = "A push message to your devices, or to a group's."
    settings = (
        Setting(
            "user_key",
            "User key",
            check=_key("a user or group key"),
            help="The key of the user or delivery group.",
            example="uQiRzpo4DXghDmr9QzzfQu27cmVRsG",
        ),
        Setting(
            "app_token",
            "API token",
            check=_key("the API token of an application"),
            help="The API token of your application at Pushover.",
            example="azGDORePK8gMaC0QOYAMyEEuzJnyUi",
        ),
        choice("priority", "Priority", _PRIORITIES, default="normal", help_text="high ignores quiet hours."),
    )
    setup = "The dashboard of pushover.net shows the user key. Create an application there to get its API token."
    page = "https://pushover.net/api"
    scheme = "pover"

    def apprise_url(self, config: Config) -> str:
        priority = _PRIORITIES[config["priority"]]
        return f"pover://{config['user_key']}@{config['app_token']}?priority={priority}"

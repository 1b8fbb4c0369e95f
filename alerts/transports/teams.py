from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from alerts.transports.base import AppriseService, Config, UrlSetting, last_characters

_EXAMPLE = (
    "https://prod-00.westeurope.logic.azure.com:443/workflows/…/triggers/manual/paths/invoke"
    "?api-version=2016-06-01&sp=…&sv=1.0&sig=…"
)
_WORKFLOW = re.compile(
    r"https://[a-z0-9.-]{1,200}\.(?:logic\.azure\.com|logic\.azure\.us|api\.powerplatform\.com)(?::443)?"
    r"(?:/powerautomate/automations/direct(?:/cu/[0-9]{1,6})?)?"
    r"/workflows/[A-Za-z0-9_-]{1,100}/triggers/manual/paths/invoke",
    re.ASCII,
)


def _workflow_url(url: str) -> str:
    """Return the URL with the parameters that matter. `sig` is its secret."""
    address, _, query = url.partition("?")
    address = address.removesuffix("/")
    if urlsplit(address).netloc.endswith(".webhook.office.com"):
        raise ValueError("is of an Office 365 connector, which Microsoft has retired; make a workflow instead.")
    given = {name: values[-1] for name, values in parse_qs(query).items()}
    version, signature = given.get("api-version", ""), given.get("sig", "")
    if (
        not _WORKFLOW.fullmatch(address)
        or not re.fullmatch(r"[0-9a-z-]{1,40}", version)
        or not re.fullmatch(r"[A-Za-z0-9_-]{16,200}", signature)
    ):
        raise ValueError(f"must be the whole URL of a workflow's webhook, for example {_EXAMPLE}")
    return f"{address}?api-version={version}&sig={signature}"


class Teams(AppriseService):
    name = "teams"
    label = "Microsoft Teams"
    icon = "users"
    about = "A card in a channel or chat, through a workflow."
    settings = (
        UrlSetting(
            "url",
            "Workflow URL",
            check=_workflow_url,
            help="The URL of a workflow that posts to a channel or chat when a webhook request is received.",
            example=_EXAMPLE,
        ),
    )
    setup = (
        "In Teams, open the channel's menu, Workflows, choose the template that posts to a channel when a webhook "
        "request is received, and copy the URL that it shows at the end."
    )
    page = (
        "https://support.microsoft.com/en-us/office/create-incoming-webhooks-with-workflows-for-microsoft-teams-"
        "8ae491c7-0394-4861-ba59-055e33f75498"
    )
    scheme = "workflows"

    def hint(self, config: Config) -> str:
        return last_characters(config["url"].partition("/workflows/")[2].partition("/")[0])

from __future__ import annotations

from urllib.parse import quote

from alerts.transports.base import AppriseService, Config, Setting, choice, matching


class PagerDuty(AppriseService):
    name = "pagerduty"
    label = "PagerDuty"
    icon = "triangle-alert"
    about = "An incident for each outage, resolved when the outage ends."
    settings = (
        Setting(
            "integration_key",
            "Integration key",
            check=matching(
                r"[A-Za-z0-9]{32}",
                "the integration key of the Events API v2: 32 letters and digits, for example "
                "R0ABCDEF0123456789ABCDEF01234567",
            ),
            help="The key of a service's Events API v2 integration.",
            example="R0ABCDEF0123456789ABCDEF01234567",
        ),
        choice("region", "Region", ("us", "eu"), default="us", help_text="eu for accounts at eu.pagerduty.com."),
    )
    setup = "In PagerDuty, open the service, Integrations, add Events API V2, and copy its integration key."
    page = "https://support.pagerduty.com/main/docs/services-and-integrations#add-integrations-to-an-existing-service"
    scheme = "pagerduty"
    one_alert_each = True

    def apprise_url(self, config: Config) -> str:
        # The plugin also requires a REST key, which the Events API ignores.
        key = quote(config["integration_key"], safe="")
        return f"pagerduty://{key}@{key}/Pulsekeeper/monitor?region={config['region']}"

"""E-mail about channels; what goes through them is rendered by `alerts.messages`."""

from __future__ import annotations

import logging

from django.conf import settings
from django.core.mail import EmailMessage

from core.mail import send_once
from projects.mail import one_line

logger = logging.getLogger(__name__)

_CONFIRMATION = """\
{by} wants Pulsekeeper to send alerts to this address, by the channel "{name}".

{base_url}/alert-channels/confirm/{token}

Open this link within 14 days and press the button there, and alerts will come. If you want none, there is nothing to
do: without it nothing more is sent to you.
"""


def send_confirmation(*, to: str, by: str, name: str, token: str) -> None:
    """One try. A mail that is lost is logged: setting the address again sends another."""
    text = _CONFIRMATION.format(by=by, name=one_line(name), base_url=settings.BASE_URL, token=token)
    if error := send_once(EmailMessage("Alerts of Pulsekeeper to this address?", text, to=[to])):
        logger.warning("a confirmation could not be asked for: %s", error)

"""E-mail about channels; what goes through them is rendered by `alerts.messages`."""

from __future__ import annotations

import logging
from smtplib import SMTPException

from django.conf import settings
from django.core.mail import send_mail
from django.db import connection

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
    if not connection.in_atomic_block:
        connection.close()  # the mail server may be slow
    text = _CONFIRMATION.format(by=by, name=one_line(name), base_url=settings.BASE_URL, token=token)
    try:
        send_mail("Alerts of Pulsekeeper to this address?", text, None, [to])
    except (SMTPException, OSError) as error:
        logger.warning("a confirmation could not be asked for: %s", type(error).__name__)

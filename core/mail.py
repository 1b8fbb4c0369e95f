"""Mail that requests send, and whether a mail server is configured."""

from __future__ import annotations

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import connection

from core.errors import TooManyRequests
from core.waiting import limit_waiting

NO_SERVER = "No mail server is configured. Set EMAIL_URL (docs/operate/settings.md) and restart Pulsekeeper."


def has_server() -> bool:
    """Return False if mails are only printed, because EMAIL_URL is not set."""
    return not str(settings.EMAIL_BACKEND).endswith("console.EmailBackend")


def send_once(message: EmailMessage) -> str | None:
    """Send a mail from a request. Return None, or the name of the error.

    The mail server may be slow, so the request returns its database connection, and few requests wait at a time.
    """
    if not connection.in_atomic_block:
        connection.close()
    try:
        with limit_waiting("mail"):
            message.send()
    except (OSError, TooManyRequests) as error:  # smtplib's errors are OSErrors
        return type(error).__name__
    return None

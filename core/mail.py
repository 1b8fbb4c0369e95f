"""Mail that requests send, and whether a mail server is configured."""

from __future__ import annotations

import logging

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction

from core.errors import TooManyRequests
from core.turns import paused
from core.waiting import limit_waiting

logger = logging.getLogger(__name__)

NO_SERVER = "No mail server is configured. Set EMAIL_URL (docs/operate/settings.md) and restart Pulsekeeper."
ASK_OPERATOR = "No mail server is configured. The operator of this Pulsekeeper can set one up."


MAX_MAILS = 4
"""Mails of one account that are sent at the same time."""


def has_server() -> bool:
    """Return False if mails are only printed, because EMAIL_URL is not set."""
    return not str(settings.EMAIL_BACKEND).endswith("console.EmailBackend")


def server_problem(*, staff: bool) -> str | None:
    """Return why no mail is sent and who can change that, or None. Only `staff` get the setting."""
    if has_server():
        return None
    return NO_SERVER if staff else ASK_OPERATOR


def send_on_commit(subject: str, text: str, *, to: str, account: str) -> None:
    """Send a mail after the commit, without retries: a failure is logged.

    A mail cannot be rolled back, and no row stays locked while a mail server is slow.
    """

    def send() -> None:
        if error := send_once(EmailMessage(subject, text, to=[to]), account=account):
            logger.warning('a mail "%s" could not be sent: %s', subject, error)

    transaction.on_commit(send)


def send_once(message: EmailMessage, *, account: str, stranger: bool = False) -> str | None:
    """Send a mail from a request. Return None, or the name of the error.

    The mail server may be slow, so the request returns its database connection, and few requests wait at a time.
    `account` caused the mail; for a `stranger` it is the client address.
    """
    try:
        with limit_waiting(account, most=MAX_MAILS, kind="mail", stranger=stranger), paused():
            message.send()
    except (OSError, TooManyRequests) as error:  # smtplib's errors are OSErrors
        return type(error).__name__
    return None

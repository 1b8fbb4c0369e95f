"""E-mails about projects."""

from __future__ import annotations

import logging

from django.conf import settings
from django.core.mail import EmailMessage

from core.mail import send_once

logger = logging.getLogger(__name__)

_INVITATION = """\
{by} invites you to the project "{project}" on Pulsekeeper, as {role}.

{base_url}/invitations/{token}

Open the link within 14 days, and sign up with this e-mail address, or sign in: the project is yours to see then. If you
expected no invitation, there is nothing to do.
"""


def send_invitation(*, to: str, project: str, by: str, role: str, token: str) -> None:
    """Send an invitation, without retries: a failure is logged, and a manager can invite again."""
    text = _INVITATION.format(by=by, project=one_line(project), role=role, base_url=settings.BASE_URL, token=token)
    if error := send_once(EmailMessage("An invitation to a project on Pulsekeeper", text, to=[to])):
        logger.warning("an invitation could not be sent: %s", error)


def one_line(text: str) -> str:
    """Return a name that is safe in a sentence of a mail: its author must not control the text of the mail."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= 80 else line[:79] + "…"

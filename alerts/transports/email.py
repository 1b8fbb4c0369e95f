"""Messages by e-mail, through the operator's own server: he named it, so no egress guard stands before it."""

from __future__ import annotations

import contextlib
import os
import smtplib
import socket
import threading
from collections.abc import Iterator
from datetime import datetime
from email.utils import parseaddr
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage, EmailMultiAlternatives, get_connection
from django.core.mail.backends.smtp import EmailBackend
from django.core.validators import validate_email

from alerts.messages import Message
from alerts.transports.base import Outcome
from core.mail import NO_SERVER, has_server

TOTAL_SEC = 30.0
_NO_ENCODED_WORD = "=\u200b?"  # a name that looks like RFC 2047 would be decoded by whoever reads it


def send(address: str, message: Message, *, key: str, now: datetime) -> Outcome:
    try:
        validate_email(address)
    except ValidationError:  # stored by an older version, perhaps
        return Outcome(delivered=False, detail="The address is no valid one.", retry=False)
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "pulsekeeper"
    thread = f"<thread.{message.thread}@{domain}>"
    with bounded_connection(TOTAL_SEC) as connection:
        mail = EmailMultiAlternatives(
            message.subject.replace("=?", _NO_ENCODED_WORD),
            message.text,
            to=[address],
            connection=connection,
            headers={
                "Message-ID": f"<{key}@{domain}>",
                "In-Reply-To": thread,
                "References": thread,
                "Auto-Submitted": "auto-generated",
                "Pulsekeeper-Delivery": key,
            },
        )
        mail.attach_alternative(message.html, "text/html")
        return send_mail(mail)


def send_mail(mail: EmailMessage) -> Outcome:
    """Send a mail once, over its own connection. Nothing is delivered without a mail server."""
    if not has_server():
        return Outcome(delivered=False, detail=f"No mail was sent. {NO_SERVER}")
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        code, said = next(iter(error.recipients.values()))
        return Outcome(
            delivered=False,
            detail=f"The mail server refused the recipient: {code} {_text(said)}",
            retry=code < 500,
        )
    except (smtplib.SMTPException, OSError) as error:
        return Outcome(delivered=False, detail=problem(error))
    return Outcome(delivered=True, detail="The mail server took the message.")


def reach_server(total_sec: float) -> str | None:
    """Connect to the mail server and sign in. Return what is wrong and what to do, or None if nothing is."""
    if not has_server():
        return NO_SERVER
    try:
        with bounded_connection(total_sec) as connection:
            connection.open()
    except (smtplib.SMTPException, OSError) as error:
        return problem(error)
    return None


def problem(error: smtplib.SMTPException | OSError) -> str:
    """Return what the mail server refused, and the setting to look at where one is at fault."""
    if not isinstance(error, smtplib.SMTPResponseException):
        return f"The mail server could not be used ({type(error).__name__}: {error}). Check EMAIL_URL."
    answer = f"The mail server answered {error.smtp_code} {_text(error.smtp_error)}"
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"{answer}. Check the user and password in EMAIL_URL."
    if isinstance(error, smtplib.SMTPSenderRefused):
        return f"{answer}. Check EMAIL_FROM."
    if isinstance(error, smtplib.SMTPConnectError | smtplib.SMTPHeloError):
        return f"{answer}. Check EMAIL_URL."
    return answer


def _text(said: bytes | str) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said


@contextlib.contextmanager
def bounded_connection(total_sec: float) -> Iterator[Any]:
    """The configured backend. An SMTP server's socket is shut after `total_sec`: its timeout bounds each read alone."""
    configured = get_connection()
    if not isinstance(configured, EmailBackend):
        yield configured
        return
    bounded = _BoundedBackend(total_sec)
    timer = threading.Timer(total_sec, bounded.shut)
    timer.daemon = True
    timer.start()
    try:
        yield bounded
    finally:
        with contextlib.suppress(OSError, smtplib.SMTPException):  # what was half open when it failed
            bounded.close()
        timer.cancel()
        bounded.forget()


class _BoundedBackend(EmailBackend):
    def __init__(self, total_sec: float) -> None:
        super().__init__(timeout=min(settings.EMAIL_TIMEOUT or total_sec, total_sec))
        self._watched: list[socket.socket] = []

    @property
    def connection_class(self) -> Any:
        watched = self._watched

        class Watched(super().connection_class):  # type: ignore[misc]
            def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
                opened: socket.socket = super()._get_socket(host, port, timeout)
                # A duplicate: STARTTLS takes the descriptor away from this one.
                watched.append(socket.socket(fileno=os.dup(opened.fileno())))
                return opened

        return Watched

    def shut(self) -> None:
        for watched in list(self._watched):
            with contextlib.suppress(OSError):  # it is not connected any more
                watched.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        for watched in self._watched:
            watched.close()

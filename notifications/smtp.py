"""Send mails through the operator's mail server. The operator configures its address, so no egress guard applies."""

from __future__ import annotations

import contextlib
import os
import smtplib
import socket
from collections.abc import Iterator, Mapping
from email.utils import parseaddr
from typing import Any

from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection
from django.core.mail.backends.smtp import EmailBackend
from django.utils.encoding import force_str

from core.deadlines import calling_after
from core.mail import NO_SERVER, has_server
from notifications.outbox import MAIL_FAILING, SendResult

_is_failing = False


def mail_id(key: str) -> str:
    """Return a Message-ID, which is the same for the same key."""
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "pulsekeeper"
    return f"<{key}@{domain}>"


def send_mail(
    subject: str, text: str, *, to: str, key: str, connection: Any, headers: Mapping[str, str], html: str = ""
) -> SendResult:
    """Send a mail once. Without a mail server nothing is delivered."""
    if not has_server():
        return SendResult(delivered=False, detail=f"No mail was sent. {NO_SERVER}")
    headers = {"Message-ID": mail_id(key), "Auto-Submitted": "auto-generated", **headers}
    mail = EmailMultiAlternatives(subject, text, to=[to], connection=connection, headers=headers)
    if html:
        mail.attach_alternative(html, "text/html")
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        _note(is_failing=False)
        code, answer = next(iter(error.recipients.values()))
        detail = f"The mail server refused the recipient: {code} {force_str(answer, errors='replace')}"
        return SendResult(delivered=False, detail=detail, retry=code < 500)
    except (smtplib.SMTPException, OSError) as error:
        # A refused text says nothing about other mails.
        if not (isinstance(error, smtplib.SMTPDataError) and error.smtp_code >= 500):
            _note(is_failing=True)
        return SendResult(delivered=False, detail=problem(error))
    _note(is_failing=False)
    return SendResult(delivered=True, detail="The mail server accepted the message.")


def _note(*, is_failing: bool) -> None:
    global _is_failing
    _is_failing = is_failing
    MAIL_FAILING.follow(lambda: _is_failing)


def reach_server(total_sec: float) -> str | None:
    """Connect to the mail server and sign in. Return the problem and its remedy, or None."""
    if not has_server():
        return NO_SERVER
    try:
        with bounded_connection(total_sec) as connection:
            connection.open()
    except (smtplib.SMTPException, OSError) as error:
        return problem(error)
    return None


def problem(error: smtplib.SMTPException | OSError) -> str:
    """Describe an error of the mail server, and name the setting to check."""
    if not isinstance(error, smtplib.SMTPResponseException):
        return f"The mail server could not be used ({type(error).__name__}: {error}). Check EMAIL_URL."
    answer = f"The mail server answered {error.smtp_code} {force_str(error.smtp_error, errors='replace')}"
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return f"{answer}. Check the user and password in EMAIL_URL."
    if isinstance(error, smtplib.SMTPSenderRefused):
        return f"{answer}. Check EMAIL_FROM."
    if isinstance(error, smtplib.SMTPConnectError | smtplib.SMTPHeloError):
        return f"{answer}. Check EMAIL_URL."
    return answer


@contextlib.contextmanager
def bounded_connection(total_sec: float) -> Iterator[Any]:
    """Yield the configured mail backend. Shut the socket after `total_sec`: a timeout only limits each single read."""
    configured = get_connection()
    if not isinstance(configured, EmailBackend):
        yield configured
        return
    bounded = _BoundedBackend(total_sec)
    try:
        with calling_after(total_sec, bounded.shut):
            try:
                yield bounded
            finally:
                with contextlib.suppress(OSError, smtplib.SMTPException):  # it may be half open after a failure
                    bounded.close()
    finally:
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
            with contextlib.suppress(OSError):  # already disconnected
                watched.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        for watched in self._watched:
            watched.close()

"""A mail server that stores the mail it accepts."""

from __future__ import annotations

import asyncio
import email
import email.policy
import socket
from email.message import EmailMessage
from types import TracebackType
from typing import Any, Self

from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.targets.loop import ServerLoop


class Inbox:
    """An SMTP server that accepts all mail unless `refuse_…` is set. `mails`, `recipients`: in order of arrival."""

    def __init__(self, *, address: str = "127.0.0.1", port: int = 0) -> None:
        self.refuse_recipient: str | None = None
        self.refuse_data: str | None = None
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self._listening = socket.create_server((address, port))  # reserves the port before the start
        self._loop = ServerLoop("inbox")
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> Self:
        self._loop.__enter__().run(self._start())
        return self

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop.servers.append(
            await loop.create_server(lambda: SMTP(self, enable_SMTPUTF8=True), sock=self._listening)
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.__exit__(kind, error, trace)

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.refuse_recipient:
            return self.refuse_recipient
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.refuse_data:
            return self.refuse_data
        assert isinstance(envelope.content, bytes)
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 OK"


def part(mail: EmailMessage, kind: str) -> str:
    """Return the text of a mail in this format: `plain` or `html`."""
    found: Any = mail.get_body((kind,))
    text: str = found.get_content()
    return text

"""E-mail, through the operator's mail server."""

from __future__ import annotations

from datetime import datetime

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from accounts.services import email_address
from alerts.messages import Message
from alerts.transports.base import ChannelKind, Config, Setting, mask_address
from core import mail
from notifications.outbox import SendResult

TOTAL_SEC = 30.0
_NO_ENCODED_WORD = "=\u200b?"  # mail programs would decode a name that looks like an encoded word of RFC 2047


class Email(ChannelKind):
    name = "email"
    label = "E-mail"
    icon = "mail"
    about = "Your own address, or another address whose owner agrees."
    settings = (
        Setting(
            "address",
            "E-mail address",
            check=lambda text: email_address(text, field="address"),
            help="Unless it is the caller's sign-in address, its owner has to confirm it with a link that is sent to "
            "it. An address that a project token sets must always be confirmed.",
            max_length=254,
            input_type="email",
        ),
    )
    consent = "address"

    def hint(self, config: Config) -> str:
        return mask_address(config["address"])

    def problem(self) -> str | None:
        return None if mail.has_server() else mail.NO_SERVER

    def send(self, config: Config, message: Message, *, key: str, now: datetime) -> SendResult:
        from notifications import smtp  # only workers load it

        address = config["address"]
        try:
            validate_email(address)
        except ValidationError:
            return SendResult(delivered=False, detail="The address is invalid.", retry=False)
        thread = smtp.mail_id(f"thread.{message.thread}")
        with smtp.bounded_connection(TOTAL_SEC) as connection:
            return smtp.send_mail(
                message.subject.replace("=?", _NO_ENCODED_WORD),
                message.text,
                to=address,
                key=key,
                connection=connection,
                headers={"In-Reply-To": thread, "References": thread, "Pulsekeeper-Delivery": key},
                html=message.html,
            )

"""A team without schedules: chat at once, an SMS gateway after ten minutes, mail only by day. Over real sockets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pytest
from pytest_django import Settings

from alerts.models import AlertChannel
from alerts.outbox import OUTBOX
from checks.spec import Verdict
from incidents.models import Incident
from incidents.services import acknowledge
from projects.access import Caller
from tests.alerts.drivers import Drive, Message, at, make_channel
from tests.alerts.inbox import Inbox, part
from tests.alerts.receiver import Receiver
from tests.factories import UserFactory

DOWN, UP = Verdict.DOWN, Verdict.UP
MINUTE, HOUR = 60.0, 3600.0
SMS = {"down": {"body": "{{ monitor.name }} {{ event }}"}, "recovered": {"body": "{{ monitor.name }} OK"}}


@dataclass
class RealDrive(Drive):
    """Like Drive, but the senders of the product deliver."""

    def deliver(self, moment: datetime) -> list[Message]:
        OUTBOX.send_due()
        return []


@pytest.mark.django_db(transaction=True)
def test_chat_at_once_sms_after_ten_minutes_mail_by_day(settings: Settings) -> None:
    owner, drive = UserFactory(), RealDrive()
    AlertChannel.objects.all().delete()
    day = [{"days": [1, 2, 3, 4, 5], "from": "09:00", "to": "17:00"}]  # NOON is on a Sunday
    with Receiver() as receiver, Inbox() as inbox:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", inbox.port
        chat = make_channel(owner)
        sms = make_channel(owner, delay_min=10, templates=SMS)
        mail = make_channel(owner, kind="email", hours=day, time_zone="Europe/Berlin")
        for channel, config in (
            (chat, {"url": f"{receiver.url}/chat", "secret": "s" * 40}),
            (sms, {"url": f"{receiver.url}/sms", "secret": "s" * 40}),
            (mail, {"address": "ops@example.com"}),
        ):
            channel.config = config
            channel.save()

        def received() -> list[str]:
            calls = [f"{call.path[1:]}: {call.json['text']}" for call in receiver.calls]
            mails = [f"mail: {part(mail, 'plain').splitlines()[0]}" for mail in inbox.mails]
            receiver.calls.clear()
            inbox.mails.clear()
            return sorted([*calls, *mails])

        short, night, seen, long = drive.monitors(owner, ["Short", "Night", "Seen", "Long"])
        drive.check(short, DOWN, at(MINUTE))
        drive.tick(at(MINUTE))
        assert received() == ["chat: Short is down."]
        drive.check(short, UP, at(5 * MINUTE))
        drive.tick(at(5 * MINUTE))
        assert received() == ["chat: Short is up again."]

        drive.check(night, DOWN, at(HOUR))
        drive.tick(at(HOUR))
        drive.tick(at(HOUR + 10 * MINUTE))
        assert received() == ["chat: Night is down.", "sms: Night down"]
        drive.check(night, UP, at(2 * HOUR))
        drive.tick(at(2 * HOUR))
        assert received() == ["chat: Night is up again.", "sms: Night OK"]

        drive.check(seen, DOWN, at(3 * HOUR))
        drive.tick(at(3 * HOUR))
        acknowledge(Caller(owner), Incident.objects.get(name="Seen").public_id, now=at(3 * HOUR + MINUTE))
        drive.tick(at(3 * HOUR + MINUTE))
        drive.tick(at(3 * HOUR + 10 * MINUTE))
        assert received() == ["chat: Seen is down.", f"chat: {owner.email} has acknowledged that Seen is down."]

        drive.check(long, DOWN, at(4 * HOUR))
        drive.tick(at(4 * HOUR))
        drive.tick(at(4 * HOUR + 10 * MINUTE))
        assert received() == ["chat: Long is down.", "sms: Long down"]
        monday = 20 * HOUR  # 9:00 in Berlin
        drive.tick(at(monday - 1))
        assert received() == []
        drive.tick(at(monday))
        assert received() == ["mail: Long is down."]
        drive.check(long, UP, at(monday + HOUR))
        drive.tick(at(monday + HOUR))
        assert received() == ["chat: Long is up again.", "mail: Long is up again.", "sms: Long OK"]

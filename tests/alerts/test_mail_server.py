"""No mail server, or one that refuses: nothing counts as delivered, and the reason names the setting."""

from __future__ import annotations

import re
import smtplib
from datetime import timedelta

import pytest
import time_machine
from django.db import transaction
from django.template.loader import render_to_string
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from alerts import tasks
from alerts.events import EventType, Payload
from alerts.models import AlertChannel, Delivery
from alerts.outbox import OUTBOX, OutboxItem, put
from alerts.services import replay
from core import replies
from core.clock import utc_now
from core.errors import NotDead
from notifications.outbox import RETRY_FOR, SendResult
from notifications.smtp import problem
from projects.access import Caller
from tests.alerts.drivers import claim
from tests.alerts.inbox import Inbox
from tests.alerts.receiver import Receiver
from tests.api.client import Api
from tests.factories import ChannelFactory, MonitorFactory, ProjectFactory, UserFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def no_server(settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"


@pytest.fixture
def inbox(settings: Settings) -> Inbox:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    inbox = Inbox()
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", inbox.port
    return inbox


def own_address() -> AlertChannel:
    UserFactory()
    return AlertChannel.objects.get()


def tell(channel: AlertChannel, source: str) -> Delivery:
    with transaction.atomic():
        put([OutboxItem(source, Payload(EventType.DOWN, at=0, monitor="Shop"), [channel.pk])], now=utc_now())
    return channel.deliveries.latest("pk")


def tried(channel: AlertChannel) -> SendResult:
    """Send a test as a worker does, and return what the web process gets."""
    address = replies.new_address()
    tasks.send_test(channel.pk, address)
    answer = replies.wait(address, SendResult, timeout_sec=30)
    assert answer is not None
    return answer


def test_an_alert_without_a_mail_server_is_tried_again_and_can_be_replayed(
    no_server: None, capfd: pytest.CaptureFixture[str]
) -> None:
    channel = own_address()
    delivery = tell(channel, "outage")
    assert OUTBOX.send_next()
    delivery.refresh_from_db()
    channel.refresh_from_db()
    assert (delivery.state, delivery.attempts, channel.last_sent_at) == ("waiting", 1, None)
    assert "Set EMAIL_URL" in (delivery.last_error or "")
    with time_machine.travel(utc_now() + RETRY_FOR + timedelta(minutes=1), tick=False):
        assert OUTBOX.send_next()
        delivery.refresh_from_db()
        assert delivery.state == "dead"
        assert replay(Caller(channel.owner), channel.public_id, delivery.public_id, now=utc_now()).state == ("waiting")
    assert "Shop" not in "".join(capfd.readouterr()), "nor is it printed as if it were sent"


def test_a_test_without_a_mail_server_says_so_in_the_answer_the_log_and_on_the_pages(no_server: None) -> None:
    channel = own_address()
    answer = tried(channel)
    assert answer.delivered is False
    assert "Set EMAIL_URL" in answer.detail
    (logged,) = Api.signed_in(channel.owner).get(f"/v1/alert-channels/{channel.public_id}/deliveries").json
    assert (logged["state"], logged["last_error"], logged["attempts"]) == ("failed", answer.detail, 1)
    assert [item["news"] for item in logged["items"]] == ["test"]
    web = Client()
    web.force_login(channel.owner)
    for path in ("", f"/{channel.public_id}", "/new?kind=email"):
        page = web.get(f"/alert-channels{path}").content.decode()
        assert "No mail server" in page
        assert "Confirmed" not in page
    new = web.get("/alert-channels/new?kind=email").content.decode()
    assert "The operator of this Pulsekeeper can set one up" in new
    assert "EMAIL_URL" not in new, "which only staff can set"
    assert "No mail server" not in web.get("/alert-channels/new?kind=webhook").content.decode()


@pytest.mark.parametrize(
    ("staff", "remedy"), [(True, "Set EMAIL_URL"), (False, "The operator of this Pulsekeeper can")]
)
def test_the_first_page_informs_staff_and_a_monitor_everyone(no_server: None, staff: bool, remedy: str) -> None:
    channel = own_address()
    owner = channel.owner
    User.objects.update(is_staff=staff)
    monitor = MonitorFactory(owner=owner)
    web = Client()
    web.force_login(owner)
    assert ("No e-mails are sent" in web.get("/monitors").content.decode()) is staff
    page = web.get(f"/monitors/{monitor.public_id}").content.decode()
    assert "No e-mails are sent" in page
    assert remedy in page
    AlertChannel.objects.all().delete()
    assert "No e-mails are sent" not in web.get(f"/monitors/{monitor.public_id}").content.decode()


def test_with_a_mail_server_no_page_warns() -> None:
    owner = own_address().owner
    User.objects.update(is_staff=True)
    web = Client()
    web.force_login(owner)
    for path in ("/monitors", f"/monitors/{MonitorFactory(owner=owner).public_id}", "/account/email/"):
        assert "No e-mails are sent" not in web.get(path).content.decode()


def test_nothing_claims_that_a_mail_was_sent(no_server: None) -> None:
    owner = own_address().owner
    project = ProjectFactory(owner=owner)
    web = Client()
    web.force_login(owner)
    pages = [
        web.post(f"/projects/{project.public_id}/members", {"email": "new@example.com", "role": "member"}, follow=True),
        Client().post("/account/password/reset/", {"email": owner.email}, follow=True),
        Client().get("/account/confirm-email/"),
    ]
    for page in pages:
        text = page.content.decode()
        assert page.status_code == 200
        assert "No mail server is configured" in text, page.request["PATH_INFO"]
        assert not re.search(r"We sent|Invitation sent|Check your e-mail", text), page.request["PATH_INFO"]
    message = render_to_string("account/messages/email_confirmation_sent.txt", {"email": "other@example.com"})
    assert message.startswith("The link to other@example.com was not sent")


def test_a_test_is_logged_and_never_sent_again(inbox: Inbox) -> None:
    channel = own_address()
    with inbox:
        assert tried(channel).delivered is True
        inbox.refuse_recipient = "550 5.1.1 No such user"
        assert tried(channel).delivered is False
        failed, sent = channel.deliveries.order_by("-pk")
        assert (failed.state, sent.state, sent.last_error) == ("failed", "sent", None)
        assert claim(utc_now() + timedelta(days=2)) is None
        with pytest.raises(NotDead):
            replay(Caller(channel.owner), channel.public_id, failed.public_id, now=utc_now())
    assert len(inbox.mails) == 1


def test_tests_do_not_delay_the_alert_that_follows() -> None:
    """The storm rule groups messages after two in a minute; test messages are not part of a storm."""
    with Receiver() as receiver:
        channel = ChannelFactory(kind="webhook", url=receiver.url)
        for _ in range(3):
            answer = tried(channel)
            assert answer.delivered, answer
    assert tell(channel, "outage").state == "waiting"
    assert [tell(channel, f"more:{n}").state for n in range(2)] == ["waiting", "gathering"]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (smtplib.SMTPAuthenticationError(535, b"5.7.8 No"), "Check the user and password in EMAIL_URL."),
        (smtplib.SMTPSenderRefused(553, b"5.1.8 No", "a@b.example"), "Check EMAIL_FROM."),
        (smtplib.SMTPConnectError(554, b"go away"), "Check EMAIL_URL."),
        (ConnectionRefusedError(111, "Connection refused"), "Check EMAIL_URL."),
    ],
)
def test_a_server_that_refuses_names_the_setting(error: smtplib.SMTPException | OSError, advice: str) -> None:
    assert problem(error).endswith(advice)

"""E-mail through a real SMTP server, including servers and messages that are faulty."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from pytest_django import Settings

from alerts.messages import Message, render
from alerts.transports import KINDS
from alerts.transports import email as transport
from core import metrics
from notifications.outbox import MAIL_FAILING, SendResult
from tests.alerts import samples
from tests.alerts.inbox import Inbox, part
from tests.alerts.samples import BASE_URL, DOWN, NOW, RECOVERED
from tests.processes.up import free_port
from tests.targets.server import Pause, Repeat, Script, TargetServer, Unasked

ADDRESS = "ops@example.com"


@pytest.fixture
def use_server(settings: Settings) -> Callable[[int], None]:
    def use(port: int) -> None:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_TIMEOUT = "127.0.0.1", port, 10
        settings.DEFAULT_FROM_EMAIL = "Pulsekeeper <alerts@pulsekeeper.example>"

    return use


@pytest.fixture
def inbox(use_server: Callable[[int], None]) -> Iterator[Inbox]:
    with Inbox() as inbox:
        use_server(inbox.port)
        yield inbox


def deliver(message: Message, *, key: str = "dlv_1", to: str = ADDRESS) -> SendResult:
    return KINDS["email"].send({"address": to}, message, key=key, now=NOW)


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_a_message_arrives_as_text_and_html(inbox: Inbox, name: str) -> None:
    message = samples.rendered(name)
    assert deliver(message) == SendResult(delivered=True, detail="The mail server accepted the message.")
    (mail,) = inbox.mails
    assert inbox.recipients == [[ADDRESS]]
    assert mail.get_content_type() == "multipart/alternative"
    assert part(mail, "plain").splitlines() == message.text.splitlines()
    assert part(mail, "html").splitlines() == message.html.splitlines()
    assert (mail["Subject"], mail["To"]) == (message.subject, ADDRESS)
    assert mail["From"] == "Pulsekeeper <alerts@pulsekeeper.example>"
    assert mail["Auto-Submitted"] == "auto-generated"


def test_the_mails_of_an_incident_are_a_thread(inbox: Inbox) -> None:
    for number, payload in enumerate((DOWN, DOWN, RECOVERED)):
        message = render([payload], key=f"dlv_{number}", base_url=BASE_URL, now=NOW)
        assert deliver(message, key=f"dlv_{number}").delivered
    ids = [mail["Message-ID"] for mail in inbox.mails]
    assert ids == [f"<dlv_{number}@pulsekeeper.example>" for number in range(3)]
    assert [mail["Pulsekeeper-Delivery"] for mail in inbox.mails] == ["dlv_0", "dlv_1", "dlv_2"]
    root = f"<thread.{DOWN.incident_id}@pulsekeeper.example>"
    assert {mail["References"] for mail in inbox.mails} == {root}
    assert {mail["In-Reply-To"] for mail in inbox.mails} == {root}
    # RFC 5256: the base subject is what remains without a leading [tag].
    assert {mail["Subject"].partition("] ")[2] for mail in inbox.mails} == {"Shop checkout"}


def test_another_try_is_the_same_mail(inbox: Inbox) -> None:
    for _ in range(2):
        deliver(samples.rendered("down"))
    first, second = inbox.mails
    assert first["Message-ID"] == second["Message-ID"]


@pytest.mark.parametrize(
    "name", ["Shop\r\nBcc: victim@example.com\r\n\r\nHello", "Кафе ☕ \u202e", "=?utf-8?q?=0D=0ABcc:x?=", "x" * 5_000]
)
def test_dangerous_names_make_no_headers(inbox: Inbox, name: str) -> None:
    message = render(
        [replace(DOWN, monitor=name, detail=name, evidence={"body": name})], key="dlv_1", base_url=BASE_URL, now=NOW
    )
    assert deliver(message).delivered
    (mail,) = inbox.mails
    assert inbox.recipients == [[ADDRESS]]
    assert mail["Bcc"] is None
    assert mail["To"] == ADDRESS
    assert len(mail.get_all("Subject", [])) == 1
    assert "\n" not in str(mail["Subject"])
    assert set(mail.keys()) == {
        "Content-Type",
        "MIME-Version",
        "Subject",
        "From",
        "To",
        "Date",
        "Message-ID",
        "In-Reply-To",
        "References",
        "Auto-Submitted",
        "Pulsekeeper-Delivery",
    }


@pytest.mark.parametrize(("answer", "retry"), [("550 5.1.1 No such user", False), ("450 4.2.1 Mailbox busy", True)])
def test_a_refused_recipient(inbox: Inbox, answer: str, retry: bool) -> None:
    inbox.refuse_recipient = answer
    assert deliver(samples.rendered("down")) == SendResult(
        delivered=False, detail=f"The mail server refused the recipient: {answer}", retry=retry
    )


@pytest.mark.parametrize("answer", ["554 5.7.1 Spam", "451 4.3.0 Delivery later"])
def test_a_refused_message(inbox: Inbox, answer: str) -> None:
    inbox.refuse_data = answer
    assert deliver(samples.rendered("down")) == SendResult(delivered=False, detail=f"The mail server answered {answer}")


def test_what_is_the_fault_of_one_mail_is_none_of_the_server(inbox: Inbox, use_server: Callable[[int], None]) -> None:
    def is_failing() -> bool:
        metrics.report()
        return metrics.read_levels().get(MAIL_FAILING.name, 0) > 0

    use_server(free_port())
    assert not deliver(samples.rendered("down")).delivered
    assert is_failing()
    use_server(inbox.port)
    inbox.refuse_data = "554 5.7.1 Spam"
    assert not deliver(samples.rendered("down")).delivered
    assert is_failing(), "it says nothing about other mails"
    inbox.refuse_data = None
    assert deliver(samples.rendered("down")).delivered
    assert not is_failing()
    for attribute, answer in (("refuse_data", "554 5.7.1 Spam"), ("refuse_recipient", "550 5.1.1 No such user")):
        setattr(inbox, attribute, answer)
        assert not deliver(samples.rendered("down")).delivered
        assert not is_failing()


@pytest.mark.parametrize("address", ["a@b.example\r\nBcc: victim@example.com", "not an address", ""])
def test_what_is_no_address(inbox: Inbox, address: str) -> None:
    outcome = deliver(samples.rendered("down"), to=address)
    assert (outcome.delivered, outcome.retry) == (False, False)
    assert inbox.mails == []


def test_no_server(use_server: Callable[[int], None]) -> None:
    port = free_port()
    use_server(port)
    outcome = deliver(samples.rendered("down"))
    assert (outcome.delivered, outcome.retry) == (False, True)
    assert "refused" in outcome.detail


@pytest.mark.parametrize(
    "script",
    [
        pytest.param([], id="hangs up"),
        pytest.param([b"554 go away\r\n"], id="turns away"),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n"], id="no mail server"),
        pytest.param([Pause(3600)], id="says nothing"),
        pytest.param([Repeat(b"2", 0.05)], id="a byte now and then"),
        pytest.param([Repeat(b"220-x\r\n", 0.05)], id="a greeting without end"),
    ],
)
def test_a_server_gone_wrong_is_one_bounded_try(
    targets: TargetServer, use_server: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    monkeypatch.setattr(transport, "TOTAL_SEC", 0.5)
    site = targets.serve(Unasked(script))
    use_server(site.port)
    start = time.monotonic()
    outcome = deliver(samples.rendered("down"))
    assert (outcome.delivered, outcome.retry) == (False, True)
    assert outcome.detail.startswith("The mail server ")
    assert time.monotonic() - start < 5
    assert site.connections == 1

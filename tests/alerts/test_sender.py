"""Sender threads: hanging receivers of one account occupy only a few, and no thread of Celery."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from accounts.models import User
from alerts import tasks
from alerts.models import AlertChannel, Delivery
from alerts.outbox import MAX_PER_OWNER, OUTBOX, DeliveryOutbox
from alerts.testing import TESTS_OF_OWNER
from alerts.transports import webhook
from core import replies
from core.clock import utc_now
from core.db import release_connection
from notifications.outbox import SendResult
from tests.alerts.receiver import Call, Receiver
from tests.factories import ChannelFactory, DeliveryFactory, UserFactory
from tests.helpers import flush_broker
from tests.processes.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

SENDERS = 16
HOSTILE = 100
PATIENCE = 20.0
"""Shorter than the timeout of a webhook here: a message that waits for a hanging one is late."""


@pytest.fixture(autouse=True)
def _webhooks_may_hang_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "TOTAL_SEC", 60.0)


class Stuck(Receiver):
    """Does not answer until it is released."""

    def __init__(self) -> None:
        self._go = threading.Event()
        super().__init__(self._wait)

    def _wait(self, call: Call) -> int:
        self._go.wait(60)
        return 200

    def let_go(self) -> None:
        self._go.set()


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    with Stuck() as receiver:
        yield receiver
        receiver.let_go()


@pytest.fixture
def prompt() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def account(channels: int, url: str) -> list[AlertChannel]:
    """A new account's channels, without the one for its own address."""
    owner: User = UserFactory()
    AlertChannel.objects.filter(owner=owner).delete()
    return [ChannelFactory(owner=owner, kind="webhook", url=f"{url}/{number}") for number in range(channels)]


def send_and_release() -> int:
    try:
        return OUTBOX.send_next()
    finally:
        release_connection()


def test_all_senders_at_once_take_few_messages_of_one_account(stuck: Stuck) -> None:
    for channel in account(SENDERS + 2, stuck.url):
        DeliveryFactory(channel=channel, created_at=utc_now())
    with ThreadPoolExecutor(SENDERS) as pool:
        tries = [pool.submit(send_and_release) for _ in range(SENDERS)]
        until(lambda: sum(each.done() for each in tries) == SENDERS - MAX_PER_OWNER, PATIENCE, "the rest is free")
        assert [each.result() for each in tries if each.done()] == [0] * (SENDERS - MAX_PER_OWNER)
        until(lambda: len(stuck.calls) == MAX_PER_OWNER, PATIENCE, "each message is sent")
        stuck.let_go()


def test_a_message_finds_a_thread_while_others_hang(stuck: Stuck, prompt: Receiver) -> None:
    sender = DeliveryOutbox()
    for channel in account(MAX_PER_OWNER, stuck.url):
        DeliveryFactory(channel=channel, created_at=utc_now())
    sender.wake(utc_now())
    until(lambda: len(stuck.calls) == MAX_PER_OWNER, PATIENCE, "as many hang as may")
    (channel,) = account(1, prompt.url)
    DeliveryFactory(channel=channel, created_at=utc_now())
    sender.wake(utc_now())
    until(lambda: prompt.calls, PATIENCE, "the message of another account arrives")
    stuck.let_go()
    sender.stop(grace_sec=20)


def test_a_message_finds_a_thread_while_those_of_a_hundred_accounts_hang(stuck: Stuck, prompt: Receiver) -> None:
    """Each is new or was prompt so far, so only its hanging distinguishes it from the neighbour."""
    sender = DeliveryOutbox()
    for number in range(HOSTILE):
        for channel in account(MAX_PER_OWNER if number < 5 else 2, stuck.url):
            AlertChannel.objects.filter(pk=channel.pk).update(prompt=number % 2)
            DeliveryFactory(channel=channel, created_at=utc_now())
    sender.wake(utc_now())
    # If no others wait, a few accounts may have more than one message in flight.
    until(lambda: len(stuck.calls) >= HOSTILE, 3 * PATIENCE, "one of each account hangs")
    new, proven = account(1, prompt.url)[0], account(1, prompt.url)[0]
    AlertChannel.objects.filter(pk=proven.pk).update(prompt=True)
    for channel in (new, proven):
        DeliveryFactory(channel=channel, created_at=utc_now())
    sender.wake(utc_now())
    until(lambda: len(prompt.calls) == 2, PATIENCE, "the messages of other accounts arrive")
    busy = Delivery.objects.filter(state="waiting", leased_until__gt=utc_now()).values_list("account", flat=True)
    assert max(Counter(busy).values()) <= MAX_PER_OWNER
    stuck.let_go()
    sender.stop(grace_sec=20)


def test_tests_of_one_account_that_hang_delay_no_other_and_take_no_thread_of_celery(
    stuck: Stuck, prompt: Receiver
) -> None:
    flush_broker()
    hanging = account(1, stuck.url)[0]
    mine = [replies.new_address() for _ in range(30)]
    for address in mine:
        run_in_time(hanging.pk, address)
    until(lambda: len(stuck.calls) == TESTS_OF_OWNER, PATIENCE, "a few are sent")
    address = replies.new_address()
    run_in_time(account(1, prompt.url)[0].pk, address)
    delivered = replies.wait(address, SendResult, timeout_sec=PATIENCE)
    assert delivered == SendResult(delivered=True, detail="The receiver answered 200.")
    assert len(stuck.calls) == TESTS_OF_OWNER
    stuck.let_go()
    for waited in mine:
        assert replies.wait(waited, SendResult, timeout_sec=PATIENCE) == delivered


def run_in_time(channel_id: int, address: str) -> None:
    """Run the task as a Celery thread, which must not wait for the receiver."""

    def run() -> None:
        tasks.send_test(channel_id, address)
        release_connection()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()

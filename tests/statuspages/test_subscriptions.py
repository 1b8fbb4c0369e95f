"""E-mail subscriptions: only confirmed addresses are notified, each once, until they unsubscribe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from email.message import EmailMessage
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from core.clock import utc_now
from incidents.models import Incident
from monitors.models import Monitor
from projects.access import Caller
from statuspages import events, mailing, subscriptions
from statuspages.models import PageEvent, PageMail, StatusPage, Subscriber
from statuspages.services import add_update, create_note, update_page
from tests.alerts.inbox import Inbox, part
from tests.factories import IncidentFactory, MonitorFactory, UserFactory
from tests.helpers import minutes, run_concurrently
from tests.statuspages.making import make_page, make_subscriber

pytestmark = pytest.mark.django_db(transaction=True)
NOTE = {"title": "Orders are late", "status": "investigating", "text": "We are looking."}


@pytest.fixture
def inbox(settings: Settings) -> Iterator[Inbox]:
    with Inbox() as inbox:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", inbox.port
        settings.EMAIL_HOST_USER = settings.EMAIL_HOST_PASSWORD = ""
        settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
        yield inbox


@pytest.fixture
def user(transactional_db: None) -> User:
    return UserFactory()


@pytest.fixture
def monitor(user: User) -> Monitor:
    return MonitorFactory(owner=user, up=True)


@pytest.fixture
def page(user: User, monitor: Monitor) -> StatusPage:
    return make_page(user, [monitor])


def subscribe(page: StatusPage, email: str) -> Any:
    return Client().post(f"/status/{page.slug}/subscribe", {"email": email})


def link_in(mail: EmailMessage) -> str:
    """Return the path of the URL, as a reader's browser requests it."""
    found = re.search(r"http://[^/]+(/status-subscriptions/\S+)", part(mail, "plain"))
    assert found
    return found[1]


def tick() -> int:
    now = utc_now()
    events.add_outage_events(now)
    events.create_mails(now)
    return mailing.OUTBOX.send_due()


def has_outage(monitor: Monitor, **columns: Any) -> Incident:
    at = utc_now() - minutes(5)
    return IncidentFactory(monitor=monitor, started_at=at, confirmed_at=at, **columns)


def test_from_the_form_to_news_to_the_end(user: User, page: StatusPage, inbox: Inbox) -> None:
    assert "Check your e-mail" in subscribe(page, "Reader@Example.com").content.decode()
    create_note(Caller(user), page.public_id, NOTE, now=utc_now())
    tick()
    (question,) = inbox.mails
    assert inbox.recipients == [["reader@example.com"]]
    assert "Orders are late" not in question.as_string()

    confirm = link_in(question)
    assert "Subscribe" in Client().get(confirm).content.decode()
    assert not Subscriber.objects.filter(confirmed_at__isnull=False).exists()
    assert "Subscribed" in Client().post(confirm).content.decode()
    note = create_note(Caller(user), page.public_id, NOTE, now=utc_now())
    tick()
    (told,) = inbox.mails[1:]
    assert told["Subject"] == "[Shop status] Investigating: Orders are late"
    assert "We are looking." in part(told, "plain")
    assert told["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"

    stop = re.sub("[<>]", "", str(told["List-Unsubscribe"])).partition("localhost:8000")[2]
    assert Client().post(stop, {"List-Unsubscribe": "One-Click"}).status_code == 200
    add_update(Caller(user), page.public_id, note.public_id, {"status": "resolved", "text": "Done."}, now=utc_now())
    tick()
    assert len(inbox.mails) == 2
    assert not Subscriber.objects.exists()
    assert Client().post(stop).status_code == 200
    assert Client().post(confirm).status_code == 404


def test_nobody_can_tell_who_is_subscribed(page: StatusPage, inbox: Inbox) -> None:
    make_subscriber(page, email="known@example.com")
    known, unknown = subscribe(page, "known@example.com"), subscribe(page, "unknown@example.com")
    assert (known.status_code, known.content) == (unknown.status_code, unknown.content)
    tick()
    assert inbox.recipients == [["unknown@example.com"]]


def test_asking_again_and_again_sends_one_question(page: StatusPage, inbox: Inbox) -> None:
    run_concurrently(*[lambda: subscriptions.subscribe(page.pk, "reader@example.com", now=utc_now())] * 4)
    tick()
    subscribe(page, "reader@example.com")
    tick()
    assert len(inbox.mails) == 1
    Subscriber.objects.update(created_at=utc_now() - subscriptions.REPEAT_AFTER)
    subscribe(page, "reader@example.com")
    tick()
    assert len(inbox.mails) == 2


def test_what_is_no_address_is_said_beside_the_field(page: StatusPage) -> None:
    answer = subscribe(page, 'no"<script>@')
    text = answer.content.decode()
    assert answer.status_code == 422
    assert "&quot;&lt;script&gt;@" in text
    assert 'aria-describedby="wrong"' in text
    assert not Subscriber.objects.exists()


def test_the_form_is_throttled_by_network_and_by_address(page: StatusPage, settings: Settings) -> None:
    from tests.helpers import flush_broker

    flush_broker()
    settings.THROTTLE_SCALE = 1
    tries = [subscribe(page, "reader@example.com").status_code for _ in range(6)]
    assert tries == [200] * 5 + [429]
    flush_broker()


def test_the_address_is_stored_nowhere_in_the_open(page: StatusPage) -> None:
    make_subscriber(page, email="reader@example.com")
    with connection.cursor() as cursor:
        cursor.execute("SELECT statuspages_subscriber::text FROM statuspages_subscriber")
        assert "reader" not in cursor.fetchone()[0]


def test_a_link_of_another_kind_or_subscriber_does_nothing(page: StatusPage) -> None:
    subscriptions.subscribe(page.pk, "reader@example.com", now=utc_now())
    waiting = Subscriber.objects.get()
    stop = subscriptions.link(waiting, subscriptions.UNSUBSCRIBE).partition("/unsubscribe/")[2]
    other = f"{make_subscriber(page).public_id}.{stop.rpartition('.')[2]}"
    for token in (stop, other, stop[:-1] + "0", waiting.public_id, ".", stop.rpartition(".")[0] + "."):
        assert Client().post(f"/status-subscriptions/confirm/{token}").status_code == 404
    Client().post(f"/status-subscriptions/unsubscribe/{other}")
    assert Subscriber.objects.count() == 2


def test_who_does_not_agree_within_a_day_is_forgotten(page: StatusPage) -> None:
    make_subscriber(page)
    subscriptions.subscribe(page.pk, "reader@example.com", now=utc_now())
    url = subscriptions.link(Subscriber.objects.get(confirmed_at=None), subscriptions.CONFIRM)
    Subscriber.objects.filter(confirmed_at=None).update(created_at=utc_now() - subscriptions.LIFETIME)
    assert Client().post(url.removeprefix("http://localhost:8000")).status_code == 404
    subscriptions.delete_unconfirmed(utc_now())
    assert Subscriber.objects.filter(confirmed_at=None).count() == 0
    assert Subscriber.objects.count() == 1


class TestOutages:
    def test_are_notified_when_alerts_are_sent_and_once(self, monitor: Monitor, page: StatusPage, inbox: Inbox) -> None:
        make_subscriber(page)
        incident = has_outage(monitor)
        tick()
        assert inbox.mails == []  # held back: a mute, a window
        Incident.objects.update(announced_at=utc_now())
        tick()
        tick()
        assert [mail["Subject"] for mail in inbox.mails] == ["[Shop status] Shown 1 is down"]
        assert monitor.public_id not in inbox.mails[0].as_string()
        Incident.objects.update(
            resolved_at=utc_now(), resolution=Incident.Resolution.RECOVERED, closing_announced_at=utc_now()
        )
        tick()
        tick()
        assert [mail["Subject"] for mail in inbox.mails[1:]] == ["[Shop status] Shown 1 has recovered"]
        assert PageEvent.objects.filter(incident=incident).count() == 2

    def test_of_monitors_that_a_page_does_not_show_are_not_sent(
        self, user: User, page: StatusPage, inbox: Inbox
    ) -> None:
        make_subscriber(page)
        has_outage(MonitorFactory(owner=user, up=True), announced_at=utc_now())
        tick()
        assert inbox.mails == []

    def test_of_long_ago_are_not_sent_by_a_new_page(self, monitor: Monitor, page: StatusPage, inbox: Inbox) -> None:
        make_subscriber(page)
        has_outage(monitor, announced_at=utc_now() - timedelta(hours=2))
        tick()
        assert inbox.mails == []


class TestCrashes:
    def test_a_sender_that_dies_is_followed_by_another(self, user: User, page: StatusPage, inbox: Inbox) -> None:
        make_subscriber(page)
        create_note(Caller(user), page.public_id, NOTE, now=utc_now())
        events.create_mails(utc_now())
        assert len(mailing.OUTBOX.claim(utc_now())) == 1  # and dies
        assert mailing.OUTBOX.send_due() == 0
        PageMail.objects.update(leased_until=utc_now())
        assert mailing.OUTBOX.send_due() == 1
        assert len(inbox.mails) == 1

    def test_a_death_between_the_event_and_its_mails_loses_none(
        self, user: User, page: StatusPage, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        readers = [make_subscriber(page) for _ in range(3)]
        create_note(Caller(user), page.public_id, NOTE, now=utc_now())

        def die(*_: object, **__: object) -> None:
            raise SystemExit

        with monkeypatch.context() as patched:
            patched.setattr(PageEvent, "save", die)  # after the mails are written, before the event is marked
            with pytest.raises(SystemExit):
                events.create_mails(utc_now())
        assert PageMail.objects.count() == 0
        tick()
        assert len(inbox.mails) == len(readers)

    def test_two_at_once_send_each_once(self, user: User, page: StatusPage, inbox: Inbox) -> None:
        for _ in range(20):
            make_subscriber(page)
        create_note(Caller(user), page.public_id, NOTE, now=utc_now())
        run_concurrently(*[lambda: events.create_mails(utc_now())] * 3)

        def work() -> None:
            while mailing.OUTBOX.send_next():
                pass

        run_concurrently(work, work, work)
        assert len(inbox.mails) == 20
        assert len({tuple(to) for to in inbox.recipients}) == 20

    def test_what_is_refused_for_now_is_tried_again_and_what_is_refused_for_good_is_not(
        self, user: User, page: StatusPage, inbox: Inbox
    ) -> None:
        make_subscriber(page)
        create_note(Caller(user), page.public_id, NOTE, now=utc_now())
        inbox.refuse_recipient = "450 later"
        tick()
        mail = PageMail.objects.get()
        assert (mail.state, mail.leased_until) == ("waiting", None)
        assert mail.next_try_at > utc_now()
        PageMail.objects.update(next_try_at=utc_now())
        inbox.refuse_recipient = "550 never"
        tick()
        assert PageMail.objects.get().state == "dead"

    def test_without_a_mail_server_nothing_counts_as_sent(
        self, user: User, page: StatusPage, settings: Settings
    ) -> None:
        settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
        make_subscriber(page)
        create_note(Caller(user), page.public_id, NOTE, now=utc_now())
        tick()
        mail = PageMail.objects.get()
        assert (mail.state, mail.attempts) == ("waiting", 1)
        assert "Set EMAIL_URL" in (mail.last_error or "")


def test_ten_thousand_are_addressed_by_one_statement(user: User, page: StatusPage) -> None:
    now = utc_now()
    Subscriber.objects.bulk_create(
        Subscriber(page=page, created_at=now, confirmed_at=now, address="x", address_digest=str(n).encode(), hint="x")
        for n in range(10_000)
    )
    create_note(Caller(user), page.public_id, NOTE, now=now)
    with CaptureQueriesContext(connection) as captured:
        assert events.create_mails(now) == 1
    assert len(captured) <= 8
    assert PageMail.objects.count() == 10_000
    assert len(mailing.OUTBOX.claim(now)) == mailing.BATCH


def test_a_small_page_does_not_wait_for_a_large_one(user: User, page: StatusPage) -> None:
    for _ in range(mailing.BATCH + 5):
        make_subscriber(page)
    small = make_page(user, [])
    last = make_subscriber(small)
    for one in (page, small):
        create_note(Caller(user), one.public_id, NOTE, now=utc_now())
    events.create_mails(utc_now())
    claimed = {one.pk for one in mailing.OUTBOX.claim(utc_now())}
    assert PageMail.objects.get(subscriber=last).pk in claimed


def test_an_account_with_many_pages_gets_no_more_turns_than_one_with_a_single_page(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(mailing.OUTBOX.lanes[0].limits, "batch", 4)
    many = [make_page(user, []) for _ in range(8)]
    single = make_page(UserFactory(), [])
    for page in (*many, single, single):
        make_subscriber(page)
    for page in (*many, single):
        create_note(Caller(page.owner), page.public_id, NOTE, now=utc_now())
    while events.create_mails(utc_now()):
        pass
    claimed = {one.pk for one in mailing.OUTBOX.claim(utc_now())}
    theirs = PageMail.objects.filter(subscriber__page=single)
    assert {mail.pk for mail in theirs} <= claimed


def test_an_account_with_many_events_and_mails_leaves_the_turn_to_others(
    user: User, page: StatusPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "ADDRESSED_AT_ONCE", 2)
    monkeypatch.setattr(events, "MAX_WAITING", 2)
    single = make_page(UserFactory(), [])
    for each in (page, single):
        make_subscriber(each)
    for _ in range(5):
        create_note(Caller(user), page.public_id, NOTE, now=utc_now())
    create_note(Caller(single.owner), single.public_id, NOTE, now=utc_now())
    assert events.create_mails(utc_now()) == 2
    assert PageMail.objects.filter(subscriber__page=single).count() == 1
    assert [events.create_mails(utc_now()) for _ in range(2)] == [2, 0], "the rest waits until mails were sent"


def test_of_a_page_that_is_taken_down_nothing_more_is_sent(user: User, page: StatusPage, inbox: Inbox) -> None:
    make_subscriber(page)
    create_note(Caller(user), page.public_id, NOTE, now=utc_now())
    update_page(Caller(user), page.public_id, {"published": False})
    tick()
    assert inbox.mails == []
    assert PageMail.objects.get().state == "dead"

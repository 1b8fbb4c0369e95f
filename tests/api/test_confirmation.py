"""Another person's e-mail address must confirm before it gets alerts, and gets one e-mail until then."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import redis
import time_machine
from django.core import mail
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from alerts.confirmation import confirm
from alerts.models import AlertChannel
from core import throttles
from core.clock import to_ms, utc_now
from core.errors import NotFound
from tests.api.client import Answer, Api
from tests.factories import ChannelFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently
from tests.processes.up import free_port

PATH = "/v1/alert-channels"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def user(transactional_db: None) -> User:
    return UserFactory()


def add(api: Api, address: str, **more: Any) -> Answer:
    return api.post(PATH, {"kind": "email", "address": address, **more})


def change(api: Api, channel: Answer, **body: Any) -> Answer:
    return api.patch(f"{PATH}/{channel.json['id']}", body)


def links() -> list[str]:
    found = [re.findall(r"(/alert-channels/confirm/\w+)", str(sent.body)) for sent in mail.outbox]
    return [link for (link,) in found]


def test_a_link_leads_to_a_page_whose_button_confirms(api: Api, user: User) -> None:
    made = add(api, " On-Call@Example.com", name="Night <shift>\r\nBcc: x@example.com")
    assert (made.status, made.json["confirmed_at"], made.json["hint"]) == (201, None, "o…@example.com")
    (sent,) = mail.outbox
    assert sent.to == ["on-call@example.com"]
    assert user.email in sent.body
    assert '"Night <shift> Bcc: x@example.com"' in sent.body
    (link,) = links()
    with connection.cursor() as cursor:
        cursor.execute("SELECT c::text FROM alerts_alertchannel c")
        assert link.rpartition("/")[2] not in str(cursor.fetchall()), "only a digest is stored"

    scanner = Client(enforce_csrf_checks=True)
    for _ in range(2):
        page = scanner.get(link)
        assert page.status_code == 200
        assert "Night &lt;shift&gt;" in page.content.decode()
        assert page.headers["Referrer-Policy"] == "no-referrer"
        assert "on-call@" not in page.content.decode()
    assert scanner.head(link).status_code == 200
    assert scanner.put(link).status_code == 405
    assert AlertChannel.objects.get(kind="email", confirmed_at=None).public_id == made.json["id"]

    before = to_ms(utc_now())
    agreed = scanner.post(link)
    assert (agreed.status_code, "now gets alerts" in agreed.content.decode()) == (200, True)
    confirmed_at = api.get(f"{PATH}/{made.json['id']}").json["confirmed_at"]
    assert before <= confirmed_at <= to_ms(utc_now())
    for again in (scanner.get(link), scanner.post(link)):
        assert again.status_code == 404
    assert len(mail.outbox) == 1


def test_another_address_has_to_agree_again(api: Api, user: User) -> None:
    made = add(api, "a@example.com")
    (first,) = links()
    assert Client().post(first).status_code == 200
    assert change(api, made, name="Same", address="A@example.com").json["confirmed_at"]
    assert len(mail.outbox) == 1
    assert change(api, made, address="b@example.com").json["confirmed_at"] is None
    assert change(api, made, name="No news of the address").json["confirmed_at"] is None
    (_, second) = links()
    assert change(api, made, address="b@example.com").status == 200, "asks once more"
    (_, _, third) = links()
    assert [sent.to for sent in mail.outbox[1:]] == [["b@example.com"]] * 2
    assert Client().get(second).status_code == 404, "replaced"
    assert Client().post(second).status_code == 404
    assert change(api, made, address=user.email).json["confirmed_at"]
    assert Client().post(third).status_code == 404
    assert AlertChannel.objects.get(public_id=made.json["id"]).config == {"address": user.email}


def test_a_link_runs_out(api: Api) -> None:
    add(api, "a@example.com")
    (link,) = links()
    with time_machine.travel(utc_now() + timedelta(days=14, seconds=1)):
        assert (Client().get(link).status_code, Client().post(link).status_code) == (404, 404)
    with time_machine.travel(utc_now() + timedelta(days=13, hours=23)):
        assert Client().post(link).status_code == 200


def test_what_is_no_link(api: Api) -> None:
    add(api, "a@example.com")
    for token in ("nonsense", "a" * 52, "-"):
        assert Client().get(f"/alert-channels/confirm/{token}").status_code == 404
        assert Client().post(f"/alert-channels/confirm/{token}").status_code == 404
    assert AlertChannel.objects.filter(confirmed_at=None).count() == 1


def test_pressed_twice_at_once_it_is_confirmed_once(user: User) -> None:
    ChannelFactory(owner=user, created_at=utc_now(), kind="email", address="a@example.com")
    (token,) = [link.rpartition("/")[2] for link in links()]
    outcomes = run_concurrently(*[lambda: confirm(token, now=utc_now()) for _ in range(4)])
    assert sum(isinstance(outcome, NotFound) for outcome in outcomes) == 3


def test_a_refused_channel_sends_nothing(api: Api) -> None:
    assert add(api, "a@example.com", monitors="project").status == 422
    assert not mail.outbox


def test_a_repeated_creation_asks_once(api: Api) -> None:
    body = {"kind": "email", "address": "a@example.com"}
    assert api.post(PATH, body, key="k").text == api.post(PATH, body, key="k").text
    assert len(mail.outbox) == 1


def test_a_lost_mail_is_logged_and_the_channel_stands(
    api: Api, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.EMAIL_PORT = free_port()
    settings.EMAIL_HOST = "127.0.0.1"
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    assert add(api, "a@example.com").status == 201
    assert "could not be sent" in caplog.text
    assert "a@example.com" not in caplog.text


def test_asking_strangers_is_throttled_as_inviting_them(api: Api, user: User, settings: Settings) -> None:
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = settings.THROTTLES | {"invite": (3, 60), "test-channel": (1, 60)}
    throttles.reset()
    with redis.Redis.from_url(settings.REDIS_URL) as broker:
        broker.flushdb()
        made = add(api, "a@example.com")
        assert change(api, made, address="b@example.com").status == 200
        project = ProjectFactory(owner=user)
        members = f"/v1/projects/{project.public_id}/members"
        assert api.post(members, {"email": "c@example.com", "role": "member"}).status == 201
        assert add(api, "d@example.com").status == 429
        assert change(api, made, address="d@example.com").status == 429
        assert change(api, made, name="Of no address").status == 200
        webhook = api.post(PATH, {"kind": "webhook", "url": "https://hooks.example.com/"})
        assert webhook.status == 201
        assert api.post(f"{PATH}/{made.json['id']}/test").status == 409
        assert api.post(f"{PATH}/{made.json['id']}/test").status == 429
        broker.flushdb()
    assert len(mail.outbox) == 3

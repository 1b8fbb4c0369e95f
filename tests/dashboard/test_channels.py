"""The pages of alert channels."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from accounts.models import User
from alerts.models import AlertChannel
from alerts.transports import KINDS
from alerts.transports.apprise import BY_SCHEME, SERVICES
from alerts.transports.base import AppriseService
from core.throttles import seconds_to_wait
from dashboard.channels import PAGE
from tests.factories import ChannelFactory, DeliveryFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, flush_broker

HOSTILE = '<script>alert(1)</script> & "quoted"'
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quoted&quot;"
NEW = "/alert-channels/new"
FIELDS = {"name": "Pager", "topics": ["down", "recovered"], "remind_every_hours": "6", "monitors": "all"}
SLACK_HOOK = "https://hooks.slack.com/services/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"
SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"


def key_in(page: Any) -> str:
    found = re.search(r'name="form_key" value="(\w+)"', page.content.decode())
    assert found is not None
    return found[1]


def add(web: Client, query: str, **fields: Any) -> Any:
    address = f"{NEW}?{query}"
    return web.post(address, FIELDS | {"form_key": key_in(web.get(address))} | fields)


def only(user: User) -> AlertChannel:
    """Return the created channel, not the one for the account's own address."""
    return AlertChannel.objects.exclude(hint=f"{user.email[:1]}…@example.com", name="E-mail").get()


@pytest.mark.parametrize(
    ("query", "fields", "config", "hint"),
    [
        ("kind=email", {"address": "ops@example.net"}, {"address": "ops@example.net"}, "o…@example.net"),
        (
            "kind=webhook",
            {"url": "https://hooks.example.com/x", "secret": "a secret of 16 or more"},
            {"url": "https://hooks.example.com/x", "secret": "a secret of 16 or more"},
            "https://hooks.example.com",
        ),
        ("kind=apprise&service=slack", {"apprise_url": SLACK}, {"apprise_url": SLACK}, "Slack (slack://)"),
        ("kind=slack", {"url": SLACK_HOOK}, {"url": SLACK_HOOK}, "…4JDE"),
    ],
)
def test_a_channel_of_each_kind(
    web: Client, user: User, query: str, fields: dict[str, str], config: dict[str, str], hint: str
) -> None:
    answer = add(web, query, **fields)
    channel = only(user)
    assert (channel.name, channel.config, channel.hint) == ("Pager", config, hint)
    assert (channel.topics, channel.remind_every_hours, channel.scope) == (["down", "recovered"], 6, "all")
    shown = answer.content.decode() if answer.status_code == 200 else ""
    assert (answer.status_code == 200) == (channel.kind == "webhook")
    assert (config.get("secret", "") in shown) or channel.kind != "webhook"
    for address in (
        "/alert-channels",
        f"/alert-channels/{channel.public_id}",
        f"/alert-channels/{channel.public_id}/edit",
    ):
        text = unescape(web.get(address).content.decode())
        assert hint in text
        for value in config.values():
            assert value not in text, address


def test_the_secret_of_a_webhook_is_shown_once_also_to_who_clicked_twice(web: Client, user: User) -> None:
    page = web.get(f"{NEW}?kind=webhook")
    fields = FIELDS | {"form_key": key_in(page), "url": "https://hooks.example.com/x"}
    first, second = (web.post(f"{NEW}?kind=webhook", fields).content.decode() for _ in range(2))
    secret = only(user).config["secret"]
    assert secret.startswith("whs_")
    assert f'id="secret">{secret}<' in first
    assert f'id="secret">{secret}<' in second
    assert secret not in web.get(f"/alert-channels/{only(user).public_id}").content.decode()


@pytest.mark.parametrize(
    ("query", "fields", "reason"),
    [
        ("kind=email", {"address": ""}, "This field is required."),
        ("kind=email", {"address": "no-domain"}, "address"),
        ("kind=webhook", {"url": "ftp://hooks.example.com/"}, "http"),
        ("kind=webhook", {"url": "https://10.0.0.1/"}, "private or reserved"),
        ("kind=webhook", {"url": "https://h.example/", "secret": "short"}, "16 to 200 printable"),
        ("kind=apprise&service=slack", {"apprise_url": "slack://x"}, "slack://{token_a}"),
        ("kind=apprise&service=slack", {"apprise_url": "file:///etc/passwd"}, "must begin with the scheme"),
        ("kind=slack", {"url": "https://h.example/"}, "for example https://hooks.slack.com/services/"),
        ("kind=telegram", {"bot_token": "123456789:" + "a" * 35, "chat_id": "x"}, "or the @name of a public"),
        ("kind=pagerduty", {"integration_key": "k" * 31, "region": "us"}, "32 letters and digits"),
        ("kind=webhook", {"url": "https://h.example/", "remind_every_hours": "169"}, "less than or equal to 168"),
        ("kind=webhook", {"url": "https://h.example/", "topics": ["gossip"]}, "Select a valid choice"),
        ("kind=webhook", {"url": "https://h.example/", "monitors": "project"}, "Choose a project."),
        ("kind=webhook", {"url": "https://h.example/", "monitors": "chosen"}, "Select at least one monitor or tag."),
        ("kind=webhook", {"url": "https://h.example/", "monitors": "chosen", "monitor_ids": ["mon_x"]}, "mon_x is not"),
        ("kind=webhook", {"url": "https://h.example/", "name": "x" * 201}, "at most 200 characters"),
    ],
)
def test_what_is_refused_is_said_beside_its_field_and_kept(
    web: Client, user: User, query: str, fields: dict[str, Any], reason: str
) -> None:
    text = unescape(add(web, query, **({"name": "Kept name"} | fields)).content.decode())
    errors = re.findall(r'<ul class="errorlist"[^>]*>(.*?)</ul>', text)
    assert any(reason in error for error in errors), errors
    for name in ("address", "url", "apprise_url", "name"):
        if name in fields:
            assert f'value="{fields[name]}"' in text or not fields[name]
    assert AlertChannel.objects.count() == 1


def test_a_channel_shows_how_many_monitors_have_its_tags(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    MonitorFactory.create_batch(2, owner=user, tags=["Shop"])
    MonitorFactory(owner=user, project=project, tags=["shop", "web"])
    for given, counts in (({}, ["3 monitors", "0 monitors"]), ({"project": project}, ["1 monitor", "0 monitors"])):
        channel = ChannelFactory(**({"owner": user} | given), monitors="chosen", monitor_tags=["shop", "typo"])
        text = web.get(f"/alert-channels/{channel.public_id}").content.decode()
        found = re.findall(r'href="/monitors\?tag=(\w+)">\w+</a> <span class="small muted">([^<]*)<', text)
        assert found == list(zip(["shop", "typo"], counts, strict=True))


def test_a_form_shows_what_is_no_secret_and_keeps_the_rest(web: Client, user: User) -> None:
    token = "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2"
    server = "https://ntfy.example.com"
    add(web, "kind=ntfy", topic="shop-alerts", server=server, access_token=token, priority="high")
    channel = only(user)
    address = f"/alert-channels/{channel.public_id}/edit"
    text = web.get(address).content.decode()
    assert f'value="{server}"' in text
    assert '<option value="high" selected>' in text
    assert "shop-alerts" not in text
    assert token not in text
    before = channel.config
    form = FIELDS | {"enabled": "on", "topic": "", "access_token": "", "server": server}
    assert web.post(address, form | {"priority": "max"}).status_code == 302
    channel.refresh_from_db()
    assert channel.config == before | {"priority": "max"}


def test_a_project_s_channel_and_its_chosen_monitors(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user, name="Tills")
    inside = MonitorFactory(owner=user, name="Till", project=project)
    outside = MonitorFactory(owner=user, name="Blog")
    given = {"url": "https://h.example/", "project_id": project.public_id, "monitors": "chosen"}
    refused = add(web, "kind=webhook", monitor_ids=[outside.public_id], **given)
    assert "A project&#x27;s channel can only have monitors of its project." in refused.content.decode()
    add(web, "kind=webhook", monitor_ids=[inside.public_id], **given)
    channel = only(user)
    assert (channel.project, list(channel.monitors.all())) == (project, [inside])


def test_an_edit_keeps_what_it_leaves_empty(web: Client, user: User) -> None:
    channel = ChannelFactory(owner=user, name="Pager", secret="the first secret of all", topics=["down"])
    address = f"/alert-channels/{channel.public_id}/edit"
    before = channel.config
    web.post(address, FIELDS | {"name": "Beeper", "enabled": ""})
    channel.refresh_from_db()
    assert (channel.name, channel.enabled, channel.config) == ("Beeper", False, before)
    web.post(address, FIELDS | {"url": "https://other.example/", "enabled": "on"})
    channel.refresh_from_db()
    assert (channel.hint, channel.config["secret"]) == ("https://other.example", before["secret"])
    web.post(address, FIELDS | {"secret": "another secret of some length"})
    channel.refresh_from_db()
    assert channel.config == {"url": "https://other.example/", "secret": "another secret of some length"}


def test_an_edit_leaves_the_chosen_monitors_that_a_member_cannot_see(user: User) -> None:
    owner = UserFactory()
    project = ProjectFactory(owner=owner, member=user)
    shared = MonitorFactory(owner=owner, name="Till", project=project)
    channel = ChannelFactory(owner=owner, project=project, monitors="chosen", monitor_ids=[shared.public_id])
    hidden = MonitorFactory(owner=owner, name="Private blog")
    channel.monitors.add(hidden)
    member = Client()
    member.force_login(user)
    address = f"/alert-channels/{channel.public_id}/edit"
    assert "Private blog" not in member.get(address).content.decode()
    form = FIELDS | {"monitors": "chosen", "monitor_ids": [shared.public_id], "name": "New name", "enabled": "on"}
    assert member.post(address, form).status_code == 302
    assert set(channel.monitors.all()) == {shared, hidden}


@pytest.mark.django_db(transaction=True)
def test_another_persons_address_is_asked_and_asked_again(client: Client) -> None:
    user = UserFactory()
    client.force_login(user)
    add(client, "kind=email", address="on-call@example.net")
    channel = only(user)
    address = f"/alert-channels/{channel.public_id}"
    page = client.get(address).content.decode()
    assert "has not confirmed yet" in page
    assert "Send test message" not in page
    first = re.findall(r"/alert-channels/confirm/\w+", str(mail.outbox[-1].body))[0]
    again = client.post(f"{address}/ask-again", follow=True)
    assert "Another request was sent to o…@example.net." in again.content.decode()
    second = re.findall(r"/alert-channels/confirm/\w+", str(mail.outbox[-1].body))[0]
    stranger = Client()
    assert stranger.get(first).status_code == 404
    asked = stranger.get(second)
    assert asked.headers["Referrer-Policy"] == "no-referrer"
    assert asked.headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in asked.headers["Content-Security-Policy"]
    assert "on-call@" not in asked.content.decode()
    assert "Address confirmed" in stranger.post(second).content.decode()
    assert "has not confirmed yet" not in client.get(address).content.decode()
    assert len(mail.outbox) == 2


def test_asking_counts_as_the_api_s_does(web: Client, user: User, settings: Settings) -> None:
    flush_broker()
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = {**settings.THROTTLES, "invite": (1, 60)}
    add(web, "kind=email", address="a@example.net")
    refused = add(web, "kind=email", address="b@example.net")
    assert "Too many requests; try again later." in refused.content.decode()
    again = web.post(f"/alert-channels/{only(user).public_id}/ask-again", follow=True)
    assert "Too many requests; try again later." in again.content.decode()


def test_a_test_says_why_it_could_not_be_made(web: Client, user: User, settings: Settings) -> None:
    flush_broker()
    unconfirmed = ChannelFactory(owner=user, kind="email", address="x@example.net")
    settings.THROTTLES = {**settings.THROTTLES, "test-channel": (1, 60)}

    def tried(channel: AlertChannel) -> str:
        """The result appears in the page, also without scripts."""
        address = f"/alert-channels/{channel.public_id}/test"
        part = web.post(address, headers={"HX-Request": "true"}).content.decode()
        assert "<html" not in part
        detail = unescape(re.findall(r"<strong>Not delivered.</strong> (.*?)</div>", part)[0])
        assert f"Not delivered. {detail}" in unescape(web.post(address, follow=True).content.decode())
        return detail

    assert "has not confirmed it yet" in tried(unconfirmed)
    settings.THROTTLE_SCALE = 1
    assert seconds_to_wait("test-channel", f"user:{user.pk}") is None  # the one that there may be, by the API
    assert tried(ChannelFactory(owner=user)) == "Too many requests; try again later."


def test_the_log_and_another_try(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, name=HOSTILE)
    channel = ChannelFactory(owner=user, name=HOSTILE)
    dead = DeliveryFactory(channel=channel, dead=True, monitor=monitor, items=5)
    DeliveryFactory(channel=channel, sent=True, created_at=NOON + timedelta(hours=1))
    address = f"/alert-channels/{channel.public_id}"
    listed = web.get("/alert-channels").content.decode()
    assert "1 given up" in listed
    text = web.get(f"{address}?state=dead").content.decode()
    assert "<script>alert" not in text + listed
    for words in ("Given up", "3 attempts failed", "The receiver answered with status 503.", "and 2 more", ESCAPED):
        assert words in text, words
    replay = f"{address}/deliveries/{dead.public_id}/replay"
    assert "The delivery is retried" in web.post(replay, follow=True).content.decode()
    dead.refresh_from_db()
    assert dead.state == "waiting"
    assert "Only dead deliveries can be replayed" in web.post(replay, follow=True).content.decode()


def test_pages_of_the_log_follow_each_other(web: Client, user: User) -> None:
    channel = ChannelFactory(owner=user)
    made = [DeliveryFactory(channel=channel, created_at=NOON + timedelta(minutes=n // 3)) for n in range(PAGE * 2 + 5)]
    address: str | None = "?"
    count = 0
    while address is not None:
        text = web.get(f"/alert-channels/{channel.public_id}{address}").content.decode()
        count += text.count('data-status="waiting"')
        found = re.search(r'href="([^"]+)" rel="next"', text)
        address = None if found is None else unescape(found[1])
    assert count == len(made)
    for odd in ("x", "1-", "999999999999999999-1", "-1-1"):
        assert web.get(f"/alert-channels/{channel.public_id}", {"before": odd}).status_code == 200


def test_every_service_can_be_chosen_and_shows_what_its_address_looks_like(web: Client) -> None:
    chooser = unescape(web.get(NEW).content.decode())
    own_kinds = [kind for kind in KINDS.values() if isinstance(kind, AppriseService)]
    native = [BY_SCHEME[own.scheme] for own in own_kinds]
    for kind in KINDS:
        assert (f'href="?kind={kind}">' in chooser) == (kind != "apprise")
    for service in SERVICES:
        assert service in native or f'href="?kind=apprise&service={service.schemes[0]}">{service.name}<' in chooser
    for own in own_kinds:
        text = unescape(web.get(f"{NEW}?kind={own.name}").content.decode())
        assert own.setup in text
        assert f'href="?kind=apprise&service={own.scheme}"' in text
        assert all(f'name="{setting.name}"' in text for setting in own.settings)
    text = web.get(f"{NEW}?kind=apprise&service=discord").content.decode()
    assert "discord://{webhook_id}/{webhook_token}" in text
    for odd in ("kind=apprise&service=file", "kind=apprise", "kind=pigeon"):
        assert "Where should alerts go?" in web.get(f"{NEW}?{odd}").content.decode()


def test_the_list_takes_as_many_queries_for_one_as_for_many(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(owner=user, project=project)
    counts: list[list[int]] = []
    for count in (1, 9):
        for _ in range(count):
            channel = ChannelFactory(owner=user, project=project, monitors="chosen", monitor_ids=[monitor.public_id])
            for _ in range(count):
                DeliveryFactory(channel=channel, dead=True)
        counts.append([])
        for address in ("/alert-channels", f"/alert-channels/{channel.public_id}"):
            with CaptureQueriesContext(connection) as queries:
                web.get(address)
            counts[-1].append(len(queries))
    assert counts[0] == counts[1]
    assert max(counts[0]) <= 9


def test_a_deleted_channel_is_gone(web: Client, user: User) -> None:
    channel = ChannelFactory(owner=user)
    page = web.post(f"/alert-channels/{channel.public_id}/delete", follow=True)
    assert "Channel deleted." in page.content.decode()
    assert not AlertChannel.objects.filter(pk=channel.pk).exists()


def test_channels_of_others_are_not_there(web: Client) -> None:
    theirs = ChannelFactory(owner=UserFactory(), name="Theirs")
    delivery = DeliveryFactory(channel=theirs, dead=True)
    address = f"/alert-channels/{theirs.public_id}"
    assert "Theirs" not in web.get("/alert-channels").content.decode()
    for path in ("", "/edit"):
        assert web.get(f"{address}{path}").status_code == 404
    for path in ("/edit", "/delete", "/test", "/ask-again", f"/deliveries/{delivery.public_id}/replay"):
        assert web.post(f"{address}{path}", FIELDS).status_code == 404, path
    assert AlertChannel.objects.filter(pk=theirs.pk, name="Theirs").exists()


def test_forms_without_their_token_are_refused(user: User) -> None:
    channel = ChannelFactory(owner=user)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    address = f"/alert-channels/{channel.public_id}"
    for path in (f"{NEW}?kind=webhook", *(f"{address}/{to}" for to in ("edit", "delete", "test", "ask-again"))):
        assert strict.post(path, FIELDS).status_code == 403
    assert strict.post(f"{address}/deliveries/dlv_x/replay").status_code == 403

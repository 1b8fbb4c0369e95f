"""Attacks by members who lost rights, and at the limits of tags, dependencies and changes of many monitors."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.export import export
from accounts.models import User
from alerts.models import AlertChannel
from core.clock import utc_now
from monitors.models import BulkEdit, Monitor
from monitors.services import create_monitor, update_monitor
from projects.access import Caller
from projects.members import remove_member
from projects.models import Membership
from tests.api.client import Api
from tests.factories import ChannelFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.viewing import Viewing, make_viewing

pytestmark = pytest.mark.django_db

TOKEN = "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2"


@pytest.fixture(autouse=True)
def _unthrottled(settings: Settings) -> None:
    settings.THROTTLE_SCALE = 0


@pytest.fixture
def scene() -> Viewing:
    return make_viewing()


def web_of(user: User) -> Client:
    web = Client()
    web.force_login(user)
    return web


def texts_of(user: User, channel: AlertChannel) -> dict[str, str]:
    """Return what an account sees of the messages of a channel: in the API, on the page, and in its export."""
    path = f"/alert-channels/{channel.public_id}"
    return {
        "api": Api.signed_in(user).get(f"/v1{path}/deliveries").text,
        "page": web_of(user).get(path).content.decode(),
        "export": "".join(export(user, now=utc_now())),
    }


def test_a_viewer_who_leaves_does_not_learn_the_ping_addresses(scene: Viewing) -> None:
    place = Membership.objects.get(project=scene.project, user=scene.viewer)
    path = f"/v1/projects/{scene.project.public_id}/members/{place.public_id}"
    assert Api.signed_in(scene.viewer).delete(path).status == 200
    shown = texts_of(scene.viewer, scene.own_channel)
    assert all(scene.heartbeat.reading_id in text for text in shown.values())
    assert {name for name, text in shown.items() if scene.heartbeat.public_id in text} == set()


@pytest.mark.parametrize("to", ["none", "another project", "another owner"])
def test_a_heartbeat_that_left_the_project_keeps_its_secret(scene: Viewing, to: str) -> None:
    """Messages of the project's channels still name it."""
    place = None if to == "none" else ProjectFactory(owner=scene.owner if to == "another project" else UserFactory())
    if place is not None and to == "another owner":
        place.memberships.create(user=scene.owner, role="member", created_at=utc_now())
    given = {"project_id": place and place.public_id}
    update_monitor(Caller(scene.owner), scene.heartbeat.public_id, given, now=utc_now())
    newcomer = UserFactory()
    scene.project.memberships.create(user=newcomer, role="member", created_at=utc_now())
    path = f"/v1/alert-channels/{scene.channel.public_id}/deliveries"
    for api in (
        Api.signed_in(scene.viewer),
        Api.signed_in(newcomer),
        Api.with_token(scene.owner, scene.project, access="read"),
        Api.with_token(scene.owner, scene.project),
    ):
        text = api.get(path).text
        assert scene.heartbeat.reading_id in text
        assert scene.heartbeat.public_id not in text
    assert scene.heartbeat.public_id not in web_of(newcomer).get(path.removeprefix("/v1")[:-11]).content.decode()
    assert scene.heartbeat.public_id in Api.signed_in(scene.owner).get(path).text


def test_an_edit_shows_nothing_of_a_project_that_was_left(settings: Settings) -> None:
    owner, member = UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner, member=member)
    monitor = MonitorFactory(project=project, heartbeat=True, name="Backup")
    own = create_monitor(Caller(member), {"url": "http://shop.example/"}, now=utc_now())
    web = web_of(member)
    ids = f"{monitor.public_id},{own.public_id}"
    web.post("/monitors/edits", {"monitors": ids, "step": "apply", "add_tags": "new"})
    place = Membership.objects.get(project=project, user=member)
    remove_member(Caller(owner), project.public_id, place.public_id, now=utc_now())
    update_monitor(Caller(owner), monitor.public_id, {"name": "Payroll"}, now=utc_now())
    path = f"/monitors/edits/{BulkEdit.objects.get().public_id}"
    pages = [web.get(path), web.post(f"{path}/undo", follow=True), web.get(path)]
    for html in (page.content.decode() for page in pages):
        assert "Payroll" not in html
        assert monitor.public_id not in html
    stored = [Monitor.objects.get(pk=one.pk).tags for one in (monitor, own)]
    assert stored == [["new"], []]


def make_ntfy(user: User, **given: Any) -> AlertChannel:
    return ChannelFactory(owner=user, kind="ntfy", topic="shop-x7k2", access_token=TOKEN, **given)


@pytest.mark.parametrize(
    "change",
    [{"server": "https://evil.example"}, {"topic": "https://evil.example/shop"}, {"server": "http://127.0.0.1:9"}],
)
def test_another_server_gets_no_stored_secret(change: dict[str, str]) -> None:
    """Secrets are write-only: members who change a channel must not send them to a server of their own."""
    owner, member = UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner, member=member)
    channel = make_ntfy(owner, project=project)
    path, api = f"/v1/alert-channels/{channel.public_id}", Api.signed_in(member)
    answer = api.patch(path, change)
    config = AlertChannel.objects.get(pk=channel.pk).config
    if "topic" in change:
        assert (answer.status, config["server"]) == (200, "https://evil.example")
        assert "access_token" not in config
    else:
        said = "topic: is not sent to another server; enter it again."
        assert (answer.status, answer.json["reason"]) == (422, said)
        assert config["server"] == "https://ntfy.sh"
        assert api.patch(path, change | {"topic": "new"}).status == 200
        assert "access_token" not in AlertChannel.objects.get(pk=channel.pk).config


def test_other_changes_of_a_channel_keep_its_secrets() -> None:
    user = UserFactory()
    channel, api = make_ntfy(user), Api.signed_in(user)
    path = f"/v1/alert-channels/{channel.public_id}"
    for change in ({"priority": "high"}, {"server": "https://ntfy.sh"}, {"topic": "https://ntfy.sh/other"}):
        assert api.patch(path, change).status == 200
        assert AlertChannel.objects.get(pk=channel.pk).config["access_token"] == TOKEN
    hook = ChannelFactory(owner=user, secret="a-secret-of-16-characters")
    assert api.patch(f"/v1/alert-channels/{hook.public_id}", {"url": "http://127.0.0.1:9/new"}).status == 200
    assert AlertChannel.objects.get(pk=hook.pk).config["secret"] == "a-secret-of-16-characters"

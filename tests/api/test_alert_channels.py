"""Alert channels over the API: fields of each kind, subscriptions, permissions and limits."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import time_machine
from django.core import mail
from django.db import connection
from pytest_django.fixtures import Settings

from accounts.models import User
from alerts import services, testing
from alerts.models import AlertChannel
from alerts.services import create_channel, delete_channel, update_channel
from config.celery import app
from core.clock import to_ms, utc_now
from core.errors import ApiError, ChannelLimit, ValidationFailed
from monitors.services import delete_monitor
from notifications.outbox import SendResult
from projects.access import Caller
from projects.members import remove_member
from projects.models import Membership, Role
from projects.services import delete_project
from tests.api.client import Api
from tests.factories import ChannelFactory, MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, run_concurrently

PATH = "/v1/alert-channels"
WEBHOOK = {"kind": "webhook", "url": "https://hooks.example.com/T03/B51?key=hunter2"}


def path_of(channel: AlertChannel | dict[str, Any], rest: str = "") -> str:
    return f"{PATH}/{channel['id'] if isinstance(channel, dict) else channel.public_id}{rest}"


def config_of(answered: dict[str, Any]) -> dict[str, str]:
    config: dict[str, str] = AlertChannel.objects.get(public_id=answered["id"]).config
    return config


def test_a_new_account_has_its_address_as_a_channel(api: Api, user: User) -> None:
    (own,) = api.get(PATH).json
    assert re.fullmatch(r"chn_[a-z2-7]{26}", own.pop("id"))
    assert own == {
        "project_id": None,
        "name": "E-mail",
        "kind": "email",
        "hint": "u…@example.com",
        "enabled": True,
        "topics": ["down", "recovered", "expiry", "reminder", "location_offline", "on_call_gap"],
        "monitors": "all",
        "scope_project_id": None,
        "monitor_ids": [],
        "monitor_tags": [],
        "remind_every_hours": 24,
        "delay_min": 0,
        "hours": [],
        "timezone": "UTC",
        "outside": "hold",
        "templates": {},
        "created_at": to_ms(user.created_at),
        "confirmed_at": to_ms(user.created_at),
        "failures": 0,
        "last_sent_at": None,
        "secret": None,
    }
    assert AlertChannel.objects.get().config == {"address": user.email}
    assert not mail.outbox
    assert api.delete(path_of(AlertChannel.objects.get())).json == {"ok": True}
    assert Api.signed_in(user).get(PATH).json == [], "deleted, it stays so"


def test_a_webhook_returns_its_generated_secret_once(api: Api) -> None:
    made = api.post(PATH, WEBHOOK | {"name": "On call"})
    assert made.status == 201
    assert re.fullmatch(r"whs_[a-z2-7]{52}", made.json["secret"])
    assert (made.json["name"], made.json["hint"]) == ("On call", "https://hooks.example.com")
    assert made.json["confirmed_at"] == made.json["created_at"]
    assert config_of(made.json) == {"url": WEBHOOK["url"], "secret": made.json["secret"]}
    for answered in (
        api.get(path_of(made.json)).json,
        api.patch(path_of(made.json), {"name": "On call"}).json,
        api.get(PATH).json[1],
    ):
        assert answered == made.json | {"secret": None}
    with connection.cursor() as cursor:
        cursor.execute("SELECT c::text FROM alerts_alertchannel c")
        stored = str(cursor.fetchall())
    assert made.json["secret"] not in stored
    assert "hunter2" not in stored


def test_a_repeated_creation_returns_the_same_secret_and_makes_one(api: Api) -> None:
    first = api.post(PATH, WEBHOOK, key="k")
    assert api.post(PATH, WEBHOOK, key="k").text == first.text
    assert AlertChannel.objects.filter(kind="webhook").count() == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT k::text FROM projects_idempotencykey k")
        assert first.json["secret"] not in str(cursor.fetchall())


def test_a_secret_of_ones_own_and_another(api: Api) -> None:
    made = api.post(PATH, WEBHOOK | {"secret": "correct horse battery"})
    assert made.json["secret"] == "correct horse battery"
    changed = api.patch(path_of(made.json), {"secret": "x" * 200})
    assert (changed.status, changed.json["secret"]) == (200, None)
    assert config_of(made.json) == {"url": WEBHOOK["url"], "secret": "x" * 200}
    moved = api.patch(path_of(made.json), {"url": "http://example.com:8080/x"})
    assert moved.json["hint"] == "http://example.com:8080"
    assert config_of(made.json)["secret"] == "x" * 200


def test_what_apprise_reaches(api: Api) -> None:
    url = "slack://xoxb-1234567890-1234567890-abcdefghijklmnopqrstuvwx/#alerts"
    made = api.post(PATH, {"kind": "apprise", "apprise_url": url})
    assert made.status == 201
    assert "xoxb" not in made.text
    assert "slack" in made.json["hint"].lower()
    assert config_of(made.json) == {"apprise_url": url}
    for wrong in ("file:///etc/passwd", "json://127.0.0.1/", "syslog://", "nonsense", "slack", "://", "\x01"):
        answer = api.post(PATH, {"kind": "apprise", "apprise_url": wrong})
        assert (answer.status, "apprise_url: " in answer.error) == (422, True), wrong
        assert api.patch(path_of(made.json), {"apprise_url": wrong}).status == 422
    assert config_of(made.json) == {"apprise_url": url}


def test_what_is_sent_back_as_it_was_read_changes_nothing(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(owner=user, project=project)
    bodies: list[dict[str, Any]] = [
        WEBHOOK,
        WEBHOOK | {"monitors": "chosen", "monitor_ids": [monitor.public_id]},
        WEBHOOK | {"monitors": "project", "scope_project_id": project.public_id},
        WEBHOOK | {"project_id": project.public_id},
    ]
    for body in bodies:
        made = api.post(PATH, body).json
        before = config_of(made)
        assert api.patch(path_of(made), made | {"secret": None}).json == made | {"secret": None}
        assert config_of(made) == before
    (own, *_) = api.get(PATH).json
    assert api.patch(path_of(own), own).json == own


HOURS = {"days": [1], "from": "09:00", "to": "17:00"}
BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "kind: "),
    ({"kind": "sms"}, "kind: "),
    ({"kind": "email"}, "address: is required for a channel of kind email"),
    ({"kind": "webhook"}, "url: is required for a channel of kind webhook"),
    ({"kind": "apprise"}, "apprise_url: is required for a channel of kind apprise"),
    ({"kind": "email", "address": "a@example.com", "url": "https://x.example"}, "url: is not a field"),
    ({"kind": "email", "address": "a@example.com", "secret": "x" * 20}, "secret: is not a field"),
    (WEBHOOK | {"address": "a@example.com"}, "address: is not a field"),
    (WEBHOOK | {"apprise_url": "slack://x"}, "apprise_url: is not a field"),
    ({"kind": "apprise", "apprise_url": "slack://x", "url": "https://x.example"}, "url: is not a field"),
    ({"kind": "email", "address": "no-domain"}, "address: "),
    ({"kind": "email", "address": "a@example.com\r\nBcc: b@example.com"}, "address: "),
    ({"kind": "email", "address": "a@example.com, b@example.com"}, "address: "),
    ({"kind": "webhook", "url": "ftp://example.com/"}, "url: must begin with"),
    ({"kind": "webhook", "url": "https://me:pw@example.com/"}, "url: cannot contain a user name or password"),
    ({"kind": "webhook", "url": "https://example.com/" + "a" * 2048}, "url: "),
    ({"kind": "webhook", "url": "https://"}, "url: must name a host"),
    ({"kind": "webhook", "url": "https://a b.example/"}, "url: cannot contain spaces"),
    ({"kind": "webhook", "url": "http://10.0.0.1/"}, "url: is a private or reserved address"),
    ({"kind": "webhook", "url": "http://0xa.1/"}, "url: is a private or reserved address"),
    ({"kind": "webhook", "url": "http://169.254.169.254/latest/"}, "url: is a private"),
    ({"kind": "webhook", "url": "http://[::ffff:10.0.0.1]/"}, "url: is a private"),
    ({"kind": "webhook", "url": "http://[fd00::1]:80/"}, "url: is a private"),
    (WEBHOOK | {"secret": "x" * 15}, "secret: must be 16 to 200 printable ASCII"),
    (WEBHOOK | {"secret": "x" * 201}, "secret: "),
    (WEBHOOK | {"secret": "x" * 20 + "\n"}, "secret: must be"),
    (WEBHOOK | {"secret": "é" * 20}, "secret: must be"),
    (WEBHOOK | {"secret": None}, "secret: "),
    (WEBHOOK | {"name": ""}, "name: "),
    (WEBHOOK | {"name": "n" * 10_000}, "name: "),
    (WEBHOOK | {"topics": ["down", "up"]}, "topics[1]: "),
    (WEBHOOK | {"topics": ["down"] * 21}, "topics: "),
    (WEBHOOK | {"topics": None}, "topics: "),
    (WEBHOOK | {"monitors": "some"}, "monitors: "),
    (WEBHOOK | {"monitors": "project"}, "scope_project_id: is required"),
    (WEBHOOK | {"monitors": "project", "scope_project_id": None}, "scope_project_id: is required"),
    (WEBHOOK | {"monitors": "project", "scope_project_id": "prj_x"}, "scope_project_id: project not found"),
    (WEBHOOK | {"monitors": "chosen"}, "monitor_ids: select at least one"),
    (WEBHOOK | {"monitors": "chosen", "monitor_ids": []}, "monitor_ids: select at least one"),
    (WEBHOOK | {"monitors": "chosen", "monitor_ids": ["mon_x"]}, "monitor_ids[0]: monitor not found"),
    (WEBHOOK | {"monitor_ids": ["mon_x"] * 1001}, "monitor_ids: "),
    (WEBHOOK | {"remind_every_hours": 0}, "remind_every_hours: "),
    (WEBHOOK | {"remind_every_hours": 169}, "remind_every_hours: "),
    (WEBHOOK | {"remind_every_hours": True}, "remind_every_hours: "),
    (WEBHOOK | {"delay_min": -1}, "delay_min: "),
    (WEBHOOK | {"delay_min": 1_441}, "delay_min: "),
    (WEBHOOK | {"delay_min": None}, "delay_min: "),
    (WEBHOOK | {"hours": [{}]}, "hours[0].days: "),
    (WEBHOOK | {"hours": [HOURS | {"from": "9:00"}]}, "hours: [0].from must be"),
    (WEBHOOK | {"hours": [HOURS | {"days": [0]}]}, "hours[0].days[0]: "),
    (WEBHOOK | {"hours": [HOURS] * 51}, "hours: "),
    (WEBHOOK | {"hours": None}, "hours: "),
    (WEBHOOK | {"timezone": "Europe/Atlantis"}, "timezone: is not a time zone"),
    (WEBHOOK | {"timezone": "../etc/passwd"}, "timezone: is not a time zone"),
    (WEBHOOK | {"timezone": None}, "timezone: "),
    (WEBHOOK | {"outside": "wait"}, "outside: "),
    (WEBHOOK | {"templates": None}, "templates: "),
    (WEBHOOK | {"templates": []}, "templates: "),
    (WEBHOOK | {"templates": {"slow": {}}}, "templates.slow: is not a field"),
    (WEBHOOK | {"templates": {"down": {"subject": "x"}}}, "templates.down.subject: is not a field"),
    (WEBHOOK | {"templates": {"down": {"body": "x" * 4_001}}}, "templates.down.body: "),
    (WEBHOOK | {"templates": {"down": {"body": "a\n{{ nope"}}}, "templates: down.body: line 2: expected"),
    (WEBHOOK | {"templates": {"down": {"title": "{{ text | nope }}"}}}, "templates: down.title: line 1: unknown"),
    (WEBHOOK | {"templates": {"recovered": {"body": "{% include 'x' %}"}}}, "templates: recovered.body: line 1: "),
    (WEBHOOK | {"project_id": "prj_x"}, "project_id: project not found"),
    (WEBHOOK | {"enabled": False}, "enabled: is not a field"),
    (WEBHOOK | {"hint": "x"}, "hint: is not a field"),
]


@pytest.mark.parametrize(("body", "reason"), BAD, ids=[reason + str(n) for n, (_, reason) in enumerate(BAD)])
def test_what_is_no_channel(api: Api, body: dict[str, Any], reason: str) -> None:
    answer = api.post(PATH, body)
    assert (answer.status, answer.json["error"]) == (422, "validation_error")
    assert answer.json["reason"].startswith(reason), answer.json["reason"]
    assert AlertChannel.objects.count() == 1
    assert not mail.outbox


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"kind": "email"}, "kind: cannot be changed"),
        ({"project_id": "prj_x"}, "project_id: cannot be changed"),
        ({"address": "a@example.com"}, "address: is not a field"),
        ({"apprise_url": "slack://x"}, "apprise_url: is not a field"),
        ({"url": "http://192.168.0.1/"}, "url: is a private"),
        ({"url": None}, "url: "),
        ({"secret": "short"}, "secret: "),
        ({"monitors": "project"}, "scope_project_id: is required"),
        ({"monitors": "chosen"}, "monitor_ids: select at least one"),
        ({"monitor_ids": ["mon_x"]}, "monitor_ids[0]: monitor not found"),
        ({"name": "n" * 10_000}, "name: "),
        ({"enabled": "no"}, "enabled: "),
        ({"unknown": 1}, "unknown: is not a field"),
    ],
)
def test_changes_that_do_not_hold(api: Api, user: User, body: dict[str, Any], reason: str) -> None:
    channel = ChannelFactory(owner=user)
    before = AlertChannel.objects.values().get(pk=channel.pk)
    answer = api.patch(path_of(channel), body)
    assert answer.status == 422
    assert answer.json["reason"].startswith(reason), answer.json["reason"]
    assert AlertChannel.objects.values().get(pk=channel.pk) == before


def test_the_scope_of_a_channel(api: Api, user: User) -> None:
    project, other = ProjectFactory(owner=user), ProjectFactory(owner=user)
    first, second = (MonitorFactory(owner=user) for _ in range(2))
    channel = ChannelFactory(owner=user)

    def aimed(**body: Any) -> tuple[Any, ...]:
        answer = api.patch(path_of(channel), body)
        assert answer.status == 200, answer.text
        return tuple(answer.json[name] for name in ("monitors", "scope_project_id", "monitor_ids"))

    ids = [second.public_id, first.public_id, second.public_id]
    assert aimed(monitors="chosen", monitor_ids=ids) == ("chosen", None, [first.public_id, second.public_id])
    assert aimed(monitor_ids=[second.public_id]) == ("chosen", None, [second.public_id])
    assert aimed(name="same", monitors="chosen") == ("chosen", None, [second.public_id])
    assert aimed(monitors="project", scope_project_id=project.public_id) == ("project", project.public_id, [])
    assert aimed(scope_project_id=other.public_id) == ("project", other.public_id, [])
    assert api.patch(path_of(channel), {"scope_project_id": None}).status == 422
    assert api.patch(path_of(channel), {"monitor_ids": [first.public_id]}).status == 422
    assert aimed(monitors="all", monitor_ids=[], scope_project_id=None) == ("all", None, [])
    assert api.patch(path_of(channel), {"scope_project_id": project.public_id}).status == 422
    answer = api.patch(path_of(channel), {"topics": ["reminder", "slow", "slow"], "remind_every_hours": 1})
    assert (answer.json["topics"], answer.json["remind_every_hours"]) == (["slow", "reminder"], 1)
    assert api.patch(path_of(channel), {"topics": [], "enabled": False}).json["topics"] == []


def test_only_ones_own_monitors_and_projects(api: Api, user: User) -> None:
    stranger = UserFactory()
    theirs = ProjectFactory(owner=stranger)
    foreign = MonitorFactory(owner=stranger, project=theirs)
    for more in (
        {"monitors": "chosen", "monitor_ids": [MonitorFactory(owner=user).public_id, foreign.public_id]},
        {"monitors": "project", "scope_project_id": theirs.public_id},
        {"project_id": theirs.public_id},
    ):
        assert api.post(PATH, WEBHOOK | more).status == 422
    MembershipFactory(project=theirs, user=user, role="member")
    for more in (
        {"monitors": "chosen", "monitor_ids": [foreign.public_id]},
        {"monitors": "project", "scope_project_id": theirs.public_id},
        {"project_id": theirs.public_id},
    ):
        assert api.post(PATH, WEBHOOK | more).status == 201
    chosen = AlertChannel.objects.get(scope="chosen")
    remove_member(
        Caller(stranger), theirs.public_id, Membership.objects.get(project=theirs, user=user).public_id, now=NOON
    )
    assert api.get(path_of(chosen)).json["monitor_ids"] == [], "a personal channel shows no monitors of other accounts"
    assert {c["project_id"] for c in api.get(PATH).json} == {None}


def test_a_projects_channel(user: User) -> None:
    member = UserFactory()
    project, other = ProjectFactory(owner=user, member=member), ProjectFactory(owner=user)
    inside = MonitorFactory(owner=user, project=project)
    outside = MonitorFactory(owner=user, project=other)
    api, token = Api.signed_in(member), Api.with_token(user, project)
    made = token.post(PATH, WEBHOOK | {"monitors": "chosen", "monitor_ids": [inside.public_id]})
    assert (made.status, made.json["project_id"]) == (201, project.public_id)
    assert AlertChannel.objects.get(public_id=made.json["id"]).owner == user
    assert [c["id"] for c in token.get(PATH).json] == [made.json["id"]], "and no personal channels"
    assert api.patch(path_of(made.json), {"name": "By a member"}).json["name"] == "By a member"
    for caller, more in (
        (token, {"project_id": None}),
        (token, {"project_id": other.public_id}),
        (token, {"monitors": "project", "scope_project_id": project.public_id}),
        (Api.signed_in(user), {"project_id": project.public_id, "monitors": "project"}),
        (
            Api.signed_in(user),
            {"project_id": project.public_id, "monitors": "chosen", "monitor_ids": [outside.public_id]},
        ),
    ):
        assert caller.post(PATH, WEBHOOK | more).status == 422, more
    assert Api.signed_in(user).patch(path_of(made.json), {"monitor_ids": [outside.public_id]}).status == 422
    inside.project = other
    inside.save(update_fields=["project"])
    assert Api.signed_in(user).get(path_of(made.json)).json["monitor_ids"] == [], "it has left the project"
    delete_project(Caller(user), project.public_id)
    assert not AlertChannel.objects.filter(kind="webhook").exists()


def test_one_may_have_so_many(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_CHANNELS", 3)
    friend = UserFactory()
    project = ProjectFactory(owner=user, member=friend)
    member = Api.signed_in(friend)
    ChannelFactory(owner=user)
    assert member.post(PATH, WEBHOOK | {"project_id": project.public_id}).status == 201
    answer = member.post(PATH, WEBHOOK | {"project_id": project.public_id})
    assert (answer.status, answer.json["error"], answer.json["limit"]) == (403, "channel_limit", 3)
    assert Api.signed_in(user).post(PATH, WEBHOOK).status == 403
    assert member.post(PATH, WEBHOOK).status == 201, "of the member's own"


@pytest.mark.django_db(transaction=True)
def test_the_cap_holds_when_many_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_CHANNELS", 4)
    user = UserFactory()
    made = run_concurrently(*[lambda: ChannelFactory(owner=user) for _ in range(6)])
    assert sum(isinstance(outcome, ChannelLimit) for outcome in made) == 3
    assert AlertChannel.objects.count() == 4


@pytest.mark.django_db(transaction=True)
def test_channels_are_made_changed_and_deleted_while_what_they_name_goes() -> None:
    """Monitors and projects deleted concurrently: 422, 404 or success, but no foreign key violation."""
    user = UserFactory()
    caller = Caller(user)
    for _ in range(6):
        project = ProjectFactory(owner=user)
        monitors = [MonitorFactory(owner=user, project=project) for _ in range(3)]
        ids = [monitor.public_id for monitor in monitors]
        ours = ChannelFactory(owner=user, project=project)
        scoped = {"monitors": "project", "scope_project_id": project.public_id}
        chosen = {"monitors": "chosen", "monitor_ids": ids}
        mine = ChannelFactory(owner=user)
        run_concurrently(
            partial(delete_monitor, caller, ids[0]),
            partial(delete_project, caller, project.public_id),
            partial(create_channel, caller, WEBHOOK | chosen, now=NOON),
            partial(create_channel, caller, WEBHOOK | scoped, now=NOON),
            partial(update_channel, caller, mine.public_id, chosen, now=NOON),
            partial(update_channel, caller, mine.public_id, scoped, now=NOON),
            partial(update_channel, caller, ours.public_id, chosen, now=NOON),
            partial(delete_channel, caller, ours.public_id),
        )
        assert not AlertChannel.objects.filter(project=project.pk).exists()
        AlertChannel.objects.filter(owner=user).exclude(kind="email").delete()


@pytest.mark.django_db(transaction=True)
def test_two_changes_at_once_undo_nothing_of_each_other() -> None:
    user = UserFactory()
    channel = ChannelFactory(owner=user)
    for n in range(5):
        changes = {"name": f"n{n}"}, {"secret": f"{n}" * 16}, {"url": f"http://127.0.0.1:{n + 1}/"}
        run_concurrently(*[partial(update_channel, Caller(user), channel.public_id, one, now=NOON) for one in changes])
        now = AlertChannel.objects.get(pk=channel.pk)
        assert now.name == f"n{n}"
        assert now.config == {"url": f"http://127.0.0.1:{n + 1}/", "secret": f"{n}" * 16}


# --- tests of channels ------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("broker", ["there", "away"])
def test_no_result_without_a_worker(broker: str, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "PATIENCE_SEC", 0.2)
    assert app.conf.broker_url  # Celery reads it once, before the test changes it
    if broker == "away":
        settings.REDIS_URL = "redis://127.0.0.1:1/0"
    user = UserFactory()
    answer = Api.signed_in(user).post(path_of(ChannelFactory(owner=user), "/test"))
    assert (answer.status, answer.json["error"]) == (503, "no_worker")
    assert "sent the test" in answer.json["reason"]


def test_a_worker_sends_a_test(worker: None) -> None:
    user = UserFactory()
    own = AlertChannel.objects.get(owner=user)
    tested = Api.signed_in(user).post(path_of(own, "/test"))
    assert (tested.status, tested.json["delivered"]) == (200, True), tested.text
    assert tested.json["detail"]
    (sent,) = mail.outbox
    assert sent.to == [user.email]
    refused = Api.signed_in(user).post(path_of(ChannelFactory(owner=user), "/test"))
    assert (refused.status, refused.json["delivered"]) == (200, False)
    assert refused.json["detail"]


def test_what_waits_for_consent_is_not_tested(user: User) -> None:
    channel = ChannelFactory(owner=user, kind="email", address="other@example.com")
    answer = Api.signed_in(user).post(path_of(channel, "/test"))
    assert (answer.status, answer.json["error"]) == (409, "not_confirmed")


def test_a_deleted_channel_is_not_tested(db: None) -> None:
    unconfirmed = ChannelFactory(owner=UserFactory(), kind="email", address="stranger@example.com")
    mail.outbox.clear()
    for pk in (0, unconfirmed.pk):
        detail = "The channel was deleted, or may no longer be used."
        assert testing.run_test(pk) == SendResult(delivered=False, detail=detail)
    assert not mail.outbox


def test_times_are_those_of_the_service(api: Api) -> None:
    with time_machine.travel(utc_now() + timedelta(days=1), tick=False):
        assert api.post(PATH, WEBHOOK).json["created_at"] == to_ms(utc_now())


def test_services_refuse_what_is_not_the_callers(user: User) -> None:
    channel = ChannelFactory(owner=user)
    stranger = Caller(UserFactory())
    for act in (
        lambda: update_channel(stranger, channel.public_id, {"name": "x"}, now=NOON),
        lambda: delete_channel(stranger, channel.public_id),
        lambda: create_channel(stranger, {"kind": "webhook", "url": "http://10.0.0.1"}, now=NOON),
    ):
        with pytest.raises(ApiError) as raised:
            act()
        assert raised.value.status in (404, 422)
    with pytest.raises(ValidationFailed):
        ChannelFactory(owner=user, kind="email")


def test_delay_hours_and_templates_are_set_and_changed(api: Api) -> None:
    given = {
        "delay_min": 10,
        "hours": [{"days": [5, 1, 1], "from": "22:00", "to": "06:00"}],
        "timezone": "America/St_Johns",
        "outside": "drop",
        "templates": {"down": {"title": "{{ monitor.name }}", "body": ""}, "recovered": {}},
    }
    made = api.post(PATH, WEBHOOK | given)
    settled = given | {"hours": [HOURS | {"days": [1, 5], "from": "22:00", "to": "06:00"}]}
    settled["templates"] = {"down": {"title": "{{ monitor.name }}"}}
    assert {name: made.json[name] for name in given} == settled
    path, tag = path_of(made.json), made.headers["ETag"]
    changes: list[dict[str, Any]] = [{"delay_min": 0}, {"hours": []}, {"timezone": "UTC"}, {"outside": "hold"}]
    for change in (*changes, {"templates": {}}):
        changed = api.patch(path, change)
        assert {name: changed.json[name] for name in change} == change
        assert changed.headers["ETag"] != tag
        tag = changed.headers["ETag"]
    read = api.get(path).json
    assert api.patch(path, {name: read[name] for name in given}).json == read


@pytest.mark.django_db
def test_viewers_do_not_see_templates() -> None:
    owner, viewer = UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner)
    MembershipFactory(project=project, user=viewer, role=Role.VIEWER)
    given = {"templates": {"down": {"body": "token=hunter2"}}, "delay_min": 3}
    channel = ChannelFactory(project=project, **given)
    seen = Api.signed_in(viewer).get(path_of(channel)).json
    assert (seen["templates"], seen["hint"], seen["delay_min"]) == (None, None, 3)
    assert Api.signed_in(owner).get(path_of(channel)).json["templates"] == given["templates"]

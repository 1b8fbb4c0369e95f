"""Moving a monitor to another owner: the roles that allow it, what is dropped, and the audit log of both sides."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.test import Client

from accounts import export
from accounts.models import User
from audit.models import Entry
from core.clock import utc_now
from core.errors import ApiError, Forbidden, NotFound
from monitors import account_export
from monitors.heartbeats import services as heartbeats
from monitors.models import Monitor
from monitors.services import update_monitor
from projects.access import Caller
from projects.members import change_role, remove_member
from projects.models import Project, Role
from tests.api.client import Api
from tests.factories import MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently, signal
from tests.manifests.helpers import apply_text, refusal

SECRETS: dict[str, Any] = {
    "method": "POST",
    "request_headers": [{"name": "Authorization", "value": "Bearer s3cret", "type": "bearer"}],
    "request_body": '{"password": "s3cret"}',
}
ACTIONS = ("monitor.released", "member.removed", "member.updated")
MOVES = ("monitor.released", "monitor.received")
REFUSED = "Only owners and admins of a project can move its monitors to another owner."


class Scene:
    """A monitor with secrets in a project that `mover` is a member of, and a project that the mover owns."""

    def __init__(self, *, role: str = "member") -> None:
        self.owner, self.mover = UserFactory(), UserFactory()
        self.shop = ProjectFactory(owner=self.owner, name="Shop")
        self.place = MembershipFactory(project=self.shop, user=self.mover, role=Role(role))
        self.mine = ProjectFactory(owner=self.mover, name="Mine")
        self.monitor = MonitorFactory(owner=self.owner, project=self.shop, **SECRETS)

    def move(self, project: Project | None = None) -> Monitor:
        given = {"project_id": (project or self.mine).public_id}
        return update_monitor(Caller(self.mover), self.monitor.public_id, given, now=utc_now())

    def file(self, *, project: str | None) -> str:
        """Return a configuration that moves the monitor and sets its secrets, as a file must."""
        place = "" if project is None else f"project: {project}, "
        return (
            f"version: 1\nprojects: [{{name: Mine}}]\nmonitors:\n- {{id: {self.monitor.public_id}, {place}"
            f"name: Stolen, url: 'http://127.0.0.1:9/', method: POST, request_headers: "
            f"[{{name: Authorization, value: '${{keep:PK_TOKEN}}'}}]}}"
        )


def by_api(scene: Scene) -> tuple[int, str]:
    given = {"project_id": scene.mine.public_id}
    answer = Api.signed_in(scene.mover).patch(f"/v1/monitors/{scene.monitor.public_id}", given)
    return answer.status, answer.text


def of_pages(path: str, given: dict[str, str], scene: Scene) -> tuple[int, str]:
    web = Client()
    web.force_login(scene.mover)
    answer = web.post(path.format(scene.monitor.public_id), given, follow=True)
    return answer.status_code, answer.content.decode()


def by_bulk_action(scene: Scene) -> tuple[int, str]:
    given = {"action": f"move:{scene.mine.public_id}", "monitor": scene.monitor.public_id}
    return of_pages("/monitors/actions", given, scene)


def by_form(scene: Scene) -> tuple[int, str]:
    given = {
        "form_key": "a-key",
        "type": "http",
        "name": "Stolen",
        "url": "http://127.0.0.1:9/",
        "project_id": scene.mine.public_id,
        "interval_sec": "5m",
        "timeout_ms": "10s",
        "slow_ms": "1.5s",
        "fail_threshold": "3",
        "recover_threshold": "1",
        "method": "POST",
        "header-0-name": "Authorization",
    } | {f"rule-{n}-kind": "contains" for n in range(4)}
    return of_pages("/monitors/{}/edit", given, scene)


@pytest.mark.django_db
@pytest.mark.parametrize("way", [by_api, by_bulk_action, by_form])
def test_a_member_gives_nothing_away(way: Callable[[Scene], tuple[int, str]]) -> None:
    scene = Scene()
    status, text = way(scene)
    assert status == (403 if way is by_api else 200)
    assert REFUSED in text
    monitor = Monitor.objects.get()
    assert (monitor.owner, monitor.project, monitor.full_config) == (scene.owner, scene.shop, scene.monitor.full_config)
    assert not Entry.objects.filter(action__in=MOVES).exists()


@pytest.mark.django_db
@pytest.mark.parametrize("project", ["Mine", None])
def test_a_member_s_file_gives_nothing_away(project: str | None) -> None:
    """Nor out of all projects, which in a file means the account itself."""
    scene = Scene()
    (kept,) = refusal(scene.mover, scene.file(project=project))
    assert "is for another server or owner; set PK_TOKEN in the environment" in kept
    (refused,) = refusal(scene.mover, scene.file(project=project), environment={"PK_TOKEN": "mine"})
    assert refused.endswith(REFUSED)
    assert Monitor.objects.get().owner == scene.owner


@pytest.mark.django_db
def test_an_admin_gives_away_what_is_no_secret_and_both_sides_read_of_it() -> None:
    scene = Scene(role="admin")
    api = Api.signed_in(scene.mover)
    path = f"/v1/monitors/{scene.monitor.public_id}"
    assert api.patch(path, {"project_id": "prj_unknown"}).status == 422
    moved = api.patch(path, {"project_id": scene.mine.public_id})
    assert moved.status == 200, moved.text
    assert moved.json["request_headers"] == [{"name": "Authorization", "type": "bearer", "value_dropped": True}]
    assert moved.json["request_body"] is None
    monitor = Monitor.objects.get()
    assert (monitor.owner, monitor.full_config["request_headers"][0].value) == (scene.mover, "")

    owner = Api.signed_in(scene.owner)
    (left,) = owner.get(f"/v1/projects/{scene.shop.public_id}/audit-log?action=monitor.released").json
    (came,) = api.get(f"/v1/projects/{scene.mine.public_id}/audit-log?action=monitor.received").json
    for entry, details in ((left, {"to": scene.mine.public_id}), (came, {"from": scene.shop.public_id})):
        assert entry["actor_email"] == scene.mover.email
        assert (entry["target_id"], entry["details"]) == (scene.monitor.public_id, details)
    assert owner.get("/v1/account/audit-log?action=monitor.released").json == [left]

    again = {"request_headers": [{"name": "Authorization", "value": "Bearer new"}], "request_body": "{}"}
    given = api.patch(path, {**again, "name": "Mine now"})
    assert given.json["request_headers"] == [{"name": "Authorization"}]


@pytest.mark.django_db
def test_what_is_given_with_the_move_is_the_receiver_s() -> None:
    scene = Scene(role="admin")
    given = {
        "project_id": scene.mine.public_id,
        "request_headers": [{"name": "authorization", "value": "mine"}, {"name": "X-Other"}],
        "request_body": "mine",
    }
    update_monitor(Caller(scene.mover), scene.monitor.public_id, given, now=utc_now())
    config = Monitor.objects.get().full_config
    assert [header.value for header in config["request_headers"]] == ["mine", ""]
    assert config["request_body"] == "mine"


@pytest.mark.django_db
def test_an_admin_s_file_gives_away_with_values_of_its_own() -> None:
    scene = Scene(role="admin")
    report = apply_text(scene.mover, scene.file(project=None), environment={"PK_TOKEN": "mine"})
    assert report.changed == 1
    monitor = Monitor.objects.get()
    assert (monitor.owner, monitor.project) == (scene.mover, None)
    assert (monitor.full_config["request_headers"][0].value, monitor.options["request_body"]) == ("mine", None)
    sides = Entry.objects.filter(action__in=MOVES).values_list("action", "project_id")
    assert set(sides) == {("monitor.released", scene.shop.pk), ("monitor.received", None)}


@pytest.mark.django_db
def test_among_projects_of_one_owner_everything_stays() -> None:
    scene = Scene()
    other = ProjectFactory(owner=scene.owner, name="Other", member=scene.mover)
    for project in (other, scene.shop):
        assert scene.move(project).full_config == scene.monitor.full_config
    given = {"project_id": None}
    update_monitor(Caller(scene.mover), scene.monitor.public_id, given, now=utc_now())
    monitor = Monitor.objects.get()
    assert (monitor.owner, monitor.project, monitor.full_config) == (scene.owner, None, scene.monitor.full_config)
    assert not Entry.objects.filter(action__in=MOVES).exists()


@pytest.mark.django_db
def test_the_log_does_not_hold_the_id_of_a_heartbeat() -> None:
    scene = Scene(role="admin")
    scene.monitor = MonitorFactory(owner=scene.owner, heartbeat=True, project=scene.shop)
    scene.move()
    assert Entry.objects.filter(action__in=MOVES).count() == 2
    assert scene.monitor.public_id not in str(list(Entry.objects.values()))


def heartbeat_scene() -> Scene:
    scene = Scene(role="admin")
    scene.monitor = MonitorFactory(owner=scene.owner, heartbeat=True, project=scene.shop)
    return scene


def fail(monitor: Monitor, text: str) -> None:
    given = {"remote_addr": "192.0.2.7", "user_agent": f"{text} agent", "body": f"{text} body"}
    assert heartbeats.record(signal(monitor.public_id, "3", now=utc_now(), **given))


def apply_move(scene: Scene) -> None:
    apply_text(scene.mover, f"version: 1\nmonitors: [{{id: {scene.monitor.public_id}, name: Job, type: heartbeat}}]")


def exported(user: User) -> Any:
    return json.loads("".join(export.export(user, now=utc_now())))["pings"]


@pytest.mark.django_db
@pytest.mark.parametrize("move", [Scene.move, apply_move])
def test_the_new_owner_sees_neither_senders_nor_bodies_of_earlier_signals(move: Callable[[Scene], object]) -> None:
    scene = heartbeat_scene()
    fail(scene.monitor, "earlier")
    move(scene)
    assert Monitor.objects.get(pk=scene.monitor.pk).owner == scene.mover
    fail(scene.monitor, "later")

    pings = Api.signed_in(scene.mover).get(f"/v1/monitors/{scene.monitor.public_id}/pings").json
    names = ("kind", "exit_status", "remote_addr", "user_agent", "body")
    assert [[ping[name] for name in names] for ping in pings] == [
        ["fail", 3, "192.0.2.7", "later agent", "later body"],
        ["fail", 3, None, "", None],
    ]
    assert exported(scene.mover) == [{"monitor_id": scene.monitor.public_id, **ping} for ping in pings]
    assert exported(scene.owner) == []

    web = Client()
    web.force_login(scene.mover)
    path = f"/monitors/{scene.monitor.public_id}"
    for page in (web.get(path), web.get(f"{path}/signals")):
        text = page.content.decode()
        assert "later body" in text
        assert "earlier body" not in text
        assert text.count("received before the monitor moved to its present owner") == 1
    assert "later body" in web.get(f"{path}/signals", {"text": "LATER"}).content.decode()
    assert "No matching signals" in web.get(f"{path}/signals", {"text": "EARLIER"}).content.decode()


@pytest.mark.django_db
def test_a_signal_that_arrives_while_the_move_waits_for_its_lock_is_an_earlier_one() -> None:
    scene = heartbeat_scene()
    begun = utc_now()
    fail(scene.monitor, "earlier")
    update_monitor(Caller(scene.mover), scene.monitor.public_id, {"project_id": scene.mine.public_id}, now=begun)
    assert [ping["body"] for ping in exported(scene.mover)] == [None]
    fail(scene.monitor, "later")
    assert [ping["body"] for ping in exported(scene.mover)] == ["later body", None]


@pytest.mark.django_db
def test_an_export_that_a_move_overtakes_has_no_later_signal() -> None:
    scene = heartbeat_scene()
    kept, scene.monitor = scene.monitor, MonitorFactory(owner=scene.owner, heartbeat=True, project=scene.shop)
    for monitor in (kept, scene.monitor):
        fail(monitor, "earlier")
    rows = iter(account_export.sections(scene.owner, now=utc_now())["pings"])
    first = next(rows)
    scene.move()
    fail(scene.monitor, "later")
    assert [row["body"] for row in (first, *rows)] == ["earlier body"] * 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("ending", ["removed", "demoted"])
def test_an_ended_role_does_not_allow_giving_away(ending: str) -> None:
    def end(scene: Scene) -> None:
        caller, now = Caller(scene.owner), utc_now()
        project, member = scene.shop.public_id, scene.place.public_id
        if ending == "removed":
            remove_member(caller, project, member, now=now)
        else:
            change_role(caller, project, member, role="member", now=now)

    for _ in range(6):
        scene = Scene(role="admin")
        moved, ended = run_concurrently(scene.move, partial(end, scene))
        assert ended is None
        words = Entry.objects.filter(project_id=scene.shop.pk, action__in=ACTIONS).order_by("pk")
        order = list(words.values_list("action", flat=True))
        if isinstance(moved, Monitor):
            assert order[0] == "monitor.released", "the role was there when it moved"
        else:
            assert isinstance(moved, Forbidden | NotFound), moved
            assert Monitor.objects.get(pk=scene.monitor.pk).owner == scene.owner


@pytest.mark.django_db(transaction=True)
def test_two_moves_in_opposite_directions_both_end() -> None:
    """Both lock both projects; in different orders they would deadlock."""
    admin = UserFactory()
    projects = [ProjectFactory(admin=admin) for _ in range(2)]
    monitors = [
        MonitorFactory(owner=project.memberships.get(role=Role.OWNER).user, project=project) for project in projects
    ]

    def move(monitor: Monitor, project: Project) -> Monitor:
        given = {"project_id": project.public_id}
        return update_monitor(Caller(admin), monitor.public_id, given, now=utc_now())

    for _ in range(8):
        projects.reverse()
        moves = [partial(move, *pair) for pair in zip(monitors, projects, strict=True)]
        assert not [outcome for outcome in run_concurrently(*moves) if isinstance(outcome, ApiError)]

"""What viewers and tokens that only read see and may do; `test_permissions` has the routes."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from alerts.models import Delivery, DeliveryItem
from alerts.outbox import load
from core.clock import to_ms, utc_now
from core.ids import derived_bits
from incidents import windows
from incidents.models import MaintenanceWindow
from incidents.selectors import windows_covering
from incidents.windows import create_window
from monitors.models import READING_PREFIX, Monitor
from projects.access import Caller
from projects.members import change_role
from projects.models import Membership, Role
from tests.api.client import Api
from tests.api.test_permissions import TABLE
from tests.factories import IncidentFactory, MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.viewing import HINT, Viewing, make_viewing

pytestmark = pytest.mark.django_db


@pytest.fixture
def scene() -> Viewing:
    return make_viewing()


def make_window(scene: Viewing) -> MaintenanceWindow:
    now = utc_now()
    given = {"name": "Upgrade", "starts_at": now, "ends_at": now + timedelta(hours=1), "monitors": "all"}
    return create_window(Caller(scene.owner), given | {"project_id": scene.project.public_id}, now=now)


def readers(scene: Viewing) -> dict[str, Api]:
    return {"viewer": Api.signed_in(scene.viewer), "reader": Api.with_token(scene.owner, scene.project, access="read")}


def paths(api: Api, scene: Viewing, monitor_id: str) -> list[str]:
    """Return the addresses of all GET routes, with ids from the lists."""
    ids = {
        "monitor_id": monitor_id,
        "project_id": scene.project.public_id,
        "channel_id": scene.channel.public_id,
        "incident_id": scene.incident.public_id,
        "page_id": scene.page.public_id,
        "provider": "vercel",
    }
    for name, path in {
        "window_id": "/v1/maintenance-windows",
        "location_id": "/v1/locations",
        "schedule_id": "/v1/on-call-schedules",
        "policy_id": "/v1/escalation-policies",
        "note_id": f"/v1/status-pages/{scene.page.public_id}/notes",
        "check_id": f"/v1/monitors/{monitor_id}/checks",
    }.items():
        ids[name] = api.get(path).json[-1]["id"]
    found = [template.format(**ids) for method, template in TABLE if method == "GET" and "heartbeats" not in template]
    return [*found, "/v1/manifest?ids=true", f"/v1/alert-channels/{scene.own_channel.public_id}/deliveries"]


@pytest.mark.parametrize("name", ["viewer", "reader"])
def test_no_reading_route_shows_a_ping_address(scene: Viewing, name: str) -> None:
    api, shown = readers(scene)[name], scene.heartbeat.reading_id
    texts = {path: api.get(path).text for path in paths(api, scene, shown)}
    assert {path for path, text in texts.items() if any(secret in text for secret in scene.secrets)} == set()
    naming = {path.split("?")[0].removesuffix(shown) for path, text in texts.items() if shown in text}
    assert naming >= {"/v1/monitors", "/v1/monitors/", "/v1/incidents", "/v1/metrics", "/v1/alert-channels"}
    assert naming >= {"/v1/maintenance-windows", "/v1/status-pages", "/v1/manifest"}


def test_viewers_do_not_see_where_alerts_go(scene: Viewing) -> None:
    viewer = readers(scene)["viewer"]
    texts = {path: viewer.get(path).text for path in paths(viewer, scene, scene.heartbeat.reading_id)}
    owner = scene.owner.email
    told = {path for path, text in texts.items() if HINT in text or (owner in text and "/tokens" not in path)}
    assert told == {f"/v1/projects/{scene.project.public_id}/members"}
    channel = viewer.get(f"/v1/alert-channels/{scene.channel.public_id}").json
    assert (channel["hint"], channel["name"]) == (None, "E-mail")
    assert viewer.get(f"/v1/alert-channels/{scene.own_channel.public_id}").json["hint"]
    assert Api.signed_in(scene.owner).get(f"/v1/alert-channels/{scene.channel.public_id}").json["hint"].startswith(HINT)


def test_reading_routes_take_the_other_id_and_ping_routes_do_not(scene: Viewing) -> None:
    shown = scene.heartbeat.reading_id
    assert re.fullmatch("hbt_[a-z2-7]{26}", shown)
    for api in (*readers(scene).values(), Api.signed_in(scene.owner)):
        for path in ("", "/pings", "/checks", "/uptime", "/dns-changes", "/badge"):
            assert api.get(f"/v1/monitors/{shown}{path}").status == 200, path
        found = api.get(f"/v1/incidents?monitor_id={shown}").json
        assert [one["id"] for one in found] == [scene.incident.public_id]
    for word in ("", "/start", "/fail", "/log", "/0"):
        assert Api().post(f"/v1/heartbeats/{shown}/ping{word}").status == 404
    assert Api().post(f"/v1/heartbeats/{scene.heartbeat.public_id}/ping").status == 200
    stranger = Api.signed_in(UserFactory())
    assert stranger.get(f"/v1/monitors/{shown}").status == 404
    assert stranger.get(f"/v1/incidents?monitor_id={shown}").json == []


def test_the_ids_of_results_are_the_same_for_all(scene: Viewing) -> None:
    owner, viewer = Api.signed_in(scene.owner), Api.signed_in(scene.viewer)
    for what in ("pings", "checks"):
        theirs = viewer.get(f"/v1/monitors/{scene.heartbeat.reading_id}/{what}").json
        assert [one["id"] for one in theirs] == [
            one["id"] for one in owner.get(f"/v1/monitors/{scene.heartbeat.public_id}/{what}").json
        ]
    check = viewer.get(f"/v1/monitors/{scene.heartbeat.reading_id}/checks").json[0]["id"]
    assert viewer.get(f"/v1/monitors/{scene.heartbeat.reading_id}/checks/{check}").status == 200


def test_incidents_of_a_deleted_heartbeat_keep_the_other_id(scene: Viewing) -> None:
    shown = scene.deleted_reading_id
    (incident,) = Api.signed_in(scene.viewer).get(f"/v1/incidents?monitor_id={shown}").json
    assert (incident["title"], incident["monitor_id"]) == ("Old job", shown)


def test_viewers_own_what_is_theirs(scene: Viewing) -> None:
    api = Api.signed_in(scene.viewer)
    made = api.post("/v1/monitors", {"type": "heartbeat"}).json
    assert made["id"].startswith("mon_")
    assert Api().post(f"/v1/heartbeats/{made['id']}/ping").status == 200
    moved = api.patch(f"/v1/monitors/{made['id']}", {"project_id": scene.project.public_id})
    assert (moved.status, moved.json["error"]) == (403, "read_only")
    own = f"/v1/alert-channels/{scene.own_channel.public_id}"
    assert api.get(own).json["monitor_ids"] == [scene.heartbeat.reading_id]
    ids = [scene.heartbeat.reading_id, made["id"]]
    assert sorted(api.patch(own, {"monitor_ids": ids}).json["monitor_ids"]) == sorted(ids)
    scope = {"monitors": "project", "scope_project_id": scene.project.public_id}
    assert api.patch(own, scope).json["scope_project_id"] == scene.project.public_id
    leaving = Membership.objects.get(project=scene.project, user=scene.viewer)
    assert api.delete(f"/v1/projects/{scene.project.public_id}/members/{leaving.public_id}").status == 200
    assert api.get(f"/v1/monitors/{scene.heartbeat.reading_id}").status == 404


def test_a_window_of_a_viewer_silences_nothing_of_the_project(scene: Viewing) -> None:
    api, now = Api.signed_in(scene.viewer), utc_now()
    soon = to_ms(now) + 60_000
    body = {"name": "Quiet", "starts_at": soon, "ends_at": soon + 60_000, "monitors": "chosen"}
    refused = api.post("/v1/maintenance-windows", body | {"monitor_ids": [scene.site.public_id]})
    assert (refused.status, refused.json["error"]) == (403, "read_only")

    member = UserFactory()
    place = MembershipFactory(project=scene.project, user=member)
    given = {"name": "Mine", "starts_at": now, "ends_at": now + timedelta(hours=1), "monitors": "chosen"}
    create_window(Caller(member), given | {"monitor_ids": [scene.site.public_id]}, now=now)
    assert windows.covered([scene.site.pk], now) == {scene.site.pk}
    assert [one.name for one in windows_covering(Caller(member), scene.site)] == ["Mine"]
    change_role(Caller(scene.owner), scene.project.public_id, place.public_id, role="viewer", now=now)
    assert windows.covered([scene.site.pk], now) == set()
    assert windows_covering(Caller(member), scene.site) == []
    assert windows.coming([scene.site], now=now, until=now + timedelta(hours=1)) == []


def test_messages_to_a_viewer_have_the_other_id(scene: Viewing) -> None:
    delivery = Delivery.objects.get(channel=scene.own_channel)
    _, (payload,) = load(delivery)
    assert payload.monitor_id == scene.heartbeat.reading_id
    assert payload.path == f"/monitors/{scene.heartbeat.reading_id}"
    assert DeliveryItem.objects.get(delivery=delivery).payload["monitor_id"] == scene.heartbeat.public_id
    _, (payload,) = load(Delivery.objects.get(channel=scene.channel))
    assert payload.monitor_id == scene.heartbeat.public_id


def test_the_tokens_of_a_member_who_becomes_a_viewer_only_read() -> None:
    owner, member = UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner, member=member)
    heartbeat = MonitorFactory(project=project, heartbeat=True)
    token, session = Api.with_token(member, project), Api.signed_in(member)
    place = Membership.objects.get(project=project, user=member)
    path = f"/v1/projects/{project.public_id}/members/{place.public_id}"
    for api in (token, session):
        assert api.patch(f"/v1/monitors/{heartbeat.public_id}", {"name": "Backup"}).json["id"] == heartbeat.public_id
    assert Api.signed_in(owner).patch(path, {"role": "viewer"}).json["role"] == "viewer"
    for api in (token, session):
        assert api.patch(f"/v1/monitors/{heartbeat.public_id}", {"name": "No"}).json["error"] == "read_only"
        assert [one["id"] for one in api.get("/v1/monitors").json] == [heartbeat.reading_id]
    own = session.get("/v1/tokens").json[0]
    assert session.post("/v1/tokens", {"project_id": project.public_id, "name": "New"}).json["error"] == "read_only"
    assert session.delete(f"/v1/tokens/{own['id']}").status == 200
    assert token.get("/v1/monitors").status == 401


def test_a_former_owner_of_a_monitor_is_a_viewer_of_its_past_incidents(scene: Viewing) -> None:
    past = IncidentFactory(monitor=scene.site, owner=scene.viewer, recovered=True)
    answer = Api.signed_in(scene.viewer).post(f"/v1/incidents/{past.public_id}/acknowledge")
    assert (answer.status, answer.json["error"]) == (403, "read_only")


@pytest.mark.parametrize("project_id", ["\0", "\ud800", "x" * 10_000, 1, ["a"], {}])
def test_odd_ids_of_projects_are_no_error_of_the_server(project_id: object) -> None:
    for path in ("/v1/monitors", "/v1/tokens", "/v1/incidents"):
        answer = Api.signed_in(UserFactory()).post(path, {"project_id": project_id})
        assert answer.status in (400, 422), (path, answer.text)


def test_a_viewer_is_invited_and_keeps_the_role() -> None:
    owner = Api.signed_in(UserFactory())
    project = owner.post("/v1/projects", {"name": "Shop"}).json
    members = f"/v1/projects/{project['id']}/members"
    invited = owner.post(members, {"email": "vera@shop.example", "role": "viewer"}).json
    assert (invited["role"], invited["status"]) == ("viewer", "invited")
    vera = Api.signed_in(UserFactory(email="vera@shop.example"))
    roles = {one["email"]: one["role"] for one in vera.get(members).json}
    assert roles["vera@shop.example"] == Role.VIEWER
    changed = vera.patch(f"{members}/{invited['id']}", {"role": "member"})
    assert (changed.status, changed.json["error"]) == (403, "read_only")


def test_access_of_tokens() -> None:
    user = UserFactory()
    project, api = ProjectFactory(owner=user), Api.signed_in(user)
    body = {"project_id": project.public_id, "name": "t"}
    assert api.post("/v1/tokens", body).json["access"] == "write"
    assert api.post("/v1/tokens", body | {"access": "read"}).json["access"] == "read"
    assert sorted(one["access"] for one in api.get("/v1/tokens").json) == ["read", "write"]
    for wrong in ("admin", "", None, True):
        refused = api.post("/v1/tokens", body | {"access": wrong})
        assert (refused.status, refused.json["error"]) == (422, "validation_error"), wrong


def test_refused_requests_use_up_no_throttle_of_the_account(scene: Viewing, settings: object) -> None:
    reader, owner = readers(scene)["reader"], Api.signed_in(scene.owner)
    for _ in range(40):
        assert reader.post("/v1/monitors", {"url": "http://127.0.0.1:9/"}).status == 403
    assert owner.post("/v1/monitors", {"type": "heartbeat"}).status == 201


def test_postgresql_finds_what_python_derives(scene: Viewing) -> None:
    bits = derived_bits(READING_PREFIX, scene.heartbeat.reading_id)
    statement = "SELECT id FROM monitors_monitor WHERE substr(sha256(public_id::bytea), 1, 16) = %s"
    assert [one.pk for one in Monitor.objects.raw(statement, [bits])] == [scene.heartbeat.pk]
    for wrong in (
        "hbt_",
        "hbt_a",
        "mon_" + scene.heartbeat.reading_id[4:],
        scene.heartbeat.reading_id.upper(),
        "hbt_é",
    ):
        assert derived_bits(READING_PREFIX, wrong) is None, wrong


def test_viewers_and_reading_tokens_copy_nothing(scene: Viewing) -> None:
    window = scene.project.maintenance_windows.get()
    for path in (
        f"monitors/{scene.heartbeat.reading_id}",
        f"monitors/{scene.site.public_id}",
        f"alert-channels/{scene.channel.public_id}",
        f"maintenance-windows/{window.public_id}",
        f"status-pages/{scene.page.public_id}",
    ):
        for api in readers(scene).values():
            for body in ({}, {"project_id": None}, {"name": 7}):
                refused = api.post(f"/v1/{path}/copy", body)
                assert (refused.status, refused.json["error"]) == (403, "read_only"), (path, body)
    assert not scene.viewer.monitors.exclude(name="Own site").exists()


def test_a_copy_into_a_project_needs_write_access_there(scene: Viewing) -> None:
    api = Api.signed_in(scene.viewer)
    own = Monitor.objects.get(owner=scene.viewer)
    for body in ({}, {"interval_sec": "often"}):
        refused = api.post(f"/v1/monitors/{own.public_id}/copy", {"project_id": scene.project.public_id} | body)
        assert (refused.status, refused.json["error"]) == (403, "read_only")


def test_a_change_of_many_monitors_leaves_what_a_viewer_only_reads(scene: Viewing) -> None:
    api = Api.signed_in(scene.viewer)
    own = Monitor.objects.get(owner=scene.viewer)
    for dry_run in ("true", "false"):
        found = api.patch(f"/v1/monitors?enabled=true&dry_run={dry_run}", {"tags": ["mine"]}).json
        assert (found["matched"], found["changed"], found["failed"]) == (1, [own.public_id], [])
    assert api.patch("/v1/monitors?tag=nightly", {"tags": ["mine"]}).json["matched"] == 0
    assert api.patch(f"/v1/monitors?depends_on={scene.heartbeat.reading_id}", {"tags": ["mine"]}).json["matched"] == 0
    query = f"/v1/monitors?project_id={scene.project.public_id}"
    for path, body in ((query, {"tags": ["mine"]}), (query, {"tags": 7}), (f"{query}&tag=", {})):
        refused = api.patch(path, body)
        assert (refused.status, refused.json["error"]) == (403, "read_only"), (path, body)
    into = api.patch("/v1/monitors?enabled=true", {"project_id": scene.project.public_id})
    assert (into.status, into.json["error"]) == (403, "read_only")
    scene.heartbeat.refresh_from_db()
    assert scene.heartbeat.tags == ["nightly"]


def test_dependencies_have_the_other_id_and_take_both(scene: Viewing) -> None:
    shown, secret = scene.heartbeat.reading_id, scene.heartbeat.public_id
    site, beside = f"/v1/monitors/{scene.site.public_id}", scene.beside().public_id
    owner = Api.signed_in(scene.owner)
    assert owner.get(site).json["depends_on"] == [secret]
    for api in readers(scene).values():
        assert api.get(site).json["depends_on"] == [shown]
        caused = [one["caused_by"] for one in api.get(f"/v1/incidents?monitor_id={scene.site.public_id}").json]
        assert caused == [scene.incident.public_id]
    for api in (*readers(scene).values(), owner):
        for given in (shown, secret):
            children = api.get(f"/v1/monitors?depends_on={given}").json
            assert [one["id"] for one in children] == [scene.site.public_id]

    viewer = Api.signed_in(scene.viewer)
    made = viewer.post("/v1/monitors", {"type": "heartbeat", "project_id": beside, "depends_on": [shown]}).json
    child = f"/v1/monitors/{made['id']}"
    assert made["depends_on"] == [shown]
    assert owner.get(child).json["depends_on"] == [secret]
    for ids in ([secret], [shown]):
        assert viewer.patch(child, {"depends_on": ids}).json["depends_on"] == [shown]
        found = viewer.patch(f"/v1/monitors?project_id={beside}", {"depends_on": ids}).json
        assert found["unchanged"] == [made["id"]]
    twice = viewer.patch(child, {"depends_on": [shown, secret]})
    assert (twice.status, twice.json["reason"]) == (422, "depends_on[1]: is named more than once.")
    copied = viewer.post(f"{child}/copy", {}).json
    assert copied["depends_on"] == [shown]
    assert owner.patch(site, {"depends_on": [shown]}).json["depends_on"] == [secret]


def test_a_viewer_changes_no_dependency_of_the_project(scene: Viewing) -> None:
    viewer = Api.signed_in(scene.viewer)
    for monitor_id in (scene.site.public_id, scene.heartbeat.reading_id, scene.heartbeat.public_id):
        for parents in ([], [scene.heartbeat.reading_id], [scene.heartbeat.public_id], ["mon_none"]):
            refused = viewer.patch(f"/v1/monitors/{monitor_id}", {"depends_on": parents})
            assert (refused.status, refused.json["error"]) == (403, "read_only"), (monitor_id, parents)


def test_tags_of_a_viewers_objects_cover_nothing_of_the_project(scene: Viewing) -> None:
    api, now = Api.signed_in(scene.viewer), utc_now()
    body = {"name": "Quiet", "starts_at": to_ms(now) - 60_000, "ends_at": to_ms(now) + 60_000}
    made = api.post("/v1/maintenance-windows", body | {"monitors": "chosen", "monitor_tags": ["nightly", "web"]})
    assert made.status == 201
    scene.project.maintenance_windows.all().delete()
    windows.roll_forward(now)
    assert windows.covered([scene.heartbeat.pk], now) == set()
    for path in (
        f"maintenance-windows/{make_window(scene).public_id}",
        f"alert-channels/{scene.channel.public_id}",
    ):
        refused = api.patch(f"/v1/{path}", {"monitor_tags": ["nightly"]})
        assert (refused.status, refused.json["error"]) == (403, "read_only")

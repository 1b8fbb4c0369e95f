"""Locations over the API: who sees and manages them, and whether they are online."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from pytest_django import DjangoCaptureOnCommitCallbacks
from pytest_django.fixtures import Settings

from accounts.models import User
from accounts.services import create_account
from checks.agent_protocol import OFFLINE_SEC
from core.clock import to_ms, utc_now
from core.errors import ApiError, LocationInUse, LocationLimit
from core.version import product_version
from locations import services
from locations.models import DEFAULT, Agent, JoinToken, Location
from locations.selectors import online_agents, usable
from locations.services import MAX_TOKENS, TOKEN_LIFETIME, create_location, delete_location, issue_join_token, join
from monitors.models import Monitor
from projects.access import Caller
from projects.services import delete_project
from tests.api.client import Api
from tests.audit.reading import actions, last
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import PASSWORD, run_concurrently
from tests.locations import add_agent, shared

BODY = {"name": "Office"}
CREATED: dict[str, Any] = {
    "default": False,
    "private": True,
    "preselected": False,
    "online": False,
    "agents": 0,
    "version": None,
}


def ids(caller: Api) -> list[str]:
    return [location["id"] for location in caller.get("/v1/locations").json]


def test_the_default_location(api: Api, settings: Settings) -> None:
    settings.LOCATION_NAME = "Basement"
    row: dict[str, Any] = {"id": DEFAULT, "name": "Basement", "project_id": None, "default": True, "private": False}
    row |= {"preselected": True, "online": True, "agents": 0, "version": product_version(), "last_seen_at": None}
    assert api.get("/v1/locations").json == [row]
    assert api.get("/v1/locations/default").json == row


def test_created_changed_and_deleted(api: Api, user: User) -> None:
    before = to_ms(utc_now() + TOKEN_LIFETIME)
    made = api.post("/v1/locations", BODY, key="once")
    assert made.status == 201
    shown = dict(made.json)
    token, expires_at = shown.pop("join_token"), shown.pop("join_token_expires_at")
    assert before <= expires_at <= to_ms(utc_now() + TOKEN_LIFETIME)
    assert shown == BODY | CREATED | {"id": shown["id"], "project_id": None, "last_seen_at": None}
    assert api.post("/v1/locations", BODY, key="once").json == made.json
    assert JoinToken.objects.count() == 1
    path = f"/v1/locations/{shown['id']}"
    assert api.get(path).json == shown
    assert token not in api.get("/v1/locations").text
    changed = api.patch(path, {"name": "Attic", "preselected": True}).json
    assert changed == shown | {"name": "Attic", "preselected": True}
    assert api.patch(path, {}).json == changed
    assert api.delete(path).json == {"ok": True}
    assert api.get(path).status == 404
    assert actions(action__startswith="location") == ["location.created", "location.updated", "location.deleted"]
    assert (last().actor_id, last().target_id, last().target_name) == (user.pk, shown["id"], "Attic")


@pytest.mark.parametrize("given", [{}, {"name": ""}, {"name": "x" * 101}, {"name": 5}, BODY | {"preselected": True}])
def test_other_bodies_are_refused(api: Api, given: dict[str, Any]) -> None:
    assert api.post("/v1/locations", given).status == 422
    assert Location.objects.count() == 1


def test_neither_the_token_nor_a_credential_is_stored(api: Api) -> None:
    token = api.post("/v1/locations", BODY).json["join_token"]
    joined = Api().post("/v1/agent/join", {"token": token, "name": "probe", "version": "1"}).json["credential"]
    assert (token[:5], joined[:4]) == ("join_", "agk_")
    with connection.cursor() as cursor:
        cursor.execute("SELECT concat((SELECT string_agg(t::text, '') FROM locations_jointoken t), a) FROM "
                       "locations_agent a")  # fmt: skip
        stored = cursor.fetchone()[0]
    assert token[5:21] in stored
    assert token[-52:] not in stored
    assert joined[-52:] not in stored


def test_who_sees_which(user: User, api: Api) -> None:
    project, other = ProjectFactory(owner=user), ProjectFactory(owner=user)
    own, here, there = (
        api.post("/v1/locations", BODY | {"project_id": place}).json["id"]
        for place in (None, project.public_id, other.public_id)
    )
    member = UserFactory()
    project.memberships.create(user=member, role="member", created_at=utc_now())
    fra = shared().public_id
    assert ids(api) == [DEFAULT, own, here, there, fra]
    assert ids(Api.signed_in(member)) == [DEFAULT, here, fra]
    assert ids(Api.with_token(user, project)) == [DEFAULT, here, fra]
    assert ids(Api.signed_in(UserFactory())) == [DEFAULT, fra]
    for_monitors = usable(project_id=project.pk, owner_id=user.pk).order_by("pk").values_list("public_id", flat=True)
    assert list(for_monitors) == [DEFAULT, own, here, fra]
    assert usable(project_id=None, owner_id=member.pk).count() == 2
    delete_project(Caller(user), project.public_id)
    assert usable(project_id=None, owner_id=user.pk).count() == 4, "it belongs to the owner alone now"


def test_project_tokens_only_read(user: User) -> None:
    project = ProjectFactory(owner=user)
    token = Api.with_token(user, project)
    assert token.post("/v1/locations", {"colour": 1}).json["error"] == "session_required"
    assert token.post("/v1/locations/default/join-token").json["error"] == "session_required"


def test_the_plan_limits_private_ones(user: User, api: Api) -> None:
    user.plan = PlanFactory(location_limit=1)
    user.save(update_fields=["plan"])
    assert api.post("/v1/locations", BODY).status == 201
    refused = api.post("/v1/locations", BODY | {"project_id": ProjectFactory(owner=user).public_id})
    assert (refused.status, refused.json["error"], refused.json["limit"]) == (403, "location_limit", 1)
    user.plan = PlanFactory(name="local")
    user.save(update_fields=["plan"])
    assert api.post("/v1/locations", BODY).status == 201


@pytest.mark.django_db(transaction=True)
def test_the_limit_also_holds_for_simultaneous_requests() -> None:
    caller = Caller(UserFactory(plan=PlanFactory(name="free")))
    found = run_concurrently(*[lambda: create_location(caller, BODY, now=utc_now())] * 3)
    assert sum(isinstance(each, LocationLimit) for each in found) == 2
    assert Location.objects.filter(owner=caller.user).count() == 1


def test_online_and_the_version_follow_the_agents(api: Api) -> None:
    now = utc_now()
    office = Location.objects.get(public_id=api.post("/v1/locations", BODY).json["id"])
    path = f"/v1/locations/{office.public_id}"

    def seen() -> tuple[Any, ...]:
        row = api.get(path).json
        return row["agents"], row["online"], row["version"], row["last_seen_at"]

    add_agent(office, version="0.1")
    assert seen() == (1, False, None, None)
    add_agent(office, seen=(late := now - timedelta(seconds=OFFLINE_SEC)), version="0.2")
    assert seen() == (2, False, None, to_ms(late))
    add_agent(office, seen=now, version="0.3", network_down=True)
    assert seen() == (3, False, None, to_ms(now))
    new, old = add_agent(office, seen=now, version="1.10.0"), add_agent(office, seen=now, version="1.9.2")
    assert seen() == (5, True, "1.9.2", to_ms(now))
    fra = add_agent(shared(), seen=now)
    assert online_agents(now) == {office.public_id: [new.pk, old.pk], "fra": [fra.pk]}


def test_shared_ones_are_managed_by_staff(api: Api) -> None:
    agent = add_agent(shared())
    boss = Api.signed_in(create_account(email="boss@example.com", password=PASSWORD, is_staff=True, is_superuser=True))
    requests: list[tuple[str, str, Any]] = [
        ("patch", "", {"preselected": True}),
        ("post", "/join-token", None),
        ("delete", f"/agents/{agent.public_id}", None),
        ("delete", "", None),
    ]
    for method, path, body in requests:
        refused = api.send(method, f"/v1/locations/fra{path}", body)
        assert (refused.status, refused.json["error"]) == (403, "forbidden")
        assert boss.send(method, f"/v1/locations/fra{path}", body).status == 200
    helper = create_account(email="helper@example.com", password=PASSWORD, is_staff=True)
    assert Api.signed_in(helper).patch("/v1/locations/default", {"preselected": False}).status == 403
    assert boss.patch("/v1/locations/default", {"preselected": False, "name": "Default"}).json["preselected"] is False
    assert boss.patch("/v1/locations/default", {"name": "Other"}).status == 422
    assert boss.delete("/v1/locations/default").json["error"] == "location_in_use"
    assert boss.post("/v1/locations/default/join-token").json["error"] == "no_agents"


def test_one_that_monitors_name_is_not_deleted(api: Api, user: User) -> None:
    public_id = api.post("/v1/locations", BODY).json["id"]
    monitor = MonitorFactory(owner=user)
    Monitor.objects.filter(pk=monitor.pk).update(locations=["default", public_id])
    refused = api.delete(f"/v1/locations/{public_id}")
    assert (refused.status, refused.json["error"]) == (409, "location_in_use")
    monitor.delete()
    assert api.delete(f"/v1/locations/{public_id}").status == 200


def test_join_tokens_beyond_the_limit_and_old_ones_are_deleted(api: Api) -> None:
    made = api.post("/v1/locations", BODY).json
    first = JoinToken.objects.get().pk
    issued = [api.post(f"/v1/locations/{made['id']}/join-token") for _ in range(MAX_TOKENS)]
    assert {answer.status for answer in issued} == {200}
    assert len({answer.json["join_token"] for answer in issued}) == MAX_TOKENS
    assert JoinToken.objects.count() == MAX_TOKENS
    assert not JoinToken.objects.filter(pk=first).exists()
    ends = JoinToken.objects.latest("pk").expires_at
    services.delete_old_tokens(ends + timedelta(hours=23))
    assert JoinToken.objects.count() == MAX_TOKENS
    services.delete_old_tokens(ends + timedelta(days=1))
    assert not JoinToken.objects.exists()


def test_agents_are_listed_and_revoked(
    api: Api,
    user: User,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    revoked: list[Agent] = []
    monkeypatch.setattr(services, "on_agent_revoked", [revoked.append])
    public_id = api.post("/v1/locations", BODY).json["id"]
    office = Location.objects.get(public_id=public_id)
    now = utc_now()
    one, two = add_agent(office), add_agent(office, seen=now, name="probe-2")
    path = f"/v1/locations/{public_id}/agents"
    assert api.get(path).json == [
        {"id": one.public_id, "name": "probe-1", "version": "1.0", "last_seen_at": None},
        {"id": two.public_id, "name": "probe-2", "version": "1.0", "last_seen_at": to_ms(now)},
    ]
    foreign = add_agent(shared())
    with django_capture_on_commit_callbacks(execute=True):
        assert api.delete(f"{path}/{one.public_id}").json == {"ok": True}
        assert revoked == []
    assert [agent.name for agent in revoked] == ["probe-1"]
    assert [api.delete(f"{path}/{each.public_id}").status for each in (one, foreign)] == [404, 404]
    assert (last().action, last().details) == ("agent.revoked", {"location": public_id})
    with django_capture_on_commit_callbacks(execute=True):
        assert api.delete(f"/v1/locations/{public_id}").status == 200
    assert [agent.name for agent in revoked] == ["probe-1", "probe-2"]
    assert list(Agent.objects.all()) == [foreign]


@pytest.mark.django_db(transaction=True)
def test_deleted_while_agents_join_and_tokens_are_issued() -> None:
    caller = Caller(UserFactory())

    def race() -> None:
        location, token = create_location(caller, BODY, now=utc_now())
        deleted, *others = run_concurrently(
            lambda: delete_location(caller, location.public_id),
            lambda: join(token=token, name="probe", version="1", protocol=1, now=utc_now()),
            lambda: issue_join_token(caller, location.public_id, now=utc_now()),
        )
        assert deleted is None
        for other in others:
            if isinstance(other, ApiError):
                assert other.code in ("not_found", "join_token_invalid")

    for _ in range(8):
        race()
    assert Location.objects.filter(owner=caller.user).count() == Agent.objects.count() == JoinToken.objects.count() == 0


def test_a_hook_prevents_a_deletion(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(location: Location) -> None:
        raise LocationInUse(f"{location} is in use.")

    monkeypatch.setattr(services, "before_location_deleted", [refuse])
    refused = api.delete(f"/v1/locations/{api.post('/v1/locations', BODY).json['id']}")
    assert refused.error == "location_in_use Office is in use."

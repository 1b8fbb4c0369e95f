"""/v1/incidents: each field, permissions, and actions on incidents."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from accounts.models import User
from core.clock import to_ms
from incidents.models import Incident, IncidentEvent
from incidents.services import acknowledge, comment, resolve
from monitors.models import Monitor
from projects.access import Caller
from projects.models import Project
from tests.api.client import Api
from tests.factories import IncidentFactory, MembershipFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, run_concurrently

PATH = "/v1/incidents"
NOW = to_ms(NOON)
FIELDS = [
    *("id", "monitor_id", "project_id", "title", "status", "reason_code", "detail"),
    *("started_at", "confirmed_at", "acknowledged_at", "resolved_at", "resolution", "caused_by"),
    *("acknowledged_by", "escalation"),
]


def make_incident(monitor: Monitor, *, resolution: str | None = None, **fields: Any) -> Incident:
    """Create an incident, as an outage of a monitor does."""
    found = {
        "reason_code": "http_failure",
        "detail": "Answered 500.",
        "started_at": NOON,
        "confirmed_at": NOON + timedelta(minutes=2),
        "resolved_at": NOON + timedelta(minutes=9) if resolution else None,
        "resolution": resolution,
    }
    return IncidentFactory(monitor=monitor, **found | fields)


def declared(api: Api, **given: Any) -> Any:
    answer = api.post(PATH, {"title": "Late orders", "text": "The queue is behind."} | given)
    assert answer.status == 201
    return answer.json


def ids(answer: Any) -> list[str]:
    assert answer.status == 200
    return [incident["id"] for incident in answer.json]


def test_the_object_of_decision_45(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(owner=user, name="Shop", project=project)
    incident = make_incident(monitor, evidence={"address": "192.0.2.7:443", "headers": [["server", "x"]]})
    kinds = IncidentEvent.Type
    for kind, text, at, data in (
        (kinds.FIRST_FAILURE, "The first check failed.", NOON, {}),
        (kinds.CONFIRMED, "Down.", NOON + timedelta(minutes=2), {"failures": 3}),
        (kinds.SUPPRESSED, "Muted.", NOON, {"reason": "muted"}),
    ):
        incident.events.create(type=kind, text=text, at=at, data=data)
    (listed,) = api.get(PATH).json
    assert listed == {
        "id": incident.public_id,
        "monitor_id": monitor.public_id,
        "project_id": project.public_id,
        "title": "Shop",
        "status": "open",
        "reason_code": "http_failure",
        "detail": "Answered 500.",
        "started_at": NOW,
        "confirmed_at": NOW + 120_000,
        "acknowledged_at": None,
        "resolved_at": None,
        "resolution": None,
        "caused_by": None,
        "acknowledged_by": None,
        "escalation": None,
    }
    assert list(listed) == FIELDS
    shown = api.get(f"{PATH}/{incident.public_id}").json
    events = shown.pop("events")
    evidence = shown.pop("evidence")
    assert shown == listed
    assert (evidence["address"], evidence["headers"], evidence["body"]) == (
        "192.0.2.7:443",
        [{"name": "server", "value": "x"}],
        None,
    )
    assert [(e["type"], e["at"], e["text"], e["data"]) for e in events] == [
        ("first_failure", NOW, "The first check failed.", {}),
        ("confirmed", NOW + 120_000, "Down.", {"failures": 3}),
        ("suppressed", NOW, "Muted.", {"reason": "muted"}),
    ]
    assert len({e["id"] for e in events}) == 3
    assert all(e["id"].startswith("evt_") for e in events)


def test_what_caused_one_is_shown_to_those_who_can_access_it(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    cause = make_incident(MonitorFactory(owner=user))
    effect = make_incident(MonitorFactory(project=project), caused_by=cause)
    assert api.get(f"{PATH}/{effect.public_id}").json["caused_by"] == cause.public_id
    assert [each["caused_by"] for each in api.get(PATH).json] == [cause.public_id, None]
    helper = UserFactory()
    MembershipFactory(project=project, user=helper)
    assert [each["caused_by"] for each in Api.signed_in(helper).get(PATH).json] == [None]


@pytest.mark.parametrize("resolution", ["recovered", "paused", "deleted"])
def test_a_resolved_one(api: Api, user: User, resolution: str) -> None:
    incident = make_incident(MonitorFactory(owner=user), resolution=resolution)
    shown = api.get(f"{PATH}/{incident.public_id}").json
    assert (shown["status"], shown["resolution"], shown["resolved_at"], shown["evidence"]) == (
        "resolved",
        resolution,
        NOW + 540_000,
        None,
    )


def test_filters(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    inside, own = MonitorFactory(owner=user, project=project), MonitorFactory(owner=user)
    first = make_incident(inside, resolution="recovered").public_id
    second = make_incident(inside).public_id
    third = make_incident(own).public_id
    fourth = declared(api, project_id=project.public_id)["id"]
    assert ids(api.get(PATH)) == [fourth, third, second, first], "newest first"
    assert ids(api.get(f"{PATH}?monitor_id={inside.public_id}")) == [second, first]
    assert ids(api.get(f"{PATH}?project_id={project.public_id}")) == [fourth, second, first]
    assert ids(api.get(f"{PATH}?status=open")) == [fourth, third, second]
    assert ids(api.get(f"{PATH}?status=resolved&monitor_id={inside.public_id}")) == [first]
    foreign = make_incident(MonitorFactory())
    for query in (f"monitor_id={foreign.monitor_public_id}", "monitor_id=mon_x", "project_id=prj_x"):
        assert ids(api.get(f"{PATH}?{query}")) == []
    for query in ("status=closed", "status=", "limit=0", "limit=1001", "cursor=x", "monitor_id=", "project_id=%00"):
        assert (api.get(f"{PATH}?{query}").status, query) == (422, query)


def test_pages_newest_first(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user)
    made = [make_incident(monitor, resolution="recovered").public_id for _ in range(102)][::-1]
    first = api.get(PATH)
    assert ids(first) == made[:100]
    make_incident(monitor)  # a newer one shifts nothing
    following = first.headers["Link"].split(">")[0].removeprefix("<http://testserver")
    rest = api.get(following)
    assert (ids(rest), "Link" in rest.headers) == (made[100:], False)
    assert len(api.get(f"{PATH}?limit=1000").json) == 103


def test_seen_by_who_sees_the_monitor_now(api: Api, user: User) -> None:
    friend = UserFactory()
    project = ProjectFactory(owner=user, member=friend)
    monitor = MonitorFactory(owner=user, project=project)
    incident = make_incident(monitor)
    theirs, token = Api.signed_in(friend), Api.with_token(user, project)
    path = f"{PATH}/{incident.public_id}"
    assert [caller.get(path).status for caller in (api, theirs, token)] == [200, 200, 200]
    assert api.patch(f"/v1/monitors/{monitor.public_id}", {"project_id": None}).status == 200
    assert [caller.get(path).status for caller in (api, theirs, token)] == [200, 404, 404]
    assert api.get(path).json["project_id"] is None
    assert ids(theirs.get(PATH)) == ids(token.get(PATH)) == []


def test_that_of_a_deleted_monitor_stays_with_its_owner_and_project(api: Api, user: User) -> None:
    friend = UserFactory()
    project = ProjectFactory(owner=user, member=friend)
    monitor = MonitorFactory(owner=user, project=project)
    incident = make_incident(monitor, resolution="deleted")
    assert api.delete(f"/v1/monitors/{monitor.public_id}").status == 200
    for caller in (api, Api.signed_in(friend), Api.with_token(user, project)):
        (shown,) = caller.get(f"{PATH}?monitor_id={monitor.public_id}").json
        assert (shown["id"], shown["monitor_id"], shown["project_id"]) == (
            incident.public_id,
            monitor.public_id,
            project.public_id,
        )
    stranger = Api.signed_in(UserFactory())
    assert stranger.get(f"{PATH}/{incident.public_id}").status == 404
    answer = api.post(f"{PATH}/{incident.public_id}/resolve")
    assert (answer.status, answer.json["error"]) == (409, "resolves_by_itself")


def test_acknowledging(api: Api, user: User) -> None:
    incident = make_incident(MonitorFactory(owner=user))
    path = f"{PATH}/{incident.public_id}"
    first = api.post(f"{path}/acknowledge")
    assert (first.status, first.json["acknowledged_at"] is not None) == (200, True)
    (entry,) = first.json["events"]
    assert (entry["type"], entry["text"], entry["data"]) == (
        "acknowledged",
        f"Acknowledged by {user.email}.",
        {"by": user.email},
    )
    assert entry["at"] == first.json["acknowledged_at"]
    again = api.post(f"{path}/acknowledge")
    assert (again.status, again.json) == (200, first.json)
    Incident.objects.update(resolved_at=NOON, resolution="recovered")
    late = api.post(f"{path}/acknowledge")
    assert (late.status, late.json["error"]) == (409, "incident_resolved")
    assert IncidentEvent.objects.count() == 1


def test_commenting(api: Api, user: User) -> None:
    incident = make_incident(MonitorFactory(owner=user), resolution="recovered")
    path = f"{PATH}/{incident.public_id}/comments"
    text = "Ünïcode, <b>markup</b>\nand lines are kept: " + "x" * 1950
    answer = api.post(path, {"text": text})
    (entry,) = answer.json["events"]
    assert (answer.status, entry["type"], entry["text"], entry["data"]) == (200, "commented", text, {"by": user.email})
    for wrong in ({}, {"text": ""}, {"text": None}, {"text": 5}, {"text": "x" * 2001}, {"text": "a", "by": "b"}):
        refused = api.post(path, wrong)
        assert (refused.status, refused.json["error"], wrong) == (422, "validation_error", wrong)
    assert len(api.post(path, {"text": "second"}).json["events"]) == 2
    assert api.post(f"{PATH}/inc_nothing/comments", {}).status == 404


def test_declared_commented_and_resolved(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    shown = declared(api, project_id=project.public_id)
    assert {name: shown[name] for name in FIELDS} | {"id": "", "started_at": 0} == {
        "id": "",
        "monitor_id": None,
        "project_id": project.public_id,
        "title": "Late orders",
        "status": "open",
        "reason_code": None,
        "detail": "The queue is behind.",
        "started_at": 0,
        "confirmed_at": None,
        "acknowledged_at": None,
        "resolved_at": None,
        "resolution": None,
        "caused_by": None,
        "acknowledged_by": None,
        "escalation": None,
    }
    path = f"{PATH}/{shown['id']}"
    assert api.post(f"{path}/acknowledge").status == 200
    assert api.post(f"{path}/comments", {"text": "Half done."}).status == 200
    done = api.post(f"{path}/resolve")
    assert (done.status, done.json["status"], done.json["resolution"]) == (200, "resolved", "closed")
    assert [(e["type"], e["text"], e["data"]) for e in done.json["events"]] == [
        ("declared", "The queue is behind.", {"by": user.email}),
        ("acknowledged", f"Acknowledged by {user.email}.", {"by": user.email}),
        ("commented", "Half done.", {"by": user.email}),
        ("resolved", f"Resolved by {user.email}.", {"by": user.email}),
    ]
    again = api.post(f"{path}/resolve")
    assert (again.status, again.json) == (200, done.json)
    assert api.post(f"{path}/acknowledge").json["error"] == "incident_resolved"


def test_a_monitors_incident_is_not_resolved_by_hand(api: Api, user: User) -> None:
    incident = make_incident(MonitorFactory(owner=user))
    answer = api.post(f"{PATH}/{incident.public_id}/resolve")
    assert (answer.status, answer.json["error"]) == (409, "resolves_by_itself")
    incident.refresh_from_db()
    assert incident.is_open


@pytest.mark.parametrize(
    "wrong",
    [
        {"title": ""},
        {"title": "x" * 201},
        {"title": None},
        {"text": ""},
        {"text": "x" * 2001},
        {"text": ["a"]},
        {"project_id": "prj_x"},
        {"project_id": ""},
        {"monitor_id": "mon_x"},
    ],
    ids=lambda wrong: str(wrong)[:30],
)
def test_what_cannot_be_declared(api: Api, wrong: dict[str, Any]) -> None:
    answer = api.post(PATH, {"title": "a", "text": "b"} | wrong)
    assert (answer.status, answer.json["error"]) == (422, "validation_error")
    assert answer.json["reason"].startswith(f"{next(iter(wrong))}: ")
    assert not Incident.objects.exists()


def test_declared_without_a_project_is_the_callers_own(api: Api, user: User) -> None:
    own = declared(api, project_id=None)
    assert own["project_id"] is None
    assert Api.signed_in(UserFactory()).get(f"{PATH}/{own['id']}").status == 404
    assert Api.with_token(user, ProjectFactory(owner=user)).get(f"{PATH}/{own['id']}").status == 404


def test_a_project_token_declares_in_its_project(user: User) -> None:
    project, other = ProjectFactory(owner=user), ProjectFactory(owner=user)
    token = Api.with_token(user, project)
    assert declared(token)["project_id"] == project.public_id
    for project_id in (None, other.public_id):
        answer = token.post(PATH, {"title": "a", "text": "b", "project_id": project_id})
        assert answer.error == "validation_error project_id: a project token works only in its own project."


def test_declared_once_under_a_key(api: Api) -> None:
    body = {"title": "Late orders", "text": "b"}
    first, again = api.post(PATH, body, key="k1"), api.post(PATH, body, key="k1")
    assert (first.status, again.status, again.text) == (201, 201, first.text)
    assert (Incident.objects.count(), IncidentEvent.objects.count()) == (1, 1)


def test_what_a_member_declares_is_the_projects(user: User, api: Api) -> None:
    friend = UserFactory()
    project: Project = ProjectFactory(owner=user, member=friend)
    shown = declared(Api.signed_in(friend), project_id=project.public_id)
    assert api.post(f"{PATH}/{shown['id']}/resolve").status == 200
    assert Incident.objects.get().owner == user


@pytest.mark.django_db(transaction=True)
def test_acknowledged_and_resolved_at_once() -> None:
    user = UserFactory()
    caller = Caller(user)

    def race() -> None:
        incident = IncidentFactory(monitor=None, owner=user, name="Late")
        outcomes = run_concurrently(
            *[lambda: acknowledge(caller, incident.public_id, now=NOON)] * 3,
            *[lambda: resolve(caller, incident.public_id, now=NOON)] * 3,
            lambda: comment(caller, incident.public_id, text="Hm.", now=NOON),
        )
        assert all(isinstance(outcome, Incident) for outcome in outcomes[3:])
        incident.refresh_from_db()
        kinds = sorted(incident.events.values_list("type", flat=True))
        acknowledged = ["acknowledged"] if incident.acknowledged_at else []
        assert kinds == [*acknowledged, "commented", "resolved"]

    for _ in range(5):
        race()

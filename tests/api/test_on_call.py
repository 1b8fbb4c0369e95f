"""On-call schedules, escalation policies and contacts over the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import time_machine

from accounts.models import User
from alerts.models import AlertChannel
from audit.models import Entry
from core.clock import to_ms
from oncall import services
from oncall.models import Contact, EscalationPolicy, OnCallSchedule
from oncall.selectors import calendar_digest, contact_rules, schedule_of_calendar
from projects.access import Caller
from projects.members import remove_member
from projects.models import Membership, Project
from tests.api.client import Api
from tests.factories import ChannelFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON

SCHEDULES, POLICIES, CONTACT = "/v1/on-call-schedules", "/v1/escalation-policies", "/v1/account/contact"
NOW, HOUR, DAY = to_ms(NOON), 3_600_000, 86_400_000
WEEKLY = {"unit": "week", "count": 1}


@pytest.fixture(autouse=True)
def _at_noon(db: None) -> Iterator[None]:
    with time_machine.travel(NOON, tick=False):
        yield


@pytest.fixture
def friend(db: None) -> User:
    return UserFactory()


@pytest.fixture
def project(user: User, friend: User) -> Project:
    return ProjectFactory(owner=user, member=friend)


def layer(*people: User, **given: Any) -> dict[str, Any]:
    return {"user_ids": [one.public_id for one in people], "every": WEEKLY, "starts_at": NOW, "hours": []} | given


def schedule(*people: User, **given: Any) -> dict[str, Any]:
    return {"name": "Backend", "timezone": "Europe/Berlin", "layers": [layer(*people)], "overrides": []} | given


def to(row: Any) -> dict[str, str]:
    kind = {User: "user", OnCallSchedule: "schedule", AlertChannel: "channel"}[type(row)]
    return {"type": kind, "id": row.public_id}


def policy(*targets: Any, **given: Any) -> dict[str, Any]:
    return {"name": "Backend", "steps": [{"after_min": 0, "targets": [to(one) for one in targets]}]} | given


def make_schedule(owner: User, project: Project | None, *people: User) -> OnCallSchedule:
    given = schedule(*people) | {"project_id": project and project.public_id}
    return services.create_schedule(Caller(owner), given, now=NOON)


def test_a_whole_schedule(api: Api, user: User, friend: User, project: Project) -> None:
    hours = [{"days": [5, 1], "from": "22:00", "to": "06:00"}]
    given = schedule(user, friend, project_id=project.public_id)
    given["layers"] += [layer(friend, hours=hours, every={"unit": "hour", "count": 12})]
    given["overrides"] = [{"user_id": friend.public_id, "starts_at": NOW, "ends_at": NOW + HOUR}]
    made = api.post(SCHEDULES, given)
    assert made.status == 201, made.text
    given["layers"][1]["hours"][0]["days"] = [1, 5]
    assert made.json == given | {"id": OnCallSchedule.objects.get().public_id, "created_at": NOW}
    path = f"{SCHEDULES}/{made.json['id']}"
    assert (api.get(path).json, api.get(SCHEDULES).json) == (made.json, [made.json])
    assert api.get(path).headers["ETag"] == made.headers["ETag"]

    # What was read can be sent back.
    assert api.patch(path, made.json).json == made.json
    changed = api.patch(path, {"name": "Frontend", "timezone": "Asia/Kolkata", "overrides": []})
    assert changed.json == made.json | {"name": "Frontend", "timezone": "Asia/Kolkata", "overrides": []}
    stale = api.send("patch", path, {"name": "Both"}, if_match=made.headers["ETag"])
    assert (stale.status, stale.json["error"]) == (412, "changed_meanwhile")
    assert api.send("delete", path, if_match=made.headers["ETag"]).status == 412
    assert (api.delete(path).status, api.get(path).status) == (200, 404)
    assert [entry.action for entry in Entry.objects.filter(action__startswith="schedule").order_by("pk")] == [
        "schedule.created",
        *["schedule.updated"] * 2,
        "schedule.deleted",
    ]


def test_only_the_name_and_layers_are_required(api: Api, user: User) -> None:
    short = {key: value for key, value in layer(user).items() if key != "hours"}
    made = api.post(SCHEDULES, {"name": "Alone", "layers": [short]}, key="once")
    assert made.json["timezone"] == "UTC"
    assert made.json["layers"] == [short | {"hours": []}]
    assert api.post(SCHEDULES, {"name": "Alone", "layers": [short]}, key="once").json == made.json
    assert OnCallSchedule.objects.count() == 1


FIRST = {"user_ids": ["usr_x"], "every": WEEKLY, "starts_at": 0}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"name": ""}, "name: "),
        ({"timezone": "Europe/Atlantis"}, "timezone: is not a time zone"),
        ({"timezone": "../etc/passwd"}, "timezone: is not a time zone"),
        ({"timezone": None}, "timezone: "),
        ({"layers": []}, "layers: "),
        ({"layers": [FIRST] * 11}, "layers: "),
        ({"layers": [{}]}, "layers[0].user_ids: "),
        ({"layers": [FIRST | {"user_ids": []}]}, "layers[0].user_ids: "),
        ({"layers": [FIRST | {"user_ids": ["x"] * 51}]}, "layers[0].user_ids: "),
        ({"layers": [FIRST | {"starts_at": -1}]}, "layers[0].starts_at: "),
        ({"layers": [FIRST | {"starts_at": 1.5}]}, "layers[0].starts_at: "),
        ({"layers": [FIRST | {"every": {"unit": "month", "count": 1}}]}, "layers[0].every.unit: "),
        ({"layers": [FIRST | {"every": {"unit": "hour", "count": 0}}]}, "layers[0].every.count: "),
        ({"layers": [FIRST | {"every": {"unit": "hour", "count": 169}}]}, "layers[0].every.count: "),
        ({"layers": [FIRST | {"every": {"unit": "day", "count": 91}}]}, "layers[0].every.count: at most 90"),
        ({"layers": [FIRST | {"every": {"unit": "week", "count": 53}}]}, "layers[0].every.count: at most 52"),
        ({"layers": [FIRST | {"colour": "red"}]}, "layers[0].colour: is not a field"),
        ({"layers": [FIRST]}, "layers[0].user_ids[0]: is not a member"),
        (
            {"layers": [FIRST | {"hours": [{"days": [8], "from": "00:00", "to": "01:00"}]}]},
            "layers[0].hours[0].days[0]",
        ),
        ({"layers": [FIRST | {"hours": [{"days": [], "from": "00:00", "to": "01:00"}]}]}, "layers[0].hours[0].days"),
        ({"layers": [FIRST | {"hours": [{"days": [1], "from": "00:00"}]}]}, "layers[0].hours[0].to"),
        ({"overrides": [{"user_id": "usr_x", "starts_at": 0, "ends_at": 1}]}, "overrides[0].user_id: "),
        ({"overrides": [{"user_id": "usr_x", "starts_at": 0, "ends_at": 1}] * 501}, "overrides: "),
        ({"overrides": "none"}, "overrides: "),
        ({"colour": "red"}, "colour: "),
    ],
)
def test_other_schedules_are_refused(api: Api, user: User, given: dict[str, Any], reason: str) -> None:
    made = api.post(SCHEDULES, schedule(user))
    for answer in (api.post(SCHEDULES, schedule(user) | given), api.patch(f"{SCHEDULES}/{made.json['id']}", given)):
        assert (answer.status, answer.json["error"]) == (422, "validation_error")
        assert answer.json["reason"].startswith(reason), answer.json["reason"]


def test_hours_and_overrides_have_to_make_sense(api: Api, user: User) -> None:
    bad = [{"days": [1], "from": "7:00", "to": "24:00"}]
    answer = api.post(SCHEDULES, schedule(user, layers=[layer(user, hours=bad)]))
    assert answer.error.startswith("validation_error layers[0].hours: [0].from must be a time")
    backwards = {"user_id": user.public_id, "starts_at": NOW, "ends_at": NOW}
    answer = api.post(SCHEDULES, schedule(user, overrides=[backwards]))
    assert answer.error == "validation_error overrides[0].ends_at: must be after starts_at."


def test_only_those_of_its_place_are_on_call(api: Api, user: User, friend: User, project: Project) -> None:
    stranger = UserFactory()
    assert api.post(SCHEDULES, schedule(friend)).status == 422  # without a project it is the owner's alone
    assert api.post(SCHEDULES, schedule(stranger, project_id=project.public_id)).status == 422
    made = api.post(SCHEDULES, schedule(user, friend, project_id=project.public_id)).json
    path = f"{SCHEDULES}/{made['id']}"
    assert api.patch(path, {"project_id": None}).error.startswith("validation_error project_id: cannot be changed")
    place = Membership.objects.get(project=project, user=friend)
    assert api.get(f"/v1/projects/{project.public_id}/members").json[1]["user_id"] == friend.public_id
    remove_member(Caller(user), project.public_id, place.public_id, now=NOON)
    # Their turns remain, and the next one takes them; they cannot be added again.
    assert api.patch(path, {"layers": made["layers"][::-1], "name": "New"}).json["layers"] == made["layers"]
    assert api.get(f"{path}/shifts?from={NOW}&to={NOW + 14 * DAY}").json == [
        {"starts_at": NOW, "ends_at": NOW + 14 * DAY, "user_id": user.public_id, "layer": 0}
    ]
    api.patch(path, {"layers": [layer(user)]})
    assert api.patch(path, {"layers": made["layers"]}).status == 422
    assert Api.signed_in(friend).get(path).status == 404


def test_shifts_and_now(api: Api, user: User, friend: User, project: Project) -> None:
    given = schedule(user, friend, project_id=project.public_id)
    given["overrides"] = [{"user_id": user.public_id, "starts_at": NOW + 8 * DAY, "ends_at": NOW + 9 * DAY}]
    path = f"{SCHEDULES}/{api.post(SCHEDULES, given).json['id']}"
    shifts = api.get(f"{path}/shifts?from={NOW - DAY}&to={NOW + 14 * DAY}").json
    assert [((one["starts_at"] - NOW) // DAY, one["user_id"], one["layer"]) for one in shifts] == [
        (0, user.public_id, 0),
        (7, friend.public_id, 0),
        (8, user.public_id, None),
        (9, friend.public_id, 0),
    ]
    assert api.get(f"{path}/now").json == {
        "user_id": user.public_id,
        "until": NOW + 7 * DAY,
        "next_user_id": friend.public_id,
        "next_at": NOW + 7 * DAY,
    }
    assert len(api.get(f"{path}/shifts").json) == 7
    for query in (f"from={NOW}&to={NOW + 367 * DAY}", f"from={NOW}&to={NOW - 1}", "from=soon", "to=-1"):
        assert api.get(f"{path}/shifts?{query}").status == 422, query
    assert api.get(f"{path}/shifts?from={NOW}&to={NOW}").json == []
    with time_machine.travel(NOON.replace(year=2000), tick=False):
        assert set(api.get(f"{path}/now").json.values()) == {None}


def test_the_address_of_a_calendar(api: Api, user: User) -> None:
    made = make_schedule(user, None, user)
    urls = [api.post(f"{SCHEDULES}/{made.public_id}/calendar").json["url"] for _ in range(2)]
    first, second = (url.rpartition("/calendar/")[2].removesuffix(".ics") for url in urls)
    assert (len(first), first != second) == (52, True)
    assert schedule_of_calendar(second) == made
    assert not OnCallSchedule.objects.filter(calendar_digest=calendar_digest(first)).exists()
    made.refresh_from_db()
    assert second.encode() not in bytes(made.calendar_digest or b"")


def test_overrides_that_pages_add(user: User, friend: User) -> None:
    project, caller = ProjectFactory(owner=user, member=friend), Caller(user)
    made = make_schedule(user, project, user)
    span = {"starts_at": NOW, "ends_at": NOW + HOUR}
    added = [{"user_id": one.public_id} | span for one in (friend, user)]
    for override in added:
        services.add_override(caller, made.public_id, override)
    for _ in range(2):
        left = services.remove_override(caller, made.public_id, added[0])
    assert left.overrides == added[1:]
    OnCallSchedule.objects.update(overrides=[added[0]] + [added[1]] * 499)
    later = {"user_id": user.public_id, "starts_at": NOW + HOUR, "ends_at": NOW + 2 * HOUR}
    assert services.add_override(caller, made.public_id, later).overrides == [added[1]] * 499 + [later]


def test_a_whole_policy(api: Api, user: User, friend: User, project: Project) -> None:
    backend = make_schedule(user, project, friend)
    channel = ChannelFactory(owner=user, project=project)
    given = policy(user, backend, channel, project_id=project.public_id, repeat=9, acknowledge_timeout_min=1440)
    given["steps"] += [{"after_min": 1440, "targets": [to(friend)]}]
    made = api.post(POLICIES, given)
    assert made.status == 201, made.text
    own = {"id": EscalationPolicy.objects.get().public_id, "created_at": NOW, "reaches_no_one": False}
    assert made.json == given | own
    path = f"{POLICIES}/{made.json['id']}"
    assert (api.get(path).json, api.get(POLICIES).json) == (made.json, [made.json])
    assert api.patch(path, made.json).json == made.json
    assert api.patch(path, {"repeat": 0}).json == made.json | {"repeat": 0}
    assert api.send("delete", path, if_match=made.headers["ETag"]).status == 412
    assert api.patch(path, {"project_id": None}).status == 422
    assert (api.delete(path).status, api.get(path).status) == (200, 404)


STEP: dict[str, Any] = {"after_min": 0, "targets": [{"type": "user", "id": "usr_x"}]}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"name": ""}, "name: "),
        ({"steps": []}, "steps: "),
        ({"steps": [STEP] * 11}, "steps: "),
        ({"steps": [STEP | {"after_min": 1441}]}, "steps[0].after_min: "),
        ({"steps": [STEP | {"after_min": None}]}, "steps[0].after_min: "),
        ({"steps": [STEP | {"targets": []}]}, "steps[0].targets: "),
        ({"steps": [STEP | {"targets": STEP["targets"] * 11}]}, "steps[0].targets: "),
        ({"steps": [STEP]}, "steps[0].targets[0].id: user not found"),
        ({"steps": [STEP | {"targets": [{"type": "team", "id": "x"}]}]}, "steps[0].targets[0].type: "),
        ({"steps": [STEP | {"targets": [{"type": "channel", "id": "x\0"}]}]}, "steps[0].targets[0].id: "),
        ({"repeat": 10}, "repeat: "),
        ({"repeat": True}, "repeat: "),
        ({"acknowledge_timeout_min": 1441}, "acknowledge_timeout_min: "),
        ({"reach": "all"}, "reach: "),
    ],
)
def test_other_policies_are_refused(api: Api, user: User, given: dict[str, Any], reason: str) -> None:
    made = api.post(POLICIES, policy(user))
    for answer in (api.post(POLICIES, policy(user) | given), api.patch(f"{POLICIES}/{made.json['id']}", given)):
        assert (answer.status, answer.json["error"]) == (422, "validation_error")
        assert answer.json["reason"].startswith(reason), answer.json["reason"]


def test_targets_are_of_the_same_place(api: Api, user: User, friend: User, project: Project) -> None:
    elsewhere, stranger = ProjectFactory(owner=user), UserFactory()
    own, ours, others, theirs = (
        ChannelFactory(owner=owner, project=place)
        for owner, place in [(user, None), (user, project), (user, elsewhere), (stranger, None)]
    )
    here = {"project_id": project.public_id}
    for targets, status in [((own, ours), 201), ((others,), 422), ((theirs,), 422), ((stranger,), 422)]:
        assert api.post(POLICIES, policy(*targets, **here)).status == status, targets
    for targets, status in [((own, user), 201), ((ours,), 422), ((friend,), 422)]:
        assert api.post(POLICIES, policy(*targets)).status == status, targets
    # A member does not see the owner's own channel, and may leave it where it is.
    member = Api.signed_in(friend)
    assert member.post(POLICIES, policy(own, **here)).error.endswith("steps[0].targets[0].id: channel not found.")
    path = f"{POLICIES}/{EscalationPolicy.objects.filter(project=project).get().public_id}"
    steps = member.get(path).json["steps"]
    steps[0]["after_min"] = 5
    assert member.patch(path, {"steps": steps}).json["steps"] == steps


def test_what_is_gone_is_left_out(api: Api, user: User, friend: User, project: Project) -> None:
    channel, backend = ChannelFactory(owner=user, project=project), make_schedule(user, project, friend)
    given = policy(friend, project_id=project.public_id)
    given["steps"] += [{"after_min": 5, "targets": [to(channel), to(backend)]}]
    made = api.post(POLICIES, given).json
    path = f"{POLICIES}/{made['id']}"
    place = Membership.objects.get(project=project, user=friend)
    remove_member(Caller(user), project.public_id, place.public_id, now=NOON)
    assert api.get(path).json == made | {"steps": [STEP | {"targets": []}, made["steps"][1]]}
    assert api.delete(f"/v1/alert-channels/{channel.public_id}").status == 200
    assert api.get(path).json["reaches_no_one"]  # the only person of the schedule has left
    assert api.delete(f"{SCHEDULES}/{backend.public_id}").status == 200
    found = api.get(path).json
    assert [step["targets"] for step in found["steps"]] == [[], []]
    assert api.patch(path, found | {"name": "New"}).json == found | {"name": "New"}
    found["steps"][0]["after_min"] = 1
    assert api.patch(path, {"steps": found["steps"]}).error.endswith("steps[0].targets: needs at least one target.")


def test_a_policy_reaches_no_one_without_contacts(api: Api, user: User) -> None:
    path = f"{POLICIES}/{api.post(POLICIES, policy(user)).json['id']}"
    assert not api.get(path).json["reaches_no_one"]
    assert api.send("put", CONTACT, {"rules": []}).status == 200
    assert api.get(path).json["reaches_no_one"]
    channel = ChannelFactory(owner=user)
    api.send("put", CONTACT, {"rules": [{"after_min": 0, "channel_id": channel.public_id}]})
    assert not api.get(path).json["reaches_no_one"]
    api.patch(f"/v1/alert-channels/{channel.public_id}", {"enabled": False})
    assert api.get(path).json["reaches_no_one"]


def test_a_contact(api: Api, user: User) -> None:
    own = AlertChannel.objects.get(owner=user)
    usual = [{"after_min": 0, "channel_id": own.public_id}]
    before = api.get(CONTACT)
    assert before.json == {"rules": usual}
    hook, other = ChannelFactory(owner=user), ChannelFactory()
    ours = ChannelFactory(owner=user, project=ProjectFactory(owner=user))
    rules = [{"after_min": 0, "channel_id": hook.public_id}, {"after_min": 60, "channel_id": own.public_id}]
    assert api.send("put", CONTACT, {"rules": rules}, if_match=before.headers["ETag"]).json == {"rules": rules}
    assert api.get(CONTACT).json == {"rules": rules}
    assert api.send("put", CONTACT, {"rules": []}, if_match=before.headers["ETag"]).status == 412
    assert contact_rules([user]) == {user: rules}
    for channel in (other, ours):
        answer = api.send("put", CONTACT, {"rules": [rules[0] | {"channel_id": channel.public_id}]})
        assert answer.error.startswith("validation_error rules[0].channel_id: must be an alert channel of your own")
    too_late = rules[0] | {"after_min": 61}
    bad: list[Any] = [None, rules * 6, [too_late], [{}], "all"]
    for given in bad:
        assert api.send("put", CONTACT, {"rules": given}).status == 422, given
    assert api.send("put", CONTACT, {}).status == 422
    assert api.delete(f"/v1/alert-channels/{hook.public_id}").status == 200
    assert api.get(CONTACT).json == {"rules": rules[1:]}
    AlertChannel.objects.filter(pk=own.pk).update(confirmed_at=None)
    assert contact_rules([user]) == {user: []}
    assert api.send("put", CONTACT, {"rules": []}).json == api.get(CONTACT).json == {"rules": []}
    Contact.objects.all().delete()
    assert api.get(CONTACT).json == {"rules": []}  # not confirmed
    assert api.delete(f"/v1/alert-channels/{own.public_id}").status == 200
    assert api.get(CONTACT).json == {"rules": []}


@pytest.mark.parametrize(("path", "limit"), [(SCHEDULES, "MAX_SCHEDULES"), (POLICIES, "MAX_POLICIES")])
def test_an_account_has_a_limited_number(
    api: Api, user: User, monkeypatch: pytest.MonkeyPatch, path: str, limit: str
) -> None:
    assert getattr(services, limit) == 50
    monkeypatch.setattr(services, limit, 1)
    body = schedule(user) if path == SCHEDULES else policy(user)
    answers = [api.post(path, body) for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 403]
    assert (answers[1].json["error"], answers[1].json["limit"]) == ("limit_reached", 1)


def make_policy(owner: User, project: Project | None) -> EscalationPolicy:
    given = policy(owner) | {"project_id": project and project.public_id}
    return services.create_policy(Caller(owner), given, now=NOON)


def test_the_policy_of_a_monitor(api: Api, user: User, friend: User, project: Project) -> None:
    ours, own, theirs = make_policy(user, project), make_policy(user, None), make_policy(friend, None)
    elsewhere = ProjectFactory(owner=user)
    given = {"type": "heartbeat", "project_id": project.public_id, "escalation_policy_id": ours.public_id}
    made = api.post("/v1/monitors", given)
    assert (made.status, made.json["escalation_policy_id"]) == (201, ours.public_id)
    path = f"/v1/monitors/{made.json['id']}"
    first = api.get(path)
    assert first.json["escalation_policy_id"] == ours.public_id
    changed = api.patch(path, {"escalation_policy_id": own.public_id})
    assert changed.json["escalation_policy_id"] == own.public_id
    assert changed.headers["ETag"] != first.headers["ETag"]
    for bad in (theirs.public_id, make_policy(user, elsewhere).public_id, "esc_x", "esc_\0"):
        for answer in (
            api.patch(path, {"escalation_policy_id": bad}),
            api.post("/v1/monitors", given | {"escalation_policy_id": bad}),
        ):
            assert answer.error.startswith("validation_error escalation_policy_id: "), bad
    # Another member cannot name the owner's own, but can send back what is stored.
    member = Api.signed_in(friend)
    assert member.patch(path, {"escalation_policy_id": own.public_id, "name": "Cron"}).status == 200
    assert member.patch(path, {"escalation_policy_id": None}).json["escalation_policy_id"] is None
    answer = member.patch(path, {"escalation_policy_id": own.public_id})
    assert answer.error == "validation_error escalation_policy_id: escalation policy not found."
    assert [row["escalation_policy_id"] for row in member.get("/v1/monitors").json] == [None]
    fields = [change for entry in Entry.objects.filter(action="monitor.updated") for change in entry.details["changes"]]
    assert {"field": "escalation_policy_id", "before": ours.public_id, "after": own.public_id} in fields


def test_a_moved_monitor_does_not_keep_the_policy_of_its_project(api: Api, user: User, project: Project) -> None:
    ours, own, elsewhere = make_policy(user, project), make_policy(user, None), ProjectFactory(owner=user)
    there = make_policy(user, elsewhere)
    given = {"type": "heartbeat", "project_id": project.public_id, "escalation_policy_id": ours.public_id}
    path = f"/v1/monitors/{api.post('/v1/monitors', given).json['id']}"
    for place in (None, elsewhere.public_id):
        answer = api.patch(path, {"project_id": place})
        assert answer.error.startswith("validation_error escalation_policy_id: does not apply there"), place
    many = api.patch("/v1/monitors?type=heartbeat", {"project_id": elsewhere.public_id}).json
    assert (many["changed"], many["failed"][0]["error"]) == ([], "validation_error")
    moved = api.patch(path, {"project_id": elsewhere.public_id, "escalation_policy_id": there.public_id})
    assert moved.json["escalation_policy_id"] == there.public_id
    # A copy in another project loses a policy of the project, and keeps one of the owner's own.
    assert api.post(f"{path}/copy").json["escalation_policy_id"] == there.public_id
    assert api.post(f"{path}/copy", {"project_id": None}).json["escalation_policy_id"] is None
    api.patch(path, {"escalation_policy_id": own.public_id})
    assert api.post(f"{path}/copy", {"project_id": None}).json["escalation_policy_id"] == own.public_id
    assert api.patch(path, {"project_id": None}).json["escalation_policy_id"] == own.public_id


def test_the_policy_of_many_monitors(api: Api, user: User, project: Project) -> None:
    own, ours = make_policy(user, None), make_policy(user, project)
    for place in (None, project):
        MonitorFactory(owner=user, project=place)
    dry = api.patch("/v1/monitors?enabled=true&dry_run=true", {"escalation_policy_id": own.public_id}).json
    done = api.patch("/v1/monitors?enabled=true", {"escalation_policy_id": own.public_id}).json
    assert dry | {"dry_run": False} == done
    assert (len(done["changed"]), done["failed"]) == (2, [])
    again = api.patch("/v1/monitors?enabled=true", {"escalation_policy_id": own.public_id}).json
    assert (again["changed"], len(again["unchanged"])) == ([], 2)
    mixed = api.patch("/v1/monitors?enabled=true", {"escalation_policy_id": ours.public_id}).json
    assert (len(mixed["changed"]), [one["error"] for one in mixed["failed"]]) == (1, ["validation_error"])


def test_a_deleted_policy_is_nobody_s(api: Api, user: User, project: Project) -> None:
    own, ours = make_policy(user, None), make_policy(user, project)
    api.patch(f"/v1/projects/{project.public_id}", {"escalation_policy_id": ours.public_id})
    ids = [
        api.post(
            "/v1/monitors", {"type": "heartbeat", "project_id": place, "escalation_policy_id": one.public_id}
        ).json["id"]
        for place, one in [(None, own), (project.public_id, ours), (project.public_id, own)]
    ]
    assert api.delete(f"{POLICIES}/{ours.public_id}").status == 200
    assert api.get(f"/v1/projects/{project.public_id}").json["escalation_policy_id"] is None
    assert api.get(f"/v1/monitors/{ids[1]}").json["escalation_policy_id"] is None
    assert api.delete(f"/v1/projects/{project.public_id}").status == 200
    assert api.get(f"/v1/monitors/{ids[2]}").json["escalation_policy_id"] == own.public_id
    assert api.delete(f"{POLICIES}/{own.public_id}").status == 200
    assert {row["escalation_policy_id"] for row in api.get("/v1/monitors").json} == {None}


def test_the_policy_of_a_project(api: Api, user: User, friend: User, project: Project) -> None:
    ours, own, path = make_policy(user, project), make_policy(user, None), f"/v1/projects/{project.public_id}"
    before = api.get(path)
    assert before.json["escalation_policy_id"] is None
    for one in (ours, own):
        assert api.patch(path, {"escalation_policy_id": one.public_id}).status == 200
        assert api.get(path).json["escalation_policy_id"] == one.public_id
        assert api.get("/v1/projects").json[0]["escalation_policy_id"] == one.public_id
    assert api.patch(path, api.get(path).json | {"name": "Store"}).status == 200
    assert api.get(path).json == before.json | {"name": "Store", "escalation_policy_id": own.public_id}
    assert api.send("patch", path, {"name": "Shop"}, if_match=before.headers["ETag"]).status == 412
    theirs, elsewhere = make_policy(friend, None), make_policy(user, ProjectFactory(owner=user))
    for one in (theirs, elsewhere):
        answer = api.patch(path, {"escalation_policy_id": one.public_id})
        assert answer.error.startswith("validation_error escalation_policy_id: ")
    assert api.patch(path, {"escalation_policy_id": None}).status == 200
    assert Entry.objects.filter(action="project.updated").count() == 4

"""/v1/maintenance-windows: each field, and each kind of invalid value."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine

from accounts.models import User
from core.clock import to_ms
from incidents import windows
from incidents.models import MaintenanceWindow
from tests.api.client import Api
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON

PATH = "/v1/maintenance-windows"
NOW, HOUR, DAY = to_ms(NOON), 3_600_000, 86_400_000


@pytest.fixture(autouse=True)
def _at_noon(db: None) -> Any:
    with time_machine.travel(NOON, tick=False):
        yield


def body(**given: Any) -> dict[str, Any]:
    return {"name": "Update", "starts_at": NOW + HOUR, "ends_at": NOW + 2 * HOUR, "monitors": "all"} | given


def test_the_whole_object(api: Api) -> None:
    made = api.post(PATH, body())
    assert made.status == 201
    assert made.json == {
        "id": MaintenanceWindow.objects.get().public_id,
        "project_id": None,
        "name": "Update",
        "starts_at": NOW + HOUR,
        "ends_at": NOW + 2 * HOUR,
        "time_zone": "UTC",
        "rrule": None,
        "monitors": "all",
        "monitor_ids": [],
        "monitor_tags": [],
        "active": False,
        "next_starts_at": NOW + HOUR,
        "next_ends_at": NOW + 2 * HOUR,
        "created_at": NOW,
    }
    assert made.json["id"].startswith("mwn_")
    assert api.get(f"{PATH}/{made.json['id']}").json == made.json
    assert api.get(PATH).json == [made.json]


def test_a_rule_without_until_and_count_does_not_end(api: Api) -> None:
    made = api.post(PATH, body(rrule="FREQ=WEEKLY;BYDAY=SU", starts_at=NOW))
    assert (made.status, made.json["rrule"]) == (201, "FREQ=WEEKLY;BYDAY=SU")
    weeks = 52 * 30
    with time_machine.travel(NOON + timedelta(weeks=weeks, days=-1), tick=False):
        assert (
            Api.signed_in(MaintenanceWindow.objects.get().owner).get(f"{PATH}/{made.json['id']}").json["next_starts_at"]
            == NOW + weeks * 7 * DAY
        )


def test_a_recurring_one_as_time_passes(user: User) -> None:
    """The current occurrence is shown even before the scheduler has advanced the window."""
    with time_machine.travel(NOON, tick=False):
        made = Api.signed_in(user).post(
            PATH, body(rrule="FREQ=WEEKLY;COUNT=2", time_zone="Europe/Berlin", starts_at=NOW)
        )
    assert (made.status, made.json["rrule"]) == (201, "FREQ=WEEKLY;COUNT=2")
    week = timedelta(days=7)
    seen = []
    for at in (NOON, NOON + timedelta(hours=2), NOON + week, NOON + week + timedelta(hours=2)):
        with time_machine.travel(at, tick=False):
            shown = Api.signed_in(user).get(f"{PATH}/{made.json['id']}").json
        seen.append((shown["active"], shown["next_starts_at"], shown["next_ends_at"]))
    assert seen == [
        (True, NOW, NOW + 2 * HOUR),
        (False, NOW + 7 * DAY, NOW + 7 * DAY + 2 * HOUR),
        (True, NOW + 7 * DAY, NOW + 7 * DAY + 2 * HOUR),
        (False, None, None),
    ]


def test_chosen_monitors(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    inside, own = MonitorFactory(owner=user, project=project), MonitorFactory(owner=user)
    both = [inside.public_id, own.public_id]
    made = api.post(PATH, body(monitors="chosen", monitor_ids=[*both, own.public_id]))
    assert (made.status, made.json["monitors"], made.json["monitor_ids"]) == (201, "chosen", both)
    here = {"project_id": project.public_id, "monitors": "chosen"}
    made = api.post(PATH, body(**here, monitor_ids=[inside.public_id]))
    assert (made.status, made.json["project_id"]) == (201, project.public_id)
    refused = api.post(PATH, body(**here, monitor_ids=both))
    assert refused.error == (f"validation_error monitor_ids: monitor {own.public_id} not found in this project.")
    # A monitor that leaves the project is no longer covered or shown; the fields that were read can be sent back.
    assert api.patch(f"/v1/monitors/{inside.public_id}", {"project_id": None}).status == 200
    shown = api.get(f"{PATH}/{made.json['id']}").json
    assert (shown["monitors"], shown["monitor_ids"]) == ("chosen", [])
    assert api.patch(f"{PATH}/{made.json['id']}", shown).json == shown


WRONG = [
    ({"name": ""}, "name"),
    ({"name": "a" * 201}, "name"),
    ({"name": None}, "name"),
    ({"starts_at": str(NOW)}, "starts_at: must be an integer."),
    ({"starts_at": NOW + 0.5}, "starts_at: must be an integer."),
    ({"starts_at": True}, "starts_at: must be an integer."),
    ({"starts_at": -1}, "starts_at"),
    ({"starts_at": 2**70}, "starts_at"),
    ({"ends_at": None}, "ends_at"),
    ({"ends_at": NOW + HOUR}, "ends_at: must be after starts_at."),
    ({"ends_at": NOW + 31 * DAY + HOUR}, "ends_at: is more than 30 days after starts_at"),
    ({"starts_at": NOW - 2 * HOUR, "ends_at": NOW}, "ends_at: is in the past."),
    ({"starts_at": NOW + 4000 * DAY, "ends_at": NOW + 4001 * DAY}, "starts_at: is more than 10 years ahead."),
    ({"time_zone": "Mars/Olympus"}, "time_zone: is not a name of the IANA time zone database."),
    ({"time_zone": "localtime"}, "time_zone: is not a name of the IANA time zone database."),
    ({"time_zone": None}, "time_zone"),
    ({"rrule": ""}, "rrule"),
    ({"rrule": "FREQ=DAILY" * 60}, "rrule"),
    ({"rrule": "FREQ=WEEKLY;INTERVAL=999"}, "rrule: does not recur within 10 years"),
    ({"rrule": "FREQ=SECONDLY;COUNT=9"}, "rrule: FREQ=SECONDLY is not supported"),
    ({"rrule": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=2"}, "rrule: has no occurrence."),
    ({"rrule": "FREQ=DAILY;COUNT=2", "ends_at": NOW + 2 * DAY}, "rrule: the occurrence of 2026-03-02 13:00 UTC"),
    ({"rrule": "FREQ=WEEKLY;BYDAY=MO;COUNT=2"}, "starts_at: does not match rrule"),
    ({"monitors": "some"}, "monitors: must be one of all, chosen."),
    ({"monitors": None}, "monitors"),
    ({"monitor_ids": ["mon_x"]}, 'monitor_ids: apply only with "monitors": "chosen".'),
    ({"monitors": "chosen"}, "monitor_ids: select at least one monitor or tag."),
    ({"monitors": "chosen", "monitor_ids": []}, "monitor_ids: select at least one monitor or tag."),
    ({"monitors": "chosen", "monitor_ids": ["mon_x"]}, "monitor_ids: monitor mon_x not found."),
    ({"monitors": "chosen", "monitor_ids": [5]}, "monitor_ids[0]: must be a string."),
    ({"monitors": "chosen", "monitor_ids": ["x"] * 1001}, "monitor_ids"),
    ({"project_id": "prj_x"}, "project_id: project not found."),
    ({"active": True}, "active: is not a field of this request."),
]


@pytest.mark.parametrize(("given", "reason"), WRONG, ids=str)
def test_what_is_refused(api: Api, given: dict[str, Any], reason: str) -> None:
    made = api.post(PATH, body()).json
    for answer in (
        api.post(PATH, body(**given)),
        api.patch(f"{PATH}/{made['id']}", given) if "active" not in given else None,
    ):
        if answer is None:  # of a PATCH the read-only fields are ignored
            continue
        if answer.status == 422 and "create a new window" in answer.error:
            continue
        assert (answer.status, answer.json["error"]) == (422, "validation_error")
        assert answer.json["reason"].startswith(reason)
    assert api.get(PATH).json == [made]


@pytest.mark.parametrize("name", ["name", "starts_at", "ends_at", "monitors"])
def test_what_is_required(api: Api, name: str) -> None:
    answer = api.post(PATH, {field: value for field, value in body().items() if field != name})
    assert (answer.status, answer.json["reason"].startswith(f"{name}: ")) == (422, True)


def test_patch_judges_the_merged_window(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user)
    made = api.post(PATH, body(rrule="FREQ=DAILY;COUNT=3")).json
    path = f"{PATH}/{made['id']}"
    assert api.patch(path, made).json == made, "what was read can be sent back"
    assert api.patch(path, {}).json == made
    too_long = api.patch(path, {"ends_at": NOW + 30 * HOUR})
    assert too_long.error.startswith("validation_error rrule: the occurrence of")
    once = api.patch(path, {"ends_at": NOW + 30 * HOUR, "rrule": None})
    assert (once.status, once.json["rrule"], once.json["next_ends_at"]) == (200, None, NOW + 30 * HOUR)
    early = api.patch(path, {"starts_at": NOW + 40 * HOUR})
    assert early.error == "validation_error ends_at: must be after starts_at."
    on = api.patch(path, {"starts_at": NOW, "name": "Now"})
    assert (on.json["active"], on.json["name"]) == (True, "Now")
    none = api.patch(path, {"monitors": "chosen"})
    assert none.error == "validation_error monitor_ids: select at least one monitor or tag."
    chosen = api.patch(path, {"monitors": "chosen", "monitor_ids": [monitor.public_id]})
    assert chosen.json["monitor_ids"] == [monitor.public_id]
    every = api.patch(path, {"monitors": "all"})
    assert (every.json["monitors"], every.json["monitor_ids"]) == ("all", [])
    other = api.patch(path, {"project_id": ProjectFactory(owner=user).public_id})
    assert other.error == "validation_error project_id: cannot be changed; create a new window."


def test_a_project_token_acts_in_its_project(user: User) -> None:
    project, other = ProjectFactory(owner=user), ProjectFactory(owner=user)
    token, api = Api.with_token(user, project), Api.signed_in(user)
    personal = api.post(PATH, body()).json
    elsewhere = api.post(PATH, body(project_id=other.public_id)).json
    made = token.post(PATH, body())
    assert (made.status, made.json["project_id"]) == (201, project.public_id)
    assert [window["id"] for window in token.get(PATH).json] == [made.json["id"]]
    for foreign in (personal, elsewhere):
        for answer in (
            token.get(f"{PATH}/{foreign['id']}"),
            token.patch(f"{PATH}/{foreign['id']}", {"name": 5}),
            token.delete(f"{PATH}/{foreign['id']}"),
        ):
            assert (answer.status, answer.json["error"]) == (404, "not_found")
    for project_id in (None, other.public_id):
        answer = token.post(PATH, body(project_id=project_id))
        assert answer.error == "validation_error project_id: a project token works only in its own project."
    outside = MonitorFactory(owner=user)
    answer = token.post(PATH, body(monitors="chosen", monitor_ids=[outside.public_id]))
    assert answer.status == 422


def test_a_members_window_and_one_of_another_account(user: User, api: Api) -> None:
    friend = UserFactory()
    project = ProjectFactory(owner=user, member=friend)
    theirs = Api.signed_in(friend)
    shared = theirs.post(PATH, body(project_id=project.public_id)).json
    personal = theirs.post(PATH, body()).json
    assert [window["id"] for window in api.get(PATH).json] == [shared["id"]]
    assert api.get(f"{PATH}/{personal['id']}").status == 404
    foreign = MonitorFactory()
    answer = api.post(PATH, body(monitors="chosen", monitor_ids=[foreign.public_id]))
    assert answer.error == f"validation_error monitor_ids: monitor {foreign.public_id} not found."


def test_deleted(api: Api) -> None:
    path = f"{PATH}/{api.post(PATH, body()).json['id']}"
    assert (api.delete(path).json, api.delete(path).status, api.get(path).status) == ({"ok": True}, 404, 404)


def test_created_once_under_a_key(api: Api) -> None:
    first, again = api.post(PATH, body(), key="k1"), api.post(PATH, body(), key="k1")
    assert (first.status, again.status, again.text) == (201, 201, first.text)
    assert MaintenanceWindow.objects.count() == 1
    assert api.post(PATH, body(name="Other"), key="k1").status == 422


def test_the_cap(api: Api, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MAX_WINDOWS", 2)
    first = api.post(PATH, body())
    assert api.post(PATH, body(project_id=ProjectFactory(owner=user).public_id)).status == 201
    full = api.post(PATH, body())
    assert (full.status, full.json["error"], full.json["limit"]) == (403, "window_limit", 2)
    assert api.delete(f"{PATH}/{first.json['id']}").status == 200
    assert api.post(PATH, body()).status == 201


def test_pages(api: Api) -> None:
    ids = [api.post(PATH, body(name=f"n{n}")).json["id"] for n in range(3)]
    page = api.get(f"{PATH}?limit=2")
    assert [window["id"] for window in page.json] == ids[:2]
    following = page.headers["Link"].split(">")[0].removeprefix("<")
    rest = api.get(following.removeprefix("http://testserver"))
    assert ([window["id"] for window in rest.json], "Link" in rest.headers) == (ids[2:], False)

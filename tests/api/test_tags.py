"""Tags of monitors over the API: stored, listed and found."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from core.clock import to_ms, utc_now
from monitors.models import Monitor, MonitorState
from monitors.operations import mute_for, pause
from monitors.services import create_monitor
from projects.access import Caller
from tests.api.client import Api
from tests.factories import MonitorFactory, ProjectFactory, UserFactory


def tagged(user: User, *tags: str, **given: Any) -> Monitor:
    return create_monitor(Caller(user), {"url": "http://shop.example/", "tags": list(tags), **given}, now=utc_now())


def test_they_come_back_trimmed_and_in_the_given_order(api: Api, no_worker: None) -> None:
    made = api.post("/v1/monitors", {"type": "heartbeat", "tags": [" web ", "Produktion", "a\u0308"]})
    assert (made.status, made.json["tags"]) == (201, ["web", "Produktion", "\u00e4"])
    path = f"/v1/monitors/{made.json['id']}"
    assert api.patch(path, {"name": "Other"}).json["tags"] == made.json["tags"]
    assert api.patch(path, made.json).json["tags"] == made.json["tags"]
    assert api.patch(path, {"tags": ["b", "a"]}).json["tags"] == ["b", "a"]
    refused = api.patch(path, {"tags": ["a", "A"]})
    assert (refused.status, refused.json["error"]) == (422, "validation_error")
    assert api.patch(path, {"tags": []}).json["tags"] == []
    assert api.post("/v1/monitors", {"type": "heartbeat"}).json["tags"] == []


def test_a_change_has_another_etag_and_is_logged_with_values(api: Api, user: User) -> None:
    monitor = tagged(user, "web", "db")
    path = f"/v1/monitors/{monitor.public_id}"
    before = api.get(path).headers["ETag"]
    assert api.patch(path, {"tags": ["web"]}).headers["ETag"] != before
    entry = api.get("/v1/account/audit-log").json[0]
    assert entry["details"]["changes"] == [{"field": "tags", "before": "web; db", "after": "web"}]


def test_the_list_counts_monitors_and_ignores_case(api: Api, user: User) -> None:
    assert api.get("/v1/tags").json == []
    tagged(user, "Web", "zone b")
    tagged(user, "web", "Äpfel", "äußer")
    tagged(user, "WEB", "ÄUSSER")
    tagged(user)
    assert api.get("/v1/tags").json == [
        {"name": "WEB", "monitors": 3},
        {"name": "zone b", "monitors": 1},
        {"name": "Äpfel", "monitors": 1},
        {"name": "ÄUSSER", "monitors": 2},
    ]


def test_each_caller_sees_the_tags_of_their_monitors(user: User) -> None:
    member, stranger = UserFactory(), UserFactory()
    project = ProjectFactory(owner=user, member=member)
    tagged(user, "own")
    tagged(user, "shared", project_id=project.public_id)
    tagged(stranger, "foreign")

    def names(api: Api) -> list[str]:
        return [tag["name"] for tag in api.get("/v1/tags").json]

    assert names(Api.signed_in(user)) == ["own", "shared"]
    assert names(Api.signed_in(member)) == names(Api.with_token(user, project)) == ["shared"]
    assert names(Api.signed_in(stranger)) == ["foreign"]


def test_a_tag_is_gone_with_its_last_monitor(api: Api, user: User) -> None:
    monitor = tagged(user, "web")
    assert api.delete(f"/v1/monitors/{monitor.public_id}").status == 200
    assert api.get("/v1/tags").json == []


@pytest.mark.usefixtures("no_worker")
def test_an_account_export_has_them(api: Api, user: User) -> None:
    tagged(user, "Web")
    (monitor,) = api.get("/v1/account/export").json["monitors"]
    assert monitor["tags"] == ["Web"]


def found(api: Api, query: str) -> list[str]:
    answer = api.get(f"/v1/monitors?{query}")
    assert answer.status == 200, answer.text
    return [monitor["name"] for monitor in answer.json]


def test_a_list_by_tags_has_the_monitors_with_all_of_them(api: Api, user: User) -> None:
    tagged(user, "Web", "prod", name="a")
    tagged(user, "web", name="b")
    tagged(user, "webshop", "PROD", name="c")
    tagged(user, "Äpfel & Birnen", name="d")
    tagged(user, name="e")
    tagged(UserFactory(), "web", "prod", name="foreign")
    assert found(api, "tag=web") == found(api, "tag=WEB&tag=web") == found(api, "tag=%20Web") == ["a", "b"]
    assert found(api, "tag=Prod&tag=web") == ["a"]
    assert found(api, "tag=a%CC%88pfel+%26+birnen") == ["d"]
    assert found(api, "tag=we") == found(api, "tag=web&tag=none") == []
    assert found(api, "") == ["a", "b", "c", "d", "e"]


def test_other_filters(api: Api, user: User) -> None:
    for name, status in (("a", "up"), ("b", "down"), ("c", "slow")):
        monitor = MonitorFactory(owner=user, name=name, url=f"http://{name}.Shop.example/x_y%")
        MonitorState.objects.filter(pk=monitor.pk).update(status=status)
    Monitor.objects.filter(name="c").update(enabled=False)
    tagged(user, "web", name="Beat 100%", type="heartbeat", url="")
    assert found(api, "status=up") == ["a"]
    assert found(api, "status=up&status=slow&status=up") == ["a", "c"]
    assert found(api, "type=heartbeat") == ["Beat 100%"]
    assert found(api, "type=http&type=heartbeat&status=down") == ["b"]
    assert found(api, "enabled=false") == ["c"]
    assert found(api, "enabled=true") == ["a", "b", "Beat 100%"]
    assert found(api, "q=A.SHOP") == ["a"]
    assert found(api, "q=BEAT") == found(api, "q=100%25") == ["Beat 100%"]
    assert found(api, "q=x_y%25") == ["a", "b", "c"]
    assert found(api, "q=xay") == []
    assert found(api, "tag=web&type=heartbeat&enabled=true&q=beat") == ["Beat 100%"]


def test_a_list_of_a_project(api: Api, user: User) -> None:
    member = UserFactory()
    project, other = ProjectFactory(owner=user, member=member), ProjectFactory(owner=UserFactory())
    tagged(user, "web", name="a", project_id=project.public_id)
    tagged(user, "web", name="b")
    tagged(member, "web", name="c")
    assert found(api, f"project_id={project.public_id}&tag=web") == ["a"]
    assert found(api, "project_id=none") == ["b"]
    assert found(api, f"project_id={other.public_id}") == found(api, "project_id=prj_nowhere") == []
    assert found(Api.signed_in(member), f"project_id={project.public_id}") == ["a"]
    assert found(Api.with_token(user, project), "project_id=none") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("project_id=", "project_id"),
        ("status=pending", "status"),
        ("status=up&status=", "status"),
        ("type=snmp", "type"),
        ("type=http&type=HTTP", "type"),
        ("enabled=1", "enabled"),
        ("enabled=", "enabled"),
        ("tag=", "tag"),
        ("tag=a,b", "tag"),
        ("tag=a%00b", "tag"),
        (f"tag={'a' * 41}", "tag"),
        ("&".join(f"tag={number}" for number in range(21)), "tag"),
        ("q=a%00b", "q"),
        (f"q={'a' * 2_049}", "q"),
    ],
)
def test_unknown_words_are_422(api: Api, query: str, field: str) -> None:
    refused = api.get(f"/v1/monitors?{query}")
    assert refused.status == 422
    assert refused.error.startswith(f"validation_error {field}")


def test_the_next_page_has_the_same_filters(api: Api, user: User) -> None:
    for name in "abc":
        tagged(user, "web", "prod", name=name)
        tagged(user, "web", name=f"{name} not")
    first = api.get("/v1/monitors?tag=web&tag=prod&limit=2")
    assert [monitor["name"] for monitor in first.json] == ["a", "b"]
    address = first.headers["Link"].partition("<")[2].partition(">")[0]
    second = api.get(address.removeprefix("http://testserver"))
    assert [monitor["name"] for monitor in second.json] == ["c"]


def test_states_are_those_of_the_dashboard(api: Api, user: User) -> None:
    now = utc_now()
    made = {
        "down": MonitorFactory(owner=user, down=True),
        "slow": MonitorFactory(owner=user, slow=True),
        "up": MonitorFactory(owner=user, up=True),
        "pending": MonitorFactory(owner=user, created_at=now),
        "paused": MonitorFactory(owner=user, up=True),
    }
    mute_for([made["up"].pk], minutes=30, now=now)
    pause([made["paused"].pk], now=now)
    MonitorState.objects.update(fault_since=None, next_due_at=now)
    body = {"name": "x", "starts_at": to_ms(now) - 1000, "ends_at": to_ms(now) + 60_000, "monitors": "chosen"}
    made_window = api.post("/v1/maintenance-windows", body | {"monitor_ids": [made["slow"].public_id]})
    assert made_window.status == 201

    def found(query: str) -> set[str]:
        ids = {monitor.public_id: state for state, monitor in made.items()}
        return {ids[monitor["id"]] for monitor in api.get(f"/v1/monitors?{query}").json}

    for state in made:
        assert found(f"state={state}") == {state}
    assert found("state=muted") == {"up"}
    assert found("state=maintenance") == {"slow"}
    assert found("state=muted&state=down&state=maintenance") == {"up", "down", "slow"}
    assert found("state=muted&status=slow") == set()
    assert found("state=failing") == found("state=partial") == found("state=stale") == set()
    assert api.get("/v1/monitors?state=odd").status == 422

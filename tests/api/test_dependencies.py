"""Which monitors depend on which, over the API: stored, shown, found and refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from accounts.models import User
from core.clock import utc_now
from monitors.dependencies import LONGEST_CHAIN, MAX_PARENTS
from monitors.models import Dependency, Monitor
from monitors.operations import delete
from monitors.services import create_monitor
from projects.access import Caller
from projects.models import Project
from tests.api.client import Api
from tests.factories import MonitorFactory, ProjectFactory, UserFactory


def monitor(user: User, *parents: Monitor, **given: Any) -> Monitor:
    body = {"type": "heartbeat", "depends_on": [parent.public_id for parent in parents], **given}
    return create_monitor(Caller(user), body, now=utc_now())


def depend(api: Api, child: Monitor, *parents: Monitor) -> Any:
    answer = api.patch(path_of(child), {"depends_on": ids(*parents)})
    return answer.json["depends_on"] if answer.status == 200 else answer.error


def ids(*monitors: Monitor) -> list[str]:
    return [monitor.public_id for monitor in monitors]


def path_of(monitor: Monitor) -> str:
    return f"/v1/monitors/{monitor.public_id}"


def chain(user: User, length: int, *, above: Sequence[Monitor] = ()) -> list[Monitor]:
    """Return monitors of which each depends on the one before, and the first on those `above`."""
    found: list[Monitor] = []
    for _ in range(length):
        found.append(monitor(user, *(found[-1:] or above)))
    return found


def test_they_come_back_in_the_given_order(api: Api, user: User) -> None:
    router, switch, server = (monitor(user) for _ in range(3))
    made = api.post("/v1/monitors", {"type": "heartbeat", "depends_on": ids(switch, router)})
    assert (made.status, made.json["depends_on"]) == (201, ids(switch, router))
    path = f"/v1/monitors/{made.json['id']}"
    assert api.get(path).json["depends_on"] == ids(switch, router)
    assert api.patch(path, {"name": "Other"}).json["depends_on"] == ids(switch, router)
    assert api.patch(path, made.json).json["depends_on"] == ids(switch, router)
    assert api.patch(path, {"depends_on": ids(server, router)}).json["depends_on"] == ids(server, router)
    assert api.patch(path, {"depends_on": ids(router, server)}).json["depends_on"] == ids(router, server)
    assert api.patch(path, {"depends_on": []}).json["depends_on"] == []
    assert api.post("/v1/monitors", {"type": "heartbeat"}).json["depends_on"] == []
    assert not Dependency.objects.exists()


def test_what_is_not_a_list_of_8_ids_is_refused(api: Api, user: User) -> None:
    parents, child = [monitor(user) for _ in range(MAX_PARENTS + 1)], monitor(user)
    assert depend(api, child, *parents[1:]) == ids(*parents[1:])
    values: list[Any] = [None, "mon_x", [5], [None], {}, ids(*parents), [[]]]
    for given in values:
        answer = api.patch(path_of(child), {"depends_on": given})
        assert (answer.status, answer.json["error"]) == (422, "validation_error"), given
    assert api.get(path_of(child)).json["depends_on"] == ids(*parents[1:])


def test_unknown_foreign_own_and_repeated_ones_are_refused(api: Api, user: User) -> None:
    router, child, foreign = monitor(user), monitor(user), monitor(UserFactory())
    unknown = "validation_error depends_on[1]: monitor not found."
    for other in (foreign.public_id, "mon_aaaaaaaaaaaaaaaaaaaaaaaaaa", "", "\0", " " * 60, "x" * 60):
        given = {"depends_on": [router.public_id, other]}
        for answer in (api.patch(path_of(child), given), api.post("/v1/monitors", {"type": "heartbeat", **given})):
            assert answer.status == 422, other
            assert answer.error.startswith("validation_error depends_on[1]: ")
    assert api.patch(path_of(child), {"depends_on": ids(router, foreign)}).error == unknown
    assert depend(api, child, child) == "validation_error depends_on[0]: a monitor cannot depend on itself."
    assert depend(api, child, router, router) == "validation_error depends_on[1]: is named more than once."
    assert depend(api, foreign, router).startswith("not_found")
    assert not Dependency.objects.exists()
    assert Monitor.objects.count() == 3


def test_one_of_another_account_is_refused_although_the_caller_sees_it(user: User) -> None:
    """A member's own monitor cannot depend on one of a project, which belongs to the project's owner."""
    owner = UserFactory()
    shared = monitor(owner, project_id=ProjectFactory(owner=owner, member=user).public_id)
    api = Api.signed_in(user)
    assert depend(api, monitor(user), shared) == "validation_error depends_on[0]: belongs to another account."
    assert depend(api, shared, monitor(user)) == "validation_error depends_on[0]: belongs to another account."


def test_a_cycle_is_refused(api: Api, user: User) -> None:
    router, switch, server = chain(user, 3)
    other = monitor(user)
    reason = "validation_error depends_on[1]: depends on this monitor itself, directly or through others."
    assert depend(api, router, other, switch) == depend(api, router, other, server) == reason
    assert api.get(path_of(router)).json["depends_on"] == []
    assert depend(api, router, other) == ids(other)
    # The other way round, after the first dependency is removed.
    assert depend(api, switch) == []
    assert depend(api, router, other, switch) == ids(other, switch)


def test_a_chain_has_at_most_16_monitors(api: Api, user: User) -> None:
    upper, lower = chain(user, LONGEST_CHAIN - 4), chain(user, 4)
    assert depend(api, lower[0], upper[-1]) == ids(upper[-1])
    refused = "validation_error depends_on: makes a chain of 17 monitors that depend on each other; at most 16."
    top = monitor(user)
    assert depend(api, upper[0], top) == refused  # below
    assert depend(api, upper[5], upper[4], top) == ids(upper[4], top)  # a shorter one beside the longest
    answer = api.post("/v1/monitors", {"type": "heartbeat", "depends_on": ids(top, lower[-1])})
    assert answer.error == refused  # above
    middle = monitor(user, upper[0])
    assert depend(api, upper[1], middle) == refused  # both, through the monitor in the middle
    assert api.get(path_of(upper[1])).json["depends_on"] == ids(upper[0])
    assert depend(api, lower[-1]) == []
    assert depend(api, upper[1], middle) == ids(middle)


def test_a_parent_may_have_any_type_and_be_paused(api: Api, user: User) -> None:
    parents = [
        MonitorFactory(owner=user),
        MonitorFactory(owner=user, heartbeat=True),
        MonitorFactory(owner=user, scheduler=True),
        MonitorFactory(owner=user, type="ping", url="icmp://127.0.0.1"),
    ]
    api.patch(path_of(parents[0]), {"enabled": False})
    assert depend(api, monitor(user), *parents) == ids(*parents)


def test_deleting_a_monitor_removes_it_from_the_others(api: Api, user: User) -> None:
    router, switch, server = chain(user, 3)
    spare = monitor(user)
    assert depend(api, server, switch, spare) == ids(switch, spare)
    assert api.delete(path_of(switch)).status == 200
    assert api.get(path_of(server)).json["depends_on"] == ids(spare)
    assert api.get(path_of(router)).json["depends_on"] == []
    assert [(row.child_id, row.parent_id) for row in Dependency.objects.all()] == [(server.pk, spare.pk)]


def test_callers_see_and_replace_only_those_that_they_can_access(user: User) -> None:
    owner = user
    shared: Project = ProjectFactory(owner=owner, member=(member := UserFactory()))
    private = [monitor(owner), monitor(owner, project_id=ProjectFactory(owner=owner).public_id)]
    visible = [monitor(owner, project_id=shared.public_id) for _ in range(3)]
    child = monitor(owner, private[0], visible[0], private[1], visible[1], project_id=shared.public_id)
    callers = [Api.signed_in(member), Api.with_token(owner, shared)]
    for api in callers:
        assert api.get(path_of(child)).json["depends_on"] == ids(visible[0], visible[1])
        (row,) = [row for row in api.get("/v1/monitors").json if row["id"] == child.public_id]
        assert row["depends_on"] == ids(visible[0], visible[1])
        assert depend(api, child, private[0]) == "validation_error depends_on[0]: monitor not found."
    assert depend(callers[0], child, visible[2], visible[0]) == ids(visible[2], visible[0])
    mine = Api.signed_in(owner)
    assert mine.get(path_of(child)).json["depends_on"] == ids(visible[2], visible[0], *private)
    assert depend(callers[1], child) == []
    assert mine.get(path_of(child)).json["depends_on"] == ids(*private)
    assert depend(mine, child, private[1]) == ids(private[1])


def test_those_that_the_caller_does_not_see_count(user: User) -> None:
    shared = ProjectFactory(owner=user, member=(member := UserFactory()))
    child = monitor(user, *(monitor(user) for _ in range(MAX_PARENTS)), project_id=shared.public_id)
    more = monitor(user, project_id=shared.public_id)
    assert depend(Api.signed_in(member), child, more) == (
        "validation_error depends_on: at most 8 monitors, with those that you cannot see."
    )
    # Neither does a cycle through one of them go unnoticed.
    below = monitor(user, child)
    last = monitor(user, below, project_id=shared.public_id)
    other = monitor(user, last, project_id=shared.public_id)
    assert depend(Api.signed_in(member), last, other).startswith("validation_error depends_on[0]: depends on this")


def test_a_move_to_another_owner_ends_them_and_one_between_projects_keeps_them(user: User) -> None:
    owner, receiver = user, UserFactory()
    api, first = Api.signed_in(owner), ProjectFactory(owner=owner)
    foreign = ProjectFactory(owner=receiver, member=owner)
    router, switch, server = chain(owner, 3)
    own = api.patch(path_of(switch), {"project_id": first.public_id})
    assert own.json["depends_on"] == ids(router)
    assert api.get(path_of(server)).json["depends_on"] == ids(switch)
    given = {"project_id": foreign.public_id, "depends_on": ids(router)}
    assert api.patch(path_of(switch), given).error == "validation_error depends_on[0]: belongs to another account."
    assert api.get(path_of(switch)).json["project_id"] == first.public_id
    moved = api.patch(path_of(switch), {"project_id": foreign.public_id})
    assert (moved.status, moved.json["depends_on"]) == (200, [])
    assert api.get(path_of(server)).json["depends_on"] == []
    assert not Dependency.objects.exists()
    there = monitor(receiver, project_id=foreign.public_id)
    given = {"project_id": foreign.public_id, "depends_on": ids(there)}
    assert api.patch(path_of(server), given).json["depends_on"] == ids(there)


def test_a_change_has_another_etag_but_no_new_version(api: Api, user: User) -> None:
    router, child = monitor(user), monitor(user)
    before = api.get(path_of(child)).headers["ETag"]
    changed = api.patch(path_of(child), {"depends_on": ids(router)})
    assert changed.headers["ETag"] != before
    assert changed.headers["ETag"] == api.get(path_of(child)).headers["ETag"]
    outdated = api.send("patch", path_of(child), {"depends_on": []}, if_match=before)
    assert outdated.status == 412
    assert Monitor.objects.get(pk=child.pk).config_version == 1


def test_the_log_names_them_without_ids(api: Api, user: User) -> None:
    router = monitor(user, name="Router")
    child = monitor(user, router, name="Shop")
    created = api.get("/v1/account/audit-log").json[0]
    assert {"field": "depends_on", "before": None, "after": "Router"} in created["details"]["changes"]
    switch = monitor(user, name="Switch")
    assert depend(api, child, switch, router) == ids(switch, router)
    entry = api.get("/v1/account/audit-log").json[0]
    assert (entry["action"], entry["target_name"]) == ("monitor.updated", "Shop")
    assert entry["details"]["changes"] == [{"field": "depends_on", "before": "Router", "after": "Switch; Router"}]
    assert depend(api, child, switch, router) == ids(switch, router)
    assert api.get("/v1/account/audit-log").json[0] == entry  # nothing was changed
    api.patch(path_of(child), {"depends_on": ids(router), "name": "Store"})
    fields = [change["field"] for change in api.get("/v1/account/audit-log").json[0]["details"]["changes"]]
    assert sorted(fields) == ["depends_on", "name"]
    log = api.get("/v1/account/audit-log").text
    assert not any(public_id in log for public_id in ids(router, switch, child))


def test_the_log_of_a_project_does_not_name_those_outside(api: Api, user: User) -> None:
    project = ProjectFactory(owner=user)
    hidden, router = monitor(user, name="Secret"), monitor(user, name="Router", project_id=project.public_id)
    child = monitor(user, project_id=project.public_id)
    depend(api, child, hidden)
    path = f"/v1/projects/{project.public_id}/audit-log"
    assert api.get(path).json[0]["details"]["changes"] == [{"field": "depends_on"}]
    depend(api, child, hidden, router)
    changes = api.get(path).json[0]["details"]["changes"]
    assert changes == [{"field": "depends_on", "before": None, "after": "Router"}]
    assert "Secret" not in api.get(path).text


def test_the_list_is_filtered_by_a_parent_that_the_caller_can_access(api: Api, user: User) -> None:
    router, other = monitor(user), monitor(user)
    children = [monitor(user, router, name=name) for name in ("web", "db")]
    monitor(user, children[0])
    assert [row["id"] for row in api.get(f"/v1/monitors?depends_on={router.public_id}").json] == ids(*children)
    found = api.get(f"/v1/monitors?depends_on={router.public_id}&q=web").json
    assert [row["id"] for row in found] == ids(children[0])
    assert api.get(f"/v1/monitors?depends_on={other.public_id}").json == []
    assert api.get("/v1/monitors?depends_on=mon_aaaaaaaaaaaaaaaaaaaaaaaaaa").json == []
    assert api.get("/v1/monitors?depends_on=%00").status == 422
    project = ProjectFactory(owner=user)
    api.patch(path_of(children[0]), {"project_id": project.public_id})
    token = Api.with_token(user, project)
    assert len(token.get("/v1/monitors").json) == 1
    assert token.get(f"/v1/monitors?depends_on={router.public_id}").json == []


def test_a_test_run_ignores_them(api: Api, user: User) -> None:
    answer = api.post("/v1/monitors/test", {"type": "heartbeat", "depends_on": ["mon_x"]})
    assert answer.error == "validation_error type: a heartbeat waits for pings, so there is nothing to test."


def test_an_account_export_has_them(api: Api, user: User) -> None:
    router, switch = chain(user, 2)
    rows = {row["id"]: row["depends_on"] for row in api.get("/v1/account/export").json["monitors"]}
    assert rows == {router.public_id: [], switch.public_id: ids(router)}


@pytest.mark.parametrize("gone", ["parent", "child"])
def test_bulk_deletion_removes_them(api: Api, user: User, gone: str) -> None:
    pair = dict(zip(("parent", "child"), chain(user, 2), strict=True))
    delete([pair[gone].pk])
    assert not Dependency.objects.exists()

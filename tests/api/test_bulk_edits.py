"""PATCH /v1/monitors: the same change of all monitors that match."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from audit.models import Entry
from core.clock import utc_now
from monitors import bulk_edits
from monitors.models import BulkEdit, Monitor
from monitors.services import create_monitor
from projects.access import Caller
from tests.api.client import Api
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory


def tagged(user: User, *tags: str, **given: Any) -> Monitor:
    return create_monitor(Caller(user), {"url": "http://shop.example/", "tags": list(tags), **given}, now=utc_now())


def test_it_changes_those_that_match_and_reports_the_others(api: Api, user: User) -> None:
    slow, same, scheduler = (
        tagged(user, "web"),
        tagged(user, "WEB", method="OPTIONS", slow_ms=9, timeout_ms=5000),
        tagged(user, "web", type="scheduler"),
    )
    other = tagged(user, "db")
    body = {"slow_ms": 9, "timeout_ms": 5000, "method": "OPTIONS"}
    expected = {
        "matched": 3,
        "changed": [slow.public_id],
        "unchanged": [same.public_id],
        "dry_run": True,
    }
    planned = api.patch("/v1/monitors?tag=Web&dry_run=true", body)
    (refused,) = planned.json["failed"]
    assert (refused["id"], refused["error"]) == (scheduler.public_id, "validation_error")
    assert (planned.status, planned.json) == (200, expected | {"failed": [refused]})
    slow.refresh_from_db()
    assert slow.slow_ms == 1_500
    scheduler.refresh_from_db()
    assert scheduler.options["method"] == "POST"
    done = api.patch("/v1/monitors?tag=Web&dry_run=false", body)
    assert done.json == expected | {"dry_run": False, "failed": [refused]}
    slow.refresh_from_db()
    other.refresh_from_db()
    assert (slow.slow_ms, slow.timeout_ms, other.slow_ms) == (9, 5000, 1_500)
    again = api.patch("/v1/monitors?tag=Web", body).json
    assert (again["changed"], again["unchanged"]) == ([], [slow.public_id, same.public_id])
    logged = Entry.objects.filter(action="monitors.changed").values_list("details", flat=True)
    assert list(logged) == [{"monitors": 1, "fields": ["method", "slow_ms", "timeout_ms"]}]
    assert Entry.objects.filter(action="monitor.updated", monitor_id=slow.pk).count() == 1
    assert not BulkEdit.objects.exists()


def test_what_many_depend_on_is_set_at_once(api: Api, user: User) -> None:
    router, first, second = tagged(user, "web"), tagged(user, "web"), tagged(user, "web")
    stranger = MonitorFactory()
    parents = {"depends_on": [router.public_id]}
    for dry_run in ("true", "false"):
        made = api.patch(f"/v1/monitors?tag=web&dry_run={dry_run}", parents).json
        assert made["changed"] == [first.public_id, second.public_id]
        assert [failed["id"] for failed in made["failed"]] == [router.public_id], "it cannot depend on itself"
        stored = [api.get(f"/v1/monitors/{one.public_id}").json["depends_on"] for one in (router, first, second)]
        assert stored == ([[], [], []] if dry_run == "true" else [[], [router.public_id], [router.public_id]])
    assert api.patch("/v1/monitors?tag=web", parents).json["unchanged"] == [first.public_id, second.public_id]
    for unknown in (stranger.public_id, "mon_none"):
        answer = api.patch("/v1/monitors?tag=web", {"depends_on": [unknown]})
        assert (answer.status, answer.json["error"]) == (422, "validation_error")


def test_planning_is_limited_in_queries_and_time(
    api: Api, user: User, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    router = tagged(user, "other")
    monitors = [tagged(user, "web") for _ in range(15)]
    body = {"depends_on": [router.public_id]}
    with django_assert_max_num_queries(25):
        assert len(api.patch("/v1/monitors?tag=web&dry_run=true", body).json["changed"]) == 15
    monkeypatch.setattr(bulk_edits, "PLANNING_SEC", 0)
    late = api.patch("/v1/monitors?tag=web", body).json
    assert [one["reason"] for one in late["failed"]] == ["Not processed in time; repeat the change."] * 15
    assert api.get(f"/v1/monitors/{monitors[0].public_id}").json["depends_on"] == []


@pytest.mark.parametrize(
    "query", ["", "?dry_run=true", "?q=", "?status=odd", "?tag=a,b", "?tag=web&dry_run=yes", "?project_id=%00"]
)
def test_a_query_without_a_valid_filter_is_refused(api: Api, user: User, query: str) -> None:
    monitor = tagged(user, "web")
    answer = api.patch(f"/v1/monitors{query}", {"slow_ms": 9})
    assert (answer.status, answer.json["error"]) == (422, "validation_error")
    monitor.refresh_from_db()
    assert monitor.slow_ms == 1_500


@pytest.mark.parametrize(
    "body",
    [
        {"slow_ms": -1},
        {"odd": 1},
        {"tags": ["a", "A"]},
        {"tags": [" "]},
        {"locations": []},
        {"locations": ["default", "default"]},
        {"locations": ["loc_unknown"]},
        {"locations": ["default"], "quorum": 2},
        {"project_id": "prj_unknown"},
        {"content_rules": [{"type": "text_contains"}]},
        {"url": "ftp://shop.example/"},
        {"timeout_ms": None},
    ],
    ids=repr,
)
@pytest.mark.parametrize("tag", ["web", "none"])
def test_a_body_that_no_monitor_could_take_is_refused(api: Api, user: User, body: dict[str, Any], tag: str) -> None:
    tagged(user, "web")
    answer = api.patch(f"/v1/monitors?tag={tag}", body)
    assert (answer.status, answer.json["error"]) == (422, "validation_error")


@pytest.mark.parametrize(
    "body",
    [
        {"type": "keyword"},
        {"type": "heartbeat"},
        {"request_body": "x"},
        {"quorum": 1},
        {"url": "udp://game.example:27015"},
        {"schedule": "0 4 * * *"},
        {"packets": 2},
        {},
    ],
    ids=repr,
)
def test_a_body_that_other_monitors_could_take_is_not(api: Api, user: User, body: dict[str, Any]) -> None:
    tagged(user, "web")
    assert api.patch("/v1/monitors?tag=web", body).status == 200
    assert api.patch("/v1/monitors?tag=none", body).json["matched"] == 0


def test_too_many_are_refused(api: Api, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_edits, "MAX_MONITORS", 2)
    monitors = [tagged(user, "web") for _ in range(3)]
    answer = api.patch("/v1/monitors?tag=web", {"slow_ms": 9})
    assert (answer.status, answer.json["error"], answer.json["limit"]) == (422, "validation_error", 2)
    assert not Monitor.objects.filter(slow_ms=9).exists()
    assert api.delete(f"/v1/monitors/{monitors[0].public_id}").status == 200
    assert len(api.patch("/v1/monitors?tag=web", {"slow_ms": 9}).json["changed"]) == 2


def test_each_caller_changes_their_monitors_only(user: User) -> None:
    member, stranger = UserFactory(), UserFactory()
    project = ProjectFactory(owner=user, member=member)
    own, shared = tagged(user, "web"), tagged(user, "web", project_id=project.public_id)
    foreign = tagged(stranger, "web")

    def change(api: Api, slow_ms: int) -> set[str]:
        return set(api.patch("/v1/monitors?tag=web", {"slow_ms": slow_ms}).json["changed"])

    assert change(Api.signed_in(user), 1) == {own.public_id, shared.public_id}
    assert change(Api.signed_in(member), 2) == change(Api.with_token(user, project), 3) == {shared.public_id}
    assert change(Api.signed_in(stranger), 4) == {foreign.public_id}


def test_moves_keep_to_the_plan_of_the_new_owner(api: Api, user: User) -> None:
    """And secrets do not go with them."""
    other = UserFactory(plan=PlanFactory(monitor_limit=1))
    full = ProjectFactory(owner=other, admin=user)
    header = {"request_headers": [{"name": "X-Key", "value": "needle"}]}
    first, second = tagged(user, "web", **header), tagged(user, "web")
    body = {"project_id": full.public_id}
    planned = api.patch("/v1/monitors?tag=web&dry_run=true", body).json
    done = api.patch("/v1/monitors?tag=web", body).json
    assert done == planned | {"dry_run": False}
    assert done["changed"] == [first.public_id]
    (refused,) = done["failed"]
    assert (refused["id"], refused["error"]) == (second.public_id, "monitor_limit")
    moved = Monitor.objects.get(pk=first.pk)
    assert (moved.owner, moved.header_values) == (other, [""])


def test_one_that_fails_meanwhile_does_not_stop_the_others(
    api: Api, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, kept = tagged(user, "web"), tagged(user, "web")
    planned = bulk_edits.plan(Caller(user), [gone.pk, kept.pk], bulk_edits.Change(given={"slow_ms": 9}))
    assert api.delete(f"/v1/monitors/{gone.public_id}").status == 200
    outcomes = bulk_edits.run(Caller(user), planned, bulk_edits.Change(given={"slow_ms": 9}), now=utc_now())
    assert [(one.is_changed, one.error and one.error.code) for one in outcomes] == [(False, "not_found"), (True, None)]
    monkeypatch.setattr(bulk_edits, "PATIENCE_SEC", 0)
    answer = api.patch("/v1/monitors?tag=web", {"slow_ms": 8}).json
    assert [(one["id"], one["error"]) for one in answer["failed"]] == [(kept.public_id, "overloaded")]


@pytest.mark.usefixtures("user")
def test_the_plan_takes_as_many_queries_for_many_as_for_few(
    api: Api, user: User, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        MonitorFactory(owner=user, name=f"n{number}")
    with django_assert_max_num_queries(12):
        assert api.patch("/v1/monitors?q=n&dry_run=true", {"slow_ms": 9}).json["matched"] == 30

"""Cron schedules of heartbeats and schedulers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

import pytest

from core.clock import from_ms, to_ms, utc_now
from monitors.models import Monitor
from tests.api.client import Api
from tests.factories import PlanFactory, ProjectFactory, UserFactory
from tests.manifests.helpers import apply_text, exported, refusal
from tests.monitors.cron_walk import walk

pytestmark = pytest.mark.django_db

NIGHTLY = {"type": "heartbeat", "name": "Nightly", "schedule": "30 3 * * MON-FRI", "timezone": "Europe/Berlin"}


@pytest.fixture
def api() -> Api:
    return Api.signed_in(UserFactory())


def test_a_heartbeat_keeps_its_schedule_beside_the_interval(api: Api) -> None:
    made = api.post("/v1/monitors", NIGHTLY | {"interval_sec": 600})
    assert made.status == 201
    assert (made.json["schedule"], made.json["timezone"]) == ("30 3 * * MON-FRI", "Europe/Berlin")
    assert (made.json["interval_sec"], made.json["missed"]) == (600, "skip")
    path = f"/v1/monitors/{made.json['id']}"
    assert api.patch(path, api.get(path).json).status == 200, "a client can send back what it read"
    cleared = api.patch(path, {"schedule": None})
    assert (cleared.json["schedule"], cleared.json["interval_sec"]) == (None, 600)


def test_blanks_between_the_fields_are_normal(api: Api) -> None:
    assert api.post("/v1/monitors", NIGHTLY | {"schedule": " 0  3\t* * * "}).json["schedule"] == "0 3 * * *"


def test_an_expression_has_at_most_100_characters(api: Api) -> None:
    days = ",".join(["MON"] * 23)
    longest, longer = f"30 3 * * {days}", f"30 13 * * {days}"
    assert (len(longest), len(longer)) == (100, 101)
    assert api.post("/v1/monitors", NIGHTLY | {"schedule": longest}).json["schedule"] == longest
    assert preview(api, schedule=longest).status == 200
    for refused in (api.post("/v1/monitors", NIGHTLY | {"schedule": longer}), preview(api, schedule=longer)):
        assert re.fullmatch("validation_error schedule: .* 100 characters.", refused.error)


def test_other_types_show_none_and_take_none(api: Api) -> None:
    url = {"url": "http://127.0.0.1:9/", "timeout_ms": 1_000}
    for kind in ("http", "port", "dns"):
        given = {"type": kind, **url}
        assert api.post("/v1/monitors", given | {"schedule": "0 3 * * *"}).status == 422
        assert api.post("/v1/monitors", given | {"timezone": "Europe/Berlin"}).status == 422
    assert not Monitor.objects.exists()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"schedule": "0 3 * *"}, "schedule: has 4 fields."),
    ({"schedule": "0 0 3 * * *"}, "schedule: has 6 fields."),
    ({"schedule": "0 25 * * *"}, "schedule: the hour"),
    ({"schedule": "0 3 L * *"}, "schedule: the day of month"),
    ({"schedule": "0 3 LW * *"}, "schedule: the day of month"),
    ({"schedule": "0 3 15W * *"}, "schedule: the day of month"),
    ({"schedule": "0 3 * * 5L"}, "schedule: the day of week"),
    ({"schedule": "0 3 * * MON#1"}, "schedule: the day of week"),
    ({"schedule": ""}, "schedule: "),
    ({"schedule": " "}, "schedule: has 0 fields."),
    ({"schedule": "\t\n"}, "schedule: has 0 fields."),
    ({"schedule": "0 3 30 2 *"}, "schedule: the day of month"),
    ({"schedule": "0,1 " * 30}, "schedule: "),
    ({"schedule": 5}, "schedule: must be a string."),
    ({"timezone": "Mars/Olympus"}, "timezone: is not a time zone."),
    ({"timezone": None}, "timezone: "),
    ({"timezone": ""}, "timezone: "),
    ({"timezone": " "}, "timezone: is not a time zone."),
    ({"schedule": None, "timezone": "Mars/Olympus"}, "timezone: is not a time zone."),
    ({"missed": "twice"}, "missed: must be one of skip, once."),
]


@pytest.mark.parametrize(("given", "reason"), WRONG)
def test_a_wrong_schedule_is_refused_in_post_and_patch(api: Api, given: dict[str, Any], reason: str) -> None:
    refused = api.post("/v1/monitors", NIGHTLY | given)
    assert (refused.status, refused.json["error"]) == (422, "validation_error")
    assert refused.json["reason"].startswith(reason)
    made = api.post("/v1/monitors", NIGHTLY)
    assert api.patch(f"/v1/monitors/{made.json['id']}", given).json == refused.json


def test_runs_that_are_closer_than_the_plan_allows_are_refused_with_the_limit() -> None:
    free = Api.signed_in(UserFactory(plan=PlanFactory(name="free")))
    refused = free.post("/v1/monitors", NIGHTLY | {"schedule": "*/4 * * * *"})
    assert (refused.status, refused.json["error"], refused.json["limit"]) == (422, "validation_error", 300)
    assert free.post("/v1/monitors", NIGHTLY | {"schedule": "*/5 * * * *"}).status == 201


def preview(api: Api, **query: Any) -> Any:
    return api.get(f"/v1/schedule-preview?{urlencode(query)}")


def test_a_preview_has_the_times_strictly_after_from(api: Api) -> None:
    start = datetime(2026, 3, 28, 2, 30, tzinfo=UTC)
    found = preview(api, schedule="30 3 * * *", timezone="Europe/Berlin", **{"from": to_ms(start), "count": 2})
    assert found.status == 200
    assert found.json == {"times": [to_ms(datetime(2026, 3, day, 1, 30, tzinfo=UTC)) for day in (29, 30)]}


def test_a_preview_shows_five_times_from_now_in_utc_if_nothing_else_is_said(api: Api) -> None:
    before = to_ms(utc_now())
    times = preview(api, schedule="0 * * * *").json["times"]
    assert len(times) == 5
    assert before < times[0] <= to_ms(utc_now()) + 3_600_000
    assert [later - earlier for earlier, later in pairwise(times)] == [3_600_000] * 4


def test_a_project_token_gets_a_preview_too() -> None:
    owner = UserFactory()
    assert preview(Api.with_token(owner, ProjectFactory(owner=owner)), schedule="0 * * * *").status == 200


TEXTS = [case for case in WRONG if "missed" not in case[0] and all(isinstance(one, str) for one in case[0].values())]


@pytest.mark.parametrize(("given", "reason"), TEXTS)
def test_a_preview_refuses_what_a_monitor_refuses(api: Api, given: dict[str, Any], reason: str) -> None:
    refused = preview(api, **({"schedule": "0 3 * * *"} | given))
    assert refused.status == 422
    assert refused.json["reason"].startswith(reason)


@pytest.mark.parametrize("query", [{"count": 0}, {"count": 51}, {"from": -1}, {"from": "now"}])
def test_a_preview_refuses_bad_parameters(api: Api, query: dict[str, Any]) -> None:
    assert preview(api).status == 422, "without a schedule"
    assert preview(api, schedule="0 3 * * *", **query).status == 422


FIRST, LAST = 0, to_ms(datetime(2201, 1, 1, tzinfo=UTC)) - 1


def test_a_preview_begins_in_the_years_1970_to_2200(api: Api) -> None:
    assert preview(api, schedule="0 0 * * *", **{"from": FIRST, "count": 1}).json == {"times": [86_400_000]}
    assert preview(api, schedule="0 0 * * *", **{"from": LAST, "count": 1}).json == {"times": [LAST + 1]}
    for outside in (FIRST - 1, LAST + 1):
        refused = preview(api, schedule="0 0 * * *", **{"from": outside})
        assert (refused.status, refused.json["error"]) == (422, "validation_error")
        assert refused.json["reason"].startswith("from: ")


def test_a_preview_of_odd_clock_changes_ends(api: Api) -> None:
    """cronsim never ends here: each request would lose a thread of the web process."""
    start = 1_289_025_060_000
    query = {"schedule": "45 */2 * * *", "timezone": "America/St_Johns", "from": start, "count": 50}
    found = preview(api, **query)
    assert found.status == 200
    times = walk("45 */2 * * *", "America/St_Johns", from_ms(start), from_ms(found.json["times"][-1]))
    assert found.json["times"] == [to_ms(time) for time in times]


def test_a_preview_has_the_limit_of_the_plan() -> None:
    refused = preview(Api.signed_in(UserFactory(plan=PlanFactory(name="free"))), schedule="* * * * *")
    assert (refused.status, refused.json["limit"]) == (422, 300)


def test_a_monitor_keeps_to_the_limit_of_the_owner_that_it_moves_to() -> None:
    user = UserFactory()
    project = ProjectFactory(owner=UserFactory(plan=PlanFactory(name="free")), admin=user)
    api = Api.signed_in(user)
    path = f"/v1/monitors/{api.post('/v1/monitors', NIGHTLY | {'schedule': '*/4 * * * *'}).json['id']}"
    refused = api.patch(path, {"project_id": project.public_id})
    assert (refused.status, refused.json["limit"]) == (422, 300)
    moved = api.patch(path, {"project_id": project.public_id, "schedule": "*/5 * * * *"})
    assert (moved.status, moved.json["project_id"]) == (200, project.public_id)


def test_a_file_has_the_same_rules() -> None:
    text = """
        version: 1
        monitors:
          - name: Nightly
            type: heartbeat
            interval_sec: 300
            schedule: {}
            timezone: Europe/Berlin
        """
    user = UserFactory(plan=PlanFactory(name="free"))
    (problem,) = refusal(user, text.format("'*/4 * * * *'"))
    assert problem.endswith("schedule: two runs are 240 s apart, and the plan's minimum is 300 s.")
    assert apply_text(user, text.format("30 3 * * MON-FRI")).created == 1
    assert apply_text(user, text.format("30  3 * * MON-FRI")).changes == []
    assert apply_text(user, exported(user)).changes == []
    (problem,) = refusal(user, text.format('" "'))
    assert "schedule: has 0 fields." in problem
    assert apply_text(user, text.format("null")).changed == 1
    assert Monitor.objects.get().schedule is None

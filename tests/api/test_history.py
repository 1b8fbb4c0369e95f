"""GET /v1/monitors/<id>/checks and /uptime."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pytest
import time_machine
from django.db import connection

from accounts.models import User
from checks.results.models import CheckResult
from checks.results.partitions import RESULTS, make
from checks.results.selectors import results_of
from checks.spec import ReasonCode, Verdict
from core.clock import MAX_MS, to_ms
from monitors.models import Monitor, StatusChange
from tests.api.client import Answer, Api
from tests.factories import CheckResultFactory, MonitorFactory, ProjectFactory, SchedulerGapFactory, StatusChangeFactory
from tests.helpers import NOON, minutes

UP, SLOW, DOWN = Verdict.UP, Verdict.SLOW, Verdict.DOWN
MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)


def add_result(monitor: Monitor, claim: int, at: datetime, verdict: Verdict = UP, **given: Any) -> CheckResult:
    given.setdefault("latency_ms", None if verdict is DOWN else 20)
    return CheckResultFactory(monitor=monitor, claim=claim, checked_at=at, verdict=verdict, **given)


def add_change(monitor: Monitor, at: datetime, before: Verdict | None, after: Verdict) -> None:
    StatusChangeFactory(monitor=monitor, at=at, before=before, after=after)
    monitor.state.status = after
    monitor.state.save(update_fields=["status"])


def pause(monitor: Monitor, at: datetime, status: Verdict, *, resume: bool = False) -> None:
    kind = StatusChange.Kind.RESUMED if resume else StatusChange.Kind.PAUSED
    StatusChangeFactory(monitor=monitor, at=at, kind=kind, before=status, after=status)
    Monitor.objects.filter(pk=monitor.pk).update(enabled=resume)


def next_path(answer: Answer) -> str | None:
    link = answer.headers.get("Link", "")
    assert not link or link.endswith('>; rel="next"')
    return link.removesuffix('>; rel="next"').removeprefix("<http://testserver") or None


def pages(api: Api, path: str) -> list[list[int]]:
    """Return `checked_at` of each page, in ms after NOON."""
    found = []
    following: str | None = path
    while following:
        answer = api.get(following)
        assert answer.status == 200
        found.append([row["checked_at"] - to_ms(NOON) for row in answer.json])
        following = next_path(answer)
    return found


@pytest.fixture
def monitor(user: User) -> Monitor:
    return MonitorFactory(owner=user)


@pytest.fixture
def _noon() -> Iterator[None]:
    with time_machine.travel(NOON, tick=False):
        yield


@pytest.fixture
def checks(monitor: Monitor) -> str:
    return f"/v1/monitors/{monitor.public_id}/checks"


@pytest.fixture
def uptime(monitor: Monitor) -> str:
    return f"/v1/monitors/{monitor.public_id}/uptime"


class TestChecks:
    def test_a_row_shows_what_the_check_found(self, api: Api, monitor: Monitor, checks: str) -> None:
        add_result(monitor, 1, NOON, latency_ms=30, connect_ms=10, ttfb_ms=20, http_status=204)
        why = {"reason_code": ReasonCode.HTTP_FAILURE, "detail": "Answered 500.", "http_status": 500}
        add_result(monitor, 2, NOON + minutes(1), DOWN, **why)
        down, up = api.get(checks).json
        assert up.pop("id") != down.pop("id")
        nothing: dict[str, Any] = {"latency_ms": None, "connect_ms": None, "ttfb_ms": None, "loss": None}
        nothing |= {"location": "default", "confirmed": None}
        assert down == {"checked_at": to_ms(NOON) + 60_000, "status": "down"} | nothing | why
        assert up == {
            "checked_at": to_ms(NOON),
            "status": "up",
            "latency_ms": 30,
            "connect_ms": 10,
            "ttfb_ms": 20,
            "http_status": 204,
            "loss": None,
            "reason_code": None,
            "detail": None,
            "location": "default",
            "confirmed": None,
        }

    def test_a_ping_shows_its_loss(self, api: Api, monitor: Monitor, checks: str) -> None:
        add_result(monitor, 1, NOON, latency_ms=30, loss=33)
        assert [row["loss"] for row in api.get(checks).json] == [33]

    def test_an_id_stays_and_is_its_monitors_own(self, api: Api, user: User, monitor: Monitor) -> None:
        other = MonitorFactory(owner=user)
        for one in (monitor, other):
            add_result(one, 1, NOON)
        ids = [api.get(f"/v1/monitors/{one.public_id}/checks").json[0]["id"] for one in (monitor, other) * 2]
        assert ids[:2] == ids[2:]
        assert ids[0] != ids[1]
        assert all(one.startswith("chk_") and len(one) == 30 for one in ids)

    def test_without_a_limit_a_hundred_come_at_a_time(self, api: Api, monitor: Monitor, checks: str) -> None:
        for claim in range(1, 202):
            add_result(monitor, claim, NOON + minutes(claim))
        found = pages(api, checks)
        assert [len(page) for page in found] == [100, 100, 1]
        assert list(chain(*found)) == [claim * 60_000 for claim in range(201, 0, -1)]
        assert [len(page) for page in pages(api, f"{checks}?limit=201")] == [201]

    def test_ties_are_neither_repeated_nor_dropped(self, api: Api, monitor: Monitor, checks: str) -> None:
        # The same microsecond, and the same millisecond: the cursor must distinguish both.
        moments = [NOON, NOON, NOON, NOON + timedelta(microseconds=1), NOON, NOON + timedelta(microseconds=2)]
        for claim, at in enumerate(moments, start=1):
            add_result(monitor, claim, at)
        ids, following = [], f"{checks}?limit=2"
        for _ in range(3):
            answer = api.get(following)
            ids += [row["id"] for row in answer.json]
            following = next_path(answer) or ""
        assert following == ""
        assert len(set(ids)) == len(moments)
        assert ids == [row["id"] for row in api.get(checks).json]

    def test_results_that_arrive_between_pages_do_not_shift_them(self, api: Api, monitor: Monitor, checks: str) -> None:
        for claim in range(1, 5):
            add_result(monitor, claim, NOON + minutes(claim))
        first = api.get(f"{checks}?limit=2")
        for claim in range(5, 9):
            add_result(monitor, claim, NOON + minutes(claim))
        second = api.get(next_path(first) or "")
        assert [row["checked_at"] - to_ms(NOON) for row in first.json + second.json] == [
            240_000,
            180_000,
            120_000,
            60_000,
        ]

    def test_filters(self, api: Api, monitor: Monitor, checks: str) -> None:
        for claim, verdict in enumerate([UP, SLOW, DOWN, UP, SLOW, DOWN]):
            add_result(monitor, claim, NOON + timedelta(milliseconds=claim, microseconds=7), verdict)
        noon = to_ms(NOON)
        assert pages(api, f"{checks}?status=down") == [[5, 2]]
        assert pages(api, f"{checks}?since={noon + 3}") == [[5, 4, 3]]
        assert pages(api, f"{checks}?until={noon + 3}") == [[2, 1, 0]]
        assert pages(api, f"{checks}?since={noon + 1}&until={noon + 5}&limit=2") == [[4, 3], [2, 1]]
        assert pages(api, f"{checks}?status=slow&limit=1&since={noon}") == [[4], [1]]
        assert pages(api, f"{checks}?since={noon + 3}&until={noon + 3}") == [[]]
        assert pages(api, f"{checks}?since={MAX_MS}&until=0") == [[]]

    @pytest.mark.parametrize(
        "query",
        [
            *("limit=0", "limit=1001", "limit=-1", "limit=1.5", "limit=", "limit=%00", f"limit={'9' * 5000}"),
            *("cursor=", "cursor=x", "cursor=MQ==", "cursor=LTEuMQ==", "cursor=MS4tMQ==", "cursor=é"),
            *("cursor=OTk5OTk5OTk5OTk5OTk5OTk5OS4x", "cursor=OTAwMDAwMDAwMDAwMDAwMDAwMC4x", "cursor=MS4xLjE="),
            *("status=paused", "status=UP", "status=", "status=%00", "status=up,down"),
            *("since=-1", "since=now", "since=1.0", "since=", f"since={MAX_MS + 1}", "since=٣", "since=1e3"),
            *("until=-1", "until=2026-03-01", f"until={2**64}", "until=%F0%9F%92%A9"),
        ],
    )
    def test_bad_parameters(self, api: Api, checks: str, query: str) -> None:
        answer = api.get(f"{checks}?{query}")
        assert (answer.status, answer.json["error"]) == (422, "validation_error")
        assert query.split("=")[0] in answer.json["reason"]

    @pytest.mark.parametrize("kind", ["checks", "uptime"])
    def test_a_monitor_of_another_account_is_not_found(self, api: Api, user: User, kind: str) -> None:
        foreign = MonitorFactory()
        outside = MonitorFactory(owner=user)
        token = Api.with_token(user, ProjectFactory(owner=user))
        for caller, monitor in ((api, foreign), (token, foreign), (token, outside)):
            answer = caller.get(f"/v1/monitors/{monitor.public_id}/{kind}?days=x&limit=x")
            assert (answer.status, answer.json["error"]) == (404, "not_found")

    @pytest.mark.parametrize("partitioned", [True, False])
    def test_a_page_is_read_off_the_index(self, monitor: Monitor, partitioned: bool) -> None:
        if partitioned:
            days = [RESULTS.bounds(NOON + timedelta(days=day)) for day in range(22)]
            assert len(make(RESULTS, days)) == 22
        with connection.cursor() as cursor:
            cursor.execute(
                """
                INSERT INTO checks_checkresult (monitor_id, claim, checked_at, verdict)
                SELECT %s + n %% 2, n, %s + n * interval '1 minute', 'up' FROM generate_series(1, 30000) AS n
                """,
                [monitor.pk, NOON],
            )
            cursor.execute("ANALYZE checks_checkresult")
            with CapturedPlans() as plans:
                # Claims of one monitor are 2, 4, … here.
                rows = results_of(
                    monitor.pk, limit=101, now=NOON + minutes(30_000), before=(NOON + minutes(20_000), 20_000)
                )
        assert [row.claim for row in rows] == list(range(19_998, 19_796, -2))
        (plan,) = plans.found
        assert "Seq Scan" not in plan
        assert max(plans.rows_read) <= 720, "a day of the monitor's at most, of the ten that there are"
        assert plan.count("'Relation Name'") == (2 if partitioned else 1), "no other day is even planned for"


class CapturedPlans:
    """Collect EXPLAIN ANALYZE of each SELECT in the block."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.rows_read: list[float] = []

    def __enter__(self) -> CapturedPlans:
        self._wrapper = connection.execute_wrapper(self._explain)
        self._wrapper.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._wrapper.__exit__(None, None, None)

    def _explain(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        with connection.connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params)
            node = cursor.fetchone()[0][0]["Plan"]
        self.found.append(str(node))
        while node is not None:
            self.rows_read.append(node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
            node = next(iter(node.get("Plans", [])), None)
        return execute(sql, params, many, context)


@pytest.mark.usefixtures("_noon")
class TestUptime:
    """As of NOON of 2026-03-01."""

    def days(self, api: Api, path: str, count: int = 3) -> list[dict[str, Any]]:
        answer = api.get(f"{path}?days={count}")
        assert answer.status == 200
        found: list[dict[str, Any]] = answer.json
        return found

    def test_nothing_observed(self, api: Api, uptime: str) -> None:
        answer = api.get(uptime)
        assert answer.status == 200
        assert [day["date"] for day in answer.json] == [
            *("2026-02-23", "2026-02-24", "2026-02-25", "2026-02-26", "2026-02-27", "2026-02-28", "2026-03-01")
        ]
        assert all(
            (day["uptime"], day["down_sec"], day["incidents"], day["avg_latency_ms"]) == (None, 0, 0, None)
            for day in answer.json
        )

    def test_an_outage_over_midnight_counts_on_both_days(self, api: Api, monitor: Monitor, uptime: str) -> None:
        add_change(monitor, MIDNIGHT - minutes(2 * 1440), None, UP)
        add_change(monitor, MIDNIGHT - minutes(144), UP, DOWN)
        add_change(monitor, MIDNIGHT + minutes(72), DOWN, UP)
        found = self.days(api, uptime)
        assert [(d["uptime"], d["down_sec"], d["incidents"]) for d in found] == [
            (100.0, 0, 0),
            (90.0, 144 * 60, 1),
            (90.0, 72 * 60, 0),
        ]

    def test_a_change_at_midnight_belongs_to_the_day_that_begins(self, api: Api, monitor: Monitor, uptime: str) -> None:
        add_change(monitor, MIDNIGHT - minutes(1440), None, UP)
        add_change(monitor, MIDNIGHT, UP, DOWN)
        found = self.days(api, uptime, 2)
        assert [(d["uptime"], d["down_sec"], d["incidents"]) for d in found] == [(100.0, 0, 0), (0.0, 12 * 3600, 1)]

    def test_it_stands_as_it_stood_before_the_oldest_day(self, api: Api, monitor: Monitor, uptime: str) -> None:
        add_change(monitor, MIDNIGHT - minutes(30 * 1440), None, DOWN)
        assert [d["uptime"] for d in self.days(api, uptime)] == [0.0, 0.0, 0.0]
        add_change(monitor, NOON - minutes(60), DOWN, SLOW)
        assert [d["uptime"] for d in self.days(api, uptime)] == [0.0, 0.0, 8.33]

    def test_pauses_gaps_and_what_both_cover_are_not_observed(self, api: Api, monitor: Monitor, uptime: str) -> None:
        add_change(monitor, MIDNIGHT - minutes(1440), None, DOWN)
        pause(monitor, MIDNIGHT + minutes(60), DOWN)
        pause(monitor, MIDNIGHT + minutes(180), DOWN, resume=True)
        SchedulerGapFactory(started_at=MIDNIGHT + minutes(120), ended_at=MIDNIGHT + minutes(240))
        add_change(monitor, NOON - minutes(60), DOWN, UP)
        today = self.days(api, uptime, 1)[0]
        # Down for 1 h, then 3 h without observation, down for 7 h, up for the last hour.
        assert (today["down_sec"], today["uptime"]) == (8 * 3600, round(100 / 9, 2))

    def test_a_day_spent_paused_is_null(self, api: Api, monitor: Monitor, uptime: str) -> None:
        add_change(monitor, MIDNIGHT - minutes(3 * 1440), None, UP)
        pause(monitor, MIDNIGHT - minutes(1440), UP)
        assert [d["uptime"] for d in self.days(api, uptime)] == [100.0, None, None]

    def test_wavering_between_up_and_slow_is_all_the_same(self, api: Api, monitor: Monitor, uptime: str) -> None:
        add_change(monitor, NOON - minutes(60), None, SLOW)
        for minute in range(59, 0, -1):
            before, after = (SLOW, UP) if minute % 2 else (UP, SLOW)
            add_change(monitor, NOON - minutes(minute), before, after)
        add_change(monitor, NOON - minutes(0.5), UP, DOWN)
        (today,) = self.days(api, uptime, 1)
        assert (today["uptime"], today["down_sec"], today["incidents"]) == (99.17, 30, 1)

    def test_latency_is_the_mean_of_passed_checks_by_day(self, api: Api, monitor: Monitor, uptime: str) -> None:
        for claim, (minute, verdict, latency) in enumerate(
            [(-1441, UP, 999), (-1440, UP, 10), (-1, SLOW, 21), (-2, DOWN, 5000), (0, UP, 7), (1, UP, None)]
        ):
            add_result(monitor, claim, MIDNIGHT + minutes(minute), verdict, latency_ms=latency)
        assert [d["avg_latency_ms"] for d in self.days(api, uptime, 2)] == [15.5, 7.0]

    @pytest.mark.parametrize(
        "query", ["days=0", "days=91", "days=", "days=-1", "days=7.0", "days=x", "days=%00", "days=٣"]
    )
    def test_bad_days(self, api: Api, uptime: str, query: str) -> None:
        answer = api.get(f"{uptime}?{query}")
        assert (answer.status, answer.json["error"]) == (422, "validation_error")
        assert "days" in answer.json["reason"]

    def test_ninety_days(self, api: Api, uptime: str) -> None:
        found = self.days(api, uptime, 90)
        assert (len(found), found[0]["date"], found[-1]["date"]) == (90, "2025-12-02", "2026-03-01")


@pytest.mark.usefixtures("_noon")
class TestStatistics:
    """`uptime_24h` and `avg_latency_24h` at their edges."""

    def shown(self, api: Api, monitor: Monitor) -> tuple[float | None, float | None]:
        answer = api.get(f"/v1/monitors/{monitor.public_id}").json
        return answer["uptime_24h"], answer["avg_latency_24h"]

    def test_a_change_exactly_where_the_window_begins(self, api: Api, monitor: Monitor) -> None:
        add_change(monitor, NOON - minutes(2000), None, UP)
        add_change(monitor, NOON - minutes(1440), UP, DOWN)
        assert self.shown(api, monitor)[0] == 0.0

    def test_a_change_this_very_moment(self, api: Api, monitor: Monitor) -> None:
        add_change(monitor, NOON - minutes(2000), None, UP)
        add_change(monitor, NOON, UP, DOWN)
        assert self.shown(api, monitor)[0] == 100.0

    def test_a_worker_whose_clock_is_ahead(self, api: Api, monitor: Monitor) -> None:
        add_change(monitor, NOON - minutes(2000), None, UP)
        add_change(monitor, NOON + minutes(0.1), UP, DOWN)
        assert self.shown(api, monitor)[0] == 100.0, "it has been up until now"

    def test_a_first_check_of_the_next_second(self, api: Api, monitor: Monitor) -> None:
        add_change(monitor, NOON + minutes(0.01), None, UP)
        assert self.shown(api, monitor)[0] is None

    def test_a_worker_whose_clock_is_behind(self, api: Api, monitor: Monitor) -> None:
        add_change(monitor, NOON - minutes(2000), None, UP)
        pause(monitor, NOON - minutes(200), UP)
        pause(monitor, NOON - minutes(100), UP, resume=True)
        # Written after the monitor resumed but dated before: it counts from the resumption on.
        add_change(monitor, NOON - minutes(101), UP, DOWN)
        assert self.shown(api, monitor)[0] == round(100 * 1240 / 1340, 2)

    def test_latencies_of_the_window_alone(self, api: Api, monitor: Monitor) -> None:
        add_result(monitor, 1, NOON - minutes(1441), latency_ms=1000)
        assert self.shown(api, monitor)[1] is None
        add_result(monitor, 2, NOON - minutes(1440), latency_ms=10)
        add_result(monitor, 3, NOON, SLOW, latency_ms=11)
        add_result(monitor, 4, NOON, DOWN, latency_ms=5000)
        assert self.shown(api, monitor)[1] == 10.5


@pytest.mark.parametrize("limit", [1, 7, 40, 100])
@pytest.mark.parametrize("since", [None, 0.5, 1, 3, 7, 30])
@pytest.mark.parametrize("until", [None, 0, 2, 8])
def test_pages_are_whole_over_days_and_weeks(
    monitor: Monitor, limit: int, since: float | None, until: float | None
) -> None:
    """The ranges in which a page is read neither overlap nor leave a gap. Bounds are days before NOON."""
    day = timedelta(days=1)
    start, end = (None if days is None else NOON - days * day for days in (since, until))
    moments = [NOON + minutes(1), *(NOON - hours * day / 4 for hours in range(60))]
    for claim, at in enumerate(moments):
        add_result(monitor, claim, at)
    wanted = [at for at in moments if (start is None or at >= start) and (end is None or at < end)]
    found: list[CheckResult] = []
    while page := results_of(
        monitor.pk,
        limit=limit,
        now=NOON,
        before=(found[-1].checked_at, found[-1].claim) if found else None,
        since=start,
        until=end,
    ):
        assert len(page) <= limit
        found += page
    assert [result.checked_at for result in found] == wanted

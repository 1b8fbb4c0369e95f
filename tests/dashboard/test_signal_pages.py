"""The page of a heartbeat: runs as bars, the log of signals, and the deadline."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from core.clock import utc_now
from dashboard.monitors.runs import HEIGHT, PAGE, RUNS, bars_of
from monitors.heartbeats import log
from monitors.heartbeats.history import SEARCHED, Ending, Run, last_runs
from monitors.heartbeats.incoming import MAX_BODY_BYTES_PER_HOUR
from monitors.heartbeats.runs import MAX_OPEN
from monitors.heartbeats.services import record, sweep
from monitors.models import Monitor, MonitorState, Ping
from tests.factories import MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, minutes, signal

SCRIPT = "<script>alert(1)</script>"
RID = UUID("0f8fad5b-d9cb-469f-a165-70867728950e")


@pytest.fixture
def heartbeat(user: User) -> Monitor:
    return MonitorFactory(owner=user, heartbeat=True, name="Backup", interval_sec=600, grace_sec=600)


def send(monitor: Monitor, word: str = "", *, at: float, **given: Any) -> None:
    assert record(signal(monitor.public_id, word, now=NOON + minutes(at), **given))


def text_of(web: Client, path: str, **query: str) -> str:
    answer = web.get(path, query)
    assert answer.status_code == 200
    return answer.content.decode()


def log_of(web: Client, monitor: Monitor, **query: str) -> str:
    return text_of(web, f"/monitors/{monitor.public_id}/signals", **query)


def bodies_in(page: str) -> list[str]:
    return [unescape(body) for body in re.findall(r'aria-label="Body, [^"]+">(.*?)</pre>', page, re.DOTALL)]


def runs_at(monitor: Monitor, at: float) -> list[tuple[Ending, float | None]]:
    found = last_runs(Monitor.objects.get(pk=monitor.pk), limit=RUNS, now=NOON + minutes(at))
    return [(run.ending, None if run.duration is None else run.duration / minutes(1)) for run in found]


def test_runs_end_with_success_failure_or_not_at_all(heartbeat: Monitor) -> None:
    send(heartbeat, "start", at=0)
    send(heartbeat, at=2)
    send(heartbeat, "start", at=3, rid=RID)
    send(heartbeat, "log", at=4, body="halfway")
    send(heartbeat, "7", at=6, rid=RID)
    send(heartbeat, at=9)
    assert runs_at(heartbeat, 9) == [(Ending.SUCCESS, 2), (Ending.FAIL, 3), (Ending.SUCCESS, None)]
    send(heartbeat, "start", at=10)
    assert runs_at(heartbeat, 11)[3:] == [(Ending.RUNNING, 1)]
    MonitorState.objects.update(claimed_at=NOON)
    sweep([heartbeat.pk], now=NOON + minutes(40))
    assert runs_at(heartbeat, 40)[3:] == [(Ending.MISSED, None)]


def test_the_page_says_when_more_runs_are_open_than_are_watched(web: Client, heartbeat: Monitor) -> None:
    for number in range(MAX_OPEN):
        send(heartbeat, "start", at=number / 60, rid=UUID(int=number))
    assert "more run" not in text_of(web, f"/monitors/{heartbeat.public_id}")
    for number in (200, 201):
        send(heartbeat, "start", at=2, rid=UUID(int=number))
    assert "2 more runs are open. At most 100 open runs are watched" in text_of(web, f"/monitors/{heartbeat.public_id}")
    send(heartbeat, at=3, rid=UUID(int=200))
    assert "1 more run is open." in text_of(web, f"/monitors/{heartbeat.public_id}")
    send(heartbeat, at=4, rid=UUID(int=201))
    assert "more run" not in text_of(web, f"/monitors/{heartbeat.public_id}")


def test_a_run_of_the_wrong_length_is_a_failure(user: User) -> None:
    monitor = MonitorFactory(owner=user, heartbeat=True, grace_sec=600, min_duration_sec=60)
    send(monitor, "start", at=0)
    send(monitor, at=0.5)
    assert runs_at(monitor, 1) == [(Ending.FAIL, 0.5)]


def test_bars_are_as_high_as_their_runs_took() -> None:
    given = [
        Run(Ending.SUCCESS, NOON, minutes(2)),
        Run(Ending.FAIL, NOON, minutes(4), "The job ended with exit status 7."),
        Run(Ending.SUCCESS, NOON),
        Run(Ending.MISSED, NOON),
        Run(Ending.RUNNING, NOON, minutes(1)),
    ]
    chart = bars_of(given)
    assert [bar.height for bar in chart.bars] == [HEIGHT / 2, HEIGHT, 4, HEIGHT, HEIGHT / 4]
    assert chart.sentence == "Last 5 runs: 2 succeeded, 1 failed, 1 missed, 1 still running."
    assert chart.bars[1].title.endswith("failed after 4 min. The job ended with exit status 7.")
    alone = bars_of([Run(Ending.SUCCESS, NOON, timedelta())])
    assert (alone.bars[0].height, alone.sentence) == (4, "Last run: 1 succeeded.")


def test_hostile_texts_are_escaped(web: Client, heartbeat: Monitor) -> None:
    body = f"{SCRIPT}\u202egnirts \U0001f4a5 {'x' * 9_000}"
    send(heartbeat, "fail", at=0, body=body, user_agent=SCRIPT)
    for page in (text_of(web, f"/monitors/{heartbeat.public_id}"), log_of(web, heartbeat)):
        assert SCRIPT not in page
        assert bodies_in(page) == [body]


def test_the_log_says_why_a_body_is_missing(web: Client, heartbeat: Monitor) -> None:
    why = f"received more than {MAX_BODY_BYTES_PER_HOUR:,} bytes of bodies within an hour"
    send(heartbeat, "log", at=0, body="full")
    MonitorState.objects.update(body_bytes=MAX_BODY_BYTES_PER_HOUR)
    for number, body in enumerate(["more", None]):
        send(heartbeat, "log", at=1 + number, body=body)
    page = log_of(web, heartbeat)
    assert (bodies_in(page), page.count(why)) == (["full"], 1)


def test_the_log_is_filtered_searched_and_paged(web: Client, heartbeat: Monitor) -> None:
    for number in range(PAGE + 2):
        send(heartbeat, "log", at=number, body=f"entry {number} of 100%")
    send(heartbeat, "fail", at=PAGE + 2, body="Disk FULL")
    page = log_of(web, heartbeat)
    assert bodies_in(page)[:2] == ["Disk FULL", f"entry {PAGE + 1} of 100%"]
    older = re.search(r'href="\?before=([0-9-]+)"', page)
    assert older is not None
    assert bodies_in(log_of(web, heartbeat, before=older[1])) == [f"entry {n} of 100%" for n in (2, 1, 0)]
    assert bodies_in(log_of(web, heartbeat, kind="fail")) == ["Disk FULL"]
    assert bodies_in(log_of(web, heartbeat, text="disk full")) == ["Disk FULL"]
    assert bodies_in(log_of(web, heartbeat, text="entry 7 ", kind="log")) == ["entry 7 of 100%"]
    assert bodies_in(log_of(web, heartbeat, text="0%", kind="fail")) == []
    assert "No matching signals" in log_of(web, heartbeat, text="%_%")


@pytest.mark.parametrize(
    "query", [{"kind": "nonsense"}, {"before": "x"}, {"before": "9" * 17 + "-" + "9" * 18}, {"text": "\0" * 500}]
)
def test_odd_queries_are_answered(web: Client, heartbeat: Monitor, query: dict[str, str]) -> None:
    send(heartbeat, at=0, body="once")
    assert bodies_in(log_of(web, heartbeat, **query)) == ["once"]


def test_a_long_search_goes_on_where_it_stopped(web: Client, heartbeat: Monitor) -> None:
    send(heartbeat, "log", at=0, body="needle")
    hay = signal(heartbeat.public_id, "log", now=NOON + minutes(1), body="hay")
    log.add([log.Entry(heartbeat.pk, hay, hay.at + timedelta(seconds=number), None) for number in range(SEARCHED)])
    page = log_of(web, heartbeat, text="needle")
    assert bodies_in(page) == []
    assert "Searched back to" in page
    rest = re.search(r"before=([0-9-]+)", page)
    assert rest is not None
    assert bodies_in(log_of(web, heartbeat, text="needle", before=rest[1])) == ["needle"]


def test_five_hundred_runs_take_no_query_each(web: Client, heartbeat: Monitor) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as counted:
            text_of(web, f"/monitors/{heartbeat.public_id}")
        return len(counted)

    send(heartbeat, "start", at=0)
    send(heartbeat, at=1)
    few = queries()
    Ping.objects.bulk_create(
        Ping(
            id=1_000_000 + number,
            monitor_id=heartbeat.pk,
            at=NOON + minutes(2 + number),
            kind=Ping.Kind.SUCCESS,
            duration_ms=number * 100,
            method="POST",
            user_agent="curl/8.14.1",
            body="done",
        )
        for number in range(RUNS)
    )
    assert queries() == few
    page = text_of(web, f"/monitors/{heartbeat.public_id}")
    assert page.count('<g class="run ') == RUNS


def test_who_may_see_it(client: Client, web: Client) -> None:
    member = UserFactory()
    project = ProjectFactory(member=member)
    monitor = MonitorFactory(project=project, heartbeat=True)
    send(monitor, at=0, body="done")
    path = f"/monitors/{monitor.public_id}/signals"
    assert web.get(path).status_code == 404
    client.force_login(member)
    assert bodies_in(client.get(path).content.decode()) == ["done"]
    other = MonitorFactory(project=project)
    assert client.get(f"/monitors/{other.public_id}/signals").status_code == 404


def deadline_in(page: str) -> str:
    found = re.search(r"Next deadline</dt>(.*?)</dd>", page, re.DOTALL)
    assert found is not None
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", found[1])).strip()


def test_the_next_deadline_in_each_state(web: Client, heartbeat: Monitor) -> None:
    path = f"/monitors/{heartbeat.public_id}"
    assert deadline_in(text_of(web, path)) == "waiting for the first ping"
    now = utc_now()
    record(signal(heartbeat.public_id, now=now))
    due = now + timedelta(minutes=20)
    page = text_of(web, path)
    assert f'datetime="{due.isoformat()}"' in page
    assert re.search(r'data-countdown="\d{13}"', page)
    record(signal(heartbeat.public_id, "fail", now=utc_now()))
    assert deadline_in(text_of(web, path)).startswith("down since")
    Monitor.objects.update(enabled=False)
    assert deadline_in(text_of(web, path)) == "paused"


def test_an_open_page_learns_of_signals_that_change_no_state(web: Client, heartbeat: Monitor) -> None:
    path = f"/monitors/{heartbeat.public_id}"
    seen = re.search(r"seen=([^\"&]+)", text_of(web, path))
    assert seen is not None
    assert web.get(f"{path}/live", {"seen": seen[1]}).status_code == 204
    send(heartbeat, "log", at=0, body="halfway")
    assert "halfway" in web.get(f"{path}/live", {"seen": seen[1]}).content.decode()

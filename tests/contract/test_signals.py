"""Start, end and failure signals of heartbeats and the limits on runs. Each story is a sequence of API calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from typing import Any
from uuid import UUID

import pytest
import time_machine
from django.test import Client

from accounts.models import User
from core.clock import to_ms, utc_now
from monitors.heartbeats import log
from monitors.heartbeats import services as heartbeats
from monitors.models import StatusChange
from monitors.scheduling import claim_due
from tests.api.client import Api
from tests.factories import MonitorFactory, ProjectFactory
from tests.helpers import NOON, signal

A, B = UUID(int=0xA), UUID(int=0xB)
RID_A, RID_B = f"?rid={A}", f"?rid={B}"
MISSED, FAILED = "heartbeat_missed", "heartbeat_failed"


@dataclass(frozen=True)
class Story:
    """Signals and actions by second for a heartbeat with an interval of 300 s and 60 s of grace, and the results.

    A step is the end of a ping's path; `look`, which runs the scheduler; `mute`, `pause` or `resume`; or the fields
    of a PATCH. `changes`: second, status and reason of each transition.
    """

    steps: list[tuple[float, str | dict[str, Any]]]
    changes: list[tuple[float, str, str | None]] = field(default_factory=list)
    durations: list[float | None] = field(default_factory=list)
    detail: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)


STORIES: dict[str, Story] = {
    "a plain run": Story(
        steps=[(0, "/start"), (40, ""), (100, "look")], changes=[(40, "up", None)], durations=[None, 40]
    ),
    "an end without a start": Story(steps=[(0, ""), (10, "")], changes=[(0, "up", None)], durations=[None, None]),
    "a start alone sets no status": Story(steps=[(0, "/start"), (60, "look")], durations=[None]),
    "a first run that does not end": Story(
        steps=[(0, "/start"), (61, "look")],
        changes=[(60, "down", MISSED)],
        durations=[None],
        detail="The run did not end within 60 s of its start.",
    ),
    "a later run that does not end": Story(
        steps=[(0, ""), (100, "/start"), (160, "look"), (161, "look")],
        changes=[(0, "up", None), (160, "down", MISSED)],
        durations=[None, None],
    ),
    "exactly at the deadline of a run": Story(
        steps=[(0, ""), (100, "/start"), (160, "look"), (160, "")],
        changes=[(0, "up", None)],
        durations=[None, None, 60],
    ),
    "a start moves no other deadline": Story(
        steps=[(0, ""), (359, "/start"), (361, "look")],
        changes=[(0, "up", None), (360, "down", MISSED)],
        durations=[None, None],
        detail="No ping arrived within 300 s and 60 s of grace.",
    ),
    "an end after the deadline": Story(
        steps=[(0, "/start"), (61, "look"), (90, "")],
        changes=[(60, "down", MISSED), (90, "up", None)],
        durations=[None, 90],
    ),
    "a second start replaces the first": Story(
        steps=[(0, "/start"), (50, "/start"), (100, "look"), (105, "")],
        changes=[(105, "up", None)],
        durations=[None, None, 55],
    ),
    "a repeated start with a rid": Story(
        steps=[(0, "/start" + RID_A), (50, "/start" + RID_A), (105, RID_A)],
        changes=[(105, "up", None)],
        durations=[None, None, 55],
    ),
    "an end that is repeated": Story(
        steps=[(0, "/start" + RID_A), (20, RID_A), (21, RID_A)], changes=[(20, "up", None)], durations=[None, 20, None]
    ),
    "interleaved runs": Story(
        steps=[(0, "/start" + RID_A), (10, "/start" + RID_B), (30, RID_A), (65, "look"), (70, RID_B), (200, "look")],
        changes=[(30, "up", None)],
        durations=[None, None, 30, 60],
    ),
    "of interleaved runs, one does not end": Story(
        steps=[(0, "/start" + RID_A), (10, "/start" + RID_B), (30, RID_B), (61, "look")],
        changes=[(30, "up", None), (60, "down", MISSED)],
        durations=[None, None, 20],
    ),
    "a run that was given up does not come back": Story(
        steps=[(0, "/start" + RID_A), (61, "look"), (70, ""), (80, "look"), (90, "/start"), (100, ""), (150, "look")],
        changes=[(60, "down", MISSED), (70, "up", None)],
        durations=[None, None, None, 10],
    ),
    "a run that was given up still has a duration": Story(
        steps=[(0, "/start" + RID_A), (61, "look"), (70, ""), (90, RID_A)],
        changes=[(60, "down", MISSED), (70, "up", None)],
        durations=[None, None, 90],
    ),
    "a run without a rid that was given up": Story(
        steps=[(0, "/start"), (61, "look"), (70, RID_A), (80, {"grace_sec": 200}), (90, "/start" + RID_B), (100, "")],
        changes=[(60, "down", MISSED), (70, "up", None)],
        durations=[None, None, None, 100],
    ),
    "a start in a pause, before the first ping": Story(
        steps=[(0, "pause"), (10, "/start"), (20, "resume"), (71, "look")], durations=[None]
    ),
    "a start in a pause": Story(
        steps=[(0, ""), (10, "pause"), (20, "/start"), (30, "resume"), (31, "look"), (200, "look"), (210, "")],
        changes=[(0, "up", None)],
        durations=[None, None, 190],
    ),
    "a start with a rid in a pause": Story(
        steps=[
            (0, ""),
            (10, "pause"),
            (20, "/start" + RID_A),
            (30, "resume"),
            (31, "look"),
            (200, "look"),
            (210, RID_A),
        ],
        changes=[(0, "up", None)],
        durations=[None, None, 190],
    ),
    "a start in a pause replaces that before it": Story(
        steps=[(0, ""), (10, "/start"), (20, "pause"), (30, "/start"), (40, "resume"), (100, "look"), (110, "/start")],
        changes=[(0, "up", None)],
        durations=[None] * 4,
    ),
    "a start after a pause is watched": Story(
        steps=[(0, "pause"), (10, "/start"), (20, "resume"), (30, "/start"), (91, "look")],
        changes=[(90, "down", MISSED)],
        durations=[None] * 2,
    ),
    "a rid ends no run without one": Story(
        steps=[(0, "/start"), (10, RID_A), (20, "")], changes=[(10, "up", None)], durations=[None, None, 20]
    ),
    "no rid ends no run with one": Story(
        steps=[(0, "/start" + RID_A), (10, ""), (61, "look")],
        changes=[(10, "up", None), (60, "down", MISSED)],
        durations=[None, None],
    ),
    "a fail is down at once": Story(
        steps=[(0, ""), (10, "/fail"), (400, "look")],
        changes=[(0, "up", None), (10, "down", FAILED)],
        durations=[None, None],
        detail="The job reported a failure.",
        settings={"fail_threshold": 5},
    ),
    "a first fail is down too": Story(steps=[(0, "/fail")], changes=[(0, "down", FAILED)], durations=[None]),
    "an exit status": Story(
        steps=[(0, "/3")], changes=[(0, "down", FAILED)], durations=[None], detail="The job ended with exit status 3."
    ),
    "exit status 0": Story(steps=[(0, "/start"), (5, "/0")], changes=[(5, "up", None)], durations=[None, 5]),
    "a fail ends its run": Story(
        steps=[(0, "/start"), (5, "/255"), (61, "look"), (70, ""), (80, "look")],
        changes=[(5, "down", FAILED), (70, "up", None)],
        durations=[None, 5, None],
    ),
    "a fail while another run goes on": Story(
        steps=[(0, "/start" + RID_A), (1, "/start" + RID_B), (5, "/fail" + RID_A), (61, "look"), (80, RID_B)],
        changes=[(5, "down", FAILED), (80, "up", None)],
        durations=[None, None, 5, 79],
    ),
    "fails until a success": Story(
        steps=[(0, ""), (10, "/fail"), (20, "/7"), (30, "")],
        changes=[(0, "up", None), (10, "down", FAILED), (30, "up", None)],
        durations=[None, None, None, None],
    ),
    "a fail between the passes of a recovery": Story(
        steps=[(0, "/fail"), (10, ""), (20, "/fail"), (30, ""), (40, "")],
        changes=[(0, "down", FAILED), (40, "up", None)],
        durations=[None] * 5,
        settings={"recover_threshold": 2},
    ),
    "a log changes nothing": Story(
        steps=[(0, "/log"), (10, ""), (20, "/log"), (369, "look"), (371, "look"), (380, "/log" + RID_A)],
        changes=[(10, "up", None), (370, "down", MISSED)],
        durations=[None] * 4,
    ),
    "a log ends no run": Story(
        steps=[(0, "/start" + RID_A), (10, "/log" + RID_A), (20, RID_A)],
        changes=[(20, "up", None)],
        durations=[None, None, 20],
    ),
    "a fail inside a mute": Story(
        steps=[(0, ""), (10, "mute"), (20, "/fail"), (70, "look"), (90, "")],
        changes=[(0, "up", None)],
        durations=[None] * 3,
    ),
    "a fail inside a mute does not count as a ping": Story(
        steps=[(0, ""), (10, "mute"), (250, "/fail"), (359, "look"), (700, "look")],
        changes=[(0, "up", None), (610, "down", MISSED)],
        durations=[None] * 2,
    ),
    "a first fail inside a mute": Story(
        steps=[(0, "mute"), (20, "/fail"), (700, "look"), (710, "/fail")],
        changes=[(710, "down", FAILED)],
        durations=[None] * 2,
    ),
    "exit statuses inside a mute": Story(
        steps=[(0, ""), (10, "mute"), (20, "/1"), (30, "/255"), (70, "look"), (90, "")],
        changes=[(0, "up", None)],
        durations=[None] * 4,
    ),
    "a first exit status inside a mute": Story(steps=[(0, "mute"), (20, "/1"), (30, "look")], durations=[None]),
    "a schedule has no deadline before the first ping": Story(
        steps=[(0, "look"), (100_000, "look"), (100_100, ""), (100_860, "look"), (100_861, "look")],
        changes=[(100_100, "up", None), (100_860, "down", MISSED)],
        durations=[None],
        settings={"schedule": "0 * * * *"},
    ),
    "a run that outlasts its deadline and a mute": Story(
        steps=[(0, ""), (10, "mute"), (20, "/start"), (100, "look"), (200, ""), (210, "/start"), (611, "look")],
        changes=[(0, "up", None), (610, "down", MISSED)],
        durations=[None, None, 180, None],
    ),
    "a pause only notes signals": Story(
        steps=[(0, ""), (10, "pause"), (20, "/start"), (30, "/fail"), (40, ""), (50, "/log")],
        changes=[(0, "up", None)],
        durations=[None, None, 10, None, None],
    ),
    "a run over a pause": Story(
        steps=[(0, ""), (10, "/start"), (20, "pause"), (30, "resume"), (31, "look"), (40, ""), (100, "look")],
        changes=[(0, "up", None)],
        durations=[None, None, 30],
    ),
    "a run that ended in a pause": Story(
        steps=[(0, ""), (10, "/start"), (20, "pause"), (30, ""), (200, "resume"), (201, "look")],
        changes=[(0, "up", None)],
        durations=[None, None, 20],
    ),
    "a shorter grace": Story(
        steps=[(0, ""), (10, "/start"), (20, {"grace_sec": 5}), (25, "look"), (25.5, "look")],
        changes=[(0, "up", None), (25, "down", MISSED)],
        durations=[None, None],
    ),
    "a start after a shorter grace": Story(
        steps=[(0, ""), (10, "/start"), (20, {"grace_sec": 5}), (21, "/start" + RID_A), (24, RID_A), (24.5, "look")],
        changes=[(0, "up", None)],
        durations=[None, None, None, 3],
    ),
    "a grace that is still in time": Story(
        steps=[(0, ""), (10, "/start"), (20, {"grace_sec": 15}), (25, "look"), (25.5, "look")],
        changes=[(0, "up", None), (25, "down", MISSED)],
        durations=[None, None],
    ),
    "an interval that would be over": Story(
        steps=[(0, {"interval_sec": 900}), (1, ""), (800, {"interval_sec": 300}), (1160, "look"), (1161, "look")],
        changes=[(1, "up", None), (1160, "down", MISSED)],
        durations=[None],
    ),
    "a grace that would be over": Story(
        steps=[(0, {"grace_sec": 900}), (1, ""), (800, {"grace_sec": 60}), (1160, "look"), (1161, "look")],
        changes=[(1, "up", None), (1160, "down", MISSED)],
        durations=[None],
    ),
    "a grace that is shortened after a mute": Story(
        steps=[(0, ""), (10, "mute"), (20, {"grace_sec": 0}), (610, "look"), (611, "look")],
        changes=[(0, "up", None), (610, "down", MISSED)],
        durations=[None],
    ),
    "too fast": Story(
        steps=[(0, "/start"), (3.9, ""), (100, "look"), (110, "/start"), (170, "")],
        changes=[(3.9, "down", FAILED), (170, "up", None)],
        durations=[None, 3.9, None, 60],
        settings={"min_duration_sec": 60, "grace_sec": 90},
    ),
    "how fast": Story(
        steps=[(0, "/start"), (3.9, "")],
        changes=[(3.9, "down", FAILED)],
        durations=[None, 3.9],
        detail="the run took 3 s, at least 60 s was expected",
        settings={"min_duration_sec": 60, "grace_sec": 90},
    ),
    "a failure is none of being fast": Story(
        steps=[(0, "/start"), (3, "/9")],
        changes=[(3, "down", FAILED)],
        durations=[None, 3],
        detail="The job ended with exit status 9.",
        settings={"min_duration_sec": 60},
    ),
    "too fast inside a mute": Story(
        steps=[(0, ""), (1, "mute"), (2, "/start"), (3, ""), (30, "look")],
        changes=[(0, "up", None)],
        durations=[None, None, 1],
        settings={"min_duration_sec": 60},
    ),
    "too long, when it ends": Story(
        steps=[(0, "/start"), (30.2, "")],
        changes=[(30.2, "down", FAILED)],
        durations=[None, 30.2],
        detail="the run took 31 s, at most 30 s was expected",
        settings={"max_duration_sec": 30},
    ),
    "too long, before it ends": Story(
        steps=[(0, ""), (10, "/start"), (40, "look"), (41, "look")],
        changes=[(0, "up", None), (40, "down", FAILED)],
        durations=[None, None],
        detail="the run did not end, at most 30 s was expected",
        settings={"max_duration_sec": 30},
    ),
    "too long and still too long when it ends": Story(
        steps=[(0, ""), (10, "/start"), (41, "look"), (50, ""), (60, "/start"), (89, "")],
        changes=[(0, "up", None), (40, "down", FAILED), (89, "up", None)],
        durations=[None, None, 40, None, 29],
        settings={"max_duration_sec": 30},
    ),
    "a run may take longer than the grace": Story(
        steps=[(0, "/start"), (61, "look"), (120, "look"), (120.5, "look")],
        changes=[(120, "down", FAILED)],
        durations=[None],
        detail="the run did not end, at most 120 s was expected",
        settings={"max_duration_sec": 120},
    ),
    "a run that ends after the grace": Story(
        steps=[(0, "/start"), (61, "look"), (119, "")],
        changes=[(119, "up", None)],
        durations=[None, 119],
        settings={"max_duration_sec": 120},
    ),
    "a longest run does not extend the deadline of the ping": Story(
        steps=[(0, ""), (200, "/start"), (360, "look"), (360.5, "look")],
        changes=[(0, "up", None), (360, "down", MISSED)],
        durations=[None, None],
        settings={"max_duration_sec": 900},
    ),
    "limits that are off": Story(
        steps=[(0, "/start"), (0.5, ""), (1, "/start"), (60, "")],
        changes=[(0.5, "up", None)],
        durations=[None, 0.5, None, 59],
        settings={"min_duration_sec": 0, "max_duration_sec": 0},
    ),
}


def look() -> None:
    now = utc_now()
    heartbeats.sweep([claim.monitor_id for claim in claim_due(now, limit=10)], now=now)


@pytest.mark.parametrize("name", STORIES)
def test_story(user: User, name: str) -> None:
    story = STORIES[name]
    with time_machine.travel(NOON - timedelta(seconds=1), tick=False) as clock:
        api = Api.signed_in(user)
        given = {"type": "heartbeat", "interval_sec": 300, "grace_sec": 60, **story.settings}
        monitor = api.post("/v1/monitors", given).json
        path = f"/v1/monitors/{monitor['id']}"
        for second, step in story.steps:
            clock.move_to(NOON + timedelta(seconds=second))
            match step:
                case "look":
                    look()
                case "mute":
                    assert api.post(f"{path}/mute", {"minutes": 10}).status == 200
                case "pause" | "resume":
                    assert api.patch(path, {"enabled": step == "resume"}).status == 200
                case str():
                    assert Api().post(f"/v1/heartbeats/{monitor['id']}/ping{step}").json == {"ok": True}
                case _:
                    assert api.patch(path, step).status == 200
        shown, pings = api.get(path).json, api.get(f"{path}/pings").json
    changes = list(StatusChange.objects.filter(monitor__public_id=monitor["id"], kind="status").order_by("pk"))
    seen = [((each.at - NOON) / timedelta(seconds=1), each.after, each.reason_code) for each in changes]
    assert seen == story.changes
    assert shown["status"] == (changes[-1].after if changes else None)
    assert [ping["duration_ms"] for ping in reversed(pings)] == [
        None if each is None else round(each * 1000) for each in story.durations
    ]
    ended = [ping["duration_ms"] for ping in pings if ping["duration_ms"] is not None]
    assert shown["last_duration_ms"] == (ended[0] if ended else None)
    successes = [ping["at"] for ping in pings if ping["kind"] == "success"]
    assert shown["last_ping_at"] == (successes[0] if successes else None)
    if story.detail is not None:
        assert changes[-1].detail == story.detail


@pytest.fixture
def job(user: User) -> str:
    """The path of a heartbeat's pings."""
    return f"/v1/heartbeats/{MonitorFactory(owner=user, heartbeat=True).public_id}/ping"


def logged(user: User, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Api.signed_in(user).get(f"/v1/monitors/{job.split('/')[3]}/pings").json
    return found


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize(
    ("word", "kind", "status"),
    [
        ("", "success", None),
        ("/0", "success", 0),
        ("/start", "start", None),
        ("/fail", "fail", None),
        ("/log", "log", None),
        ("/1", "fail", 1),
        ("/255", "fail", 255),
    ],
)
def test_each_signal_by_each_method(user: User, job: str, method: str, word: str, kind: str, status: int) -> None:
    """Each signal is recorded with its kind and exit status."""
    before = to_ms(utc_now())
    client = Client(headers={"User-Agent": "nightly/2"})
    assert client.generic(method, f"{job}{word}?rid={A}&other=1").status_code == 200
    (row,) = logged(user, job)
    assert re.fullmatch("png_[a-z2-7]{26}", row.pop("id"))
    assert before <= row.pop("at") <= to_ms(utc_now())
    assert row == {
        "kind": kind,
        "exit_status": status,
        "duration_ms": None,
        "rid": str(A),
        "method": method,
        "user_agent": "nightly/2",
        "remote_addr": "127.0.0.1",
        "body": None,
    }


@pytest.mark.parametrize("word", ["/256", "/-1", "/00", "/1.0", "/999", "/startled", "/START", "/start/", "/", "/٣"])
def test_other_words_are_unknown(job: str, word: str) -> None:
    assert Api().post(job + word).error.startswith("not_found")


def test_only_heartbeats_take_signals(user: User) -> None:
    other = MonitorFactory(owner=user).public_id
    for name in (other, "mon_nothere"):
        for word in ("", "/start", "/fail", "/log", "/7", "?rid=" + str(A)):
            assert Api().post(f"/v1/heartbeats/{name}/ping{word}").status == 404
    assert Api.signed_in(user).get(f"/v1/monitors/{other}/pings").json == []


@pytest.mark.parametrize("rid", ["", "1", "x" * 36, str(A)[:-1], f"{{{A}}}", A.hex, f"{A}&rid={B}", "%00", f"{A}%0a"])
def test_other_rids_are_refused(user: User, job: str, rid: str) -> None:
    for word in ("", "/start", "/fail", "/log"):
        assert Api().post(f"{job}{word}?rid={rid}").error.startswith("validation_error rid: must be a UUID")
    assert logged(user, job) == []


def test_a_rid_of_any_case_is_the_same(user: User, job: str) -> None:
    rid = "0F8FAD5B-D9CB-469F-A165-70867728950E"
    Api().post(f"{job}/start?rid={rid}")
    Api().post(f"{job}?rid={rid.lower()}")
    assert [row["rid"] for row in logged(user, job)] == [rid.lower()] * 2
    assert logged(user, job)[0]["duration_ms"] is not None


BODIES: dict[str, tuple[bytes, str | None]] = {
    "none": (b"", None),
    "text": ("größer".encode(), "größer"),
    "not UTF-8": (b"caf\xe9 \xff\xfe", "caf\ufffd \ufffd\ufffd"),
    "NUL": (b"a\0b", "a\ufffdb"),
    "a surrogate": (b"\xed\xa0\x80", "\ufffd" * 3),
    "what an array could trip over": (b'{"a":"\\\\","b":NULL}\r\n\t', '{"a":"\\\\","b":NULL}\r\n\t'),
    "NULL": (b"NULL", "NULL"),
    "the most": (b"x" * 10_000, "x" * 10_000),
    "more": (b"x" * 9_999 + "é".encode() + b"tail", "x" * 9_999 + "\ufffd"),
    "much more": (b"y" * 3_000_000, "y" * 10_000),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(user: User, job: str, name: str) -> None:
    """The first 10,000 bytes of a POST body are stored, as UTF-8 with replacement characters."""
    sent, kept = BODIES[name]
    for word in ("", "", "/start", "/fail", "/log", "?rid=" + str(A)):  # the second one takes the batch path
        assert Api().send("POST", job + word, body=sent, content_type="text/plain").json == {"ok": True}
    assert [row["body"] for row in logged(user, job)] == [kept] * 6


def test_only_a_post_has_a_body(user: User, job: str) -> None:
    assert Api().send("GET", job, body=b"hello", content_type="text/plain").json == {"ok": True}
    assert logged(user, job)[0]["body"] is None


def pages(api: Api, path: str) -> list[list[dict[str, Any]]]:
    """Return the rows of each page, following the Link headers."""
    found = []
    while path:
        page = api.get(path)
        found.append(page.json)
        path = page.headers.get("Link", "").partition(">")[0].removeprefix("<")
    return found


def test_pages_and_tokens(user: User) -> None:
    """Newest first, paged like checks, for both kinds of token."""
    project = ProjectFactory(owner=user)
    monitor = MonitorFactory(owner=user, project=project, heartbeat=True)
    for second in range(5):
        for _ in range(2):  # at the same time
            assert heartbeats.record(signal(monitor.public_id, "log", now=NOON + timedelta(seconds=second)))
    path = f"/v1/monitors/{monitor.public_id}/pings"
    for api in (Api.signed_in(user), Api.with_token(user, project)):
        (whole,) = pages(api, path)
        assert len({row["id"] for row in whole}) == 10
        found = pages(api, f"{path}?limit=3")
        assert [len(page) for page in found] == [3, 3, 3, 1]
        assert list(chain.from_iterable(found)) == whole
        times = [row["at"] for row in whole]
        assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(("chars", "limit", "lengths"), [(10_000, 1000, [20] * 10 + [7]), (0, 202, [202, 5])])
def test_a_page_ends_at_its_limit_or_after_so_many_characters_of_bodies(
    user: User, chars: int, limit: int, lengths: list[int]
) -> None:
    monitor = MonitorFactory(owner=user, heartbeat=True)
    given = signal(monitor.public_id, "log", now=NOON, body="\x01" * chars or None)
    times = [NOON + timedelta(seconds=number // 2) for number in range(207)]
    log.add([log.Entry(monitor.pk, given, at, None) for at in times])
    found = pages(Api.signed_in(user), f"/v1/monitors/{monitor.public_id}/pings?limit={limit}")
    assert [len(page) for page in found] == lengths
    rows = list(chain.from_iterable(found))
    assert [row["at"] for row in rows] == [to_ms(at) for at in reversed(times)]
    assert len({row["id"] for row in rows}) == 207


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"min_duration_sec": 60, "max_duration_sec": 59}, "validation_error min_duration_sec"),
        ({"min_duration_sec": -1}, "validation_error min_duration_sec"),
        ({"max_duration_sec": 2_592_001}, "validation_error max_duration_sec"),
        ({"max_duration_sec": "60"}, "validation_error max_duration_sec"),
    ],
)
def test_limits_that_are_refused(user: User, given: dict[str, Any], code: str) -> None:
    refused = Api.signed_in(user).post("/v1/monitors", {"type": "heartbeat", **given})
    assert (refused.status, refused.error.startswith(code)) == (422, True)


def test_limits_by_default_and_off(user: User) -> None:
    api = Api.signed_in(user)
    monitor = api.post("/v1/monitors", {"type": "heartbeat"}).json
    names = ("min_duration_sec", "max_duration_sec")
    assert [monitor[name] for name in names] == [None, None]
    path = f"/v1/monitors/{monitor['id']}"
    assert [api.patch(path, dict.fromkeys(names, 60)).json[name] for name in names] == [60, 60]
    assert [api.patch(path, dict.fromkeys(names, 0)).json[name] for name in names] == [None, None]
